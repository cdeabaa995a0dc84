"""Delayed messages for which `live` has no room: they wait in a schedule, and join the queue when they are due."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from storage_nodes.limits import DELAYED_LIVE_MAX, DELAYED_MESSAGES_MAX
from storage_nodes.log.checkpoint import blob_bytes, joined
from storage_nodes.machines.packed_later import PackedLater
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.queue.state import checkpoint, held_messages, queue_state, sorted_pairs
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import MessageState, QueueConfig
from tests.storage_nodes.machines.queue.partition import NOW_MS, Partition, offsets_of, receipts_of

ROOM = 2
DELAY_MS = 5_000


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_state, "DELAYED_LIVE_MAX", ROOM)


@pytest.fixture
def partition() -> Iterator[Partition]:
    made = Partition()
    yield made
    made.check()
    again = QueueMachine()
    again.restore(made.leader.checkpoint())
    assert again.checkpoint() == made.leader.checkpoint() == made.follower.checkpoint()


def receive_all(partition: Partition, token: str) -> list[int]:
    partition.acquire(token, 10)
    partition.commit()
    return offsets_of(partition.delivered[token])


def test_those_beyond_the_room_are_delivered_when_they_are_due_whoever_leads(partition: Partition) -> None:
    sent = partition.send(5, delay_ms=DELAY_MS)
    sent_ms = partition.now_ms
    state = partition.leader.state
    assert (len(state.live), len(state.delayed), len(state.scheduled)) == (ROOM, 3, 0)
    assert partition.leader.stats(sent_ms).delayed == partition.follower.stats(sent_ms).delayed == 5
    assert partition.leader.stats(sent_ms).scheduled == 0
    assert partition.leader.look_at(sent[4], sent_ms) == (MessageState.DELAYED, 0, sent_ms + DELAY_MS, 0)
    partition.fail_over()
    partition.pass_ms(DELAY_MS - 1)
    assert receive_all(partition, "early") == []
    partition.pass_ms(1)
    received = receive_all(partition, "due")
    assert len(received) == 5 and set(sent[:ROOM]) <= set(received), "and the copies of the others"
    assert not partition.leader.state.delayed


def test_messages_sent_together_share_what_is_kept_of_them(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_state, "DELAYED_LIVE_MAX", 100)
    sent = [*partition.send(10, delay_ms=DELAY_MS)]
    partition.now_ms += 1
    sent += partition.send(10, delay_ms=DELAY_MS)
    for machine in (partition.leader, partition.follower):
        assert len({id(entry) for entry in machine.state.live.values()}) == 2
    leader = partition.leader.leader
    assert leader is not None and len(leader._leases._timers) == 2 and leader._leases.delayed == 20
    partition.pass_ms(DELAY_MS - 1)
    assert receive_all(partition, "first") == sent[:10]
    partition.pass_ms(1)
    assert receive_all(partition, "second") == sent[10:]


def test_message_is_as_old_as_it_was_while_there_is_room_to_remember_it(partition: Partition) -> None:
    partition.send(ROOM + 1, delay_ms=DELAY_MS)
    sent_ms = partition.now_ms
    partition.perform(partition.leader.remove("room", list(partition.leader.state.live), {}, False))
    partition.commit()
    partition.pass_ms(DELAY_MS)
    partition.acquire("due", 10)
    partition.commit()
    (pick,) = partition.delivered["due"]
    assert pick.sent_ms == sent_ms


def test_purge_and_removal_reach_them(partition: Partition) -> None:
    sent = partition.send(ROOM + 2, delay_ms=DELAY_MS)
    partition.perform(partition.leader.remove("one", [sent[-1]], {}, False))
    partition.commit()
    assert partition.answers["one"] == [ErrorCode.OK] and len(partition.leader.state.delayed) == 1
    partition.perform(partition.leader.purge("all", partition.now_ms))
    partition.commit()
    assert partition.answers["all"] == (ErrorCode.OK, ROOM + 1)
    partition.pass_ms(DELAY_MS)
    assert receive_all(partition, "none") == []


def test_they_are_no_scheduled_messages(partition: Partition) -> None:
    sent = partition.send(ROOM + 1, delay_ms=DELAY_MS)
    assert partition.leader.scheduled_page((-1, -1), 10, partition.now_ms + 10 * DELAY_MS) == []
    partition.perform(partition.leader.reschedule("cancel", [(sent[-1], 0)], partition.now_ms))
    partition.commit()
    assert partition.answers["cancel"] == [ErrorCode.NOT_SCHEDULED]


def test_log_is_kept_as_long_as_one_waits(partition: Partition) -> None:
    sent = partition.send(ROOM + 1, delay_ms=DELAY_MS)
    partition.perform(partition.leader.remove("others", list(sent[:ROOM]), {}, False))
    partition.commit()
    machine = partition.follower
    assert machine.is_live(sent[-1], sent[-1]) and not machine.is_live(sent[0], sent[0])
    assert machine.low_watermark() == sent[-1]


def test_what_is_kept_is_asked_in_few_steps_where_messages_wait(partition: Partition) -> None:
    """A flush asks for stretches of a log with a hundred thousand messages, while `live` is full of delayed ones."""

    class Unasked(dict[int, Any]):
        def keys(self) -> Any:
            raise AssertionError("each offset of the stretch is looked up")

    sent = partition.send(ROOM + 2 * ROOM, delay_ms=DELAY_MS)
    state = partition.follower.state
    live, state.live = state.live, Unasked(state.live)
    assert state.is_live(sent[ROOM], sent[-1]), "they wait in the schedule"
    state.live = live
    partition.perform(partition.leader.remove("others", list(sent[ROOM:]), {}, False))
    partition.commit()
    live, state.live = state.live, Unasked(state.live)
    assert len(sent) - ROOM > len(live)
    assert not state.is_live(sent[ROOM], sent[-1]), "each of `live` is looked at, as it has fewer"
    state.live = live


def test_they_leave_in_the_order_in_which_they_are_due_beside_scheduled_ones(partition: Partition) -> None:
    partition.send(ROOM, delay_ms=60_000)
    (late,) = partition.send(1, delay_ms=3_000)
    (due,) = partition.schedule(b"+2000")
    (early,) = partition.send(1, delay_ms=1_000)
    partition.holds_releases = True
    partition.now_ms += 4_000
    partition.tick()
    (release,) = partition.releases
    assert [offset for _, offset in release.messages] == [early, due, late]
    partition.run_releases()


def test_fifo_queue_keeps_all_by_themselves_and_has_a_bound() -> None:
    partition = Partition(QueueConfig(fifo=True))
    partition.send_keyed(*[(b"g", b"")] * 5, delay_ms=DELAY_MS)
    assert len(partition.leader.state.live) == 5 and not partition.leader.state.delayed
    assert partition.leader.delay_room(10) == DELAYED_LIVE_MAX - 15
    assert Partition().leader.delay_room(10) == DELAYED_MESSAGES_MAX - 10


def test_checkpoint_without_them_is_read() -> None:
    partition = Partition()
    *fields, delayed = msgspec.msgpack.decode(partition.leader.checkpoint())
    assert delayed == []
    again = QueueMachine()
    again.restore(msgspec.msgpack.encode(fields))
    assert again.checkpoint() == partition.leader.checkpoint()


# --- checkpoints in pieces ---


def many(monkeypatch: pytest.MonkeyPatch) -> Partition:
    """With chunks of four pairs, and more than one of them in each order."""
    monkeypatch.setattr(sorted_pairs, "CHUNK_PAIRS_MAX", 4)
    monkeypatch.setattr(held_messages, "CHECKPOINT_PIECES_MESSAGES", 3)
    partition = Partition()
    partition.send(10, delay_ms=DELAY_MS)
    partition.schedule(b"+2000", 9)
    return partition


def test_checkpoint_in_pieces_is_the_same_and_is_a_few_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = many(monkeypatch).leader
    pieces = machine.checkpoint_pieces()
    assert isinstance(pieces, list) and sum(not isinstance(piece, bytes) for piece in pieces) >= 8
    assert joined(pieces) == machine.checkpoint()
    assert isinstance(Partition().leader.checkpoint_pieces(), bytes)


def test_pieces_stay_as_they_were_whatever_happens_to_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = many(monkeypatch)
    before = partition.leader.checkpoint()
    pieces = partition.leader.checkpoint_pieces()
    assert isinstance(pieces, list)
    partition.send(3, delay_ms=DELAY_MS // 2)
    partition.schedule(b"+1000", 2)
    offsets = [offset for offset, _ in partition.leader.state.scheduled]
    partition.perform(partition.leader.reschedule("move", [(offsets[0], 0), (offsets[4], NOW_MS + 9_000)], NOW_MS))
    partition.commit()
    partition.pass_ms(DELAY_MS)
    assert joined(pieces) == before
    partition.perform(partition.leader.purge("all", partition.now_ms))
    partition.commit()
    assert joined(pieces) == before != partition.leader.checkpoint()
    partition.check()


def test_delayed_messages_between_others_are_pieces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each leaves a range of its own: a million of them took the event loop a tenth of a second at each flush."""
    partition = Partition()
    for _ in range(12):
        partition.send(1)
        partition.send(1, delay_ms=DELAY_MS)
    plain = partition.leader.checkpoint()
    for module in (held_messages, checkpoint):
        monkeypatch.setattr(module, "LAZY_RANGES_MIN", 5)
    pieces = partition.leader.checkpoint_pieces()
    assert isinstance(pieces, list) and sum(not isinstance(piece, bytes) for piece in pieces) >= 1
    again = QueueMachine()
    again.restore(joined(pieces))
    assert again.checkpoint() == partition.follower.checkpoint() == joined(pieces)
    monkeypatch.undo()
    assert again.checkpoint() == plain
    partition.pass_ms(DELAY_MS)
    assert len(receive_all(partition, "first")) == 10


@pytest.mark.parametrize("kind", ["plain", "keyed", "fifo"])
def test_many_messages_by_themselves_are_packed_by_who_writes_as_they_were(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(queue_state, "DELAYED_LIVE_MAX", 100)
    monkeypatch.setattr(held_messages, "CHECKPOINT_PIECES_MESSAGES", 3)
    partition = Partition(QueueConfig(fifo=kind == "fifo"))
    groups = [b"" if kind == "plain" else b"g%d" % (number % 3) for number in range(9)]
    partition.send_keyed(*[(group, b"id%d" % number if kind == "fifo" else b"") for number, group in enumerate(groups)])
    partition.acquire("a", 6)
    partition.commit()
    before, pieces = partition.leader.checkpoint(), partition.leader.checkpoint_pieces()
    assert isinstance(pieces, list) and any(isinstance(piece, PackedLater) for piece in pieces)
    partition.delete("done", receipts_of(partition.delivered["a"][:2]))
    partition.acquire("b", 3)
    partition.commit()
    assert partition.leader.checkpoint() != before == joined(pieces) and blob_bytes(pieces) == len(before)
    again = QueueMachine()
    again.restore(before)
    assert again.checkpoint() == before
