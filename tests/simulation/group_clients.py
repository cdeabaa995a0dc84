"""Members of consumer groups: they read, process and commit, stand still beyond their session and go on as zombies,
die and come back under their name, leave and join again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from storage_nodes.log.record_batch import read_header
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import (
    ErrorReply,
    GroupCommitRequest,
    GroupCommittedRequest,
    GroupDeleteRequest,
    GroupHeartbeatRequest,
    GroupJoinRequest,
    GroupLeaveRequest,
    GroupMembership,
    GroupReadRequest,
    Opcode,
)
from tests.simulation.clients import RETRY_US, Client, Operation

if TYPE_CHECKING:
    from tests.simulation.world import World

_TIMEOUT_US = 1_000_000
_COMMIT_TRIES_MAX = 5
_DRAIN_BYTES = 50_000
_IDLE_US = 150_000


def is_fenced(operation: Operation) -> bool:
    return isinstance(operation.reply, ErrorReply) and operation.reply.code == ErrorCode.FENCED


class GroupMember(Client):
    """One member, life after life."""

    def __init__(self, world: World, number: int, group: bytes) -> None:
        super().__init__(world, number)
        self._group = group
        self._session_ms = self.random.choice([1_000, 1_000, 3_000])
        self._process_us = self.random.choice([1_000, 50_000, 2_000_000])
        self._stalls = self.random.choice([0.0, 0.05, 0.2])
        self._bytes_max = self.random.choice([1, 300, 5_000])
        self._nodes: dict[int, int] = {}  # partition -> who is asked
        self._life = 0
        self._awake_us = 0  # stands still until then
        self._epoch = self._generation = 0
        self._held: dict[int, int] = {}  # partition -> generation
        self._next: dict[tuple[int, int], int] = {}  # (partition, generation) -> where to read on

    def start(self) -> None:
        """A new life."""
        self._life += 1
        self._held, self._next = {}, {}
        self._join()
        self._work()

    # --- membership ---------------------------------------------------------------------------------------------

    def _join(self) -> None:
        partitions = list(self.world.topic)
        name = b"m%d" % self.process_id
        request = GroupJoinRequest(partitions[0], self._group, name, self._session_ms, partitions, len(partitions))
        self._known = len(partitions)
        self._ask(Opcode.GROUP_JOIN, request, self._joined)

    def _joined(self, operation: Operation) -> None:
        if operation.outcome != "ok":
            self._pause(RETRY_US, self._join)
            return
        self._held = {}
        self._hear(operation.reply)
        self._pause(self._session_ms * 100, self._beat)

    def _hear(self, told: GroupMembership) -> None:
        self._epoch, self._generation = told.epoch, told.generation
        self._held.update(told.owned)
        for partition, _ in told.revoke:
            if self.world.draining or self.random.random() < 0.7:  # else it is busy and lets go later
                self._held.pop(partition, None)

    def _beat(self) -> None:
        if not self.world.draining:
            chance = self.random.random()
            if chance < self._stalls:
                self._stand_still()
            elif chance > 0.97:
                self._die()
                return
            elif chance > 0.9:
                self._leave()
                return
        if self._known < len(self.world.topic):
            self._join()  # the stream has more partitions now
            return
        coordinator = self.world.topic[0]
        held = sorted(self._held.items())
        request = GroupHeartbeatRequest(coordinator, self._group, self._epoch, self._generation, held)
        self._ask(Opcode.GROUP_HEARTBEAT, request, self._beaten)

    def _beaten(self, operation: Operation) -> None:
        if operation.outcome == "ok" and operation.reply.epoch == self._epoch:
            self._hear(operation.reply)
            self._pause(self.random.randrange(self._session_ms * 100, self._session_ms * 400), self._beat)
        elif is_fenced(operation):
            self._join()  # what is being processed goes on: that is how zombies are made
        else:
            self._pause(RETRY_US, self._beat)

    def _stand_still(self) -> None:
        """Perhaps for longer than others wait for it."""
        self._awake_us = self.world.scheduler.now_us + self.random.randrange(self._session_ms * 4_000)

    def _leave(self) -> None:
        def left(_: Operation) -> None:
            if not self.world.draining:
                self._delete(0, 0)
            self._pause(self.random.randrange(1_000_000), self._join)

        self._held = {}
        self._ask(Opcode.GROUP_LEAVE, GroupLeaveRequest(self.world.topic[0], self._group, self._epoch), left)

    def _delete(self, index: int, generation: int) -> None:
        """The group, if nobody else is in it, at one partition after the other; not to the end if that fails."""

        def deleted(operation: Operation) -> None:
            if operation.outcome == "ok" and index + 1 < len(self.world.topic):
                self._delete(index + 1, operation.reply.generation)

        request = GroupDeleteRequest(self.world.topic[index], self._group, generation)
        self._ask(Opcode.GROUP_DELETE, request, deleted)

    def _die(self) -> None:
        """Whatever is under way is forgotten; it comes back under its name before or after its session is over."""
        self._life += 1
        self.later(self.random.randrange(self._session_ms * 2_000), self.start)

    # --- work ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Read on in one of its partitions, process, commit, again."""
        if not self._held:
            self._pause(100_000, self._work)
            return
        partition = self.random.choice(sorted(self._held))
        generation = self._held[partition]
        grant = (self._group, generation, self._epoch)
        offset = self._next.get((partition, generation))
        if offset is None:
            request = GroupCommittedRequest(partition, *grant)
            self._ask(Opcode.GROUP_COMMITTED, request, lambda operation: self._found(operation, partition, generation))
            return
        draining = self.world.draining
        wait_ms = 0 if draining else self.random.choice([0, 100, 1_000])
        bytes_max = _DRAIN_BYTES if draining else self._bytes_max
        read = GroupReadRequest(partition, offset, bytes_max, wait_ms, *grant)
        self._ask(Opcode.GROUP_READ, read, self._have_read)

    def _found(self, operation: Operation, partition: int, generation: int) -> None:
        if operation.outcome == "ok":
            self._next[partition, generation] = max(operation.reply.offset, operation.reply.log_start)
            self._work()
        else:
            self._lost(operation, partition)

    def _lost(self, operation: Operation, partition: int) -> None:
        if is_fenced(operation):
            self._held.pop(partition, None)
        self._pause(RETRY_US, self._work)

    def _have_read(self, operation: Operation) -> None:
        request, reply = operation.request, operation.reply
        place = (request.partition, request.generation)
        if operation.outcome != "ok":
            if isinstance(reply, ErrorReply) and reply.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._next.pop(place, None)
            self._lost(operation, request.partition)
            return
        headers = [read_header(batch) for batch in reply.batches]
        offsets = [offset for header in headers for offset in range(header.base_offset, header.end_offset)]
        self._next[place] = reply.next_offset
        if not offsets:
            self._pause(_IDLE_US if self.world.draining else 20_000, self._work)
            return
        if not self.world.draining and self.random.random() < self._stalls:
            self._stand_still()
        delay_us = 1_000 if self.world.draining else self.random.randrange(self._process_us)
        self._pause(delay_us, lambda: self._processed(request, [o for o in offsets if o >= request.offset]))

    def _processed(self, read: GroupReadRequest, offsets: list[int]) -> None:
        done = self.world.group_referee.processed.setdefault((self._group, read.partition), set())
        done.update(offsets)
        self._commit(GroupCommitRequest(read.partition, read.group, read.generation, read.epoch, offsets[-1] + 1), 0)

    def _commit(self, request: GroupCommitRequest, tries: int) -> None:
        def committed(operation: Operation) -> None:
            if operation.outcome != "ok" and not is_fenced(operation) and tries < _COMMIT_TRIES_MAX:
                self._pause(RETRY_US, lambda: self._commit(request, tries + 1))
                return
            if is_fenced(operation) and self._held.get(request.partition) == request.generation:
                del self._held[request.partition]
            if operation.outcome != "ok":
                # Perhaps nobody has committed it: whoever owns the partition reads on from what is committed.
                self._next.pop((request.partition, request.generation), None)
            self._pause(1_000, self._work)

        self._ask(Opcode.GROUP_COMMIT, request, committed)

    # --- how it asks, and stands still --------------------------------------------------------------------------

    def _ask(self, opcode: int, request: Any, done: Callable[[Operation], None]) -> None:
        partition, life = request.partition, self._life
        self.node_id = self._nodes.get(partition, self.node_id)

        def answered(operation: Operation) -> None:
            if operation.outcome != "ok":
                self.elsewhere(operation.reply)
                self._nodes[partition] = self.node_id
            if self._life == life:
                self._pause(0, lambda: done(operation))

        wait_ms = getattr(request, "wait_ms", 0)
        self.ask(opcode, request, _TIMEOUT_US + wait_ms * 1_000, answered)

    def _pause(self, delay_us: int, call: Callable[[], None]) -> None:
        """Go on after a while, but not while it stands still, and not in another life."""
        life = self._life

        def go_on() -> None:
            left_us = self._awake_us - self.world.scheduler.now_us
            if self._life != life:
                return
            if left_us > 0 and not self.world.draining:
                self.later(left_us, go_on)
            else:
                call()

        if delay_us or self._awake_us > self.world.scheduler.now_us:
            self.later(delay_us, go_on)
        else:
            go_on()
