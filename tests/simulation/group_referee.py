"""What members of consumer groups were promised (R31), checked when it is committed and when it leaves the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storage_nodes.log.record_batch import read_header
from storage_nodes.node.replicas.stream_replica import StreamReplica
from storage_nodes.protocol.messages import (
    GroupCommitReply,
    GroupCommitRequest,
    GroupCommittedReply,
    GroupCommittedRequest,
    GroupMembership,
    GroupReadRequest,
    Opcode,
    StreamReadReply,
)
from tests.simulation.books import StreamBook
from tests.simulation.group_book import GroupBook

if TYPE_CHECKING:
    from tests.simulation.clients import Operation
    from tests.simulation.world import World

GROUPS = (b"one", b"two")
OPCODES = range(Opcode.GROUP_JOIN, Opcode.GROUP_DELETE + 1)


class GroupReferee:
    def __init__(self, world: World) -> None:
        self._world = world
        # (group, partition) -> offsets of records that some member has processed
        self.processed: dict[tuple[bytes, int], set[int]] = {}
        self.commits = 0
        self.grants = 0

    def answered(self, operation: Operation, reply: Any) -> None:
        opcode, request = operation.opcode, operation.request
        if opcode in (Opcode.GROUP_JOIN, Opcode.GROUP_HEARTBEAT):
            self.check_owned(request.partition, request.group, reply)
        elif opcode == Opcode.GROUP_COMMIT:
            self.check_commit(operation, reply)
        elif opcode == Opcode.GROUP_COMMITTED:
            self.check_committed(operation.request, reply)
        elif opcode == Opcode.GROUP_READ:
            self.check_reader(request, reply)

    # --- when it is committed -----------------------------------------------------------------------------------

    def folded(self, partition: int, book: StreamBook) -> None:
        """R31: one owner per partition and generation; none before the partition refuses the others."""
        groups, fail = book.groups, self._world.oracle.fail
        for problem in groups.problems:
            fail("R31 revoke before grant", problem)
        for given in groups.news:
            holder = self.book(given.partition).holder.get(given.group)
            if holder is None and given.partition == partition:
                holder = groups.let_go.get(given.group)  # left and deleted by the same entry
            if holder != (given.generation, given.epoch):
                fail("R31 fenced before granted", f"{given}: partition {given.partition} obeys {holder}")
            self.grants += 1
        groups.news.clear()
        groups.let_go.clear()
        for group, before, offset in groups.advanced:
            self.check_processed(partition, book, group, before, offset)
        groups.advanced.clear()

    def check_processed(self, partition: int, book: StreamBook, group: bytes, before: int, offset: int) -> None:
        """R31: what is committed was processed by some member of the group, every record of it."""
        self.commits += 1
        processed = self.processed.get((group, partition), set())
        missed = [o for o in range(max(before, 0), offset) if o in book.bodies and o not in processed]
        if missed:
            self._world.oracle.fail("R31 processed once at least", f"partition {partition}: {missed} below {offset}")

    # --- when it leaves the node ----------------------------------------------------------------------------------

    def check_owned(self, coordinator: int, group: bytes, reply: GroupMembership) -> None:
        """R31: whoever is told that it owns a partition was given it, in that generation, and nobody else."""
        given = self.book(coordinator).given
        for partition, generation in (*reply.owned, *reply.revoke):
            epoch = given.get((group, partition, generation))
            if epoch != reply.epoch:
                text = f"partition {partition} of generation {generation}: {reply.epoch} is told, it is of {epoch}"
                self._world.oracle.fail("R31 one owner per generation", text)

    def check_commit(self, operation: Operation, reply: GroupCommitReply) -> None:
        """R31: no commit of a fenced member is taken; what is answered is committed and below the high watermark."""
        request: GroupCommitRequest = operation.request
        book, fail = self.book(request.partition), self._world.oracle.fail
        if not book.holds(request.group, request.generation, request.epoch, operation.applied):
            fail("R31 zombies are fenced", f"{request} is answered with {reply}")
        if reply.offset > self._world.oracle.committed[request.partition].end:
            fail("R31 below the high watermark", f"{request}: {reply}")
        reached = book.reached.get((request.group, request.generation, request.epoch), -1)
        if not request.offset <= reply.offset <= reached:
            fail("R31 acked is committed", f"{request}: {reply}, by the log {reached}")

    def check_committed(self, request: GroupCommittedRequest, reply: GroupCommittedReply) -> None:
        """R31: an owner goes on where the owners before it ended."""
        book, grant = self.book(request.partition), (request.group, request.generation, request.epoch)
        if request.generation and reply.offset < book.began_at.get(grant, reply.offset + 1):
            self._world.oracle.fail("R31 goes on where others ended", f"{request}: {reply}")

    def check_reader(self, request: GroupReadRequest, reply: StreamReadReply) -> None:
        """R31: who owns a partition no more reads no more. The answer says what was folded when it was made."""
        applied = reply.high_watermark
        if not self.book(request.partition).holds(request.group, request.generation, request.epoch, applied):
            self._world.oracle.fail("R31 zombies are fenced", f"{request} is answered")

    # --- now and then -------------------------------------------------------------------------------------------

    def check_fold(self, node_id: int, replica: StreamReplica) -> None:
        """R31: what a replica that has folded everything holds for committed is what the log says."""
        book = self._world.oracle.books.get(replica.partition)
        truth = self._world.oracle.committed.get(replica.partition)
        consumers = replica.machine._consumers
        self.check_bounds(node_id, replica)
        if not isinstance(book, StreamBook) or truth is None or consumers is None or replica.applied != truth.end:
            return
        by_log = {name: (*book.groups.holder[name], offset) for name, offset in book.groups.offset.items()}
        if consumers.positions != by_log:
            text = f"node {node_id}, partition {replica.partition}: {consumers.positions}, by the log {by_log}"
            self._world.oracle.fail("R31 offsets by the log", text)

    def check_bounds(self, node_id: int, replica: StreamReplica) -> None:
        """I14: nothing grows without a bound."""
        coordinator = replica.machine._coordinator
        if coordinator is None:
            return
        shares = len(GROUPS) * len(self._world.topic)
        members = self._world.faults.consumers
        sizes = {
            "commands": (len(coordinator._staged), 200),
            "sessions": (len(coordinator._sessions), 2 * members + 256),
            "heard": (len(coordinator._heard_ms), 2 * members + 256),
            "fences": (len(coordinator._asked.keys() | coordinator._wanted.keys()), shares),
            "pauses": (len(coordinator._paused), 2 * shares),
        }
        for name, (size, most) in sizes.items():
            if size > most:
                text = f"node {node_id}, partition {replica.partition}: {name} {size} > {most}"
                self._world.oracle.fail("I14 bounded", text)

    def unsettled(self) -> str:
        """L2: every group has processed and committed everything."""
        for partition in self._world.topic:
            book = self._world.oracle.books.get(partition)
            if not isinstance(book, StreamBook) or not book.data:
                continue
            end = read_header(book.data[-1]).end_offset
            for group in self._world.groups:
                offset = book.groups.offset.get(group, -1)
                if offset < end:
                    return f"group {group!r} has come to {offset} of {end} in stream {partition}"
        return ""

    def book(self, partition: int) -> GroupBook:
        book = self._world.oracle.books.get(partition)
        return book.groups if isinstance(book, StreamBook) else GroupBook()
