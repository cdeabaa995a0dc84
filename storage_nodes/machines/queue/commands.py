"""Commands of the queue machine: the control records that every replica folds.

A command is a msgpack array in the value of a control record whose key is (int16 0, int16 17), big-endian:

    [kind, term, sequence, time_ms, ...]

    term       log end at which the leader began to lead; unique, because its epoch-start entry stands right below it
    sequence   counts the commands of one term; lets the leader match a folded command with the requests it answers
    time_ms    the leader's time, ms since the Unix epoch; never falls from one command to the next

    kind                   further fields
    1 ACQUIRED             cursor, groups, keys (where there are any); a group is [time_ms, deadline_ms, fresh, again]
                             fresh  flat (first offset, last offset, sent_ms)..., messages never delivered before
                             again  offsets delivered before, or delayed ones that are due
                             keys   flat (message group, tag, flat (first offset, last offset)...)... of fresh ones
    2 DELETED              flat (offset, delivery)..., sizes, the fields of a HANDED_OVER beside it
    3 VISIBILITY_CHANGED   flat (offset, delivery, visibility_ms)...; the new deadline is time_ms + visibility_ms.
                           NACKED: the lease ends as if it had run out. Less than that: `uncounted`, the receive does
                           not count. UNSEEN: as `uncounted` at once, and no consumer saw the message: it is not billed.
                           IF_HELD_MAX and less: `if_held`, by the receipt of a lease that holds only.
                           Then the sizes of those that are UNSEEN
    4 EXPIRED              cursor (0 = an ACQUIRED of the same batch moves it), flat (first, last)... of undelivered
                           messages, offsets of messages that were delivered or delayed, their sizes
    5 PURGED               attempt id of the call, empty = none
    6 CONFIGURED           the fields of QueueConfig, in their order
    7 LEASED               FIFO: leases; a lease is [time_ms, deadline_ms, attempt, is_renewal, parts]
                             parts  flat (group, again, fresh)..., in the order of delivery
                             again  offsets delivered before, or delayed ones that are due
                             fresh  flat (offset, sent_ms)..., messages never delivered before
    8 DEAD_LETTERED        offsets of messages that stand, committed, in the dead-letter queue; sizes
   16 RESCHEDULED          flat (offset, due_ms; 0 = cancelled)... of scheduled messages; sizes
   19 REMOVED              offsets (-1 = no message), whether they stand in the dead-letter queue, sizes; leases do not
                           count
   20 UNPARKED             FIFO: groups that are handed out again; none named = all of them
   21 USAGE_CLOSED         (nothing): the open window of state/metering.py ends here, or goes on and is named early
   22 USAGE_EXPORTED       hour_ms, until_ms: the closed windows up to this one stand in the usage stream
   23 RETIRED              (nothing): the partition takes no requests any more, its next window is its last one
   24 HANDED_OVER          leases, messages, billed bytes, units: of so many leases so much was handed over
   25 LEVELED              level: from here on the partition is at this feature level (protocol/levels.py)

    sizes: billed bytes of each message named, nil = unknown; missing, or empty, where all are. For the meter. A DELETED
    of which all are known has them as bytes: their sum (8 bytes), then each (4). Fields at the end that say nothing are
    missing.

Kinds are on disk: never reuse one; a kind gets new fields only at its end. Arrays are flat because decoding
and walking a flat list of integers costs a third of a list of pairs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

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
from storage_nodes.machines.unknown_entries import require_known
from storage_nodes.protocol.records import decode_body, encode_body

ACQUIRED = 1
DELETED = 2
VISIBILITY_CHANGED = 3
EXPIRED = 4
PURGED = 5
CONFIGURED = 6
LEASED = 7
DEAD_LETTERED = 8
RESCHEDULED = 16
REMOVED = 19
UNPARKED = 20
USAGE_CLOSED = 21
USAGE_EXPORTED = 22
RETIRED = 23
HANDED_OVER = 24
LEVELED = 25
USAGE_COMMANDS = (USAGE_CLOSED, USAGE_EXPORTED, RETIRED)
# Who leads follows them no further than other replicas do.
FOLDED_ALIKE = (*USAGE_COMMANDS, LEVELED)

# In the place of a visibility.
NACKED = -1
IF_HELD_MAX = -(2**30)
UNSEEN = IF_HELD_MAX + 1
assert VISIBILITY_MS_MAX < 2**29, "an uncounted visibility is none of those"

# Positions of the fields that all kinds have.
KIND, TERM, SEQUENCE, TIME_MS, FIRST_FIELD = range(5)

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

# A group and a tag in ACQUIRED without their own bytes, and one range: three headers and two integers.
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

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

Command = list[Any]


def uncounted(visibility_ms: int) -> int:
    """What stands in the place of a visibility when the receive is not to count. Its own inverse."""
    return NACKED - 1 - visibility_ms


def if_held(visibility_ms: int) -> int:
    """What stands in the place of a visibility that is set only while the lease holds. Its own inverse."""
    return IF_HELD_MAX - visibility_ms


def unseen_of(changes: Sequence[int]) -> list[int]:
    """Offsets of those of the flat (offset, delivery, visibility_ms)... that are UNSEEN, in their order."""
    return [offset for offset, what in zip(changes[::3], changes[2::3], strict=True) if what == UNSEEN]


def sizes_of(command: Command, position: int) -> Sequence[int | None]:
    """The sizes that stand at this position, behind FIRST_FIELD; empty where none is known."""
    sizes: bytes | list[int | None] = command[FIRST_FIELD + position] if len(command) > FIRST_FIELD + position else []
    return _unpack_sizes(sizes) if isinstance(sizes, bytes) else sizes


def pack_sizes(sizes_bytes: Sequence[int]) -> bytes:
    """Sizes of a DELETED that names one for each message: nearly always it is their sum that matters to the fold."""
    return struct.pack(f">Q{len(sizes_bytes)}I", sum(sizes_bytes), *sizes_bytes)


def sum_of_sizes(packed: bytes) -> tuple[int, int]:
    """How many there are in `pack_sizes`, and their sum."""
    return (len(packed) - _SUM_BYTES) // _PACKED_SIZE_BYTES, int.from_bytes(packed[:_SUM_BYTES], "big")


def _unpack_sizes(packed: bytes) -> Sequence[int]:
    return struct.unpack_from(f">{sum_of_sizes(packed)[0]}I", packed, _SUM_BYTES)


def encode_command(command: Command) -> bytes:
    """The record body of a command."""
    return encode_body(_encode(command), CONTROL_QUEUE_KEY)


def decode_command(body: bytes) -> Command | None:
    """The command in a control record's body; None where the record is not for the queue machine. Raises
    UnknownEntryError where it is for nobody that is known."""
    record = decode_body(body)
    if record.key != CONTROL_QUEUE_KEY:
        require_known(record.key)
        return None
    command: Command = _decode(record.value)
    return command
