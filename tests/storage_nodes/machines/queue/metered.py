"""A metered queue partition, and what tests of its meter say and ask."""

from __future__ import annotations

from collections.abc import Iterator

from storage_nodes.limits import HANDED_OVER_MS, USAGE_NOTE_AFTER_MS, USAGE_NOTE_SPREAD_MS
from storage_nodes.log.record_batch import build_batch, read_header, records_to_fold, usages_of
from storage_nodes.machines.queue.effects import ExportUsage, MeteredHour, Pick
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.queue.state.metering import HOUR_MS
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_DUE, HEADER_GROUP, encode_body
from storage_nodes.protocol.usage import Origin, sum_of, usage_key
from tests.storage_nodes.machines.queue.partition import NOW_MS, Partition

HOUR_END_MS = NOW_MS - NOW_MS % HOUR_MS + HOUR_MS
BILLED = QueueConfig(account_id="1" * 12)


def metered_partition(fifo: bool) -> Iterator[Partition]:
    """At the end: replicas meter the same, and a checkpoint says all of it."""
    made = Partition(QueueConfig(account_id="1" * 12, fifo=fifo))
    yield made
    assert made.leader.checkpoint() == made.follower.checkpoint(), "replicas meter the same"
    again = QueueMachine()
    again.restore(made.leader.checkpoint())
    assert again.checkpoint() == made.leader.checkpoint()


def message(billed_bytes: int = 10, origin: int = Origin.CLIENT, **headers: bytes) -> bytes:
    names = {"dedup": HEADER_DEDUP, "group": HEADER_GROUP, "due": HEADER_DUE}
    return encode_body(
        b"sealed", usage_key(origin, billed_bytes), [(names[name], content) for name, content in headers.items()]
    )


def send(partition: Partition, *bodies: bytes, plain: bool = True) -> None:
    base = partition.end
    batch = build_batch(base, 1, partition.now_ms, list(bodies), plain=plain, usage=sum_of(bodies))
    header = read_header(batch)
    partition.log.append((header, batch))
    for machine in (partition.follower, partition.leader):
        effects = machine.apply(header, lambda: records_to_fold(batch), partition.now_ms, lambda: usages_of(batch))
        if machine is partition.leader:
            partition.perform(effects)


def open_window(partition: Partition) -> MeteredHour:
    meter = partition.leader.state.metering
    assert meter is not None
    return meter.window()


def rows(window: MeteredHour) -> dict[int, tuple[int, ...]]:
    return {row[0]: row[1:] for row in window.origins}


def tick(partition: Partition, now_ms: int) -> list[ExportUsage]:
    partition.now_ms = now_ms
    effects = partition.leader.tick(now_ms)
    exports = [effect for effect in effects if isinstance(effect, ExportUsage)]
    partition.perform([effect for effect in effects if not isinstance(effect, ExportUsage)])
    return exports


def delivered(partition: Partition) -> tuple[int, int, int]:
    """Messages, bytes and units that are billed."""
    row = rows(open_window(partition)).get(Origin.CLIENT, (0,) * 10)
    return row[1], row[7], row[9]


def tell(partition: Partition) -> None:
    """What was handed over is told, though nothing else happens."""
    partition.pass_ms(HANDED_OVER_MS)
    partition.commit()


def receive(partition: Partition, token: str, count: int = 10) -> list[Pick]:
    partition.acquire(token, count)
    partition.commit()
    return partition.delivered[token]


def delete(partition: Partition, *picks: Pick) -> None:
    token = f"delete {picks[0].offset}"
    partition.delete(token, [pick[:2] for pick in picks])
    partition.commit()


def close_quiet_hour(partition: Partition) -> ExportUsage:
    """Messages were sent: the hour ends without another entry."""
    due_ms = partition.leader.next_tick_ms()
    assert HOUR_END_MS <= due_ms < HOUR_END_MS + 60_000
    assert tick(partition, due_ms) == []
    partition.commit()
    (export,) = tick(partition, due_ms + 1)
    return export


def confirm(partition: Partition, window: MeteredHour) -> None:
    """The usage stream has the windows up to this one, and the log of the partition says so."""
    partition.perform(partition.leader.usage.exported(window.hour_ms, window.until_ms, partition.now_ms))
    assert tick(partition, partition.now_ms + USAGE_NOTE_AFTER_MS + USAGE_NOTE_SPREAD_MS) == []
    partition.commit()
