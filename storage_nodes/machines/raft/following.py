"""The follower's half of log matching: what one AppendEntries means for a log (R16, R17).

The leader says "these entries follow the position (prev_epoch, prev_offset)". Two logs that agree on the epoch at
an offset agree on everything before it, so one comparison decides:

- They differ there, or the log is shorter: refuse, and name the last own epoch at or below the asked one and where
  it ends, so that the leader backs off an epoch at a time and never below what the logs share.
- They agree: entries that the log already holds (same epoch at their end) are skipped, so a late or repeated
  message never shortens the log. The first entry whose place is taken by another epoch is a real conflict: cut
  there, then append. A cut below the commit position means that a committed entry would be lost: SafetyViolation.

Pure: answers an AppendResult, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage_nodes.machines.raft.effects import EntryFacts, LogPositions, SafetyViolation
from storage_nodes.protocol.peer_messages import AppendEntries

NO_CUT = -1


class AppendResult(NamedTuple):
    """ok: cut at `cut` (unless NO_CUT), append entries[first:last]; the log then matches the leader's up to `end`.

    Not ok: `conflict_epoch` ends at `end` in this log.
    """

    ok: bool
    end: int
    cut: int = NO_CUT
    first: int = 0
    last: int = 0
    conflict_epoch: int = 0


def match_append(log: LogPositions, commit: int, message: AppendEntries, headers: Sequence[EntryFacts]) -> AppendResult:
    """What `message`, whose entries have `headers`, means for `log`. Raises SafetyViolation."""
    prev_offset = message.prev_offset
    log_end = log.log_end
    if prev_offset == log_end and log.last_epoch == message.prev_epoch:
        # The steady state: entries continue the log.
        if len(headers) == 1 and headers[0].base_offset == prev_offset:
            return AppendResult(True, headers[0].end_offset, NO_CUT, 0, 1)
        last, end = _chained(headers, 0, prev_offset)
        return AppendResult(True, end, NO_CUT, 0, last)
    if prev_offset > log_end or not agrees(log, commit, prev_offset, message.prev_epoch):
        if prev_offset <= commit:
            raise SafetyViolation(
                f"epoch at committed offset {prev_offset} is {log.epoch_at(prev_offset)} here and "
                f"{message.prev_epoch} at the leader of epoch {message.epoch}"
            )
        conflict_epoch, end = log.end_of_epoch(message.prev_epoch)
        return AppendResult(False, min(end, prev_offset), conflict_epoch=conflict_epoch)
    return _judge_overlap(log, commit, prev_offset, headers)


def _judge_overlap(log: LogPositions, commit: int, end: int, headers: Sequence[EntryFacts]) -> AppendResult:
    """The logs agree up to `end`, which lies within this log: skip what is held, find the first real conflict."""
    log_end = log.log_end
    for index, header in enumerate(headers):
        if header.base_offset != end:
            return AppendResult(True, end)
        if header.end_offset <= log_end and agrees(log, commit, header.end_offset, header.epoch):
            end = header.end_offset
            continue
        cut = NO_CUT
        if end < log_end:
            cut = end
            if cut < commit:
                raise SafetyViolation(f"asked to cut at {cut}, below the commit position {commit}")
            if log.epoch_at(end + 1) == header.epoch:
                raise SafetyViolation(f"two different entries of epoch {header.epoch} at offset {end}")
        last, end = _chained(headers, index, end)
        return AppendResult(True, end, cut, index, last)
    return AppendResult(True, end)


def agrees(log: LogPositions, commit: int, offset: int, epoch: int) -> bool:
    """Was the entry that ends at `offset` written in `epoch` here too?

    A log that dropped old entries knows their epochs no more (0). They were committed, so whoever leads holds the same.
    """
    own_epoch = log.epoch_at(offset)
    return own_epoch == epoch or (own_epoch == 0 and 0 < offset <= commit)


def _chained(headers: Sequence[EntryFacts], first: int, end: int) -> tuple[int, int]:
    """(index after the last, end of) the entries that follow `end` one upon the other; a gap ends them."""
    last = first
    while last < len(headers) and headers[last].base_offset == end:
        end = headers[last].end_offset
        last += 1
    return last, end
