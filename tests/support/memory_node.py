"""A storage node without disk, peers and network: replicas of queue partitions that are led here and have no followers.

    real      QueueReplica and all it asks: the queue machine, checks of requests, appends, deliveries, moves of dead
              letters, releases of scheduled messages, browsing
    stand-in  the log (a list of batches), Raft (what is appended is committed), timers (`MemoryNode.run`) and the clock

All that a request leads to is done before `MemoryNode.ask` returns, except for polls that wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec

from storage_nodes.limits import WAL_GROUP_BYTES_MAX
from storage_nodes.log.record_batch import (
    CONTROL_EPOCH_START,
    build_batch,
    control_key,
    iterate_bodies,
    read_header,
)
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.node.memory.memory_budget import MemoryBudget
from storage_nodes.node.memory.room import NodeRoom
from storage_nodes.node.replicas.bodies import BodyCache
from storage_nodes.node.replicas.fold_turn import FoldTurn
from storage_nodes.node.replicas.folding import fold_committed
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.requests import QUEUE_CALLS
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.levels import FEATURE_LEVEL, spoken
from storage_nodes.protocol.messages import NOT_TAKEN, Opcode, QueueConfig, SendReply, SendRequest, encode_message
from storage_nodes.protocol.records import encode_body

T = TypeVar("T")

NODE_ID = 1
EPOCH = 7
STEPS_MAX = 100_000


class MemoryLog:
    """Whole batches, all in memory, all durable."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.tag = ""
        self.log_end = self.durable_end = 0
        self.last_stamp_ms = 0
        self.batches: list[bytes] = []
        self._ends: list[int] = []

    def append(self, batch: bytes) -> None:
        header = read_header(batch)
        assert header.base_offset == self.log_end
        self.batches.append(batch)
        self._ends.append(header.end_offset)
        self.log_end = self.durable_end = header.end_offset
        self.last_stamp_ms = header.timestamp_ms

    def read_hot(self, offset: int, bytes_max: int) -> list[bytes]:
        """From the batch that covers `offset` on, or follows it; one at least where there is one."""
        found: list[bytes] = []
        for batch in islice(self.batches, bisect_right(self._ends, offset), None):
            bytes_max -= len(batch)
            if bytes_max < 0 and found:
                break
            found.append(batch)
        return found

    def replace_body(self, offset: int, body: bytes) -> None:
        """Somebody changes what is stored."""
        at = bisect_right(self._ends, offset)
        header = read_header(self.batches[at])
        assert not header.is_control and header.base_offset <= offset, f"there is no message at {offset}"
        bodies = [body if found == offset else kept for found, kept in iterate_bodies(self.batches[at])]
        self.batches[at] = build_batch(
            header.base_offset, header.epoch, header.timestamp_ms, bodies, plain=header.is_plain
        )


class SoleVoter:
    """In the place of the Raft machine: what is in the log is committed."""

    epoch = EPOCH
    leader = NODE_ID
    transferee = 0
    timer_ms = 0

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    @property
    def commit(self) -> int:
        return self._log.log_end

    @property
    def replicated(self) -> int:
        return self._log.log_end

    def proposed(self, _end_offset: int, _now_ms: int) -> list[Any]:
        return []


class MemoryReplica(QueueReplica):
    """Leads from the beginning to the end."""

    def __init__(self, node: MemoryNode, partition: int, config: QueueConfig | None) -> None:
        self.host: Any = node
        self.partition = partition
        self.machine = QueueMachine(config)
        self.log: Any = node.logs[partition]
        self.raft: Any = SoleVoter(self.log)
        self.time: Any = node
        self.applied = 0
        self.serving = self.handing_over = self.closed = False
        self.applying_later = self._staging = self._fetching = False
        self._appends = self._body_reader = None
        self._released = ()
        self._linger_until_ms = 0
        self._leased_until_ms = 2**63
        self._trust_at = -1
        self._lead_at = 1  # the entry below
        self.append_own([encode_body(b"", control_key(CONTROL_EPOCH_START))], node.now_ms(), control=True)
        fold_committed(self)

    @property
    def voters(self) -> tuple[int, ...]:
        return (NODE_ID,)

    @property
    def tag(self) -> str:
        return ""

    def stage(self) -> None:
        """What is proposed is committed at once."""
        super().stage()
        fold_committed(self)
        self.progressed()

    def step(self) -> bool:
        """Whether something was to be done now."""
        if self._linger_until_ms:
            self._linger_until_ms = 0
            self.propose_soon()
        due_ms = self.machine_tick_mono_ms()
        if 0 < due_ms <= self.host.mono_ms():
            self.on_tick()
            return True
        return False

    def replace_body(self, offset: int, body: bytes) -> None:
        self.log.replace_body(offset, body)
        if self._body_reader is not None:
            self._body_reader.clear()


class Call:
    """A request under way, and the connection that it came by. `notify` is called when it is answered."""

    is_open = True
    is_full = False

    def __init__(self) -> None:
        self.parked: dict[int, tuple[int, int]] = {}
        self.answered: bytes | StorageError | None = None
        self.undelivered: Callable[[], None] | None = None
        self.notify: Callable[[], None] = _nothing

    def answer(self, _token: Token, payload: bytes, undelivered: Callable[[], None] | None = None) -> None:
        self.undelivered = undelivered
        self._end(payload)

    def refuse(self, _token: Token, error: StorageError) -> None:
        self._end(error)

    def _end(self, answer: bytes | StorageError) -> None:
        assert self.answered is None, "answered twice"
        self.answered = answer
        self.notify()


