"""Links between nodes: one outgoing connection per peer, liveness per node pair, Raft frames shared by all partitions.

Liveness is request-response (R33): a heartbeat echoes the highest sequence heard from its receiver. A peer is up
while it has proved, within PEER_TIMEOUT_MS, to have heard a heartbeat of ours; so a link that is dead in one direction
is dead for both ends. Time in which this node itself had no turn, up to PEER_TIMEOUT_MS at a stretch, is not held
against a peer: else nodes that are short of processors would take each other for dead, elect, and be shorter of them
still, for ever. A node that stood still for longer has been given up by its peers: nothing is excused, and it leads
nothing until it is elected again (`on_stall`). A peer whose port refuses connections has no process: down at once.

Who the peers are is said by the node list at the start, and by the cluster log from then on (`admit`, `expel`); where
one listens it says itself, in its greeting. Where these differ the last word is tried first, then the one before it. A
greeting names whom it is for, so that a node that now listens at another's old address is not taken for it.

What is sent while a link is down is dropped: the Raft machines send again when the peer is up. What a peer reads slowly
waits here in order (`outflow.py`), heartbeats past it. A leader asks `has_room` before it feeds a peer, and where there
is none, because too much waits or the peer says that it is crowded, it is called when there is (`when_room`). A link is
cut only when nothing leaves it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from storage_nodes.ids import node_name
from storage_nodes.limits import (
    FRAME_BYTES_MAX,
    HEARTBEAT_INTERVAL_MS,
    HEARTBEAT_LATE_MS,
    PEER_TIMEOUT_MS,
)
from storage_nodes.model import NodeAddress
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.clocks.clock_watch import ClockWatch
from storage_nodes.node.memory.memory_budget import MemoryBudget
from storage_nodes.node.transport.directory_age import OwnAge
from storage_nodes.node.transport.leases import LeaderLeases
from storage_nodes.node.transport.peer_history import PeerHistory
from storage_nodes.node.transport.peer_link import FRAME_SLACK_BYTES, PeerLink, take_frame
from storage_nodes.protocol.frames import encode_frame
from storage_nodes.protocol.levels import LEVEL_FIRST, Speaks, fits_cluster, spoken
from storage_nodes.protocol.messages import Opcode, encode_message
from storage_nodes.protocol.peer_messages import Heartbeat, PeerHello, RaftFrame, RaftMessage
from storage_nodes.trust.credentials import Credentials

_log = structlog.get_logger()


class PeerLinks:
    """All links of this node. `on_change(peer, up)` is called when a peer comes up or goes down."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: NodeClock,
        cluster_id: str,
        address: NodeAddress,
        incarnation: int,
        peers: list[NodeAddress],
        on_change: Callable[[int, bool], None],
        budget: MemoryBudget | None = None,
        credentials: Credentials | None = None,
        speaks: Speaks | None = None,
    ) -> None:
        self.loop = loop
        # Feature levels: what this node speaks, and at which one the cluster is, as far as it knows.
        self.speaks = speaks or spoken()
        self.cluster_level = LEVEL_FIRST
        self.cluster_id = cluster_id
        self.address = address
        self.node_id = address.node_id
        self.incarnation = incarnation
        self.retiring = False
        # What the heartbeats say of this node's disk (`maintenance.py`).
        self.read_only = False
        self.slow = False
        self.sync_us = 0
        self.crowded = False
        self.budget = budget or MemoryBudget()
        self.credentials = credentials
        self._clock = clock
        # When this process began, on its monotonic clock.
        self.began_ms = clock.mono_ms()
        self.clocks = ClockWatch(clock, self.node_id)
        self.leases = LeaderLeases()
        self.age = OwnAge()
        # Called with a peer, and the WAL group that it knows this node to have synced before it was started.
        self.on_older: Callable[[int, int], None] = lambda peer, sequence: None
        self._on_change = on_change
        # Called with the cluster's feature level, as a peer that does not let this node in has it.
        self.on_level: Callable[[int], None] = lambda level: None
        # Called with its length when this node stood still for longer than its peers wait for it.
        self.on_stall: Callable[[int], None] = lambda gap_ms: None
        # Does a connection that this peer opened to us stand?
        self.is_connected: Callable[[int], bool] = lambda peer: True
        # Called with the time whenever all links beat.
        self.on_beat: Callable[[int], None] = lambda now_ms: None
        self._links = {peer.node_id: PeerLink(self, peer) for peer in peers}
        self._flushing = False
        # When all links beat last: the node has had no turn since, as far as its peers can know.
        self.turn_ms = 0
        # Nodes that were decommissioned: never let in again.
        self._expelled: set[int] = set()
        self._dialers: dict[int, asyncio.Task[None]] = {}
        self._beater: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._beater = self.loop.create_task(self._beat_forever())
        for link in self._links.values():
            self._dial(link)

    async def close(self) -> None:
        tasks = [*self._dialers.values(), *filter(None, [self._beater])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def admit(self, address: NodeAddress) -> None:
        """The cluster log names this peer, or a new address of it."""
        if address.node_id == self.node_id:
            return
        self._expelled.discard(address.node_id)
        link = self._links.get(address.node_id)
        if link is not None:
            link.moved(address)
            return
        link = self._links[address.node_id] = PeerLink(self, address)
        if self._beater is not None:
            self._dial(link)

    def expel(self, peer: int) -> None:
        """The cluster log says that this node is gone for good."""
        self._expelled.add(peer)
        link = self._links.pop(peer, None)
        dialer = self._dialers.pop(peer, None)
        if dialer is not None:
            dialer.cancel()
        if link is not None:
            link.close_peer_connections()
            self.leases.remove(peer)
            if link.up:
                link.up = False
                self._on_change(peer, False)

    def claims(self) -> list[NodeAddress]:
        """Where the peers themselves say that they listen."""
        return [link.claimed for link in self._links.values() if link.claimed is not None]

    def tell(self, peer: int, opcode: int, payload: bytes) -> None:
        """Send one frame that is no Raft message; lost where the link is down."""
        link = self._links.get(peer)
        if link is not None:
            link.write(encode_frame(opcode, 0, 0, payload))

    def _dial(self, link: PeerLink) -> None:
        self._dialers[link.node_id] = self.loop.create_task(link.keep_connected())

    def send(self, peer: int, message: RaftMessage) -> None:
        link = self._links.get(peer)
        if link is not None:
            link.send(message)

    def has_room(self, peer: int) -> bool:
        """May a leader here feed this peer?"""
        link = self._links.get(peer)
        return link is None or link.has_room()

    def when_room(self, peer: int, resume: Callable[[], None]) -> None:
        """Call `resume`, in a later turn, when `has_room` says so."""
        link = self._links.get(peer)
        if link is None:
            self.loop.call_soon(resume)
        else:
            link.when_room(resume)

    def flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def flush_now(self) -> bool:
        """Do not wait for the end of the turn. False: nothing waits."""
        if not self._flushing:
            return False
        self._flush()
        return True

    def _flush(self) -> None:
        """One frame per peer with all that gathered. Peers that get the same messages share one encoding."""
        if not self._flushing:
            return  # it went before
        self._flushing = False
        encoded: dict[tuple[int, ...], list[bytes]] = {}
        outboxes: list[list[RaftMessage]] = []
        for link in self._links.values():
            if not link.outbox:
                continue
            size_bytes = link.outbox_bytes
            messages = link.take_outbox()
            outboxes.append(messages)  # kept alive while their ids are keys
            key = tuple(map(id, messages))
            frames = encoded.get(key)
            if frames is None:
                frames = encoded[key] = self._encode(messages, size_bytes)
            for frame in frames:
                link.write(frame)

    def _encode(self, messages: list[RaftMessage], size_bytes: int) -> list[bytes]:
        frames = []
        fits = size_bytes <= FRAME_BYTES_MAX - FRAME_SLACK_BYTES
        while messages:
            share, messages = (messages, []) if fits else take_frame(messages)
            frames.append(encode_frame(Opcode.RAFT, 0, 0, encode_message(RaftFrame(self.incarnation, share))))
        return frames

    def is_up(self, peer: int) -> bool:
        link = self._links.get(peer)
        return link is not None and link.up

    def is_newest(self, peer: int, incarnation: int) -> bool:
        """Is this the newest incarnation of the peer that greeted us? A connection of an older one may still hold
        what that one sent, perhaps from a disk that is gone (R4)."""
        link = self._links.get(peer)
        return link is not None and incarnation == link.incarnation

    def was_heard(self, peer: int) -> bool:
        """Did a heartbeat of its present process come? Then it has told what it knows of this node."""
        link = self._links.get(peer)
        return link is not None and link.heard_seq > 0

    def peers_up(self) -> list[int]:
        return [link.node_id for link in self._links.values() if link.up]

    def incarnation_of(self, peer: int) -> int:
        """The newest one that greeted us; 0 = none."""
        link = self._links.get(peer)
        return 0 if link is None else link.incarnation

    def history_of(self, peer: int) -> PeerHistory | None:
        link = self._links.get(peer)
        return None if link is None else link.history

    def may_lead(self, peer: int) -> bool:
        """Is it up, not about to stop, its disk neither full nor slow, and its clock right as far as it knows?"""
        link = self._links.get(peer)
        return link is not None and self.may_follow(peer) and not (link.clock_off or link.clock_unknown)

    def may_follow(self, peer: int) -> bool:
        """The same, whatever its clock says: a replica that follows needs none."""
        link = self._links.get(peer)
        return link is not None and link.up and not (link.retiring or link.read_only or link.slow)

    def speaks_of(self, peer: int) -> Speaks | None:
        """What its present process said; None: it has not greeted."""
        link = self._links.get(peer)
        return None if link is None else link.speaks

    def stays(self, peer: int) -> bool:
        """Is it up, and not about to stop?"""
        link = self._links.get(peer)
        return link is not None and link.up and not link.retiring

    def is_read_only(self, node: int) -> bool:
        """Does this node, or a peer as far as it told, take no messages?"""
        link = self._links.get(node)
        return self.read_only if link is None else link.read_only

    @property
    def any_read_only(self) -> bool:
        return self.read_only or any(link.read_only for link in self._links.values())

    def sync_times(self) -> tuple[list[int], int]:
        """(sync times of the peers that are up and know theirs, how many peers may lead)."""
        links = [link for link in self._links.values() if link.up]
        return [link.sync_us for link in links if link.sync_us], sum(map(self.may_lead, self._links))

    def retire(self) -> None:
        """Tell all peers that this node is about to stop."""
        self.retiring = True
        self.beat_all()

    def greeted(self, hello: PeerHello) -> str:
        """A peer opened a connection to us. "" = it is let in, otherwise why not."""
        if hello.to not in (0, self.node_id):
            return f"this is node {node_name(self.node_id)}, not node {node_name(hello.to)}"
        if hello.node_id in self._expelled:
            name = node_name(hello.node_id)
            return f"node {name} was decommissioned; stop it. To bring the machine back, add it as a new node"
        link = self._links.get(hello.node_id)
        if link is None:
            return (
                f"node {node_name(hello.node_id)} is not registered with this cluster; a new node is started to join it"
            )
        if hello.incarnation != link.incarnation:
            if not link.is_newer(hello):
                return _superseded(hello.node_id)
            link.restarted(hello.incarnation)
            self.check(link)
        if hello.host:
            link.claimed = NodeAddress(hello.node_id, hello.host, hello.port, hello.zone)
            link.moved(link.claimed)
        link.speaks = Speaks(*hello.levels)
        return self._level_objection(link)

    def _level_objection(self, link: PeerLink) -> str:
        what, speaks = f"node {node_name(link.node_id)}", link.speaks or Speaks()
        objection = self.speaks.objection(speaks, what) or fits_cluster(speaks, self.cluster_level, what)
        if objection and objection != link.level_objection:
            _log.warning("not letting a node in: feature levels", peer=link.node_id, reason=objection)
        link.level_objection = objection
        return objection

    def heard(self, beat: Heartbeat) -> str:
        """Returns "" where it counts. Otherwise why its sender has to greet again: another process of it is taken for
        the newest. If the sender lives, and the other one does not, it is let in again (`PeerLink.is_newer`)."""
        link = self._links.get(beat.node_id)
        if link is None:
            return ""
        if beat.incarnation != link.incarnation:
            return _superseded(beat.node_id)
        link.heard(beat)
        self.check(link)
        if not link.up:
            link.send_heartbeat(self._clock.mono_ms())
        return ""

    def now_ms(self) -> int:
        return self._clock.mono_ms()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def is_clock_off(self, peer: int) -> bool:
        """Does it say so?"""
        link = self._links.get(peer)
        return link is not None and link.clock_off

    def check(self, link: PeerLink) -> None:
        alive = link.is_alive(self._clock.mono_ms())
        if alive != link.up:
            link.up = alive
            why = link.history.changed(alive, self._clock.mono_ms())
            if alive:
                _log.info("peer is up", peer=link.node_id)
            else:
                _log.warning("peer is down", peer=link.node_id, reason=why)
            self._on_change(link.node_id, alive)

    async def _beat_forever(self) -> None:
        while True:
            self.beat_all()
            await asyncio.sleep(HEARTBEAT_INTERVAL_MS / 1000)

    def beat_all(self) -> None:
        """Beat, and look who is silent: for so long in turns that this node had, so that the dead are found even by one
        that is always late. A node that stood still for as long as its peers wait has been given up by them, and must
        not take itself for a leader any more: nothing is excused then."""
        now_ms = self._clock.mono_ms()
        gap_ms = now_ms - self.turn_ms if self.turn_ms else 0
        self.turn_ms = now_ms
        self.clocks.look(self._links)
        for link in list(self._links.values()):
            if HEARTBEAT_INTERVAL_MS < gap_ms <= PEER_TIMEOUT_MS:
                link.extend_lease(gap_ms - HEARTBEAT_INTERVAL_MS)
            link.beat(now_ms)
            link.look(now_ms)
        # Only now: with thousands of replicas it takes its time when a peer goes down.
        self._check_all()
        if gap_ms > PEER_TIMEOUT_MS:
            self.on_stall(gap_ms)
        self.on_beat(now_ms)

    def _check_all(self) -> None:
        """Who is silent; whoever will have been for too long before the next beat is looked at just then."""
        now_ms = self._clock.mono_ms()
        for link in list(self._links.values()):
            self.check(link)
            left_ms = link.alive_until_ms - now_ms
            if link.up and left_ms < HEARTBEAT_INTERVAL_MS:
                self.loop.call_later((left_ms + 1) / 1000, self.check, link)

    def clocks_heard(self, beat: Heartbeat) -> None:
        """What the peer's clock says, and what it knows of others'."""
        if beat.clocks:
            self.clocks.told(beat.clocks)
        if beat.wall_ms is not None:
            self.clocks.heard(beat.node_id, beat.wall_ms, self._links)

    def look_at_clock(self) -> None:
        """Called before anything that came in is handled. After a pause what clients sent may be handled before what
        new leaders sent, and before any timer: the clock alone tells in time. And a turn that brings much lasts long on
        a node that is short of processor time: its peers are not to wait for the end of it."""
        if self.turn_ms and self._clock.mono_ms() - self.turn_ms > HEARTBEAT_LATE_MS:
            self.beat_all()


def _superseded(node_id: int) -> str:
    return (
        f"another process of node {node_name(node_id)} is taken for the newest; if both of them run, stop the older one"
    )
