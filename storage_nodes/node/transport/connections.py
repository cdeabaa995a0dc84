"""Inbound connections of a node: frames in, answers out. Knows nothing of what a request means.

The first frame must be a HELLO (client) or PEER_HELLO (node) of this cluster. A malformed frame closes the connection,
is logged, and concerns nobody else; a well-framed request that makes no sense is answered with INVALID_REQUEST and the
connection stays usable. Answers given within one turn of the event loop leave in one write.

Whoever reads its answers slowly is read slowly: answers wait here (`outflow.py`), and while more than
CONNECTION_ANSWERS_BYTES_MAX do, no further request of that client is handled or read. While nothing is read the client
is sent an answer to a PING that it did not send, now and then: the node is there. Nor is a client read in the middle of
a frame while such frames take too much memory and it is not its turn (`connection_table.py`). A connection is cut
(`look`) when nothing leaves it any more, when it does not greet, and when a frame takes for ever. Leases in answers
that were not handed to the transport by then go back to their queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

import msgspec
import structlog
from prometheus_client import Counter

from storage_nodes.ids import node_name
from storage_nodes.limits import (
    CONNECTION_ANSWERS_BYTES_MAX,
    REFUSED_CLOSE_MS,
    REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
    WRITE_BYTES,
)
from storage_nodes.node.memory.memory_budget import Kind
from storage_nodes.node.memory.room import NodeRoom
from storage_nodes.node.transport.answers import error_frame, peer_refusal
from storage_nodes.node.transport.connection_deadline import ConnectionDeadline
from storage_nodes.node.transport.outflow import Outflow
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import FLAG_ANSWER, Frame, FrameDecoder, FrameError, encode_frame
from storage_nodes.protocol.levels import Speaks
from storage_nodes.protocol.messages import UNREADABLE, Cancel, Empty, Hello, Opcode, encode_message, message_reader
from storage_nodes.protocol.peer_messages import Heartbeat, Manage, PeerHello, PeerRefusal, RaftFrame
from storage_nodes.trust.connection import is_node
from storage_nodes.trust.names import InnerName
from storage_nodes.trust.permissions import KNOWN, NEVER_OF_CLIENTS, freely, may
from storage_nodes.trust.refusals import NODE, ROLE, connection_refused, operation_refused

MALFORMED_FRAMES = Counter("penstock_node_malformed_frames", "Connections closed because of a malformed frame")
CUT = Counter("penstock_node_connections_cut", "Connections that this node cut, by reason", ["reason"])
REASONS = ("stuck", "no_greeting", "slow_frame", "frames_memory", "too_many", "peer_stuck")
# All from the start: a series that is not there until it counts for the first time is no use to an alarm.
CUTS = {reason: CUT.labels(reason) for reason in REASONS}

_hello = message_reader(Hello)
_peer_hello = message_reader(PeerHello)
_heartbeat = message_reader(Heartbeat)
_raft_frame = message_reader(RaftFrame)
_manage = message_reader(Manage)
_cancel = message_reader(Cancel)

_EMPTY = encode_message(Empty())
# Plain numbers: every frame is compared with them.
_PING = int(Opcode.PING)
_CANCEL = int(Opcode.CANCEL)
_RAFT = int(Opcode.RAFT)
# Nobody asked with this id: whoever waits for anything at all hears that the node is there.
_ALIVE = encode_frame(Opcode.PING, FLAG_ANSWER, 0, _EMPTY)

# How long a node that is not let in has to hang up by itself.
TURNED_AWAY_S = 0.5
REFUSED_CLOSE_S = REFUSED_CLOSE_MS / 1000

_log = structlog.get_logger()


class Token(NamedTuple):
    """Names one request: whom to answer, and under which id."""

    connection: NodeConnection
    request_id: int
    opcode: int


class Requests(Protocol):
    """What a connection needs of the node."""

    cluster_id: str
    node_id: int
    room: NodeRoom
    speaks: Speaks

    @property
    def turn(self) -> Callable[[], None]:
        """To be called before anything that came in is handled."""
        ...

    def request(self, token: Token, payload: bytes) -> None: ...
    def cancelled(self, token: Token, partition: int) -> None: ...
    def peer_greeted(self, hello: PeerHello) -> str: ...
    def peer_heard(self, beat: Heartbeat) -> str: ...
    def refusal(self, objection: str) -> PeerRefusal: ...
    def raft_frame(self, sender: int, frame: RaftFrame) -> None: ...
    def manage(self, commands: list[bytes]) -> None: ...


class Connections(Protocol):
    """All of a node, as one of them needs them (`connection_table.py`)."""

    def is_over(self) -> bool: ...
    def client_greeted(self, hello: Hello, source: str, name: object) -> StorageError | None: ...
    def gone(self, connection: NodeConnection) -> None: ...
    def begin_frame(self) -> int: ...
    def look_at_frames(self) -> None: ...
    def has_frame_room(self, connection: NodeConnection) -> bool: ...


class NodeConnection(asyncio.Protocol):
    """One inbound connection."""

    def __init__(self, requests: Requests, loop: asyncio.AbstractEventLoop, table: Connections) -> None:
        self._requests = requests
        self._room = requests.room
        self._turn = requests.turn
        self._loop = loop
        self._table = table
        self._transport: asyncio.Transport | None = None
        self._out: Outflow | None = None
        self._flushing = False
        # What to do when an answer is lost with the connection: (its number among the frames put, what).
        self._undelivered: deque[tuple[int, Callable[[], None]]] = deque()
        self._decoder = FrameDecoder()
        self.pending_bytes = 0  # of a frame that is not whole yet
        # Which one that is, counted over all connections, and how many frames this one had brought when it began.
        self.frame_number = 0
        self._began_at = -1
        # Requests that were read and are handled when answers have drained.
        self._held: list[Frame] = []
        self._holds = False
        self._resuming = False
        self._reading = True
        self._greeted = False
        self._turned_away = False
        self._peer: PeerHello | None = None
        # What the certificate of the other end says, and what it may ask for whatever it says; None: all of it.
        self._name: InnerName | None = None
        self._free: frozenset[int] | None = None
        self._in_flight = 0
        self._frames = 0
        self._deadline = ConnectionDeadline()
        # Requests that wait at a partition and may be cancelled: request id -> (partition, opcode).
        self.parked: dict[int, tuple[int, int]] = {}

    def named(self, name: InnerName) -> NodeConnection:
        """Before it begins: the other end is this process."""
        self._name = name
        self._free = freely(name.role)
        return self

    @property
    def peer(self) -> int:
        """The node at the other end; 0 = a client."""
        return 0 if self._peer is None else self._peer.node_id

    @property
    def is_client(self) -> bool:
        return self._greeted and self._peer is None

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    @property
    def is_reading(self) -> bool:
        return self._reading

    @property
    def holds(self) -> bool:
        """Is it not read because its client does not read its answers?"""
        return self._holds

    @property
    def is_full(self) -> bool:
        """Do so many answers wait that no large one should join them?"""
        out = self._out
        if out is None:
            return False
        held_bytes = out.bytes
        return held_bytes >= 2 * CONNECTION_ANSWERS_BYTES_MAX or (
            out.is_paused and not self._room.budget.may_hold(Kind.ANSWERS, held_bytes + out.passed_bytes)
        )

    def answer(self, token: Token, payload: bytes, undelivered: Callable[[], None] | None = None) -> None:
        """`undelivered` is called if the connection is lost before the answer was handed to its transport."""
        self._in_flight -= 1
        if self.parked:
            self.parked.pop(token.request_id, None)
        if undelivered is not None:
            if self._out is None:
                self._loop.call_soon(undelivered)
            else:
                self._undelivered.append((self._out.frames, undelivered))
        self._write(encode_frame(token.opcode, FLAG_ANSWER, token.request_id, payload))

    def refuse(self, token: Token, error: StorageError) -> None:
        self._in_flight -= 1
        self.parked.pop(token.request_id, None)
        self._write(error_frame(token.opcode, token.request_id, error))

    def close(self) -> None:
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def cut(self, reason: str, text: str) -> None:
        if self._transport is not None:
            CUTS[reason].inc()
            _log.warning("cutting a connection", reason=text, source=str(self._transport.get_extra_info("peername")))
            self._transport.abort()

    def look(self, now_ms: int) -> None:
        """Is it cut for want of progress? And a client that is not read hears that the node is there."""
        out = self._out
        if out is None:
            return
        self._deadline.look(now_ms)
        if out.is_stuck(now_ms):
            self.cut("stuck", "nothing of its answers was read for too long")
        elif not self._greeted and self._deadline.greeting_is_over(now_ms):
            self.cut("no_greeting", "it did not say who it is in time")
        elif self._deadline.frame_is_over(now_ms, self._frames, self.pending_bytes if self._reading else 0):
            self.cut("slow_frame", "a frame began and its end does not come")
        elif not self._reading and not out.is_paused:
            self._write(_ALIVE)

    def look_at_reading(self) -> None:
        """Read requests, or do not: because of what waits here, or because the node has no memory left."""
        reads = not (self._holds or (self._room.exhausted and self.is_client)) and self._table.has_frame_room(self)
        if reads != self._reading and self._transport is not None:
            self._reading = reads
            if reads:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _write(self, frame: bytes) -> None:
        out = self._out
        if out is None:
            return
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        # As `put`: this is the one caller whose cost counts.
        out.waiting.append(frame)
        out.bytes += len(frame)

    def _flush(self) -> None:
        self._flushing = False
        out = self._out
        if out is not None:
            out.flush()
            if self._undelivered or self._holds:
                self._drained(out)

    def _drained(self, out: Outflow) -> None:
        """Some of the answers left, perhaps."""
        undelivered = self._undelivered
        while undelivered and undelivered[0][0] < out.written:
            undelivered.popleft()
        if self._holds and not self._resuming and out.bytes <= CONNECTION_ANSWERS_BYTES_MAX // 2 and not self.is_full:
            self._resuming = True
            self._loop.call_soon(self._handle_held)

    # --- asyncio.Protocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._out = Outflow(self._transport, self._room.budget, Kind.ANSWERS)
        if self._table.is_over():
            self.cut("too_many", "there are too many connections")

    def pause_writing(self) -> None:
        if self._out is not None:
            self._out.pause()

    def resume_writing(self) -> None:
        if self._out is not None:
            self._out.resume()
            self._drained(self._out)

    def data_received(self, data: bytes) -> None:
        if self._turned_away:
            return
        self._turn()
        try:
            frames = self._decoder.feed(data)
            self._frames += len(frames)
            pending_bytes = self._decoder.pending_bytes
            if pending_bytes != self.pending_bytes or (pending_bytes and frames):
                self._account_pending()
            self._handle(frames)
        except (FrameError, msgspec.DecodeError) as error:
            self._malformed(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._decoder = FrameDecoder()
        self._account_pending()
        out, self._out = self._out, None
        self._held.clear()
        self._holds = False
        parked, self.parked = self.parked, {}
        for request_id, (partition, opcode) in parked.items():
            self._requests.cancelled(Token(self, request_id, opcode), partition)
        if out is not None:
            written = out.written
            out.close()
            undelivered, self._undelivered = self._undelivered, deque()
            for number, give_back in undelivered:
                if number >= written:
                    give_back()
        self._table.gone(self)

    # --- frames ---------------------------------------------------------------------------------------------

    def _handle(self, frames: list[Frame]) -> None:
        """Raises FrameError, msgspec.DecodeError."""
        out = self._out
        for frame in frames:
            if self._turned_away or out is None:
                return
            opcode, _flags, request_id, payload = frame
            peer = self._peer
            if peer is not None:
                self._from_peer(opcode, payload, peer)
            elif not self._greeted:
                self._greet(opcode, request_id, payload)
            elif opcode == _PING:
                self._write(encode_frame(opcode, FLAG_ANSWER, request_id, _EMPTY))
            elif self._holds:
                self._held.append(frame)
            else:
                self._from_client(opcode, request_id, payload)
            if out.bytes > WRITE_BYTES and not self._holds:
                # Now, and not when the turn is over: only then is it known how much waits.
                out.flush()
                self._holds = out.bytes > CONNECTION_ANSWERS_BYTES_MAX or self.is_full
        if self._holds:
            self.look_at_reading()
            if self.pending_bytes:
                self._table.look_at_frames()

    def _handle_held(self) -> None:
        self._resuming = self._holds = False
        held, self._held = self._held, []
        try:
            self._handle(held)
        except (FrameError, msgspec.DecodeError) as error:
            self._malformed(error)
        self.look_at_reading()
        if self.pending_bytes:
            self._table.look_at_frames()

    def _account_pending(self) -> None:
        pending_bytes = self._decoder.pending_bytes
        self._room.budget.take(Kind.FRAMES, pending_bytes - self.pending_bytes)
        self.pending_bytes = pending_bytes
        if pending_bytes and self._began_at != self._frames:
            self._began_at, self.frame_number = self._frames, self._table.begin_frame()
        if self._peer is None:
            self._table.look_at_frames()

    def _malformed(self, error: Exception) -> None:
        MALFORMED_FRAMES.inc()
        name = "" if self._name is None else str(self._name)
        _log.warning("closing a connection after a malformed frame", error=str(error), source=self._source(), name=name)
        if self._transport is not None:
            self._transport.abort()

    def _greet(self, opcode: int, request_id: int, payload: bytes) -> None:
        if opcode == Opcode.HELLO:
            hello = _hello(payload)
            if hello.cluster_id != self._requests.cluster_id:
                raise FrameError("a client of another cluster")
            if self._free is not None and not self._free:
                self._turn_stranger_away(ROLE, "it has nothing to ask of storage nodes", request_id, opcode)
                return
            refused = self._table.client_greeted(hello, self._source(), self._name)
            if refused is not None:
                self._turn_away(error_frame(Opcode.HELLO, request_id, refused))
                return
            self._greeted = True
            own = Hello(self._requests.cluster_id, "node", self._requests.node_id, self._requests.speaks[:2])
            self._write(encode_frame(Opcode.HELLO, FLAG_ANSWER, request_id, encode_message(own)))
            self.look_at_reading()
        elif opcode == Opcode.PEER_HELLO:
            peer = _peer_hello(payload)
            if peer.cluster_id != self._requests.cluster_id:
                raise FrameError("a node of another cluster")
            if self._name is not None and is_node(peer.node_id)(self._name):
                text = f"it greets as node {node_name(peer.node_id)}"
                self._turn_stranger_away(NODE, text, request_id, opcode)
                return
            objection = self._requests.peer_greeted(peer)
            if objection:
                self._turn_peer_away(peer, objection)
                return
            self._greeted = True
            self._peer = peer
            # Until now it was taken for a client.
            self.look_at_reading()
            self._table.look_at_frames()
        else:
            raise FrameError(f"opcode {opcode} before the greeting")

    def _turn_peer_away(self, peer: PeerHello, objection: str) -> None:
        _log.info("not letting a node in", peer=peer.node_id, reason=objection, source=self._source())
        self._turn_away(peer_refusal(self._requests.refusal(objection)))

    def _turn_stranger_away(self, reason: str, text: str, request_id: int, opcode: int) -> None:
        connection_refused(reason, text, self._source(), self._name)
        if opcode == Opcode.PEER_HELLO:
            frame = peer_refusal(self._requests.refusal(text))
        else:
            frame = error_frame(opcode, request_id, StorageError(ErrorCode.FORBIDDEN, text))
        self._turn_away(frame, REFUSED_CLOSE_S)

    def _source(self) -> str:
        return str(self._transport.get_extra_info("peername")) if self._transport else ""

    def _turn_away(self, why: bytes, after_s: float = TURNED_AWAY_S) -> None:
        """Say why it is not let in. It hangs up then: if we did, with frames of it unread, the word would be lost with
        the connection."""
        self._turned_away = True
        self._write(why)
        self._loop.call_later(after_s, self.close)

    def _from_peer(self, opcode: int, payload: bytes, peer: PeerHello) -> None:
        if opcode == _RAFT:
            frame = _raft_frame(payload)
            if frame.incarnation == peer.incarnation:
                self._requests.raft_frame(peer.node_id, frame)
        elif opcode == Opcode.HEARTBEAT:
            beat = _heartbeat(payload)
            if beat.node_id != peer.node_id:
                raise FrameError(f"node {node_name(peer.node_id)} beats for node {node_name(beat.node_id)}")
            objection = self._requests.peer_heard(beat)
            if objection:
                self._turn_peer_away(peer, objection)
        elif opcode == Opcode.MANAGE:
            self._requests.manage(_manage(payload).commands)
        else:
            raise FrameError(f"opcode {opcode} does not travel between nodes")

    def _may(self, opcode: int, request_id: int, payload: bytes) -> bool:
        """Of what its role may not ask for, or not always. A caller that asks for it is broken, or another process: it
        is told, and hung up on. What nobody can read is answered as ever."""
        name = self._name
        assert name is not None
        try:
            if opcode not in KNOWN or may(name, opcode, payload):
                return True
        except msgspec.DecodeError:
            return True
        operation = Opcode(opcode).name
        operation_refused(operation, self._source(), name, name.role)
        text = f"a process of the role {name.role} may not ask for {operation}"
        self._turn_away(error_frame(opcode, request_id, StorageError(ErrorCode.FORBIDDEN, text)), REFUSED_CLOSE_S)
        return False

    def _from_client(self, opcode: int, request_id: int, payload: bytes) -> None:
        if opcode == _CANCEL:
            cancelled_id = _cancel(payload).correlation_id
            where = self.parked.pop(cancelled_id, None)
            if where is not None:
                self._requests.cancelled(Token(self, cancelled_id, where[1]), where[0])
            return
        free = self._free
        if free is not None and opcode not in free and not self._may(opcode, request_id, payload):
            return
        token = Token(self, request_id, opcode)
        self._in_flight += 1
        try:
            if self._in_flight > REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX:
                raise StorageError(ErrorCode.OVERLOADED, "too many requests in flight on this connection")
            self._requests.request(token, payload)
        except StorageError as error:
            if error.code == ErrorCode.UNKNOWN_OPCODE and opcode in NEVER_OF_CLIENTS:
                raise FrameError(f"{Opcode(opcode).name} from a client that has greeted") from None
            self.refuse(token, error)
        except UNREADABLE as error:
            self.refuse(token, StorageError(ErrorCode.INVALID_REQUEST, str(error)))
        except Exception as error:
            # Our bug, met while reading a request: one caller is told, the others go on.
            _log.exception("request failed", opcode=opcode)
            self.refuse(token, StorageError(ErrorCode.INTERNAL, type(error).__name__))
