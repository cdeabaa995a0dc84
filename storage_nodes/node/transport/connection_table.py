"""All inbound connections of a node: how many there may be, who is cut, and who is read.

Frames that are not whole have a share of the node's memory. When it is used up, of all clients in the middle of a frame
only one is read, the one whose frame began first, until it is whole; then the next. So each of them comes to an end,
and no more is held than the share, one frame, and what one read of each client brings. Only the one that is read is
judged by its pace: it is cut where it is slower than FRAME_BYTES_PER_S_MIN, because the others wait for it. Links of
peers are always read: there are few, and one large frame of each has room.
"""

from __future__ import annotations

import asyncio

from prometheus_client import Gauge

from storage_nodes.limits import (
    CLIENT_CONNECTIONS_MAX,
    CONNECTION_LOOK_MS,
    CONNECTIONS_MAX,
    FRAME_BYTES_PER_S_MIN,
    FRAMES_AGAIN_PERCENT,
    FRAMES_SHORT_MS_MAX,
    LOOK_COUNTS_MS_MAX,
)
from storage_nodes.node.memory.memory_budget import Kind
from storage_nodes.node.transport.connections import NodeConnection, Requests

OPEN = Gauge("penstock_node_connections", "Inbound connections, of clients and peers")
PAUSED = Gauge("penstock_node_connections_paused", "Client connections whose requests are not read at the moment")


class ConnectionTable:
    """In the order in which they came, so that whatever is done to all is done in the same order every time."""

    def __init__(self, requests: Requests, loop: asyncio.AbstractEventLoop) -> None:
        self._requests = requests
        self._loop = loop
        self._connections: dict[NodeConnection, None] = {}
        self._looked_ms = 0
        self._frames_begun = 0
        # Do frames that are not whole take too much memory? Then this client is read, until its frame is whole.
        self._is_short = False
        self._first: NodeConnection | None = None
        self._pace = _Pace()
        OPEN.set_function(lambda: len(self._connections))
        PAUSED.set_function(lambda: sum(not connection.is_reading for connection in list(self._connections)))

    def accept(self) -> NodeConnection:
        connection = NodeConnection(self._requests, self._loop, self)
        self._connections[connection] = None
        return connection

    def is_over(self) -> bool:
        return len(self._connections) > CONNECTIONS_MAX

    def client_greeted(self) -> str:
        """ "" = it is let in, otherwise why not."""
        clients = sum(connection.is_client for connection in self._connections)
        return f"{clients} clients are connected already" if clients >= CLIENT_CONNECTIONS_MAX else ""

    def gone(self, connection: NodeConnection) -> None:
        self._connections.pop(connection, None)

    # --- frames that are not whole ----------------------------------------------------------------------------

    def begin_frame(self) -> int:
        """The number of a frame of which a first part came."""
        self._frames_begun += 1
        return self._frames_begun

    def has_frame_room(self, connection: NodeConnection) -> bool:
        """May it be read, as far as that is up to frames that are not whole?"""
        return not self._is_short or connection is self._first or bool(connection.peer) or not connection.pending_bytes

    def look_at_frames(self) -> None:
        """Called when the part of a frame that is there grew, or became a whole one."""
        budget = self._requests.room.budget
        used_bytes, share_bytes = budget.used(Kind.FRAMES), budget.shares_bytes[Kind.FRAMES]
        was_short = self._is_short
        self._is_short = used_bytes >= (share_bytes * FRAMES_AGAIN_PERCENT // 100 if was_short else share_bytes)
        if not self._is_short and not was_short:
            return
        begun = [one for one in self._connections if one.pending_bytes and not one.peer and one.is_open]
        first = min((one for one in begun if not one.holds), key=_turn, default=None) if self._is_short else None
        if first is not self._first:
            self._first, self._pace = first, _Pace()
        for connection in begun:
            connection.look_at_reading()
        if used_bytes >= 2 * share_bytes and begun:
            newest = max(begun, key=_turn)
            newest.cut("frames_memory", "frames that are not whole take too much memory, and this one is the newest")

    def _look_at_first(self, now_ms: int) -> None:
        """Others wait for the one that is read."""
        first = self._first
        if first is None:
            return
        if not first.is_reading:
            self._pace = _Pace()  # there is no memory at all: it is not its fault
        elif self._pace.is_too_slow(now_ms, first.frame_number, first.pending_bytes):
            self._pace = _Pace()
            first.cut("frames_memory", "frames that are not whole take too much memory, and this one comes too slowly")

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

    def close_peer_connections(self, peer: int) -> None:
        for connection in [one for one in self._connections if one.peer == peer]:
            connection.close()

    def close(self) -> None:
        for connection in list(self._connections):
            connection.close()


def _turn(connection: NodeConnection) -> tuple[bool, int]:
    """Whose frame is read first: of those that said who they are, the one that began first."""
    return not connection.is_client, connection.frame_number


class _Pace:
    """How fast the frame of one connection comes, while it alone is read. Told the time by whoever looks; pure. Time in
    which the node stood still does not count."""

    __slots__ = ("_counted_ms", "_from_bytes", "_looked_ms", "_number")

    def __init__(self) -> None:
        self._number = self._counted_ms = self._from_bytes = self._looked_ms = 0

    def is_too_slow(self, now_ms: int, number: int, pending_bytes: int) -> bool:
        if number != self._number:
            self._number, self._counted_ms, self._from_bytes, self._looked_ms = number, 0, pending_bytes, now_ms
            return False
        self._counted_ms += min(now_ms - self._looked_ms, LOOK_COUNTS_MS_MAX)
        self._looked_ms = now_ms
        if self._counted_ms < FRAMES_SHORT_MS_MAX:
            return False
        came_bytes = pending_bytes - self._from_bytes
        too_slow = came_bytes * 1000 < FRAME_BYTES_PER_S_MIN * self._counted_ms
        self._counted_ms, self._from_bytes = 0, pending_bytes
        return too_slow
