"""Links to the nodes and the table of who leads what.

The table is a guess that is corrected by answers: NOT_LEADER carries the leader where the node knows it, an
unreachable node makes the next replica the guess. Nothing is asked up front.

The node list is where a client begins; nodes come and go afterwards. When an answer names a node that is not known
here, or nobody asked has the partition, the nodes are asked to describe the cluster, once for all who wait, and their
answer takes the place of the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from storage_nodes.client.connection import ClientConnection, Completion, connect
from storage_nodes.ids import node_name
from storage_nodes.model import NodeAddress
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    ClusterInfo,
    DescribeClusterRequest,
    Opcode,
    PartitionInfo,
    encode_message,
)
from storage_nodes.trust.credentials import Credentials

CONNECT_TIMEOUT_S = 2.0
DESCRIBE_TIMEOUT_S = 3.0
# The cluster is not described to us more often than this.
REFRESH_PAUSE_S = 0.2
# After a failed connect, calls to that node fail at once for this long: a dead node must not slow the others.
RECONNECT_PAUSE_S = 0.1
# For so long nobody's word sends us to such a node: who gives it may not know yet that it is dead. Not for ever: others
# may send us in a circle around the one that leads, and it is back by now. Nor to one that said itself that it does not
# lead and knows nobody who does: it may be cut off from the leader, and in line before it.
HINT_PAUSE_S = 1.0
LEADERS_KNOWN_MAX = 100_000

# A partition may have moved, a node may listen elsewhere now.
_LOST = (ErrorCode.UNKNOWN_PARTITION, ErrorCode.UNREACHABLE)
_cluster_info = msgspec.msgpack.Decoder(ClusterInfo)


class Call:
    """A request under way; `cancel` gives it up wherever it stands."""

    __slots__ = ("_connection", "_request_id", "cancelled")

    def __init__(self, connection: ClientConnection | None = None, request_id: int = 0) -> None:
        self._connection = connection
        self._request_id = request_id
        self.cancelled = False

    def asked(self, connection: ClientConnection, request_id: int) -> None:
        self._connection = connection
        self._request_id = request_id

    @property
    def node_is_there(self) -> bool:
        return self._connection is not None and self._connection.node_is_there

    def cancel(self) -> bool:
        """May the node have heard of it?"""
        self.cancelled = True
        return self._connection is not None and self._connection.cancel(self._request_id)

    def ask_to_cancel(self) -> None:
        """Its completion still hears the answer, if the node gives one."""
        self.cancelled = True
        if self._connection is not None:
            self._connection.ask_to_cancel(self._request_id)


class NodeLinks:
    """One connection per node, opened on demand, and the leader table."""

    def __init__(
        self, cluster_id: str, nodes: Sequence[NodeAddress], name: str, credentials: Credentials | None = None
    ) -> None:
        assert nodes, "a client needs at least one node"
        self._cluster_id = cluster_id
        self._credentials = credentials
        self._name = name
        self._nodes = {node.node_id: node for node in nodes}
        self._order = [node.node_id for node in nodes]
        self._connections: dict[int, ClientConnection] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, list[tuple[int, bytes, Completion, Call]]] = {}
        self._refused_until: dict[int, float] = {}
        # Until when no hint is taken to a node to which the last attempt to connect failed.
        self._unhinted_until: dict[int, float] = {}
        self._leaders: dict[int, int] = {}
        # Who said last of a partition that it has no leader, and until when no hint to it is taken.
        self._leaderless: dict[int, tuple[int, float]] = {}
        # Partitions whose whereabouts are to be asked for.
        self._lost: set[int] = set()
        self._refresher: asyncio.Task[None] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def close(self) -> None:
        self._closed = True
        if self._refresher is not None:
            self._refresher.cancel()
        for task in self._connecting.values():
            task.cancel()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def learn(self, info: PartitionInfo) -> None:
        if info.leader and len(self._leaders) < LEADERS_KNOWN_MAX:
            self._leaders[info.partition] = info.leader

    def guess(self, partition: int) -> int:
        """The node that we take for the leader of `partition`."""
        node_id = self._leaders.get(partition)
        if node_id is None:
            node_id = self._order[partition % len(self._order)]
            if len(self._leaders) >= LEADERS_KNOWN_MAX:
                self._leaders.clear()
            self._leaders[partition] = node_id
        return node_id

    def ask_node(self, node_id: int, opcode: int, payload: bytes, done: Completion, at_once: bool = False) -> Call:
        """Ask one node, over a connection that is opened where there is none. `at_once`: see `ClientConnection.ask`."""
        connection = self._connections.get(node_id)
        if connection is not None and connection.is_open:
            return Call(connection, connection.ask(opcode, payload, done, at_once))
        call = Call()
        self._ask_later(node_id, opcode, payload, done, call)
        return call

    def forget_leader(self, partition: int, error: StorageError) -> None:
        """The guess was wrong: take the hint, or the next node in turn.

        Many calls fail with the same node, one after the other. Only the first may correct the table: if each did,
        as many calls as there are nodes would turn the guess in a circle, back to the node that failed. Nor is a hint
        taken, for HINT_PAUSE_S, to a node that was not there when asked last, or knew of no leader.
        """
        assert self.loop is not None, "start() comes first"
        guess = self._leaders.get(partition, self._order[0])
        if error.asked not in (0, guess):
            return
        if error.leader in self._nodes and self._takes_hint(partition, error.leader, self.loop.time()):
            self._leaders[partition] = error.leader
            return
        if error.code is ErrorCode.NOT_LEADER and not error.leader:
            if len(self._leaderless) >= LEADERS_KNOWN_MAX:
                self._leaderless.clear()
            self._leaderless[partition] = (guess, self.loop.time() + HINT_PAUSE_S)
        if error.leader or error.code in _LOST:
            self._find(partition)
        if error.traits.refresh_metadata:
            order = self._order
            self._leaders[partition] = order[(order.index(guess) + 1) % len(order)] if guess in order else order[0]

    def _takes_hint(self, partition: int, node_id: int, now_s: float) -> bool:
        if now_s < self._unhinted_until.get(node_id, 0.0):
            return False
        knew_none, until_s = self._leaderless.get(partition, (0, 0.0))
        return node_id != knew_none or now_s >= until_s

    async def ask(self, node_id: int, opcode: int, payload: bytes) -> bytes:
        """Ask one given node. Raises StorageError."""
        assert self.loop is not None, "start() comes first"
        future: asyncio.Future[bytes] = self.loop.create_future()

        def done(result: bytes | StorageError) -> None:
            if not future.done():
                if isinstance(result, StorageError):
                    future.set_exception(result)
                else:
                    future.set_result(result)

        call = self.ask_node(node_id, opcode, payload, done)
        try:
            async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
                return await future
        except TimeoutError as error:
            call.cancel()
            raise StorageError(ErrorCode.UNREACHABLE, f"node {node_name(node_id)} did not answer") from error

    async def describe(self, partitions: list[int] | None, moving: bool = False) -> ClusterInfo:
        """Ask the nodes in turn; the first answer of one that has a manager counts. Without one a node is cut off, or
        knows of nothing yet: what it says may be old, and is taken only where nobody says better."""
        last: StorageError = StorageError(ErrorCode.UNREACHABLE, "no node answered")
        doubtful: ClusterInfo | None = None
        for node_id in list(self._order):
            try:
                info = await self.describe_node(node_id, partitions, moving)
            except StorageError as error:
                last = error
                continue
            if info.nodes and info.manager:
                return self._take(info)
            if doubtful is None or not doubtful.nodes:
                doubtful = info
        if doubtful is None:
            raise last
        return self._take(doubtful)

    def _take(self, info: ClusterInfo) -> ClusterInfo:
        self._learn_nodes(info)
        for partition in info.partitions:
            self.learn(partition)
        return info

    async def describe_node(self, node_id: int, partitions: list[int] | None, moving: bool = False) -> ClusterInfo:
        """What one given node knows, page by page. Raises StorageError."""
        rows: list[PartitionInfo] = []
        first = 0
        while True:
            payload = encode_message(DescribeClusterRequest(partitions, first, moving))
            info = _cluster_info.decode(await self.ask(node_id, Opcode.DESCRIBE_CLUSTER, payload))
            rows += info.partitions
            if info.next <= first:
                return msgspec.structs.replace(info, partitions=rows, next=0)
            first = info.next

    # --- nodes that come and go -----------------------------------------------------------------------------

    def _learn_nodes(self, info: ClusterInfo) -> None:
        """Nodes are added and get other addresses. Those not named go, if the answering node has a manager: otherwise
        it is cut off, or was sent away, and what it says may be old. One that names nobody has folded nothing yet."""
        for node in info.nodes:
            address = NodeAddress(node.node_id, node.host, node.port, node.zone)
            known = self._nodes.get(node.node_id)
            if node.node_id not in self._order:
                self._order.append(node.node_id)
            if known is not None and known[1:3] != address[1:3]:
                stale = self._connections.pop(node.node_id, None)
                if stale is not None:
                    stale.close()
            self._nodes[node.node_id] = address
        if info.manager and info.nodes:
            named = {node.node_id for node in info.nodes}
            self._order = [node_id for node_id in self._order if node_id in named]

    def _find(self, partition: int) -> None:
        """Ask where a partition is. One question is under way at a time."""
        if self._closed or self.loop is None:
            return
        self._lost.add(partition)
        if self._refresher is None or self._refresher.done():
            self._refresher = self.loop.create_task(self._refresh())

    async def _refresh(self) -> None:
        while self._lost:
            wanted, self._lost = list(self._lost), set()
            try:
                info = await self.describe(wanted)
            except StorageError:
                return  # nobody answers: the calls that wait try on by themselves
            alive = {node.node_id for node in info.nodes if node.alive}
            for partition in info.partitions:
                replica = next((replica for replica in partition.replicas if replica in alive), 0)
                if not partition.leader and replica in self._nodes:
                    self._leaders[partition.partition] = replica
            await asyncio.sleep(REFRESH_PAUSE_S)

    # --- connecting -----------------------------------------------------------------------------------------

    def _ask_later(self, node_id: int, opcode: int, payload: bytes, done: Completion, call: Call) -> None:
        assert self.loop is not None, "start() comes first"
        if node_id not in self._nodes:
            done(StorageError(ErrorCode.UNREACHABLE, f"node {node_name(node_id)} is not known here"))
            return
        if self._closed or self.loop.time() < self._refused_until.get(node_id, 0.0):
            done(StorageError(ErrorCode.UNREACHABLE, f"node {node_name(node_id)} is not reachable"))
            return
        self._waiting.setdefault(node_id, []).append((opcode, payload, done, call))
        if node_id not in self._connecting:
            self._connecting[node_id] = self.loop.create_task(self._connect(node_id))

    async def _connect(self, node_id: int) -> None:
        node = self._nodes[node_id]
        assert self.loop is not None
        try:
            connection = await connect(self._cluster_id, self._name, node, CONNECT_TIMEOUT_S, self._credentials)
        except StorageError as error:
            self._refused_until[node_id] = self.loop.time() + RECONNECT_PAUSE_S
            self._unhinted_until[node_id] = self.loop.time() + HINT_PAUSE_S
            for _, _, done, _ in self._waiting.pop(node_id, []):
                done(error)
        else:
            self._connections[node_id] = connection
            self._unhinted_until.pop(node_id, None)
            for opcode, payload, done, call in self._waiting.pop(node_id, []):
                if not call.cancelled:
                    call.asked(connection, connection.ask(opcode, payload, done))
        finally:
            self._connecting.pop(node_id, None)
