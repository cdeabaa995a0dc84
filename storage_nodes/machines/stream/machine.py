"""The stream machine: an append-only partition, its retention, and readers that wait for its end to move.

Pure: (input, now_ms) -> effects. Replicated state: log start and end, marks (`retention.py`), retention. Leader state:
parked readers and staged commands.

Commands are msgpack arrays in control records whose key is (int16 0, int16 20):

    1 TRIMMED      time_ms, log_start            the log start only moves forward
    2 CONFIGURED   time_ms, retention_ms, retention_bytes (0 = no limit)
    3 to 11        of consumer groups            `consumers.py`
   12 LEVELED      time_ms, level                from here on the partition is at this level (protocol/levels.py)
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from storage_nodes.limits import (
    PROPOSALS_PENDING_MAX,
    RETENTION_MS_DEFAULT,
    RETENTION_MS_MAX,
    RETENTION_MS_MIN,
    STREAM_COMMANDS_LEFT_MAX,
    WAITERS_PER_PARTITION_MAX,
)
from storage_nodes.machines.driver_contract import Piece, Propose, Refuse, Token
from storage_nodes.machines.producers import ProducerTable
from storage_nodes.machines.stream.checkpoint import (
    StreamState,
    checkpoint_pieces,
    encode_checkpoint,
    read_checkpoint,
)
from storage_nodes.machines.stream.consumers import Consumers
from storage_nodes.machines.stream.coordinator import GroupCoordinator, GroupRequest, View
from storage_nodes.machines.stream.effects import Effect, Fence, ReadNow, StreamAnswer, not_leader
from storage_nodes.machines.stream.readers import Readers
from storage_nodes.machines.stream.retention import Marks
from storage_nodes.machines.unknown_entries import require_known
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.levels import LEVEL_FIRST
from storage_nodes.protocol.messages import Empty
from storage_nodes.protocol.records import decode_body, encode_body

CONTROL_STREAM_KEY = struct.pack(">hh", 0, 20)
TRIMMED = 1
CONFIGURED = 2
LEVELED = 12
RETENTION_CHECK_MS_MIN = 1_000
RETENTION_CHECKS_PER_RETENTION = 100
CONFIGURES_PER_BATCH_MAX = 64

Records = Callable[[], Iterable[tuple[int, bytes]]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class StreamBatchFacts(Protocol):
    """What the fold reads of a batch header; `BatchHeader` of the log has it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def length_bytes(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def record_count(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...


class StreamMachine:
    __slots__ = (
        "_announced",
        "_check_ms",
        "_configures",
        "_consumers",
        "_coordinator",
        "_is_leading",
        "_level_taken",
        "_marks",
        "_readers",
        "_taken",
        "_trim_to",
        "ahead_ms",
        "last_ms",
        "level",
        "log_end",
        "log_start",
        "producers",
        "retention_bytes",
        "retention_ms",
    )

    def __init__(self, retention_ms: int = RETENTION_MS_DEFAULT, retention_bytes: int = 0) -> None:
        self.retention_ms = retention_ms
        self.retention_bytes = retention_bytes  # 0 = no limit
        self.level = LEVEL_FIRST  # of the partition, at this place in its log
        self._level_taken = 0  # LEVELED on its way
        self.log_start = 0  # <= log_end; readers below it are out of range
        self.log_end = 0  # end of the last entry folded = high watermark of readers
        self.last_ms = 0
        self._marks = Marks()
        self._is_leading = False
        self.ahead_ms = 0
        self._readers: Readers | None = None  # made with the first reader that waits
        self._trim_to = 0  # staged or taken TRIMMED, 0 = none
        self._configures: deque[tuple[Token, int, int]] = deque()
        # Commands on their way through the log, and who waits for them; of groups, those that nobody waits for too.
        self._taken: deque[Token | None] = deque()
        self.producers: ProducerTable | None = None  # made with the first record that has one
        self._consumers: Consumers | None = None  # made with the first command of a group
        self._coordinator: GroupCoordinator | None = None  # made with the first request of a group
        self._announced = False
        self._check_ms = 0  # next look at retention, 0 = nothing held

    # --- fold, every replica ----------------------------------------------------------------------------------

    def apply(self, header: StreamBatchFacts, records: Records, now_ms: int) -> list[Effect]:
        """Fold one committed entry; `records` is called for control batches only."""
        assert header.base_offset >= self.log_end, "an entry that was folded already"
        self.log_end = header.last_offset + 1
        self.last_ms = max(self.last_ms, header.timestamp_ms)
        effects: list[Effect] = []
        if header.is_control:
            for _, body in records():
                record = decode_body(body)
                if record.key == CONTROL_STREAM_KEY:
                    self._fold(_decode(record.value), header.base_offset, effects, now_ms)
                else:
                    require_known(record.key)
        else:
            base, last, size_bytes = header.base_offset, header.last_offset, header.length_bytes
            if header.producer_id >= 0:
                if self.producers is None:
                    self.producers = ProducerTable()
                self.producers.fold(header)
            self._marks.add(base, last, header.timestamp_ms, size_bytes, self.retention_ms)
            if self._readers:
                effects += [ReadNow(token, offset) for token, offset in self._readers.remove_all()]
        return self._settle(effects, now_ms) if self._is_leading else effects

    def is_live(self, base_offset: int, last_offset: int) -> bool:
        return last_offset >= self.log_start

    def low_watermark(self) -> int:
        return self.log_start

    def checkpoint(self) -> bytes:
        return encode_checkpoint(self._state())

    def checkpoint_pieces(self) -> bytes | list[Piece]:
        """The same; not joined where that would take long. Nothing of it changes any more."""
        return checkpoint_pieces(self._state())

    def restore(self, blob: bytes) -> None:
        """Raises CheckpointError."""
        self.adopt(read_checkpoint(blob))

    def adopt(self, state: StreamState) -> None:
        """The same, from what `read_checkpoint` read."""
        (
            self.log_start, self.log_end, self.last_ms, self.retention_ms, self.retention_bytes,
            self._marks, self._consumers, self.producers, self.level,
        ) = state  # fmt: skip

    def _state(self) -> StreamState:
        return StreamState(
            self.log_start, self.log_end, self.last_ms, self.retention_ms, self.retention_bytes,
            self._marks, self._consumers, self.producers, self.level,
        )  # fmt: skip

    # --- leader -----------------------------------------------------------------------------------------------

    def lead(self, now_ms: int) -> list[Effect]:
        self._is_leading = True
        if self._consumers is not None:
            self._coordinator = GroupCoordinator(self._consumers, now_ms)
        return self._settle([], now_ms)

    def clocks_say(self, ahead_ms: int) -> None:
        """So far is `now_ms` ahead of what most clocks of the cluster say; AHEAD_UNKNOWN where that is not known. No
        message is trimmed for its age before it is past by those clocks too."""
        self.ahead_ms = ahead_ms

    def follow(self) -> list[Effect]:
        """Leadership is over: everyone who waits is refused."""
        waiting = [token for token, _ in self._readers.remove_all()] if self._readers else []
        effects: list[Effect] = [Refuse(t, ErrorCode.NOT_LEADER, "another node leads now") for t in waiting]
        tokens = [token for token in self._taken if token is not None]
        tokens += [token for token, _, _ in self._configures]
        if self._coordinator is not None:
            tokens += self._coordinator.tokens()
            self._coordinator = None
        effects += [Refuse(t, ErrorCode.OUTCOME_UNKNOWN, "the leader changed before commit") for t in tokens]
        self._is_leading = self._announced = False
        self._trim_to = self._check_ms = self._level_taken = 0
        self._taken.clear()
        self._configures.clear()
        return effects

    def read(self, token: Token, offset: int, wait_until_ms: int, now_ms: int) -> list[Effect]:
        """ReadNow at once where there is something, or when not waiting; parked at the end of the log otherwise."""
        if not self._is_leading:
            return [not_leader(token)]
        if not self.log_start <= offset <= self.log_end:
            text = f"the log holds {self.log_start} to {self.log_end}"
            return [Refuse(token, ErrorCode.OFFSET_OUT_OF_RANGE, text)]
        if offset < self.log_end or wait_until_ms <= now_ms:
            return [ReadNow(token, offset)]
        if self._readers is None:
            self._readers = Readers()
        if len(self._readers) >= WAITERS_PER_PARTITION_MAX:
            return [Refuse(token, ErrorCode.OVERLOADED, "too many readers wait for the end of the log to move")]
        self._readers.park(token, offset, wait_until_ms)
        return []

    def cancel(self, token: Token) -> list[Effect]:
        if self._readers and self._readers.remove(token):
            return [Refuse(token, ErrorCode.CANCELLED, "given up by the caller")]
        return []

    def configure(self, token: Token, retention_ms: int, retention_bytes: int = 0) -> list[Effect]:
        if not self._is_leading:
            return [not_leader(token)]
        if not RETENTION_MS_MIN <= retention_ms <= RETENTION_MS_MAX or retention_bytes < 0:
            return [Refuse(token, ErrorCode.INVALID_REQUEST, "retention is out of range")]
        if len(self._configures) + len(self._taken) >= PROPOSALS_PENDING_MAX:
            return [Refuse(token, ErrorCode.OVERLOADED, "too many commands wait for their commit")]
        self._configures.append((token, retention_ms, retention_bytes))
        return self._announce([])

    # --- consumer groups, at the leader -----------------------------------------------------------------------

    def group_request(self, token: Token, request: GroupRequest, now_ms: int) -> list[Effect]:
        if not self._is_leading:
            return [not_leader(token)]
        if self._coordinator is None:
            self._consumers = self._consumers or Consumers()
            self._coordinator = GroupCoordinator(self._consumers, now_ms)
        return self._announce(self._coordinator.request(token, request, View(now_ms, self.log_start, self.log_end)))

    def group_right(self, group: bytes, generation: int, epoch: int) -> ErrorCode:
        """May this grant read here?"""
        consumers = self._consumers
        return consumers.right(group, generation, epoch) if consumers is not None else ErrorCode.GRANT_UNKNOWN

    def fenced(self, asked: Fence, code: ErrorCode, now_ms: int) -> list[Effect]:
        """What became of a `Fence`."""
        if self._coordinator is None:
            return []
        self._coordinator.fenced(asked, code, now_ms)
        return self._announce([])

    def tick(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._readers:
            effects += [ReadNow(token, offset) for token, offset in self._readers.remove_overdue(now_ms)]
        if self._check_ms and now_ms >= self._check_ms:
            self._check_ms = 0
            self._trim(max(now_ms, self.last_ms) - self.ahead_ms)
        if self._coordinator is not None:
            self._coordinator.tick(now_ms)
        return self._settle(effects, now_ms)

    def next_tick_ms(self) -> int:
        """When to call `tick`; 0 = never."""
        due_ms = (
            self._check_ms,
            self._readers.next_deadline_ms() if self._readers else 0,
            self._coordinator.next_tick_ms() if self._coordinator else 0,
        )
        return min((ms for ms in due_ms if ms), default=0)

    def take_commands(self, now_ms: int, level: int = LEVEL_FIRST) -> list[bytes]:
        """Record bodies for one control batch. `level`: what the cluster allows; the first commands that may use a
        higher one raise the partition to it."""
        self._announced = False
        time_ms = max(now_ms, self.last_ms)
        bodies: list[bytes] = []
        if self._trim_to > 0:
            bodies.append(encode_body(_encode([TRIMMED, time_ms, self._trim_to]), CONTROL_STREAM_KEY))
            self._trim_to = -1
        for _ in range(min(len(self._configures), CONFIGURES_PER_BATCH_MAX)):
            token, *retention = self._configures.popleft()
            self._taken.append(token)
            bodies.append(encode_body(_encode([CONFIGURED, time_ms, *retention]), CONTROL_STREAM_KEY))
        if self._coordinator is not None:
            for waiting, command in self._coordinator.take(time_ms):
                self._taken.append(waiting)
                bodies.append(encode_body(command, CONTROL_STREAM_KEY))
        if bodies and level > max(self.level, self._level_taken):
            self._level_taken = level
            bodies.insert(0, encode_body(_encode([LEVELED, time_ms, level]), CONTROL_STREAM_KEY))
        return bodies

    # --- inside -----------------------------------------------------------------------------------------------

    def _fold(self, command: list[Any], base_offset: int, effects: list[Effect], now_ms: int) -> None:
        kind, time_ms, *fields = command
        self.last_ms = max(self.last_ms, time_ms)
        if kind == TRIMMED:
            self.log_start = max(self.log_start, fields[0])
            assert self.log_start <= self.log_end, "trimmed beyond the log end"
            self._marks.trim(self.log_start)
            self._trim_to = 0
        elif kind == CONFIGURED:
            self.retention_ms, self.retention_bytes = fields
            token = self._taken.popleft() if self._taken else None
            if token is not None:
                effects.append(StreamAnswer(token, Empty()))
        elif kind == LEVELED:
            self.level = max(self.level, fields[0])
        else:
            self._fold_of_group(kind, fields, base_offset, effects, now_ms)

    def _fold_of_group(
        self, kind: int, fields: list[Any], base_offset: int, effects: list[Effect], now_ms: int
    ) -> None:
        if self._consumers is None:
            self._consumers = Consumers()
        group, *fields = fields
        result = self._consumers.fold(kind, group, fields, base_offset)
        if self._taken:
            assert self._coordinator is not None, "a command of ours without the coordinator that made it"
            effects += self._coordinator.folded(self._taken.popleft(), kind, group, fields, result, now_ms)

    def _trim(self, time_ms: int) -> None:
        if self._trim_to == 0:
            self._trim_to = self._marks.start_after(time_ms - self.retention_ms, self.retention_bytes)
            if self._holds_commands_only():
                self._trim_to = self.log_end

    def _holds_commands_only(self) -> bool:
        """Nothing else would ever trim commands that no messages follow."""
        return not self._marks.marks and self.log_end - self.log_start > STREAM_COMMANDS_LEFT_MAX

    def _settle(self, effects: list[Effect], now_ms: int) -> list[Effect]:
        if not self._check_ms and (self._marks.marks or self._holds_commands_only()):
            every_ms = self.retention_ms // RETENTION_CHECKS_PER_RETENTION
            self._check_ms = now_ms + max(RETENTION_CHECK_MS_MIN, every_ms)
        return self._announce(effects)

    def _announce(self, effects: list[Effect]) -> list[Effect]:
        coordinator = self._coordinator
        if coordinator is not None:
            effects += coordinator.ask_for_fences()
        if not self._announced and (
            self._trim_to > 0 or self._configures or (coordinator is not None and coordinator.has_staged)
        ):
            self._announced = True
            effects.append(Propose())
        return effects
