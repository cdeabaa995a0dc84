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
import socket
from collections import deque
from collections.abc import Callable
from typing import cast

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from storage_nodes.limits import (
    FRAME_BYTES_MAX,
    HEARTBEAT_INTERVAL_MS,
    LINK_BYTES_MAX,
    LINK_RESUMES_PER_TURN,
    PEER_TIMEOUT_MS,
    TRANSPORT_BYTES_MAX,
)
from storage_nodes.model import NodeAddress
from storage_nodes.node.clock import NodeClock
from storage_nodes.node.clock_watch import ClockWatch
from storage_nodes.node.connections import CUTS
from storage_nodes.node.memory_budget import Kind, MemoryBudget
from storage_nodes.node.outflow import Outflow
from storage_nodes.node.peer_history import NO_PROCESS, RESTARTED, PeerHistory
from storage_nodes.protocol.frames import FLAG_ERROR, FrameDecoder, FrameError, encode_frame
from storage_nodes.protocol.messages import ErrorReply, Opcode, encode_message
from storage_nodes.protocol.peer_messages import (
    AppendEntries,
    Heartbeat,
    PeerHello,
    RaftFrame,
    RaftMessage,
    SnapshotChunk,
)

RECONNECT_PAUSE_S_MIN = 0.05
RECONNECT_PAUSE_S_MAX = 0.5
CONNECT_TIMEOUT_S = 1.0
# Beats that answer beats of a peer that is not up come no faster than this: two such peers must not storm each other.
BEAT_AGAIN_MS = 20
# Room in a frame for everything but the entries themselves.
FRAME_SLACK_BYTES = 64 * 1024

# Addresses remembered of one peer: the newest one and the one before it.
ADDRESSES_MAX = 2

NOT_SENT = Counter("penstock_node_raft_messages_not_sent", "Raft messages dropped because too much waited for a peer")
WAITING = Gauge("penstock_node_link_bytes", "Bytes that wait for a peer to read them", ["peer"])

_error_reply = msgspec.msgpack.Decoder(ErrorReply)
_log = structlog.get_logger()


