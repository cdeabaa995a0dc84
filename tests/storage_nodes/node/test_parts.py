"""The node's small parts, each alone: timers, early messages, dispatch, configuration."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from storage_nodes.config import ConfigError, NodeConfig, split_listen
from storage_nodes.limits import (
    EARLY_BYTES_MAX,
    INBOX_MESSAGES_MAX,
    INBOX_SLICE_MESSAGES,
    TIMERS_HELD_MS_MAX,
    TIMERS_SLICE_PARTITIONS,
    TURN_SLICE_MS_MAX,
)
from storage_nodes.log.errors import DiskFailedError
from storage_nodes.node.disk.committer import EXIT_DISK_FAILED
from storage_nodes.node.disk.flushing import Flushing
from storage_nodes.node.memory.memory_budget import Kind, MemoryBudget
from storage_nodes.node.requests import first_integer
from storage_nodes.node.timers import LOOK_MS, OVERTAKEN_MAX, Timers
from storage_nodes.node.transport.inbox import Inbox
from storage_nodes.node.transport.pending_raft_messages import (
    EARLY_MESSAGE_AGE_MS_MAX,
    EARLY_MESSAGES_MAX,
    PendingRaftMessages,
)
from storage_nodes.protocol.messages import DeleteRequest, SendRequest, encode_message
from storage_nodes.protocol.peer_messages import AppendEntries, RaftMessage, VoteRequest

ENVIRONMENT = {
    "PENSTOCK_CLUSTER_ID": "c",
    "PENSTOCK_NODE_ID": "2",
    "PENSTOCK_NODE_DIR": "/data",
    "PENSTOCK_NODE_LISTEN": "127.0.0.1:7102",
    "PENSTOCK_STORAGE_NODES": "1=127.0.0.1:7101@a,2=127.0.0.1:7102@b",
}


class HandLoop:
    """Keeps the one timer that `Timers` books."""

    def __init__(self) -> None:
        self.delay_s = -1.0
        self.ring: Callable[[], None] | None = None

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        self.delay_s, self.ring = delay_s, callback
        return self

    def cancel(self) -> None:
        self.ring = None


class TimersRig:
    def __init__(self) -> None:
        self.loop = HandLoop()
        self.now_ms = 1_000
        self.fired: list[int] = []
        self.behind = False
        loop: Any = self.loop
        self.timers = Timers(loop, lambda: self.now_ms, self.fired.append, lambda: self.behind)

    def pass_ms(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        ring, self.loop.ring = self.loop.ring, None
        assert ring is not None
        ring()


def test_timer_rings_in_order_of_due_time_and_once() -> None:
    rig = TimersRig()
    rig.timers.wake(7, 1_300)
    rig.timers.wake(8, 1_100)
    assert rig.loop.delay_s == pytest.approx(0.1)
    rig.pass_ms(100)
    assert rig.fired == [8]
    rig.pass_ms(200)
    assert rig.fired == [8, 7] and rig.loop.ring is None


def test_timers_of_a_node_that_is_behind_ring_when_it_has_caught_up() -> None:
    rig = TimersRig()
    rig.timers.wake(7, 1_100)
    rig.behind = True
    rig.pass_ms(100)
    rig.timers.wake(8, 1_050)
    rig.pass_ms(LOOK_MS)
    assert rig.fired == [] and rig.loop.delay_s == LOOK_MS / 1000
    rig.behind = False
    rig.pass_ms(LOOK_MS)
    assert rig.fired == [8, 7]


def test_timers_of_a_node_that_stays_behind_ring_a_slice_at_a_time() -> None:
    rig = TimersRig()
    rig.behind = True
    for partition in range(TIMERS_SLICE_PARTITIONS + 1):
        rig.timers.wake(partition, 1_100)
    rig.pass_ms(100)
    rig.pass_ms(TIMERS_HELD_MS_MAX - 1)
    assert rig.fired == []
    rig.pass_ms(1)
    assert len(rig.fired) == TIMERS_SLICE_PARTITIONS
    rig.pass_ms(1)
    assert len(rig.fired) == TIMERS_SLICE_PARTITIONS
    rig.pass_ms(TIMERS_HELD_MS_MAX)
    assert len(rig.fired) == TIMERS_SLICE_PARTITIONS + 1


def test_earliest_wish_of_a_partition_counts() -> None:
    rig = TimersRig()
    rig.timers.wake(7, 1_500)
    rig.timers.wake(7, 1_100)
    rig.timers.wake(7, 1_900)
    rig.pass_ms(100)
    assert rig.fired == [7]
    rig.pass_ms(1_000)
    assert rig.fired == [7], "what was overtaken does not ring again"


def test_overtaken_wishes_do_not_pile_up() -> None:
    rig = TimersRig()
    for _ in range(1_000):
        rig.timers.wake(7, rig.now_ms + 1_000_000)
        rig.timers.wake(7, rig.now_ms + 1)
        rig.pass_ms(1)
    assert len(rig.fired) == 1_000
    assert len(rig.timers._heap) <= OVERTAKEN_MAX + 2


def test_forgotten_partition_does_not_ring() -> None:
    rig = TimersRig()
    rig.timers.wake(7, 1_100)
    rig.timers.forget(7)
    rig.pass_ms(100)
    assert rig.fired == []


def test_early_messages_are_replayed_to_their_partition_once() -> None:
    early = PendingRaftMessages(lambda _sender: 1)
    mine, other = VoteRequest(5, 1, 0, 0), VoteRequest(6, 1, 0, 0)
    early.keep(1, mine, 0)
    early.keep(2, other, 0)
    assert early.take(5) == [(1, mine)]
    assert early.take(5) == []
    assert early.take(6) == [(2, other)]


def test_early_messages_are_bounded_in_age_and_count() -> None:
    early = PendingRaftMessages(lambda _sender: 1)
    early.keep(1, VoteRequest(5, 1, 0, 0), 0)
    early.keep(1, VoteRequest(6, 1, 0, 0), EARLY_MESSAGE_AGE_MS_MAX + 1)
    assert early.take(5) == []
    for number in range(EARLY_MESSAGES_MAX * 2):
        early.keep(1, VoteRequest(7, number, 0, 0), 0)
    assert len(early.take(7)) == EARLY_MESSAGES_MAX


def test_early_messages_are_bounded_in_bytes() -> None:
    early = PendingRaftMessages(lambda _sender: 1)
    entry = bytes(EARLY_BYTES_MAX // 4)
    for partition in range(6):
        early.keep(1, AppendEntries(partition, 1, 0, 0, 0, [entry]), 0)
    assert [len(early.take(partition)) for partition in range(6)] == [0, 0, 0, 1, 1, 1]
    for partition in range(3):
        early.keep(1, AppendEntries(partition, 1, 0, 0, 0, [entry]), 0)
    assert [len(early.take(partition)) for partition in range(3)] == [1, 1, 1], "what was taken counts no more"


def test_early_messages_of_an_older_incarnation_are_not_replayed() -> None:
    """R4: its sender was restarted, perhaps with another disk, before the partition was made here."""
    incarnations = {1: 10, 2: 20}
    early = PendingRaftMessages(incarnations.__getitem__)
    old, kept, new = (VoteRequest(5, epoch, 0, 0) for epoch in (1, 2, 3))
    early.keep(1, old, 0)
    early.keep(2, kept, 0)
    incarnations[1] = 11
    early.keep(1, new, 0)
    assert early.take(5) == [(2, kept), (1, new)]


@pytest.mark.parametrize("partition", [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63])
def test_partition_is_read_without_decoding_the_request(partition: int) -> None:
    assert first_integer(encode_message(SendRequest(partition, [b"x"]))) == partition
    assert first_integer(encode_message(DeleteRequest(partition, [(1, 2)]))) == partition


@pytest.mark.parametrize(
    "payload", [b"", b"\x91", b"\x80\x01", b"\x91\xcd\x01", b"\x91\xff", b"\x91\xa1x", b"\x93\xc0"]
)
def test_payload_that_does_not_begin_with_a_partition_is_refused(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        first_integer(payload)


def test_configuration_is_read_from_the_environment() -> None:
    config = NodeConfig.from_environment(ENVIRONMENT)
    assert config.own_address.port == 7102 and [node.zone for node in config.nodes] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PENSTOCK_NODE_ID", "0"),
        ("PENSTOCK_NODE_ID", "x"),
        ("PENSTOCK_NODE_ID", "3"),
        ("PENSTOCK_STORAGE_NODES", "1=nowhere"),
        ("PENSTOCK_STORAGE_NODES", "1=h:1@a,1=h:2@b"),
        ("PENSTOCK_NODE_LISTEN", "7102"),
        ("PENSTOCK_CLUSTER_ID", ""),
    ],
)
def test_wrong_setting_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError):
        NodeConfig.from_environment({**ENVIRONMENT, name: value})


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_missing_setting_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match="a node needs .*" + name):
        NodeConfig.from_environment({key: value for key, value in ENVIRONMENT.items() if key != name})


def test_listen_address_is_split() -> None:
    assert split_listen("0.0.0.0:80") == ("0.0.0.0", 80)


def test_timers_work_on_a_real_loop() -> None:
    async def scenario() -> list[int]:
        loop = asyncio.get_running_loop()
        fired: list[int] = []
        timers = Timers(loop, lambda: int(loop.time() * 1000), fired.append)
        timers.wake(1, int(loop.time() * 1000))
        while not fired:
            await asyncio.sleep(0)
        timers.close()
        return fired

    assert asyncio.run(scenario()) == [1]


class Ended(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), DiskFailedError()])
def test_flush_that_meets_a_failed_disk_ends_the_process_as_a_failed_group_does(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R21. An error that is none of the disk's is a bug and is raised as one."""
    ended: list[int] = []

    def end(code: int) -> None:
        ended.append(code)
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    flushing = Flushing.__new__(Flushing)
    with pytest.raises(Ended):
        flushing._written(None, error)  # type: ignore[arg-type]
    assert ended == [EXIT_DISK_FAILED]
    with pytest.raises(KeyError):
        flushing._written(None, KeyError("bug"))  # type: ignore[arg-type]


