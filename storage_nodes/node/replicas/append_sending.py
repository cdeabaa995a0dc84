"""Sends what the Raft machine says. Entries of a leader's log are read, from disk where need be, and the machine told.

A follower for whose link there is no room is fed when there is. The append that was sent last in this turn of the event
loop is kept for followers that ask for the same: the links encode it once.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

from storage_nodes.limits import APPEND_BYTES_MAX
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.log.record_batch import end_of_batch
from storage_nodes.machines.raft.effects import Effect, Send, SendEntries
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.node.replicas.host import Host
from storage_nodes.protocol.peer_messages import AppendEntries


class LastAppend(NamedTuple):
    """What a follower was sent in this turn. Others that keep pace get the same object."""

    asked: SendEntries
    message: AppendEntries
    end: int
    size_bytes: int

    def answers(self, effect: SendEntries) -> bool:
        """Is the same asked for another follower?"""
        return self.asked[1:] == effect[1:]


class FeedingReplica(Protocol):
    """What this needs of a replica."""

    host: Host
    log: PartitionLog
    raft: RaftMachine
    partition: int
    closed: bool
    last_append: LastAppend | None
    # (follower, epoch) that wait for a read of older entries.
    reading_cold: tuple[tuple[int, int], ...]

    def perform(self, effects: list[Effect]) -> None: ...
    def schedule(self) -> None: ...


def send_message(replica: FeedingReplica, effect: Send) -> None:
    if effect.after_sync:
        replica.host.committer.send_after_sync(effect.peer, effect.message)
    else:
        replica.host.send(effect.peer, effect.message)


def send_entries(replica: FeedingReplica, effect: SendEntries) -> None:
    """Now, or when there is room, or when what is asked for was read."""
    if effect.prev_offset < replica.log.log_end and not replica.host.has_room(effect.peer):
        replica.host.when_room(effect.peer, partial(_send_on, replica, effect))
        return
    last = replica.last_append
    if last is not None and last.end == replica.log.log_end and last.answers(effect):
        _say(replica, effect.peer, last)
        return
    entries = replica.log.read_hot(effect.prev_offset, APPEND_BYTES_MAX)
    if entries is not None:
        _send_append(replica, effect, entries)
    elif (asker := (effect.peer, effect.epoch)) not in replica.reading_cold:
        replica.reading_cold += (asker,)

        def done(cold: list[bytes]) -> None:
            replica.reading_cold = tuple(other for other in replica.reading_cold if other != asker)
            if not replica.closed and replica.raft.is_current(effect):
                _send_append(replica, effect, cold)
                replica.schedule()

        replica.host.catch_up_reads.submit(lambda: replica.log.read_cold(effect.prev_offset, APPEND_BYTES_MAX), done)


def _send_on(replica: FeedingReplica, effect: SendEntries) -> None:
    """There was no room for these on the way to the peer."""
    if not replica.closed and replica.raft.is_current(effect):
        send_entries(replica, effect)
        replica.schedule()


def _send_append(replica: FeedingReplica, effect: SendEntries, entries: list[bytes]) -> None:
    if effect.prev_offset < replica.log.whole_from:
        entries = []  # trimmed since it was asked for: the answer leads to a snapshot
    last = replica.last_append
    if last is None or not last.answers(effect) or last.message.entries != entries:
        message = AppendEntries(
            replica.partition,
            effect.epoch,
            effect.prev_epoch,
            effect.prev_offset,
            effect.commit,
            entries,
            effect.replicated,
            effect.learner,
            replica.host.leases.round,
        )
        end = end_of_batch(entries[-1]) if entries else effect.prev_offset
        if last is None:
            replica.host.loop.call_soon(_forget_append, replica)
        replica.last_append = last = LastAppend(effect, message, end, sum(map(len, entries)))
    _say(replica, effect.peer, last)


def _say(replica: FeedingReplica, peer: int, last: LastAppend) -> None:
    replica.host.send(peer, last.message)
    effects = replica.raft.sent(peer, last.end, last.size_bytes)
    if effects:  # else the next tick is booked when the input, or the cold read, is done with
        replica.perform(effects)


def _forget_append(replica: FeedingReplica) -> None:
    replica.last_append = None
