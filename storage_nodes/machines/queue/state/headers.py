"""What the fold reads in the headers of a message. One that makes no sense counts as absent: it is folded anyway."""

from __future__ import annotations

from storage_nodes.machines.fold_constants import LEVEL_1
from storage_nodes.machines.queue.effects import NO_KEY, Key
from storage_nodes.protocol.records import RecordError, group_and_id, read_headers

DELAY_MS_MAX = LEVEL_1.delay_ms_max
GROUP_BYTES_MAX = LEVEL_1.group_bytes_max
SCHEDULE_MS_MAX = LEVEL_1.schedule_ms_max
TAG_BYTES_MAX = LEVEL_1.tag_bytes_max
_DELAY_DIGITS_MAX = len(str(DELAY_MS_MAX))
_TIME_DIGITS_MAX = 15


class FoldedHeaders:
    """What the fold read in the headers of one data batch, by offset, for the leader who follows it."""

    __slots__ = ("delayed", "duplicates", "excluded", "groups", "keys", "released", "scheduled")

    def __init__(self) -> None:
        self.delayed: list[int] = []
        self.duplicates: list[tuple[int, int]] = []  # (offset, offset of the original or NOT_TAKEN)
        self.excluded: list[int] = []  # messages that wait in a schedule, and releases of what does not
        self.scheduled: list[int] = []  # of these excluded ones, those that wait in the schedule now
        self.released: list[int] = []  # offsets of the messages that releases named, whatever became of them
        self.groups: dict[int, bytes] = {}  # of all but the duplicates and those set aside
        self.keys: dict[int, Key] = {}  # of those of them that have a group or a tag

    def unavailable_offsets(self) -> list[int]:
        return sorted([*self.delayed, *self.excluded, *(offset for offset, _ in self.duplicates)])


def machine_headers(section: bytes) -> tuple[int, bytes, bytes, bytes, bytes, bytes, bytes]:
    """(delay in ms, message group, deduplication id, source of a dead letter, tag, due time, what a release is of) in
    the header section of a message, empty where absent or senseless."""
    usual = group_and_id(section)
    if usual is not None:
        return 0, usual[0], usual[1], b"", b"", b"", b""
    try:
        delay, group, dedup_id, dead_source, tag, due, release = read_headers(section)
    except RecordError:
        return 0, b"", b"", b"", b"", b"", b""
    delay_ms = delay_of(delay) if delay is not None else 0
    return (
        delay_ms,
        group[:GROUP_BYTES_MAX] if group else b"",
        dedup_id or b"",
        dead_source or b"",
        tag[:TAG_BYTES_MAX] if tag else b"",
        due or b"",
        release or b"",
    )


def group_of(section: bytes) -> bytes:
    return machine_headers(section)[1]


def key_of(section: bytes) -> Key:
    _, group, _, _, tag, _, _ = machine_headers(section)
    return (group, tag) if group or tag else NO_KEY


def is_due_time(content: bytes) -> bool:
    """Is this what HEADER_DUE may hold?"""
    return content.removeprefix(b"+").isdigit() and len(content) <= _TIME_DIGITS_MAX


def is_named_time(content: bytes) -> bool:
    """Is this due time a point in time, not so long after the append?"""
    return is_due_time(content) and not content.startswith(b"+")


def release_header(offset: int, due_ms: int, sent_ms: int = 0) -> bytes:
    """Content of HEADER_RELEASED; of a delayed message with the time at which it was sent."""
    return b"%d/%d/%d" % (offset, due_ms, sent_ms) if sent_ms else b"%d/%d" % (offset, due_ms)


def due_time_ms(due: bytes, sent_ms: int) -> int:
    """Content of HEADER_DUE as a time, that of its append where it is senseless."""
    if not is_due_time(due):
        return sent_ms
    return min(int(due) + (sent_ms if due.startswith(b"+") else 0), sent_ms + SCHEDULE_MS_MAX)


def source_of_release(content: bytes) -> tuple[int, int, int]:
    """(offset, due_ms, sent_ms or 0); what leaders wrote themselves."""
    offset, due_ms, *sent_ms = content.split(b"/")
    return int(offset), int(due_ms), int(sent_ms[0]) if sent_ms else 0


def delay_of(content: bytes) -> int:
    """Content of HEADER_DELAY_MS; 0 where it is senseless."""
    return min(int(content), DELAY_MS_MAX) if _is_number(content) else 0


def _is_number(content: bytes) -> bool:
    return content.isdigit() and len(content) <= _DELAY_DIGITS_MAX + 1