class PeerLink(asyncio.Protocol):
    """Our outgoing connection to one peer, and what we know of its liveness."""

    def __init__(self, links: PeerLinks, address: NodeAddress) -> None:
        self._links = links
        self.node_id = address.node_id
        # The first one is what was said last; the others are tried when it does not answer.
        self.addresses = [address]
        # Where the peer itself says that it listens.
        self.claimed: NodeAddress | None = None
        self.up = False
        self.incarnation = 0
        # When that one greeted first, by agreed time.
        self.incarnation_since_ms = 0
        self.retiring = False
        self.read_only = False
        self.slow = False
        self.clock_off = False
        # The peer's memory is short: leaders do not feed it.
        self.crowded = False
        self.sync_us = 0
        self.heard_seq = 0
        self._transport: asyncio.Transport | None = None
        self._out: Outflow | None = None
        # What was sent in this turn, with about so many bytes, and who waits until there is room for more.
        self.outbox: list[RaftMessage] = []
        self._outbox_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._resuming = False
        self._alive_until_ms = 0
        self._beaten_ms = 0
        self._pause_s = RECONNECT_PAUSE_S_MIN
        self._lost = asyncio.Event()
        self.history = PeerHistory()
        self._attempt = 0
        self._refusals = 0
        self._objection = ""
        self._answers = FrameDecoder()

    def moved(self, address: NodeAddress) -> None:
        """The cluster log, or the peer, says that it listens here."""
        if address != self.addresses[0]:
            earlier = [known for known in self.addresses if known[1:3] != address[1:3]]
            self.addresses = [address, *earlier][:ADDRESSES_MAX]
            self._attempt = 0
            self._pause_s = RECONNECT_PAUSE_S_MIN

    async def keep_connected(self) -> None:
        """Dial, greet, stay until lost, again. Runs as long as the node."""
        loop = asyncio.get_running_loop()
        while True:
            address = self.addresses[self._attempt % len(self.addresses)]
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    self._lost.clear()
                    await loop.create_connection(lambda: self, address.host, address.port)
                self._pause_s = RECONNECT_PAUSE_S_MIN
                self._refusals = 0
                await self._lost.wait()
                self._attempt += not self.up
            except ConnectionRefusedError:
                self._attempt += 1
                self._refusals += 1
                if self._refusals >= len(self.addresses):
                    self._alive_until_ms = 0
                    self.history.expect(NO_PROCESS)
                    self._links.check(self)
            except (OSError, TimeoutError):
                self._attempt += 1
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, RECONNECT_PAUSE_S_MAX)

    def send(self, message: RaftMessage) -> None:
        out = self._out
        if out is None:
            return
        size = size_of(message)
        if out.bytes + self._outbox_bytes + size > 2 * LINK_BYTES_MAX:
            NOT_SENT.inc()
            return
        self.outbox.append(message)
        self._outbox_bytes += size
        self._links.flush_soon()

    def take_outbox(self) -> list[RaftMessage]:
        messages, self.outbox = self.outbox, []
        self._outbox_bytes = 0
        return messages

    def has_room(self) -> bool:
        """For an append; it is dropped where the link is down, so there is no point in waiting."""
        out = self._out
        if out is None:
            return True
        held_bytes = out.bytes + self._outbox_bytes
        return not self.crowded and held_bytes < LINK_BYTES_MAX and self._links.budget.may_hold(Kind.LINKS, held_bytes)

    def when_room(self, resume: Callable[[], None]) -> None:
        self._waiting.append(resume)
        self.resume_soon()  # the room may have come since it was asked for

    def resume_soon(self) -> None:
        if self._waiting and not self._resuming and self.has_room():
            self._resuming = True
            self._links.loop.call_soon(self._resume_some)

    def _resume_some(self) -> None:
        """In the order in which they began to wait, as far as the room goes."""
        self._resuming = False
        for _ in range(min(LINK_RESUMES_PER_TURN, len(self._waiting))):
            if not self.has_room():
                return
            self._waiting.popleft()()
        self.resume_soon()

    def beat(self, now_ms: int) -> None:
        """The sequence of a heartbeat is the time on our clock, so that its echo says by itself how old it is."""
        self._beaten_ms = now_ms
        if self._out is not None:
            own = self._links
            beat = Heartbeat(
                own.node_id, own.incarnation, now_ms, self.heard_seq, self.incarnation, own.retiring, own.read_only,
                own.slow, own.sync_us, own.wall_ms(), own.clocks.is_off, own.crowded,
            )  # fmt: skip
            self._out.put_first(encode_frame(Opcode.HEARTBEAT, 0, 0, encode_message(beat)))

    def beat_again(self, now_ms: int) -> None:
        """A beat outside the rhythm, so that a fresh link counts as up within a round trip; bounded in rate."""
        if now_ms - self._beaten_ms >= BEAT_AGAIN_MS:
            self.beat(now_ms)

    def heard(self, beat: Heartbeat) -> None:
        """A heartbeat of this peer came in (on its connection to us)."""
        self.heard_seq = max(self.heard_seq, beat.seq)
        if beat.retiring and not self.retiring:
            self.history.retiring(self._links.now_ms())
        self.retiring = beat.retiring
        self.read_only = beat.read_only
        self.slow = beat.slow
        self.clock_off = beat.clock_off
        self.sync_us = beat.sync_us
        self.crowded = beat.crowded
        self.resume_soon()
        if beat.echo_incarnation != self._links.incarnation or not beat.echo_seq:
            return
        now_ms = self._links.now_ms()
        # One that was under way for longer may say anything of its sender's clock.
        if beat.wall_ms is not None and now_ms < beat.echo_seq + PEER_TIMEOUT_MS:
            self._links.clocks.agreement.heard(self.node_id, beat.wall_ms, now_ms)
        self._alive_until_ms = max(self._alive_until_ms, beat.echo_seq + PEER_TIMEOUT_MS)

    def excuse(self, late_ms: int) -> None:
        """This node itself did nothing for so long: neither did it beat, nor did it read what the peer sent."""
        if self.up:
            self._alive_until_ms += late_ms

    def restarted(self, incarnation: int) -> None:
        """The peer greets with a newer incarnation: whatever it led, it leads no more."""
        self.history.expect(RESTARTED)
        self.incarnation = incarnation
        self.incarnation_since_ms = self._links.clocks.agreed_ms()
        self.retiring = False
        self.heard_seq = 0
        self._alive_until_ms = 0
        self._pause_s = RECONNECT_PAUSE_S_MIN

    def is_newer(self, incarnation: int) -> bool:
        """Was it started after the one that is known? An incarnation that was taken from a clock far ahead, before it
        was set right, is no older than its first greeting here. Once it is down, what was started later is newer."""
        is_later = self.incarnation > self.incarnation_since_ms and incarnation > self.incarnation_since_ms
        return incarnation > self.incarnation or (is_later and incarnation != self.incarnation and not self.up)

    def is_alive(self, now_ms: int) -> bool:
        return now_ms < self._alive_until_ms

    def write(self, frame: bytes) -> None:
        if self._out is not None:
            self._out.put(frame)
            self._out.flush()

    def look(self, now_ms: int) -> None:
        """Is it cut for want of progress? And whoever waits is not forgotten, whatever made the room."""
        out = self._out
        WAITING.labels(self.node_id).set(0 if out is None else out.bytes)
        if out is not None and self._transport is not None and out.is_stuck(now_ms):
            CUTS["peer_stuck"].inc()
            _log.warning("cutting a link: its peer reads nothing", peer=self.node_id, waiting_bytes=out.bytes)
            self._transport.abort()
        self.resume_soon()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        _keep_little_unsent(self._transport)
        own = self._links
        self._out = Outflow(self._transport, own.budget, Kind.LINKS)
        address = own.address
        hello = PeerHello(
            own.cluster_id, own.node_id, own.incarnation, self.node_id, address.host, address.port, address.zone
        )
        self._answers = FrameDecoder()
        self.write(encode_frame(Opcode.PEER_HELLO, 0, 0, encode_message(hello)))
        self.beat(own.now_ms())

    def pause_writing(self) -> None:
        if self._out is not None:
            self._out.pause()

    def resume_writing(self) -> None:
        if self._out is not None:
            self._out.resume()
            self.resume_soon()

    def data_received(self, data: bytes) -> None:
        """Nothing is answered on a link, but that we are not let in."""
        try:
            for _opcode, flags, _request_id, payload in self._answers.feed(data):
                if flags & FLAG_ERROR:
                    self._refused(_error_reply.decode(payload).message)
        except (FrameError, msgspec.DecodeError) as error:
            self._refused(f"it is no storage node: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        out, self._out = self._out, None
        if out is not None:
            out.close()
        self.take_outbox()
        self.crowded = False
        self._lost.set()
        self.resume_soon()  # what they send is dropped, and sent again when the peer is up

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _refused(self, objection: str) -> None:
        if objection != self._objection:
            self._objection = objection
            _log.warning("a peer does not let this node in", peer=self.node_id, reason=objection)
        # Not at full speed: only an operator, or the cluster log, can change what it objects to.
        self._pause_s = RECONNECT_PAUSE_S_MAX
        self.hang_up()


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
    ) -> None:
        self.loop = loop
        self.cluster_id = cluster_id
        self.address = address
        self.node_id = address.node_id
        self.incarnation = incarnation
        self.retiring = False
        # What the heartbeats say of this node's disk (`care.py`).
        self.read_only = False
        self.slow = False
        self.sync_us = 0
        self.crowded = False
        self.budget = budget or MemoryBudget()
        self._clock = clock
        self.clocks = ClockWatch(clock, self.node_id)
        self._on_change = on_change
        # Called with its length when this node stood still for longer than its peers wait for it.
        self.on_stall: Callable[[int], None] = lambda gap_ms: None
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
            link.hang_up()
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

    def _flush(self) -> None:
        """One frame per peer with all that gathered. Peers that get the same messages share one encoding."""
        self._flushing = False
        encoded: dict[tuple[int, ...], list[bytes]] = {}
        outboxes: list[list[RaftMessage]] = []
        for link in self._links.values():
            if not link.outbox:
                continue
            messages = link.take_outbox()
            outboxes.append(messages)  # kept alive while their ids are keys
            key = tuple(map(id, messages))
            frames = encoded.get(key)
            if frames is None:
                frames = encoded[key] = self._encode(messages)
            for frame in frames:
                link.write(frame)

    def _encode(self, messages: list[RaftMessage]) -> list[bytes]:
        frames = []
        while messages:
            share, messages = _take_frame(messages)
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
        """Is it up, not about to stop, its disk neither full nor slow, and its clock not off?"""
        return self.may_follow(peer) and not self.is_clock_off(peer)

    def may_follow(self, peer: int) -> bool:
        """The same, whatever its clock says: a replica that follows needs none."""
        link = self._links.get(peer)
        return link is not None and link.up and not (link.retiring or link.read_only or link.slow)

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
            return f"this is node {self.node_id}, not node {hello.to}"
        if hello.node_id in self._expelled:
            return f"node {hello.node_id} was decommissioned; stop it. To bring the machine back, add it as a new node"
        link = self._links.get(hello.node_id)
        if link is None:
            return f"node {hello.node_id} is not registered with this cluster; a new node is started to join it"
        if link.is_newer(hello.incarnation):
            link.restarted(hello.incarnation)
            self.check(link)
        elif hello.incarnation != link.incarnation:
            return (
                f"node {hello.node_id} was started again after this process of it; if it was not, its clock was behind "
                "when this process began: set it right and start the node again"
            )
        if hello.host:
            link.claimed = NodeAddress(hello.node_id, hello.host, hello.port, hello.zone)
            link.moved(link.claimed)
        return ""

    def heard(self, beat: Heartbeat) -> None:
        link = self._links.get(beat.node_id)
        if link is not None and beat.incarnation == link.incarnation:
            link.heard(beat)
            self.check(link)
            if not link.up:
                link.beat_again(self._clock.mono_ms())

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
                link.excuse(gap_ms - HEARTBEAT_INTERVAL_MS)
            link.beat(now_ms)
            link.look(now_ms)
        # Only now: with thousands of replicas it takes its time when a peer goes down.
        for link in list(self._links.values()):
            self.check(link)
        if gap_ms > PEER_TIMEOUT_MS:
            self.on_stall(gap_ms)
        self.on_beat(now_ms)

    def look_at_clock(self) -> None:
        """Called before anything that came in is handled. After a pause what clients sent may be handled before what
        new leaders sent, and before any timer: the clock alone tells in time."""
        if self.turn_ms and self._clock.mono_ms() - self.turn_ms > PEER_TIMEOUT_MS:
            self.beat_all()


def size_of(message: RaftMessage) -> int:
    """About how many bytes it takes in a frame, and in memory."""
    if type(message) is AppendEntries:
        return 64 + sum(map(len, message.entries))
    if type(message) is SnapshotChunk:
        return 64 + len(message.checkpoint) + sum(map(len, message.entries))
    return 64


def _take_frame(messages: list[RaftMessage]) -> tuple[list[RaftMessage], list[RaftMessage]]:
    """Split off the first messages that fit one frame."""
    size = FRAME_SLACK_BYTES
    for index, message in enumerate(messages):
        size += size_of(message)
        if index and size > FRAME_BYTES_MAX:
            return messages[:index], messages[index:]
    return messages, []


def _keep_little_unsent(transport: asyncio.Transport) -> None:
    """Have the kernel take no more than the network carries soon: a heartbeat waits behind all that it took."""
    link = transport.get_extra_info("socket")
    if link is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, TRANSPORT_BYTES_MAX)