class InboxRig:
    """Turns of the loop by hand."""

    def __init__(self) -> None:
        self.booked: list[Callable[[], None]] = []
        self.handled: list[tuple[int, RaftMessage]] = []
        self.incarnation = 5
        loop = cast(asyncio.AbstractEventLoop, SimpleNamespace(call_soon=self.booked.append))
        self.budget = MemoryBudget()
        # What each message takes.
        self.message_ms = 0
        self.now_ms = 1_000
        self.inbox = Inbox(loop, self.handle, lambda sender: self.incarnation, self.budget, lambda: self.now_ms)

    def handle(self, sender: int, message: RaftMessage) -> None:
        self.now_ms += self.message_ms
        self.handled.append((sender, message))

    def turn(self) -> None:
        booked, self.booked[:] = list(self.booked), []
        for call in booked:
            call()


def votes(count: int, first: int = 0) -> list[RaftMessage]:
    return [VoteRequest(first + number, 1, 0, 0) for number in range(count)]


def test_inbox_few_messages_are_handled_at_once() -> None:
    rig = InboxRig()
    for number in range(3):
        rig.inbox.take(2, 5, votes(INBOX_SLICE_MESSAGES))
        assert len(rig.handled) == (number + 1) * INBOX_SLICE_MESSAGES
        rig.turn()
    assert rig.booked == []


