"""One outgoing connection to a peer: its greeting, frames that wait for it, and what its heartbeats told.

What a peer reads slowly waits here in order (`outflow.py`), heartbeats past it. What is sent while the link is down is
dropped: the Raft machines send again when the peer is up. A link is cut only when nothing leaves it any more.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from storage_nodes.ids import node_name
from storage_nodes.limits import (
    FRAME_BYTES_MAX,
    LINK_BYTES_MAX,
    LINK_RESUMES_PER_TURN,
    MONOTONIC_DRIFT_PERMILLE,
    PEER_TIMEOUT_MS,
    TRANSPORT_BYTES_MAX,
)
from storage_nodes.model import NodeAddress
from storage_nodes.node.clocks.clock_watch import ClockWatch
from storage_nodes.node.memory.memory_budget import Kind, MemoryBudget
from storage_nodes.node.transport.connections import CUTS
from storage_nodes.node.transport.directory_age import OwnAge, PeerAge
from storage_nodes.node.transport.leases import LeaderLeases
from storage_nodes.node.transport.outflow import Outflow
from storage_nodes.node.transport.peer_history import NO_PROCESS, RESTARTED, PeerHistory
from storage_nodes.protocol.frames import FLAG_ERROR, FrameDecoder, FrameError, encode_frame
from storage_nodes.protocol.levels import Speaks
from storage_nodes.protocol.messages import Opcode, encode_message, message_reader
from storage_nodes.protocol.peer_messages import Heartbeat, PeerHello, PeerRefusal, RaftMessage, size_of
from storage_nodes.trust.connection import PeerRefused, connect_named, is_node
from storage_nodes.trust.credentials import Credentials

RECONNECT_PAUSE_S_MIN = 0.05
RECONNECT_PAUSE_S_MAX = 0.5
CONNECT_TIMEOUT_S = 1.0
# With a handshake, for which the peer has to have its turns: one that was just started may be late.
HANDSHAKE_TIMEOUT_S = 3.0
# Beats that answer beats of a peer that is not up come no faster than this: two such peers must not storm each other.
BEAT_AGAIN_MS = 20
# Room in a frame for everything but the entries themselves.
FRAME_SLACK_BYTES = 64 * 1024

# Addresses remembered of one peer: the newest one and the one before it.
ADDRESSES_MAX = 2

NOT_SENT = Counter("penstock_node_raft_messages_not_sent", "Raft messages dropped because too much waited for a peer")
WAITING = Gauge("penstock_node_link_bytes", "Bytes that wait for a peer to read them", ["peer"])

_refusal = message_reader(PeerRefusal)
_log = structlog.get_logger()


class LinkOwner(Protocol):
    """All links of this node, as one of them needs them (`peers.py`)."""

    loop: asyncio.AbstractEventLoop
    cluster_id: str
    node_id: int
    address: NodeAddress
    incarnation: int
    began_ms: int
    retiring: bool
    read_only: bool
    slow: bool
    crowded: bool
    sync_us: int
    budget: MemoryBudget
    clocks: ClockWatch
    leases: LeaderLeases
    age: OwnAge
    on_older: Callable[[int, int], None]
    on_level: Callable[[int], None]
    credentials: Credentials | None
    speaks: Speaks

    def now_ms(self) -> int: ...
    def wall_ms(self) -> int: ...
    def check(self, link: PeerLink) -> None: ...
    def flush_soon(self) -> None: ...
    def is_connected(self, peer: int) -> bool: ...
    def clocks_heard(self, beat: Heartbeat) -> None: ...


class PeerLink(asyncio.Protocol):
    """Our outgoing connection to one peer, and what we know of its liveness."""

    def __init__(self, links: LinkOwner, address: NodeAddress) -> None:
        self._links = links
        self.node_id = address.node_id
        # The first one is what was said last; the others are tried when it does not answer.
        self.addresses = [address]
        # Where the peer itself says that it listens.
        self.claimed: NodeAddress | None = None
        self.up = False
        self.incarnation = 0
        # When that one greeted first, and when our latest beat left that it has echoed: it lived then (0 = never).
        self._greeted_ms = 0
        self._lived_ms = 0
        # Our age when the peer did not let us in, and what it told then.
        self._told = (0, 0, 0)
        self.retiring = False
        self.read_only = False
        self.slow = False
        self.clock_off = self.clock_unknown = False
        # The peer's memory is short: leaders do not feed it.
        self.crowded = False
        self.sync_us = 0
        self.heard_seq = 0
        self._transport: asyncio.Transport | None = None
        self._out: Outflow | None = None
        # What was sent in this turn, with about so many bytes, and who waits until there is room for more.
        self.outbox: list[RaftMessage] = []
        self.outbox_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._resuming = False
        self.alive_until_ms = 0
        self._beaten_ms = 0
        self._pause_s = RECONNECT_PAUSE_S_MIN
        self._lost = asyncio.Event()
        self.history = PeerHistory()
        self.lease = links.leases.add(self.node_id)
        self.age = PeerAge()
        # What its present process said in its greeting, and what we had against that.
        self.speaks: Speaks | None = None
        self.level_objection = ""
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
        expected = is_node(self.node_id)
        timeout_s = CONNECT_TIMEOUT_S if self._links.credentials is None else HANDSHAKE_TIMEOUT_S
        while True:
            address = self.addresses[self._attempt % len(self.addresses)]
            try:
                async with asyncio.timeout(timeout_s):
                    self._lost.clear()
                    await connect_named(self._links.credentials, lambda: self, address.host, address.port, expected)
                self._pause_s = RECONNECT_PAUSE_S_MIN
                self._refusals = 0
                await self._lost.wait()
                self._attempt += not self.up
            except ConnectionRefusedError:
                self._attempt += 1
                self._refusals += 1
                if self._refusals >= len(self.addresses):
                    self.alive_until_ms = 0
                    if not self._links.is_connected(self.node_id):
                        self.lease.release()
                    self.history.expect(NO_PROCESS)
                    self._links.check(self)
            except PeerRefused as error:
                self._attempt += 1
                self._refused(str(error))
            except (OSError, TimeoutError):
                self._attempt += 1
            except ValueError as error:  # a name that no resolver takes (UnicodeError of IDNA)
                self._attempt += 1
                self._say_once("the address of a peer is none", f"{address.host}: {error}")
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, RECONNECT_PAUSE_S_MAX)

    def send(self, message: RaftMessage) -> None:
        out = self._out
        if out is None:
            return
        size = size_of(message)
        waiting_bytes = out.bytes + self.outbox_bytes
        # What `has_room` let go is sent, however large it is: dropped for its own size it would be dropped each time.
        if waiting_bytes >= LINK_BYTES_MAX and waiting_bytes + size > 2 * LINK_BYTES_MAX:
            NOT_SENT.inc()
            return
        self.outbox.append(message)
        self.outbox_bytes += size
        self._links.flush_soon()

    def take_outbox(self) -> list[RaftMessage]:
        messages, self.outbox = self.outbox, []
        self.outbox_bytes = 0
        return messages

    def has_room(self) -> bool:
        """For an append; it is dropped where the link is down, so there is no point in waiting."""
        out = self._out
        if out is None:
            return True
        held_bytes = out.bytes + self.outbox_bytes
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
                own.clocks.agreement.known(now_ms), own.clocks.is_unknown, self.lease.promise,
                own.age.synced(), own.age.accounted, self.age.incarnation, self.age.sequence,
            )  # fmt: skip
            self._out.put_first(encode_frame(Opcode.HEARTBEAT, 0, 0, encode_message(beat)))

    def send_heartbeat(self, now_ms: int) -> None:
        """A beat outside the rhythm, so that a fresh link counts as up within a round trip; bounded in rate."""
        if now_ms - self._beaten_ms >= BEAT_AGAIN_MS:
            self.beat(now_ms)

    def heard(self, beat: Heartbeat) -> None:
        """A heartbeat of this peer came in (on its connection to us)."""
        now_ms = self._links.now_ms()
        self.lease.heard(now_ms)
        is_latest = beat.seq >= self.heard_seq
        self.heard_seq = max(self.heard_seq, beat.seq)
        if beat.retiring and not self.retiring:
            self.history.retiring(now_ms)
        self.retiring = beat.retiring
        self.read_only = beat.read_only
        self.slow = beat.slow
        self.clock_off = beat.clock_off
        self.clock_unknown = beat.clock_unknown
        self.sync_us = beat.sync_us
        self.crowded = beat.crowded
        self.resume_soon()
        if is_latest:
            self._look_at_ages(beat)
        # What this node has yet to send, nobody echoes.
        if beat.echo_incarnation != self._links.incarnation or not 0 < beat.echo_seq <= now_ms:
            return
        if is_latest:
            self._links.leases.echoed(self.lease, beat.promise, beat.echo_seq)
        # One that was under way for longer may say anything of its sender's clock.
        if now_ms < beat.echo_seq + PEER_TIMEOUT_MS:
            self._links.clocks_heard(beat)
        self.alive_until_ms = max(self.alive_until_ms, beat.echo_seq + PEER_TIMEOUT_MS)
        self._lived_ms = max(self._lived_ms, beat.echo_seq)

    def _look_at_ages(self, beat: Heartbeat) -> None:
        own = self._links
        self.age.heard(beat.incarnation, beat.sequence, beat.accounted)
        # Of this very process nobody knows more than it synced: another life had its incarnation, which an older
        # directory gave out once more.
        is_other = beat.known_incarnation != own.incarnation or beat.known_sequence > own.age.synced()
        if is_other and beat.known_sequence > own.age.accounted:
            own.on_older(self.node_id, beat.known_sequence)

    def extend_lease(self, late_ms: int) -> None:
        """This node itself did nothing for so long: neither did it beat, nor did it read what the peer sent."""
        if self.up:
            self.alive_until_ms += late_ms

    def restarted(self, incarnation: int) -> None:
        """Another process of the peer greets: whatever it led, it leads no more."""
        self.history.expect(RESTARTED)
        self.incarnation = incarnation
        self.speaks = None
        self.lease.restarted()
        self._greeted_ms = self._links.now_ms()
        self._lived_ms = 0
        self.retiring = False
        self.heard_seq = 0
        self.alive_until_ms = 0
        self._pause_s = RECONNECT_PAUSE_S_MIN

    def is_newer(self, hello: PeerHello) -> bool:
        """Was the process that greets started after the one that is known?

        A higher incarnation says so. A lower one may be of a process that lost its directory, and whose clock is
        behind, or was ahead before; or of an ended process, whose greeting is read late. Only the former can answer:
        it was told something after the known one greeted, and had not been started when the known one lived (R4). Of
        its age the way of the refusal is to be taken off, which nobody knows: less than the peers' patience.
        """
        if hello.incarnation > self.incarnation:
            return True
        if self.up or hello.told_by != self._links.incarnation or hello.told_ms <= self._greeted_ms:
            return False
        unsure_ms = PEER_TIMEOUT_MS + hello.age_ms * MONOTONIC_DRIFT_PERMILLE // 1000
        return hello.told_ms - hello.age_ms + unsure_ms > self._lived_ms

    def is_alive(self, now_ms: int) -> bool:
        return now_ms < self.alive_until_ms

    def write(self, frame: bytes) -> None:
        if self._out is not None:
            self._out.put(frame)
            self._out.flush()

    def look(self, now_ms: int) -> None:
        """Is it cut for want of progress? And whoever waits is not forgotten, whatever made the room."""
        out = self._out
        WAITING.labels(node_name(self.node_id)).set(0 if out is None else out.bytes)
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
            own.cluster_id, own.node_id, own.incarnation, self.node_id, address.host, address.port, address.zone,
            *self._told, own.speaks,
        )  # fmt: skip
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
                    refusal = _refusal(payload)
                    age_ms = self._links.now_ms() - self._links.began_ms
                    self._told = (age_ms, refusal.told_ms, refusal.told_by)
                    self._refused(refusal.message)
                    self._links.on_level(refusal.level)
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

    def close_peer_connections(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _refused(self, objection: str) -> None:
        self._say_once("a peer does not let this node in", objection)
        # Not at full speed: only an operator, or the cluster log, can change what it objects to.
        self._pause_s = RECONNECT_PAUSE_S_MAX
        self.close_peer_connections()

    def _say_once(self, what: str, reason: str) -> None:
        if reason != self._objection:
            self._objection = reason
            _log.warning(what, peer=self.node_id, reason=reason)


def take_frame(messages: list[RaftMessage]) -> tuple[list[RaftMessage], list[RaftMessage]]:
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
