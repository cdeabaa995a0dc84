"""All inbound connections of a node: how many there may be, who is cut, and who is read."""

from __future__ import annotations

import asyncio

from prometheus_client import Gauge

from storage_nodes.limits import CLIENT_CONNECTIONS_MAX, CONNECTION_LOOK_MS, CONNECTIONS_MAX
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

    def cut_oldest_frame(self) -> None:
        """Frames that are not whole take more memory than they may: the slowest client gives way. A peer's link does
        not: there are few, and one large frame of each has room."""
        late = [one for one in self._connections if not one.peer and one.pending_bytes]
        if late:
            oldest = min(late, key=lambda one: (one.frame_since_ms or 2**63, -one.pending_bytes))
            oldest.cut("frames_memory", "frames that are not whole take too much memory, and this one is the oldest")

    def look(self, now_ms: int) -> None:
        """To be called often; looks at all of them now and then."""
        if now_ms - self._looked_ms < CONNECTION_LOOK_MS:
            return
        self._looked_ms = now_ms
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
