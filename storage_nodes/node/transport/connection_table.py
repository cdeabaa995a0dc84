"""All inbound connections of a node: how many there may be, who is cut, and who is read.

Frames that are not whole have a share of the node's memory. When those of clients use it up, of all clients in the
middle of a frame only one is read, until its frame is whole; then the next, in the order in which the frames began. So
each of them comes to an end, and no more is held than the share, one frame, and what one read of each client brings.
One that is slower than FRAME_BYTES_PER_S_MIN is cut, because the others wait for it; one that is faster, but not done
within FRAMES_TURN_MS_MAX, goes behind the others while there is room for what all of them gain by that. Links of peers
are always read and do not count: there are few, and one frame of each has room beside the share.
"""

from __future__ import annotations

import asyncio
import enum

from prometheus_client import Gauge

from storage_nodes.limits import (
    CLIENT_CONNECTIONS_MAX,
    CONNECTION_LOOK_MS,
    CONNECTIONS_MAX,
    FRAME_BYTES_MAX,
    FRAME_BYTES_PER_S_MIN,
    FRAMES_AGAIN_PERCENT,
    FRAMES_TURN_MS_MAX,
    GREETING_BYTES_MAX,
    LOOK_COUNTS_MS_MAX,
)
from storage_nodes.node.memory.memory_budget import Kind
from storage_nodes.node.transport.connections import NodeConnection, Requests
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.levels import Speaks
from storage_nodes.protocol.messages import Hello
from storage_nodes.trust.connection import ServerEnd
from storage_nodes.trust.credentials import Credentials
from storage_nodes.trust.handshakes import OpenHandshakes
from storage_nodes.trust.refusals import LEVEL, connection_refused

OPEN = Gauge("penstock_node_connections", "Inbound connections, of clients and peers")
PAUSED = Gauge("penstock_node_connections_paused", "Client connections whose requests are not read at the moment")


