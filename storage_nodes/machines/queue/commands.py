"""Commands of the queue machine: the control records that every replica folds.

A command is a msgpack array in the value of a control record whose key is (int16 0, int16 17), big-endian:

    [kind, term, sequence, time_ms, ...]

`kind` is the tag of its class below, and the further fields are those of the class, in their order. Kinds are on disk:
never reuse one; a kind gets new fields only at its end, with a default. Fields that name many messages are flat lists,
because walking a flat list of integers costs a third of a list of pairs; so they are described here and not by types.

A new kind touches four places: its class here, its fold in state/folding.py with a method of QueueState, the leader's
in leader/following.py where the leader has more to do than its state, and the input of the machine that stages it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from storage_nodes.limits import (
    ACQUIRE_MESSAGES_MAX,
    ATTEMPT_BYTES_MAX,
    BATCH_BYTES_MAX,
    DEAD_LETTERS_PER_MOVE_MAX,
    GROUP_BYTES_MAX,
    KEYS_PER_COMMAND_BYTES_MAX,
    READ_AHEAD_MESSAGES_MAX,
    RECEIPTS_PER_CALL_MAX,
    RECORD_BYTES_MAX,
    REMOVES_PER_CALL_MAX,
    SCHEDULE_CHANGES_PER_CALL_MAX,
    TAG_BYTES_MAX,
    UNPARK_GROUPS_MAX,
    VISIBILITY_MS_MAX,
)
from storage_nodes.machines.unknown_entries import UnknownEntryError, require_known
from storage_nodes.protocol.records import decode_body, encode_body

# In the place of a visibility.
NACKED = -1
IF_HELD_MAX = -(2**30)
UNSEEN = IF_HELD_MAX + 1
assert VISIBILITY_MS_MAX < 2**29, "an uncounted visibility is none of those"

# Messages that the commands of one control batch may name, per kind. More waits for the next group commit.
COMMAND_ITEMS_MAX = 10_000
# The same for leases of a FIFO queue, which name groups and attempts too.
LEASED_ITEMS_MAX = 2_000
# Messages that one batch may expire; what is left is expired by the batches that follow.
EXPIRED_PER_COMMAND_MAX = 10_000
# Purges, configurations and the like in one control batch.
SINGLE_COMMANDS_PER_BATCH_MAX = 64

# Of one message, in the commands that take messages out of the queue.
_SIZE_BYTES_MAX = 5
# Of the sum that stands before packed sizes, and of one of them.
_SUM_BYTES, _PACKED_SIZE_BYTES = 8, 4

# A group and a tag in an AcquiredCommand without their own bytes, and one range: three headers and two integers.
KEY_ITEM_BYTES_MAX = 28

# Largest msgpack forms: an integer takes 9 bytes, a small array's header 1. The last call or range may overshoot the
# item limit by its own size.
_ITEMS_MAX = COMMAND_ITEMS_MAX + RECEIPTS_PER_CALL_MAX
_ACQUIRED_BYTES_MAX = _ITEMS_MAX * 54  # every message alone in a range, every range alone in a group
_ACQUIRED_BYTES_MAX += KEYS_PER_COMMAND_BYTES_MAX + KEY_ITEM_BYTES_MAX + GROUP_BYTES_MAX + TAG_BYTES_MAX
# Every message alone in a lease: group and attempt, two times, offset and sent_ms, the arrays around them.
_LEASED_BYTES_MAX = (LEASED_ITEMS_MAX + ACQUIRE_MESSAGES_MAX) * (GROUP_BYTES_MAX + ATTEMPT_BYTES_MAX + 50)
_DEAD_LETTERED_BYTES_MAX = DEAD_LETTERS_PER_MOVE_MAX * (9 + _SIZE_BYTES_MAX)
_DELETED_BYTES_MAX = _ITEMS_MAX * (18 + _SIZE_BYTES_MAX)
_CHANGED_BYTES_MAX = _ITEMS_MAX * (27 + _SIZE_BYTES_MAX)
_SINGLE_BYTES_MAX = 200 + max(
    UNPARK_GROUPS_MAX * (GROUP_BYTES_MAX + 3),
    (9 + _SIZE_BYTES_MAX) * REMOVES_PER_CALL_MAX,
    (18 + _SIZE_BYTES_MAX) * SCHEDULE_CHANGES_PER_CALL_MAX,
)
_EXPIRED_BYTES_MAX = (EXPIRED_PER_COMMAND_MAX + READ_AHEAD_MESSAGES_MAX) * (18 + _SIZE_BYTES_MAX)
_BATCH_BYTES_MAX = (
    max(_ACQUIRED_BYTES_MAX, _LEASED_BYTES_MAX)
    + _DEAD_LETTERED_BYTES_MAX
    + _DELETED_BYTES_MAX
    + _CHANGED_BYTES_MAX
    + _EXPIRED_BYTES_MAX
    + _SINGLE_BYTES_MAX * SINGLE_COMMANDS_PER_BATCH_MAX
)
assert max(_ACQUIRED_BYTES_MAX, _LEASED_BYTES_MAX, _CHANGED_BYTES_MAX, _EXPIRED_BYTES_MAX) < RECORD_BYTES_MAX - 1_000
assert _BATCH_BYTES_MAX < BATCH_BYTES_MAX - 1_000, "one control batch holds all that is taken at once"

CONTROL_QUEUE_KEY = struct.pack(">hh", 0, 17)

Sizes = bytes | list[int | None]
"""Billed bytes of each message that a command names, for the meter; None = unknown, empty = all are. Packed where all
of a DeletedCommand are known: their sum (8 bytes), then each (4)."""

Told = tuple[int, int, int, int]
"""Leases, messages, billed bytes, units: of so many leases so much was handed over."""


class CommandFold(Protocol):
    """Folds committed commands: into the state of a replica, or into that of a leader, which follows its own ones too.

    `command.fold(by, offset)` calls the method of its kind, and nothing else tells kinds apart; `offset` is that of its
    record.
    """

    def fold_acquired(self, command: AcquiredCommand) -> None: ...
    def fold_deleted(self, command: DeletedCommand) -> None: ...
    def fold_visibility(self, command: VisibilityCommand) -> None: ...
    def fold_expired(self, command: ExpiredCommand) -> None: ...
    def fold_purged(self, command: PurgedCommand, offset: int) -> None: ...
    def fold_configured(self, command: ConfiguredCommand) -> None: ...
    def fold_leased(self, command: LeasedCommand) -> None: ...
    def fold_dead_lettered(self, command: DeadLetteredCommand) -> None: ...
    def fold_rescheduled(self, command: RescheduledCommand) -> None: ...
    def fold_removed(self, command: RemovedCommand) -> None: ...
    def fold_unparked(self, command: UnparkedCommand) -> None: ...
    def fold_usage_closed(self, command: UsageClosedCommand) -> None: ...
    def fold_usage_exported(self, command: UsageExportedCommand) -> None: ...
    def fold_retired(self, command: RetiredCommand) -> None: ...
    def fold_handed_over(self, command: HandedOverCommand) -> None: ...
    def fold_leveled(self, command: LeveledCommand) -> None: ...


class QueueCommand(msgspec.Struct, array_like=True):
    """What all commands have.

    `term`      log end at which the leader began to lead; unique, because its epoch-start entry stands right below it
    `sequence`  counts the commands of one term; lets the leader match a folded command with the requests it answers
    `time_ms`   the leader's time, ms since the Unix epoch; never falls from one command to the next
    """

    term: int
    sequence: int
    time_ms: int


NOT_ISSUED = (0, 0, 0)
"""Term, sequence and time of a command that waits for its group commit (delivery/pending_commands.py fills them in)."""


class Acquisition(msgspec.Struct, array_like=True, gc=False):
    """Messages that were leased at one time until one deadline.

    `fresh`  flat (first offset, last offset, sent_ms)..., messages never delivered before
    `again`  offsets delivered before, or delayed ones that are due
    """

    time_ms: int
    deadline_ms: int
    fresh: list[int]
    again: list[int]


class AcquiredCommand(QueueCommand, tag=1):
    """Leases of a standard queue. `keys`: flat (message group, tag, flat (first offset, last offset)...)... of fresh
    messages that have any."""

    cursor: int
    acquisitions: list[Acquisition]
    keys: list[Any] = []

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_acquired(self)


class DeletedCommand(QueueCommand, tag=2):
    """`receipts`: flat (offset, delivery)... `told`: the fields of a HandedOverCommand beside it."""

    receipts: list[int]
    sizes: Sizes = []
    told: Told | None = None

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_deleted(self)


class VisibilityCommand(QueueCommand, tag=3):
    """`changes`: flat (offset, delivery, visibility_ms)...; the new deadline is time_ms + visibility_ms. NACKED: the
    lease ends as if it had run out. Less than that: `uncounted`, the receive does not count. UNSEEN: as `uncounted` at
    once, and no consumer saw the message: it is not billed. IF_HELD_MAX and less: `if_held`, by the receipt of a lease
    that holds only. `sizes` of those that are UNSEEN."""

    changes: list[int]
    sizes: Sizes = []

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_visibility(self)


class ExpiredCommand(QueueCommand, tag=4):
    """`cursor` 0: an AcquiredCommand of the same batch moves it. `ranges`: flat (first, last)... of undelivered
    messages. `offsets` of messages that were delivered or delayed."""

    cursor: int
    ranges: list[int]
    offsets: list[int]
    sizes: Sizes = []

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_expired(self)


class PurgedCommand(QueueCommand, tag=5):
    """`attempt` names the call; empty = nothing does."""

    attempt: bytes

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_purged(self, offset)


class ConfiguredCommand(QueueCommand, tag=6, forbid_unknown_fields=True):
    """The fields of QueueConfig, in their order. None: an earlier version wrote it, which did not know the field."""

    retention_ms: int | None = None
    in_flight_max: int | None = None
    fifo: bool | None = None
    dedup_window_ms: int | None = None
    max_receives: int | None = None
    dead_letter_partition: int | None = None
    paused: bool | None = None
    retry_kind: int | None = None
    retry_delay_ms: int | None = None
    retry_max_ms: int | None = None
    retry_jitter_permille: int | None = None
    park_groups: bool | None = None
    closed: bool | None = None
    dead_letter_groups: tuple[int, ...] | None = None
    account_id: str | None = None

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_configured(self)

    @property
    def known(self) -> dict[str, Any]:
        """The fields of QueueConfig that it says."""
        said = msgspec.structs.asdict(self).items()
        return {name: value for name, value in said if name not in QueueCommand.__struct_fields__ and value is not None}


class FifoLease(msgspec.Struct, array_like=True, gc=False):
    """One receive of a FIFO queue. `parts`: flat (group, again, fresh)..., in the order of delivery.

    `again`  offsets delivered before, or delayed ones that are due
    `fresh`  flat (offset, sent_ms)..., messages never delivered before
    """

    time_ms: int
    deadline_ms: int
    attempt: bytes
    is_renewal: bool
    parts: list[Any]


class LeasedCommand(QueueCommand, tag=7):
    """Leases of a FIFO queue."""

    leases: list[FifoLease]

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_leased(self)


class DeadLetteredCommand(QueueCommand, tag=8):
    """Messages that stand, committed, in the dead-letter queue."""

    offsets: list[int]
    sizes: Sizes = []

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_dead_lettered(self)


class RescheduledCommand(QueueCommand, tag=16):
    """`changes`: flat (offset, due_ms; 0 = cancelled)... of scheduled messages."""

    changes: list[int]
    sizes: Sizes = []

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_rescheduled(self)


class RemovedCommand(QueueCommand, tag=19):
    """`offsets`: -1 = no message; leases do not count. `is_moved`: they stand in the dead-letter queue."""

    offsets: list[int]
    is_moved: bool
    sizes: Sizes = []

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_removed(self)


class UnparkedCommand(QueueCommand, tag=20):
    """Groups of a FIFO queue that are handed out again; none named = all of them."""

    groups: list[bytes]

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_unparked(self)


class UsageCommand(QueueCommand):
    """What a leader says to the meter of usage windows (state/metering.py)."""


class UsageClosedCommand(UsageCommand, tag=21):
    """The open window ends here, or goes on and is named early."""

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_usage_closed(self)


class UsageExportedCommand(UsageCommand, tag=22):
    """The closed windows up to this one stand in the usage stream."""

    hour_ms: int
    until_ms: int

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_usage_exported(self)


class RetiredCommand(UsageCommand, tag=23):
    """The partition takes no requests any more, its next window is its last one."""

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_retired(self)


class HandedOverCommand(QueueCommand, tag=24):
    leases: int
    messages: int
    billed_bytes: int
    units: int

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_handed_over(self)


class LeveledCommand(QueueCommand, tag=25):
    """From here on the partition is at this feature level (protocol/levels.py)."""

    level: int

    def fold(self, by: CommandFold, offset: int) -> None:
        by.fold_leveled(self)


Command = (
    AcquiredCommand
    | DeletedCommand
    | VisibilityCommand
    | ExpiredCommand
    | PurgedCommand
    | ConfiguredCommand
    | LeasedCommand
    | DeadLetteredCommand
    | RescheduledCommand
    | RemovedCommand
    | UnparkedCommand
    | UsageClosedCommand
    | UsageExportedCommand
    | RetiredCommand
    | HandedOverCommand
    | LeveledCommand
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Command).decode
_decode_fields = msgspec.msgpack.Decoder(list[Any]).decode
_KINDS = frozenset(kind.__struct_config__.tag for kind in Command.__args__)


def encode_command(command: QueueCommand) -> bytes:
    """The record body of a command. Fields at its end that say nothing are left out: an earlier version of the same
    feature level may take a nil for a value."""
    fields: list[Any] = [command.__struct_config__.tag, *msgspec.structs.astuple(command)]
    for _ in command.__struct_defaults__:
        if fields[-1] is not None and fields[-1] != []:
            break
        del fields[-1]
    return encode_body(_encode(fields), CONTROL_QUEUE_KEY)


def decode_command(body: bytes) -> Command | None:
    """The command in a control record's body; None where the record is not for the queue machine.

    Raises UnknownEntryError where it is for nobody that is known, or of a kind that is not known; msgspec.DecodeError
    where it is no command.
    """
    record = decode_body(body)
    if record.key != CONTROL_QUEUE_KEY:
        require_known(record.key)
        return None
    try:
        return _decode(record.value)
    except msgspec.ValidationError:
        kind = next(iter(_decode_fields(record.value)), None)
        if isinstance(kind, int) and kind not in _KINDS:
            raise UnknownEntryError(f"command kind {kind} of a queue") from None
        raise


def uncounted(visibility_ms: int) -> int:
    """What stands in the place of a visibility when the receive is not to count. Its own inverse."""
    return NACKED - 1 - visibility_ms


def if_held(visibility_ms: int) -> int:
    """What stands in the place of a visibility that is set only while the lease holds. Its own inverse."""
    return IF_HELD_MAX - visibility_ms


def unseen_of(changes: Sequence[int]) -> list[int]:
    """Offsets of those of the flat (offset, delivery, visibility_ms)... that are UNSEEN, in their order."""
    return [offset for offset, what in zip(changes[::3], changes[2::3], strict=True) if what == UNSEEN]


def sizes_of(sizes: Sizes) -> Sequence[int | None]:
    """One for each message named; empty where none is known."""
    return _unpack_sizes(sizes) if isinstance(sizes, bytes) else sizes


def pack_sizes(sizes_bytes: Sequence[int]) -> bytes:
    """Of a DeletedCommand that names one for each message: nearly always it is their sum that matters to the fold."""
    return struct.pack(f">Q{len(sizes_bytes)}I", sum(sizes_bytes), *sizes_bytes)


def sum_of_sizes(packed: bytes) -> tuple[int, int]:
    """How many there are in `pack_sizes`, and their sum."""
    return (len(packed) - _SUM_BYTES) // _PACKED_SIZE_BYTES, int.from_bytes(packed[:_SUM_BYTES], "big")


def _unpack_sizes(packed: bytes) -> Sequence[int]:
    return struct.unpack_from(f">{sum_of_sizes(packed)[0]}I", packed, _SUM_BYTES)
