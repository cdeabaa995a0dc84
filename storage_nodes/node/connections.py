"""Inbound connections of a node: frames in, answers out. Knows nothing of what a request means.

The first frame must be a HELLO (client) or PEER_HELLO (node) of this cluster. A malformed frame closes the connection,
is logged, and concerns nobody else; a well-framed request that makes no sense is answered with INVALID_REQUEST and the
connection stays usable. Answers given within one turn of the event loop leave in one write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

import msgspec
import structlog
from prometheus_client import Counter

from storage_nodes.limits import CONNECTION_WRITE_BUFFER_BYTES_MAX, REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import FLAG_ANSWER, FLAG_ERROR, FrameDecoder, FrameError, encode_frame
from storage_nodes.protocol.messages import Cancel, Empty, ErrorReply, Hello, Opcode, encode_message
from storage_nodes.protocol.peer_messages import Heartbeat, Manage, PeerHello, RaftFrame

MALFORMED_FRAMES = Counter("penstock_node_malformed_frames", "Connections closed because of a malformed frame")

_hello = msgspec.msgpack.Decoder(Hello)
_peer_hello = msgspec.msgpack.Decoder(PeerHello)
_heartbeat = msgspec.msgpack.Decoder(Heartbeat)
_raft_frame = msgspec.msgpack.Decoder(RaftFrame)
_manage = msgspec.msgpack.Decoder(Manage)
_cancel = msgspec.msgpack.Decoder(Cancel)

_EMPTY = encode_message(Empty())

# How long a node that is not let in has to hang up by itself.
TURNED_AWAY_S = 1.0

_log = structlog.get_logger()


class Token(NamedTuple):
    """Names one request: whom to answer, and under which id."""

    connection: Connection
    request_id: int
    opcode: int


class Requests(Protocol):
    """What a connection needs of the node."""

    cluster_id: str
    node_id: int

    @property
    def turn(self) -> Callable[[], None]:
        """To be called before anything that came in is handled."""
        ...

    def request(self, token: Token, payload: bytes) -> None: ...
    def cancelled(self, token: Token, partition: int) -> None: ...
    def peer_greeted(self, hello: PeerHello) -> str: ...
    def peer_heard(self, beat: Heartbeat) -> None: ...
    def raft_frame(self, sender: int, frame: RaftFrame) -> None: ...
    def manage(self, commands: list[bytes]) -> None: ...


class Connection(asyncio.Protocol):
    """One inbound connection."""

    def __init__(self, requests: Requests, loop: asyncio.AbstractEventLoop, gone: Callable[[Connection], None]) -> None:
        self._requests = requests
        self._turn = requests.turn
        self._loop = loop
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder()
        self._out: list[bytes] = []
        self._greeted = False
        self._turned_away = False
        self._peer: PeerHello | None = None
        self._in_flight = 0
        # Requests that wait at a partition and may be cancelled: request id -> (partition, opcode).
        self.parked: dict[int, tuple[int, int]] = {}

    @property
    def peer(self) -> int:
        """The node at the other end; 0 = a client."""
        return 0 if self._peer is None else self._peer.node_id

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def answer(self, token: Token, payload: bytes) -> None:
        self._in_flight -= 1
        if self.parked:
            self.parked.pop(token.request_id, None)
        self._write(encode_frame(token.opcode, FLAG_ANSWER, token.request_id, payload))

    def refuse(self, token: Token, error: StorageError) -> None:
        self._in_flight -= 1
        self.parked.pop(token.request_id, None)
        payload = encode_message(ErrorReply(error.code, error.message, error.leader, error.retry_after_ms))
        self._write(encode_frame(token.opcode, FLAG_ANSWER | FLAG_ERROR, token.request_id, payload))

    def close(self) -> None:
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def _write(self, frame: bytes) -> None:
        if self._transport is None:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None:
            self._transport.write(b"".join(out))
            if self._transport.get_write_buffer_size() > CONNECTION_WRITE_BUFFER_BYTES_MAX:
                _log.warning("closing a connection that does not read its answers")
                self._transport.abort()

    # --- asyncio.Protocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._turned_away:
            return
        self._turn()
        try:
            for opcode, _flags, request_id, payload in self._decoder.feed(data):
                if self._turned_away:
                    return
                if not self._greeted:
                    self._greet(opcode, request_id, payload)
                elif self._peer is not None:
                    self._from_peer(opcode, payload, self._peer)
                else:
                    self._from_client(opcode, request_id, payload)
        except (FrameError, msgspec.DecodeError) as error:
            MALFORMED_FRAMES.inc()
            source = self._transport.get_extra_info("peername") if self._transport else None
            _log.warning("closing a connection after a malformed frame", error=str(error), source=str(source))
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._out.clear()
        parked, self.parked = self.parked, {}
        for request_id, (partition, opcode) in parked.items():
            self._requests.cancelled(Token(self, request_id, opcode), partition)
        self._gone(self)

    def _greet(self, opcode: int, request_id: int, payload: bytes) -> None:
        if opcode == Opcode.HELLO:
            hello = _hello.decode(payload)
            if hello.cluster_id != self._requests.cluster_id:
                raise FrameError("a client of another cluster")
            self._greeted = True
            own = Hello(self._requests.cluster_id, "node", self._requests.node_id)
            self._write(encode_frame(Opcode.HELLO, FLAG_ANSWER, request_id, encode_message(own)))
        elif opcode == Opcode.PEER_HELLO:
            peer = _peer_hello.decode(payload)
            if peer.cluster_id != self._requests.cluster_id:
                raise FrameError("a node of another cluster")
            objection = self._requests.peer_greeted(peer)
            if objection:
                self._turn_away(peer, objection)
                return
            self._greeted = True
            self._peer = peer
        else:
            raise FrameError(f"opcode {opcode} before the greeting")

    def _turn_away(self, peer: PeerHello, objection: str) -> None:
        """Tell a node why it is not let in. It hangs up then: if we did, with frames of it unread, the word would be
        lost with the connection."""
        _log.info("not letting a node in", peer=peer.node_id, reason=objection)
        self._turned_away = True
        payload = encode_message(ErrorReply(ErrorCode.INVALID_REQUEST, objection))
        self._write(encode_frame(Opcode.PEER_HELLO, FLAG_ANSWER | FLAG_ERROR, 0, payload))
        self._loop.call_later(TURNED_AWAY_S, self.close)

    def _from_peer(self, opcode: int, payload: bytes, peer: PeerHello) -> None:
        if opcode == Opcode.RAFT:
            frame = _raft_frame.decode(payload)
            if frame.incarnation == peer.incarnation:
                self._requests.raft_frame(peer.node_id, frame)
        elif opcode == Opcode.HEARTBEAT:
            self._requests.peer_heard(_heartbeat.decode(payload))
        elif opcode == Opcode.MANAGE:
            self._requests.manage(_manage.decode(payload).commands)
        else:
            raise FrameError(f"opcode {opcode} does not travel between nodes")

    def _from_client(self, opcode: int, request_id: int, payload: bytes) -> None:
        if opcode == Opcode.CANCEL:
            cancelled_id = _cancel.decode(payload).correlation_id
            where = self.parked.pop(cancelled_id, None)
            if where is not None:
                self._requests.cancelled(Token(self, cancelled_id, where[1]), where[0])
            return
        if opcode == Opcode.PING:
            self._write(encode_frame(opcode, FLAG_ANSWER, request_id, _EMPTY))
            return
        token = Token(self, request_id, opcode)
        self._in_flight += 1
        try:
            if self._in_flight > REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX:
                raise StorageError(ErrorCode.OVERLOADED, "too many requests in flight on this connection")
            self._requests.request(token, payload)
        except StorageError as error:
            self.refuse(token, error)
        except msgspec.DecodeError as error:
            self.refuse(token, StorageError(ErrorCode.INVALID_REQUEST, str(error)))
        except Exception as error:
            # Our bug, met while reading a request: one caller is told, the others go on.
            _log.exception("request failed", opcode=opcode)
            self.refuse(token, StorageError(ErrorCode.INTERNAL, type(error).__name__))