class MemoryNode:
    """What replicas need of their node (`Host`), and the turns in which they go on."""

    node_id = NODE_ID
    cluster_id = "memory"
    feature_level = FEATURE_LEVEL
    speaks = spoken()
    ahead_ms = 0

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._now_ms = 0
        self.logs: dict[int, MemoryLog] = {}
        self.replicas: dict[int, MemoryReplica] = {}
        self._later: deque[Callable[[], None]] = deque()
        self._staging: list[MemoryReplica] = []
        self._is_running = False
        # Parts of a node that have one or two methods here.
        self.loop = self.clock = self.timers = self.committer = self.log = self.other_partitions = self
        self.share_bytes = WAL_GROUP_BYTES_MAX
        self.bodies = BodyCache()
        self.room = NodeRoom(MemoryBudget(), lambda: 0.0, _nothing)
        self.fold_turn = FoldTurn(self)  # type: ignore[arg-type]
        self.catch_up_reads = SimpleNamespace(rate=SimpleNamespace(appended_bytes=0))
        self.failover = SimpleNamespace(serves=lambda raft: None)
        self.stopped = SimpleNamespace(stop=_raise)

    # --- requests ---------------------------------------------------------------------------------------------

    def create(self, partition: int, config: QueueConfig | None = None) -> None:
        """An empty one, whatever was there."""
        if partition in self.replicas:
            self.drop(partition)
        self.logs[partition] = MemoryLog(partition)
        self.replicas[partition] = MemoryReplica(self, partition, config)

    def drop(self, partition: int) -> None:
        """Who waits there is refused."""
        replica = self.replicas.pop(partition)
        replica.serving, replica.closed = False, True
        replica.on_follow()
        del self.logs[partition]

    def ask(self, opcode: Opcode, partition: int, request: object) -> tuple[Token, Call]:
        """Raises StorageError."""
        self.run()
        call = Call()
        token = Token(call, 1, opcode)  # type: ignore[arg-type]
        replica = self._replica(partition)
        payload = encode_message(request)  # type: ignore[arg-type]
        if opcode == Opcode.CONFIGURE:
            replica.configure(token, payload)
        else:
            QUEUE_CALLS[opcode](replica, token, payload)
        self.run()
        return token, call

    def give_up(self, partition: int, token: Token) -> None:
        """The caller waits no longer."""
        if partition in self.replicas:
            self.replicas[partition].cancel(token)
            self.run()

    def run(self) -> None:
        """All that is due at this time, and all that follows from it."""
        if self._is_running:
            return
        self._is_running = True
        try:
            for _ in range(STEPS_MAX):
                if not self._step():
                    return
            raise AssertionError("a replica asks to be woken again and again")
        finally:
            self._is_running = False

    def _step(self) -> bool:
        if self._later:
            self._later.popleft()()
            return True
        for replica in list(self.replicas.values()):
            if replica.step():
                return True
        if self._staging:
            self._staging.pop(0).stage()
            return True
        return False

    def _replica(self, partition: int) -> MemoryReplica:
        if partition not in self.replicas:
            raise StorageError(ErrorCode.UNKNOWN_PARTITION, f"partition {partition} is not known here")
        return self.replicas[partition]

    # --- Host: the clock --------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Never falls."""
        self._now_ms = max(self._now_ms, int(self._now_s() * 1000))
        return self._now_ms

    mono_ms = now_ms

    def not_before(self, stamp_ms: int) -> None:
        """No stamp is later than now."""

    def mono_of(self, time_ms: int) -> int:
        return time_ms

    # --- Host: turns, the log ---------------------------------------------------------------------------------

    def call_soon(self, call: Callable[..., None], *args: Any) -> None:
        self._later.append(partial(call, *args))

    def run_cold(
        self, work: Callable[[], T], done: Callable[[T], None], damaged: Callable[[], None] = lambda: None
    ) -> None:
        """Memory is never damaged."""
        self._later.append(lambda: done(work()))

    def propose_soon(self, replica: MemoryReplica) -> None:
        self._staging.append(replica)

    def append(self, partition: int, batch: bytes) -> None:
        self.logs[partition].append(batch)

    def wake(self, partition: int, due_ms: int) -> None:
        """`run` looks at the times of all."""

    def nodes_without_room(self, voters: Sequence[int]) -> list[int]:
        return []

    # --- Host: other partitions -------------------------------------------------------------------------------

    def send(self, partition: int, bodies: list[bytes], done: Callable[[StorageError | None], None]) -> None:
        """As `InterPartitionClient` does it."""
        call = Call()

        def answered() -> None:
            assert call.answered is not None
            self.call_soon(done, _outcome_of_send(partition, call.answered))

        call.notify = answered
        token = Token(call, 1, Opcode.SEND)  # type: ignore[arg-type]
        try:
            self._replica(partition).send(token, encode_message(SendRequest(partition, bodies, plain=False)))
        except StorageError as error:
            self.call_soon(done, error)

    def append_usage(self, bodies: list[bytes], done: Callable[[StorageError | None], None]) -> None:
        """Nobody reads them."""
        self.call_soon(done, None)


def _outcome_of_send(partition: int, answered: bytes | StorageError) -> StorageError | None:
    if isinstance(answered, StorageError):
        return answered
    duplicates = msgspec.msgpack.decode(answered, type=SendReply).duplicates
    if any(original == NOT_TAKEN for _, original in duplicates):
        return StorageError(ErrorCode.UNAVAILABLE, f"partition {partition} takes no messages any more")
    return None


def _nothing() -> None:
    pass


def _raise(_replica: object, _kind: object, _offset: int, error: Exception) -> None:
    raise error
