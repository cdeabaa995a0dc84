"""Error codes of the storage plane. Numbers are frozen, texts are free.

Callers never list codes: they read the flags. `retriable` = the same call may succeed later; `refresh_metadata` =
ask who leads before trying again; `outcome_unknown` = the call may or may not have taken effect.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class ErrorCode(enum.IntEnum):
    OK = 0
    INVALID_REQUEST = 1
    UNKNOWN_OPCODE = 2
    UNKNOWN_PARTITION = 3
    NOT_LEADER = 4
    NO_QUORUM = 5
    OUTCOME_UNKNOWN = 6
    OVERLOADED = 7
    SHUTTING_DOWN = 8
    TOO_LARGE = 9
    NOT_IN_FLIGHT = 10
    OVER_LIMIT = 11
    PURGE_IN_PROGRESS = 12
    READ_ONLY = 13
    OFFSET_OUT_OF_RANGE = 14
    INTERNAL = 15
    CANCELLED = 16
    UNREACHABLE = 17
    NOT_ENOUGH_NODES = 18
    UNKNOWN_RECORD = 19
    UNAVAILABLE = 20
    RECEIPT_STALE = 21  # FIFO: the lease of this receipt ran out, or the message was handed out again since
    FENCED = 22  # consumer groups: the session, or the grant of the partition, is not the one that holds
    GRANT_UNKNOWN = 23  # this node does not know the grant (yet): it leads no more, or there is no such group
    GROUP_NOT_EMPTY = 24
    NOT_SCHEDULED = 25  # the message is due, was cancelled, or never was scheduled
    SCHEDULE_FULL = 26
    SEQUENCE_TOO_OLD = 27  # of a producer: whether these records were appended is not remembered any more
    QUARANTINED = 28  # the replica here is closed until it can go on; others may lead, or none can
    FORBIDDEN = 29  # the caller's certificate is of a role that may not ask for this


class ErrorTraits(NamedTuple):
    retriable: bool
    refresh_metadata: bool
    outcome_unknown: bool


_FINAL = ErrorTraits(False, False, False)
_LATER = ErrorTraits(True, False, False)
_ELSEWHERE = ErrorTraits(True, True, False)
_UNSURE = ErrorTraits(True, True, True)
_NEVER_KNOWN = ErrorTraits(False, False, True)

TRAITS: dict[ErrorCode, ErrorTraits] = {
    ErrorCode.OK: _FINAL,
    ErrorCode.INVALID_REQUEST: _FINAL,
    ErrorCode.UNKNOWN_OPCODE: _FINAL,
    # A partition that was just created may not be known to every node yet.
    ErrorCode.UNKNOWN_PARTITION: _ELSEWHERE,
    ErrorCode.NOT_LEADER: _ELSEWHERE,
    ErrorCode.NO_QUORUM: _ELSEWHERE,
    ErrorCode.OUTCOME_UNKNOWN: _UNSURE,
    ErrorCode.OVERLOADED: _LATER,
    ErrorCode.SHUTTING_DOWN: _ELSEWHERE,
    ErrorCode.TOO_LARGE: _FINAL,
    ErrorCode.NOT_IN_FLIGHT: _FINAL,
    ErrorCode.OVER_LIMIT: _FINAL,
    ErrorCode.PURGE_IN_PROGRESS: _FINAL,
    # Of the leader itself: whoever leads next says so in a NOT_LEADER.
    ErrorCode.READ_ONLY: _LATER,
    ErrorCode.OFFSET_OUT_OF_RANGE: _FINAL,
    ErrorCode.INTERNAL: _UNSURE,
    ErrorCode.CANCELLED: _FINAL,
    ErrorCode.UNREACHABLE: _ELSEWHERE,
    ErrorCode.NOT_ENOUGH_NODES: _LATER,
    ErrorCode.UNKNOWN_RECORD: _FINAL,
    ErrorCode.UNAVAILABLE: _LATER,
    ErrorCode.RECEIPT_STALE: _FINAL,
    ErrorCode.NOT_SCHEDULED: _FINAL,
    ErrorCode.SCHEDULE_FULL: _FINAL,
    # Whoever hears this joins again; the same call never succeeds.
    ErrorCode.FENCED: _FINAL,
    ErrorCode.GRANT_UNKNOWN: _ELSEWHERE,
    ErrorCode.GROUP_NOT_EMPTY: _FINAL,
    ErrorCode.SEQUENCE_TOO_OLD: _NEVER_KNOWN,
    ErrorCode.QUARANTINED: _ELSEWHERE,
    ErrorCode.FORBIDDEN: _FINAL,
}
assert set(TRAITS) == set(ErrorCode)


# `StorageError.asked` of a call that was given up before any node was asked.
NOBODY_ASKED = -1


class StorageError(Exception):
    """An operating error that travels over the wire. Never raised for our own bugs: those are assertions."""

    def __init__(self, code: ErrorCode, message: str = "", leader: int = 0, retry_after_ms: int = 0) -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message
        self.leader = leader  # node id of the leader, where the answering node knows it; 0 = unknown
        self.retry_after_ms = retry_after_ms  # when there may be room again, where the node knows; 0 = unknown
        self.asked = 0  # whom the client asked; 0 = nobody in particular
        # Did the node that was asked show that it is there, by this answer or by what it answered to pings until the
        # call's deadline? Then an outcome that is not known says nothing against the node.
        self.node_is_there = False

    @property
    def traits(self) -> ErrorTraits:
        return TRAITS[self.code]
