"""Feeding peers from disk: the pace, and the queue that keeps it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from storage_nodes.limits import FEED_BYTES_PER_S_MIN, FEED_SHARE, FEED_WINDOW_MS, MIB
from storage_nodes.log.record_batch import build_batch
from storage_nodes.machines.raft.effects import SendEntries
from storage_nodes.node.replicas.append_sending import send_entries
from storage_nodes.node.replicas.catch_up_reads import CatchUpReads, Done, Read, ReadRate
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.transport.leases import LeaderLeases
from storage_nodes.protocol.records import encode_body

MIB_MS = 1000 * MIB / FEED_BYTES_PER_S_MIN


def test_idle_node_feeds_at_the_least_rate() -> None:
    rate = ReadRate()
    assert rate.spent(MIB, 1_000) == MIB_MS
    assert rate.spent(MIB, 1_000) == 2 * MIB_MS  # the second waits for the first
    assert rate.spent(MIB, 60_000) == MIB_MS  # time that was not used is not saved up


def test_busy_node_feeds_faster_than_its_leaders_append() -> None:
    rate = ReadRate()
    rate.look(1)
    appended_bytes_ms = 4 * FEED_BYTES_PER_S_MIN / 1000
    rate.appended_bytes += int(appended_bytes_ms * FEED_WINDOW_MS)
    rate.look(1 + FEED_WINDOW_MS)
    fed_bytes_ms = MIB / rate.spent(MIB, 2 * FEED_WINDOW_MS)
    assert abs(fed_bytes_ms / appended_bytes_ms - FEED_SHARE) < 0.01


def test_burst_is_forgotten_after_a_window() -> None:
    rate = ReadRate()
    rate.look(1)
    rate.appended_bytes += 1_000 * MIB
    rate.look(1 + FEED_WINDOW_MS)
    rate.look(1 + 2 * FEED_WINDOW_MS)
    assert rate.spent(MIB, 5_000) == MIB_MS


class Node:
    """Reads by hand, and a clock by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0
        self.reads: list[tuple[Read, Done, Callable[[], None]]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.catch_up_reads = CatchUpReads(
            lambda read, done, damaged: self.reads.append((read, done, damaged)),
            lambda seconds, call: self.later.append((seconds, call)),
            lambda: self.now_ms,
        )


def test_large_reads_are_one_at_a_time_and_spaced() -> None:
    node = Node()
    fed: list[bytes] = []
    for number in range(2):
        node.catch_up_reads.submit(lambda number=number: [bytes([number]) * MIB], fed.extend)
    ((read, done, _),) = node.reads
    done(read())
    assert len(fed) == 1 and len(node.reads) == 1
    ((seconds, go_on),) = node.later
    assert abs(seconds * 1000 - MIB_MS) < 0.001
    go_on()
    read, done, _ = node.reads[1]
    done(read())
    assert [piece[0] for piece in fed] == [0, 1]


def test_small_reads_follow_at_once() -> None:
    node = Node()
    for _ in range(3):
        node.catch_up_reads.submit(lambda: [b"x"], lambda found: None)
    for number in range(3):
        read, done, _ = node.reads[number]
        done(read())
    assert len(node.reads) == 3 and node.later == []


def test_damaged_read_does_not_stop_the_queue() -> None:
    node = Node()
    node.catch_up_reads.submit(lambda: [], lambda found: None)
    node.catch_up_reads.submit(lambda: [], lambda found: None)
    node.reads[0][2]()
    assert len(node.reads) == 2


ENTRY = build_batch(0, 4, 1_000, [b"x"])


class Feeder(Replica):
    """A leader's driver that needs a read for whatever it sends, and notes what it would send."""

    def __init__(self, epoch: int) -> None:
        self.reads: list[tuple[Read, Done]] = []
        self.sent: list[tuple[int, list[bytes]]] = []
        host: Any = SimpleNamespace(
            catch_up_reads=SimpleNamespace(submit=lambda read, done: self.reads.append((read, done))),
            send=lambda peer, message: self.sent.append((message.epoch, message.entries)),
            loop=SimpleNamespace(call_soon=lambda *_: None),
            leases=LeaderLeases(),
        )
        log: Any = SimpleNamespace(log_end=0, whole_from=0, read_hot=lambda *_: None, read_cold=lambda *_: [ENTRY])
        raft: Any = SimpleNamespace(is_current=lambda effect: effect.epoch == epoch, sent=lambda *_: [])
        self.host, self.log, self.raft = host, log, raft
        self.closed, self.reading_cold, self.last_append = False, (), None
        self.partition = 7

    def schedule(self) -> None:
        pass


def test_follower_is_fed_by_a_leader_that_was_deposed_and_elected_again_while_a_read_for_it_waited() -> None:
    """The machine asks for entries once and waits for `sent`: what was not read for it is never sent."""
    replica = Feeder(epoch=4)
    earlier, present = (SendEntries(2, 0, 0, 0, epoch, 0) for epoch in (2, 4))
    for effect in (earlier, present, present):
        send_entries(replica, effect)
    assert len(replica.reads) == 2, "one for each leadership"
    for read, done in replica.reads:
        done(read())
    assert replica.sent == [(4, [ENTRY])] and replica.reading_cold == ()


def test_followers_that_keep_pace_are_sent_one_append_that_was_read_once() -> None:
    entry = build_batch(0, 4, 1_000, [encode_body(b"x")])
    sent: list[tuple[int, Any]] = []
    reads: list[int] = []

    def read_hot(offset: int, bytes_max: int) -> list[bytes]:
        reads.append(offset)
        return [entry]

    replica = Replica.__new__(Replica)
    loop = SimpleNamespace(call_soon=lambda *_: None)
    host: Any = SimpleNamespace(
        send=lambda *what: sent.append(what), has_room=lambda peer: True, loop=loop, leases=LeaderLeases()
    )
    log: Any = SimpleNamespace(log_end=1, whole_from=0, read_hot=read_hot)
    raft: Any = SimpleNamespace(sent=lambda *what: [])
    replica.host, replica.log, replica.raft, replica.partition = host, log, raft, 7
    replica.closed, replica.last_append = False, None
    send_entries(replica, SendEntries(2, 0, 0, 0, 4, 0))
    send_entries(replica, SendEntries(3, 0, 0, 0, 4, 0))
    assert [peer for peer, _ in sent] == [2, 3] and sent[0][1] is sent[1][1] and reads == [0]
    send_entries(replica, SendEntries(3, 0, 0, 1, 4, 0))
    assert reads == [0, 0] and sent[2][1].commit == 1, "another commit position is another append"
    log.log_end = 2
    send_entries(replica, SendEntries(2, 0, 0, 1, 4, 0))
    assert reads == [0, 0, 0], "the log went on since"