def test_inbox_many_messages_take_several_turns_and_keep_their_order() -> None:
    rig = InboxRig()
    rig.inbox.take(2, 5, votes(10))
    rig.inbox.take(2, 5, votes(3 * INBOX_SLICE_MESSAGES, first=10))
    rig.inbox.take(3, 5, votes(10, first=10 + 3 * INBOX_SLICE_MESSAGES))
    assert len(rig.handled) == 10
    for _ in range(4):
        before = len(rig.handled)
        rig.turn()
        assert len(rig.handled) - before <= INBOX_SLICE_MESSAGES
    assert [message.partition for _, message in rig.handled] == list(range(20 + 3 * INBOX_SLICE_MESSAGES))
    rig.turn()
    assert rig.booked == []


def test_inbox_turn_ends_when_its_messages_take_long() -> None:
    rig = InboxRig()
    rig.message_ms = 2
    rig.inbox.take(2, 5, votes(2 * INBOX_SLICE_MESSAGES))
    for number in range(3):
        rig.turn()
        assert len(rig.handled) == (number + 1) * TURN_SLICE_MS_MAX // 2
    while rig.booked:
        rig.turn()
    assert [message.partition for _, message in rig.handled] == list(range(2 * INBOX_SLICE_MESSAGES))


def test_inbox_message_of_an_incarnation_that_is_gone_is_dropped() -> None:
    rig = InboxRig()
    rig.inbox.take(2, 5, votes(2 * INBOX_SLICE_MESSAGES))
    rig.turn()
    rig.incarnation = 6
    rig.turn()
    assert len(rig.handled) == INBOX_SLICE_MESSAGES


def test_inbox_is_bounded_and_drops_what_waited_longest() -> None:
    rig = InboxRig()
    rig.inbox.take(2, 5, votes(INBOX_MESSAGES_MAX + 10))
    assert rig.handled == []
    while rig.booked:
        rig.turn()
    assert [message.partition for _, message in rig.handled] == list(range(10, INBOX_MESSAGES_MAX + 10))
    assert rig.budget.used(Kind.INBOX) == 0


def test_timers_that_ring_together_take_several_turns() -> None:
    rig = TimersRig()
    for partition in range(TIMERS_SLICE_PARTITIONS + 1):
        rig.timers.wake(partition, 1_001)
    rig.pass_ms(1)
    assert len(rig.fired) == TIMERS_SLICE_PARTITIONS
    rig.pass_ms(0)
    assert len(rig.fired) == TIMERS_SLICE_PARTITIONS + 1
