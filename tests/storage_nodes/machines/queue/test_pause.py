"""A paused queue: takes and keeps, hands out nothing, whoever leads; whoever waits is served when it goes on."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import VISIBILITY_MS, Partition, offsets_of, receipts_of

_numbers = count()


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def partition(request: pytest.FixtureRequest) -> Partition:
    return Partition(QueueConfig(fifo=request.param))


def pause(partition: Partition, paused: bool = True, commit: bool = True) -> str:
    token = f"configure {next(_numbers)}"
    config = msgspec.structs.replace(partition.leader.state.config, paused=paused)
    partition.perform(partition.leader.configure(token, config))
    if commit:
        partition.commit()
        assert partition.answers[token][0] == ErrorCode.OK  # type: ignore[index]
    return token


def take(partition: Partition, token: str, wait_ms: int = 0, attempt: bytes = b"") -> list[int] | None:
    partition.acquire(token, wait_ms=wait_ms, attempt=attempt)
    partition.commit()
    picks = partition.delivered.get(token)
    return None if picks is None else offsets_of(picks)


def send(partition: Partition) -> int:
    return partition.send_keyed((b"g", b""))[0]


def test_paused_queue_takes_messages_and_gives_none(partition: Partition) -> None:
    pause(partition)
    offset = send(partition)
    assert take(partition, "short") == []
    assert partition.counts() == (1, 0, 0)
    partition.fail_over()
    assert take(partition, "short again") == []
    pause(partition, False)
    assert take(partition, "after") == [offset]
    partition.check()


def test_long_poll_waits_through_the_pause_and_is_woken_by_its_end(partition: Partition) -> None:
    pause(partition)
    offset = send(partition)
    assert take(partition, "long", wait_ms=20_000) is None
    partition.pass_ms(5_000)
    partition.send_keyed((b"g", b""))
    assert "long" not in partition.delivered
    pause(partition, False)
    assert offsets_of(partition.delivered["long"])[0] == offset


def test_long_poll_that_the_pause_outlasts_is_answered_empty(partition: Partition) -> None:
    send(partition)
    pause(partition)
    assert take(partition, "long", wait_ms=20_000) is None
    partition.pass_ms(20_000)
    assert partition.delivered["long"] == []


def test_pause_holds_from_its_staging_so_that_its_answer_comes_after_the_last_delivery(partition: Partition) -> None:
    send(partition)
    configured = pause(partition, commit=False)
    assert take(partition, "beside it") == []
    assert configured in partition.answers


def test_messages_in_flight_are_settled_while_paused_and_come_back_only_after_it(partition: Partition) -> None:
    one, two = partition.send_keyed((b"g", b""), (b"h", b""))
    partition.acquire("a")
    partition.commit()
    picks = partition.delivered["a"]
    pause(partition)
    partition.change("c", [(one, 1, 2 * VISIBILITY_MS)])
    partition.delete("d", receipts_of(picks)[1:])
    partition.commit()
    assert (partition.answers["c"], partition.answers["d"]) == ([ErrorCode.OK], [ErrorCode.OK])
    partition.pass_ms(3 * VISIBILITY_MS)
    assert take(partition, "paused") == []
    pause(partition, False)
    assert take(partition, "after") == [one]
    assert two not in partition.leader.state.live


def test_dead_letters_move_while_paused(partition: Partition) -> None:
    fifo = partition.leader.is_fifo
    partition = Partition(QueueConfig(fifo=fifo, max_receives=1, dead_letter_partition=7))
    send(partition)
    partition.acquire("a")
    partition.commit()
    pause(partition)
    partition.pass_ms(VISIBILITY_MS)
    assert len(partition.moves) == 1


def test_attempt_is_not_repeated_while_paused() -> None:
    partition = Partition(QueueConfig(fifo=True))
    offset = send(partition)
    assert take(partition, "a", attempt=b"x") == [offset]
    pause(partition)
    assert take(partition, "again", attempt=b"x") == []


def test_pause_stands_in_the_checkpoint(partition: Partition) -> None:
    pause(partition)
    restored = QueueMachine()
    restored.restore(partition.leader.checkpoint())
    assert restored.state.config.paused
