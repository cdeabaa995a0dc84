"""What a queue machine asks its driver to do, and the small values that travel with it.

The driver performs effects in the order given and decides nothing. A *token* is whatever the driver uses to find the
request again; the machine only hands it back. Tokens that are outstanding at the same time must differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from storage_nodes.machines.driver_contract import Propose, Refuse, Token
from storage_nodes.protocol.errors import ErrorCode


class BatchFacts(Protocol):
    """What the fold reads of a batch header; `BatchHeader` of the log has it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def is_plain(self) -> bool: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def usage(self) -> int: ...


class FreshRange(NamedTuple):
    """Message offsets of one data batch, both ends included, and the batch's append time."""

    first_offset: int
    last_offset: int
    timestamp_ms: int


Groups = Sequence[bytes]
"""The message groups of a range's messages, in their order."""

Key = tuple[bytes, bytes]
"""Message group and tag of a message of a standard queue; empty where it has none."""

NO_KEY: Key = (b"", b"")

Tags = Sequence[bytes]
"""What an acquire asks for, distinct; none: whatever there is."""

Keys = Sequence[Key]
"""Those of a range's messages, in their order; empty if no message of it has one."""


class Pick(NamedTuple):
    """One message handed out. `delivery` counts from 1; (offset, delivery) is the receipt."""

    offset: int
    delivery: int
    first_received_ms: int
    sent_ms: int


class Deliver(NamedTuple):
    """Answer an acquire with these messages (none: the wait ran out). The driver adds the bodies from the log.
    `deadline_ms`, of a FIFO queue, is when their leases end; a repeat gives what an earlier answer gave."""

    token: Token
    picks: list[Pick]
    deadline_ms: int = 0
    is_repeat: bool = False


class Duplicated(NamedTuple):
    """Of the messages just folded these repeat an id: (offset, offset of the original, which is committed)."""

    pairs: list[tuple[int, int]]


class DeadLetterInfo(NamedTuple):
    """One message that was received too often."""

    offset: int
    receives: int
    first_received_ms: int
    sent_ms: int
    died_ms: int
    receives_max: int


class DeadLetter(NamedTuple):
    """Send copies of these to `partition` and call `moved` or `move_failed`. One such move is under way at a time.

    term, move, kept: what `DeadSource` says of it.
    """

    partition: int
    letters: list[DeadLetterInfo]
    term: int
    move: int
    kept: int


class CommandAnswer(NamedTuple):
    """The command of this token is committed and folded.

    delete, change visibility: one ErrorCode an item; purge: (ErrorCode, messages purged); configure: (OK, messages
    held).
    """

    token: Token
    result: list[ErrorCode] | tuple[ErrorCode, int]


class Fetch(NamedTuple):
    """Read headers of data batches from here on and call `fetched()`. One is outstanding at a time.

    A FIFO queue also needs the groups of their messages, one that `sorts` their keys.
    """

    from_offset: int


class Release(NamedTuple):
    """These (due_ms, offset) are due: append them once more, in this order, and say so with `release_begun`."""

    messages: list[tuple[int, int]]


class MeteredHour(NamedTuple):
    """What the meter of a partition counted in one hour (state/metering.py).

    `origins`: (origin, then its counters) of each origin that did something, by number.
    """

    hour_ms: int
    until_ms: int
    stored_byte_ms: int
    stored_bytes: int
    origins: tuple[tuple[int, ...], ...]


class ExportUsage(NamedTuple):
    """Append these closed windows to the usage stream, in this order, and call `usage_exported` or
    `usage_not_exported`. One export is under way at a time."""

    windows: tuple[MeteredHour, ...]
    is_final: bool = False  # is the last of them the last one of the partition?


class Retired(NamedTuple):
    """The partition takes no requests any more: refuse them before they come here."""


Effect = ExportUsage | Retired | Deliver | CommandAnswer | Refuse | Fetch | Propose | Duplicated | DeadLetter | Release


def answers_of(codes: list[ErrorCode], askers: Sequence[tuple[Token, int]]) -> Iterator[CommandAnswer]:
    """To each asker its own share of a command's codes."""
    at = 0
    for token, count in askers:
        if token is not None:
            yield CommandAnswer(token, codes[at : at + count])
        at += count


def overloaded(token: Token) -> Refuse:
    return Refuse(token, ErrorCode.OVERLOADED, "too many commands wait for their commit")
