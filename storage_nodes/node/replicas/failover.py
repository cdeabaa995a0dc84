"""Leader changes in an operator's words: who leads, since when, and why that changed.

The Raft machines know who was lost and who was elected; this adds how a node went down (`peer_history.py`) and tells it
where operators look: in DESCRIBE_CLUSTER, the log, and metrics.

**Log.** When a node with thousands of leaders dies, nobody wants thousands of lines. Changes with one cause (kind of
loss, node lost) make up an *episode*: it opens with the first partition that loses its leader, closes once all of them
have one again, as this node sees it, and is told in one line, or partition by partition where there are few. One that
does not close is told again and again, as a warning, with what is missing.

**Metrics.** A change is counted where it is certain, by the node that leads now, so that sums over nodes are right.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import structlog
from prometheus_client import Counter, Histogram

from storage_nodes.ids import node_name
from storage_nodes.machines.raft.effects import Loss
from storage_nodes.machines.raft.reasons import listed, reason_elected, reason_lost
from storage_nodes.node.clocks.clock import NodeClock

if TYPE_CHECKING:
    from storage_nodes.machines.raft.machine import RaftMachine
    from storage_nodes.node.transport.peer_history import PeerHistory

LEADER_CHANGES = Counter(
    "penstock_node_leader_changes", "Partitions of which this node became leader, by how the leader before was lost",
    ["reason"],
)  # fmt: skip
ELECTIONS = Counter("penstock_node_elections", "Elections in which this node stood")
LEADERLESS_SECONDS = Histogram(
    "penstock_node_leaderless_seconds",
    "From the loss of a leader until this node serves in its place",
    buckets=(0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 120.0),
)
for _loss in Loss:
    LEADER_CHANGES.labels(_loss.name.lower())

# How often open episodes are looked at, how long one gathers before it is told; when one that lasts is told first, and
# how often after that.
LOOK_S = 0.25
GATHER_MS = 500
LASTS_MS = 1_500
REMIND_MS = 10_000
# Up to so many partitions are told one by one.
TOLD_SINGLY_MAX = 5

_log = structlog.get_logger()


class Links(Protocol):
    retiring: bool

    def history_of(self, peer: int) -> PeerHistory | None: ...


class Led(Protocol):
    """What this needs of a replica."""

    @property
    def partition(self) -> int: ...

    @property
    def raft(self) -> RaftMachine: ...

    @property
    def tag(self) -> str: ...


class Episode:
    """Partitions that lost their leader for one cause."""

    __slots__ = ("ended_ms", "leaderless", "led_by", "loss", "lost", "reminded_ms", "singles", "started_ms", "words")

    def __init__(self, loss: Loss, words: str, now_ms: int) -> None:
        self.loss = loss
        self.words = words
        self.started_ms = now_ms
        self.ended_ms = now_ms
        self.reminded_ms = now_ms - REMIND_MS + LASTS_MS
        self.lost = 0
        self.leaderless: dict[int, Led] = {}
        # How many each node leads now, and the first few of them.
        self.led_by: Tally[int] = Tally()
        self.singles: list[Led] = []


class Failover:
    """One per node. `changed` is called for each leader that a replica lost or learned of."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: NodeClock,
        node_id: int,
        links: Links,
        preferred_leader: Callable[[int], int],
    ) -> None:
        self._preferred_leader = preferred_leader  # by partition; 0 = nobody
        self._loop = loop
        self._clock = clock
        self._node_id = node_id
        self._links = links
        self.started_wall_ms = clock.wall_ms()
        self._episodes: dict[tuple[Loss, int], Episode] = {}
        # In which episode a partition is that has no leader.
        self._of: dict[int, Episode] = {}
        self._handle: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    # --- inputs -----------------------------------------------------------------------------------------------

    def changed(self, replica: Led) -> None:
        """The replica's leader is another one than before, or none."""
        raft = replica.raft
        partition = replica.partition
        episode = self._of.get(partition)
        if not raft.leader and (episode is not None or raft.waits_to_be_added()):
            return  # an attempt failed: the cause remains; or its group, which may be well led, does not feed it yet
        if episode is None:
            episode = self._episode(raft)
            episode.lost += 1
        if not raft.leader:
            episode.leaderless[partition] = replica
            self._of[partition] = episode
            return
        episode.leaderless.pop(partition, None)
        self._of.pop(partition, None)
        episode.led_by[raft.leader] += 1
        episode.ended_ms = self._clock.mono_ms()
        if len(episode.singles) < TOLD_SINGLY_MAX:
            episode.singles.append(replica)

    def serves(self, raft: RaftMachine) -> None:
        """This node leads, and has folded all that is committed."""
        LEADER_CHANGES.labels(raft.loss.name.lower()).inc()
        if raft.lost_ms:
            LEADERLESS_SECONDS.observe((self._clock.mono_ms() - raft.lost_ms) / 1000)

    def forget(self, partition: int) -> None:
        """The replica is gone."""
        episode = self._of.pop(partition, None)
        if episode is not None:
            episode.leaderless.pop(partition, None)
            episode.lost -= 1

    # --- words ------------------------------------------------------------------------------------------------

    def reason(self, raft: RaftMachine, preferred: int) -> str:
        """Why the leader changed last: how the one before was lost, and how this one came, or why none can come."""
        came = reason_elected(raft) if raft.leader else self._missing_words(raft)
        return f"{self._lost_words(raft, preferred)}; {came}"

    def peer_words(self, peer: int) -> tuple[int, str]:
        """(since when it is up or down, in ms since the epoch; how it went down last)."""
        history = self._links.history_of(peer)
        if history is None or not history.since_ms:
            return self.started_wall_ms, ""
        return self._wall_ms(history.since_ms), history.down_reason(self._clock.mono_ms())

    def since_wall_ms(self, raft: RaftMachine) -> int:
        """Since when it leads, or since when there is none, in ms since the epoch."""
        return self._wall_ms(raft.leader_since_ms) if raft.leader_since_ms else self.started_wall_ms

    def _wall_ms(self, mono_ms: int) -> int:
        return self._clock.wall_ms() - (self._clock.mono_ms() - mono_ms)

    def _missing_words(self, raft: RaftMachine) -> str:
        """What a group without a leader waits for, as far as this replica knows."""
        down = [voter for voter in raft.voters if voter not in raft.alive]
        if raft.quorum_up():
            away = f", {listed(down)} down" if down else ""
            return f"an election is under way{away}"
        histories = (self._links.history_of(voter) for voter in down)
        since_ms = [history.since_ms for history in histories if history is not None]
        words = f"needs {raft.quorum} of {len(raft.voters)} voters; {listed(down)} down"
        if not since_ms or not all(since_ms):
            return words
        return f"{words} for {(self._clock.mono_ms() - max(since_ms)) // 1000:,} s"

    def _lost_words(self, raft: RaftMachine, preferred: int) -> str:
        loss, lost = raft.loss, raft.lost_leader
        history = self._links.history_of(lost)
        if loss is Loss.NODE_DOWN and history is not None:
            why = history.down_reason(raft.lost_ms)
            return f"node {node_name(lost)} {why}" if why else reason_lost(loss, lost)
        if loss is Loss.HANDED_OVER:
            is_stopping = self._links.retiring if history is None else history.is_stopping(raft.lost_ms)
            why = " (it is stopping)" if is_stopping else " (home again)" if 0 < raft.leader == preferred else ""
            return reason_lost(loss, lost) + why
        if loss is Loss.STARTED:
            return f"none was known when node {node_name(self._node_id)} began to hold this replica"
        return reason_lost(loss, lost)

    # --- the log ----------------------------------------------------------------------------------------------

    def _episode(self, raft: RaftMachine) -> Episode:
        key = (raft.loss, raft.lost_leader)
        episode = self._episodes.get(key)
        if episode is None:
            # Nobody is home for all partitions of an episode.
            episode = self._episodes[key] = Episode(raft.loss, self._lost_words(raft, 0), self._clock.mono_ms())
            if self._handle is None:
                self._handle = self._loop.call_later(LOOK_S, self._look)
        return episode

    def _look(self) -> None:
        """Tell what is over, and what lasts."""
        now_ms = self._clock.mono_ms()
        for key, episode in list(self._episodes.items()):
            if not episode.leaderless and now_ms - episode.started_ms >= GATHER_MS:
                del self._episodes[key]
                self._tell_over(episode, now_ms)
            elif episode.leaderless and now_ms - episode.reminded_ms >= REMIND_MS:
                episode.reminded_ms = now_ms
                self._tell_lasting(episode, now_ms)
        if not self._of:
            self._of.clear()  # its table was as large as it ever had to be
        self._handle = self._loop.call_later(LOOK_S, self._look) if self._episodes else None

    def _tell_over(self, episode: Episode, now_ms: int) -> None:
        is_planned = episode.loss in (Loss.STARTED, Loss.HANDED_OVER)
        tell = _log.info if is_planned else _log.warning
        if episode.lost <= len(episode.singles):
            for replica in episode.singles:
                raft = replica.raft
                reason = self.reason(raft, self._preferred_leader(replica.partition))
                tell("leader changed", partition=replica.partition, tag=replica.tag, leader=raft.leader, reason=reason)
        elif episode.lost:
            seconds = (episode.ended_ms - episode.started_ms) / 1000
            leaders = ", ".join(
                f"node {node_name(node)} leads {count:,}" for node, count in sorted(episode.led_by.items())
            )
            ended = f"{episode.lost:,} partitions have a leader again after {seconds:.1f} s"
            reason = f"{episode.words}: {ended}: {leaders}"
            tell("leaders changed", partitions=episode.lost, seconds=seconds, reason=reason)

    def _tell_lasting(self, episode: Episode, now_ms: int) -> None:
        first = next(iter(episode.leaderless.values()))
        seconds = (now_ms - episode.started_ms) / 1000
        count = len(episode.leaderless)
        reason = f"{episode.words}: {count:,} of {episode.lost:,} partitions have no leader after {seconds:.1f} s"
        _log.warning(
            "partitions without a leader", partitions=count, seconds=seconds, reason=reason,
            example=first.partition, missing=self._missing_words(first.raft),
        )  # fmt: skip