class ConnectionTable:
    """In the order in which they came, so that whatever is done to all is done in the same order every time."""

    def __init__(
        self, requests: Requests, loop: asyncio.AbstractEventLoop, credentials: Credentials | None = None
    ) -> None:
        self._requests = requests
        self._credentials = credentials
        self._handshakes = OpenHandshakes()
        self._loop = loop
        self._connections: dict[NodeConnection, None] = {}
        self._looked_ms = 0
        self._frames_begun = 0
        self._refusing = ""  # why this node serves no clients
        # Do frames that are not whole take too much memory? Then this client is read, until its frame is whole.
        self._is_short = False
        self._first: NodeConnection | None = None
        self._pace = _Pace()
        OPEN.set_function(lambda: len(self._connections))
        PAUSED.set_function(lambda: sum(not connection.is_reading for connection in list(self._connections)))

    def accept(self) -> asyncio.Protocol:
        """What comes in counts from here on, also while it has not shown its certificate yet."""
        connection = NodeConnection(self._requests, self._loop, self)
        self._connections[connection] = None
        if self._credentials is None:
            return connection
        return ServerEnd(
            self._credentials,
            self._handshakes,
            connection.named,
            is_crowded=self.is_over,
            lost=lambda: self.gone(connection),
        )

    def is_over(self) -> bool:
        return len(self._connections) > CONNECTIONS_MAX

    def client_greeted(self, hello: Hello, source: str, name: object) -> StorageError | None:
        """None: it is let in, otherwise why not."""
        clients = sum(connection.is_client for connection in self._connections)
        if clients >= CLIENT_CONNECTIONS_MAX:
            return StorageError(ErrorCode.OVERLOADED, f"{clients} clients are connected already")
        if self._refusing:
            return StorageError(ErrorCode.SHUTTING_DOWN, self._refusing)
        lowest, highest = hello.levels
        objection = self._requests.speaks.objection(Speaks(lowest, highest), f"the client {hello.name!r:.100}")
        if not objection:
            return None
        connection_refused(LEVEL, objection, source, name)
        return StorageError(ErrorCode.UNAVAILABLE, objection)

    def refuse_clients(self, why: str) -> None:
        """Those that are there are cut, and none is let in any more."""
        self._refusing = why
        for connection in [one for one in self._connections if one.is_client]:
            connection.close()

    def gone(self, connection: NodeConnection) -> None:
        self._connections.pop(connection, None)

    # --- frames that are not whole ----------------------------------------------------------------------------

    def begin_frame(self) -> int:
        """The number of a frame of which a first part came."""
        self._frames_begun += 1
        return self._frames_begun

    def has_frame_room(self, connection: NodeConnection) -> bool:
        """May it be read, as far as that is up to frames that are not whole? Half a greeting is small, and has a
        deadline of its own."""
        if not self._is_short or connection is self._first or connection.peer:
            return True
        return connection.pending_bytes <= (0 if connection.is_client else GREETING_BYTES_MAX)

    def look_at_frames(self) -> None:
        """Called when the part of a frame that is there grew or became a whole one, and when a client in the middle of
        a frame may be read again, or may not."""
        budget = self._requests.room.budget
        share_bytes = budget.shares_bytes[Kind.FRAMES]
        was_short = self._is_short
        short_from = share_bytes * FRAMES_AGAIN_PERCENT // 100 if was_short else share_bytes
        if not was_short and budget.used(Kind.FRAMES) < short_from:
            return
        begun = [one for one in self._connections if one.pending_bytes and not one.peer and one.is_open]
        used_bytes = sum(one.pending_bytes for one in begun)
        self._is_short = used_bytes >= short_from
        if not self._is_short and not was_short:
            return
        first = min((one for one in begun if not one.holds), key=_turn, default=None) if self._is_short else None
        if first is not self._first:
            self._first, self._pace = first, _Pace()
        for connection in begun:
            connection.look_at_reading()
        if used_bytes >= 2 * share_bytes:
            newest = max(begun, key=_turn)
            newest.cut("frames_memory", "frames that are not whole take too much memory, and this one is the newest")

    def _look_at_first(self, now_ms: int) -> None:
        """Others wait for the one that is read."""
        if self._is_short:
            self.look_at_frames()
        first = self._first
        if first is None:
            return
        if not first.is_reading:
            self._pace = _Pace()  # there is no memory at all: it is not its fault
            return
        pace = self._pace.of(now_ms, first.frame_number, first.pending_bytes)
        if pace == Pace.TOO_SLOW:
            first.cut("frames_memory", "frames that are not whole take too much memory, and this one comes too slowly")
        elif pace == Pace.NOT_DONE and self._has_room_for_turns():
            first.frame_number = self.begin_frame()
            self.look_at_frames()

    def _has_room_for_turns(self) -> bool:
        """Each turn leaves more of a frame behind that is not whole. Beyond this the first one is read to its end."""
        budget = self._requests.room.budget
        return 2 * (budget.used(Kind.FRAMES) + FRAME_BYTES_MAX) <= 3 * budget.shares_bytes[Kind.FRAMES]

    # --- all ----------------------------------------------------------------------------------------------------

    def look(self, now_ms: int) -> None:
        """To be called often; looks at all of them now and then."""
        if now_ms - self._looked_ms < CONNECTION_LOOK_MS:
            return
        self._looked_ms = now_ms
        self._look_at_first(now_ms)
        for connection in list(self._connections):
            connection.look(now_ms)

    def look_at_reading(self) -> None:
        """Called when the node's memory budget ran out or is free again."""
        for connection in list(self._connections):
            connection.look_at_reading()

    def has_peer(self, peer: int) -> bool:
        """Does a connection that this peer opened stand?"""
        return any(one.peer == peer and one.is_open for one in self._connections)

    def close_peer_connections(self, peer: int) -> None:
        for connection in [one for one in self._connections if one.peer == peer]:
            connection.close()

    def close(self) -> None:
        for connection in list(self._connections):
            connection.close()


def _turn(connection: NodeConnection) -> tuple[bool, int]:
    """Whose frame is read first: of those that said who they are, the one that began first."""
    return not connection.is_client, connection.frame_number


class Pace(enum.Enum):
    FINE = 0
    NOT_DONE = 1
    TOO_SLOW = 2


class _Pace:
    """How fast the frame of one connection comes, while it alone is read. Told the time by its caller; pure. Time in
    which the node stood still does not count."""

    __slots__ = ("_counted_ms", "_from_bytes", "_looked_ms", "_number")

    def __init__(self) -> None:
        self._number = self._counted_ms = self._from_bytes = self._looked_ms = 0

    def of(self, now_ms: int, number: int, pending_bytes: int) -> Pace:
        if number != self._number:
            self._number, self._counted_ms, self._from_bytes, self._looked_ms = number, 0, pending_bytes, now_ms
            return Pace.FINE
        self._counted_ms += min(now_ms - self._looked_ms, LOOK_COUNTS_MS_MAX)
        self._looked_ms = now_ms
        if self._counted_ms < FRAMES_TURN_MS_MAX:
            return Pace.FINE
        came_bytes, took_ms = pending_bytes - self._from_bytes, self._counted_ms
        self._counted_ms, self._from_bytes = 0, pending_bytes
        return Pace.TOO_SLOW if came_bytes * 1000 < FRAME_BYTES_PER_S_MIN * took_ms else Pace.NOT_DONE
