"""Deletes of messages that this leader never handed out.

A lease that was not committed before a failover is lost, but its receipt is not: the consumer may delete a message
that stands at or beyond the cursor. That must hold (an acknowledged delete is never redelivered), yet a control record
or an offset that was made up must not be counted as a message. The window knows what is near the head; beyond it the
log is asked, one Fetch at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from storage_nodes.machines.driver_contract import Token
from storage_nodes.machines.queue.delivery.pending_commands import PendingCommands
from storage_nodes.machines.queue.effects import CommandAnswer, FreshRange
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.protocol.errors import ErrorCode

Receipt = tuple[int, int]


class _Probe:
    __slots__ = ("open", "receipts", "token", "unknown")

    def __init__(self, token: Token, receipts: Sequence[Receipt]) -> None:
        self.token = token
        self.receipts = receipts
        self.unknown: set[int] = set()  # offsets that hold no message
        self.open: set[int] = set()  # offsets to be looked up in the log


class _Waiting(Protocol):
    """What a leader of a standard queue knows to wait: `Window`, `Backlog`."""

    end: int

    @property
    def head(self) -> int: ...

    def holds(self, offset: int) -> bool: ...


class Probes:
    __slots__ = ("_probes", "_staging", "_state")

    def __init__(self, state: QueueState, staging: PendingCommands) -> None:
        self._state = state
        self._staging = staging
        self._probes: list[_Probe] = []

    def __len__(self) -> int:
        return len(self._probes)

    def delete(self, token: Token, receipts: Sequence[Receipt], waiting: _Waiting) -> None:
        """Stages deletes of a standard queue; those of messages not handed out here once they are looked up."""
        if not receipts or max(receipts) < (waiting.head,):
            self._staging.deleted(receipts, CommandAnswer(token, [ErrorCode.OK] * len(receipts)))
        else:
            self._add(token, receipts, waiting)
            self._stage_decided()

    def _add(self, token: Token, receipts: Sequence[Receipt], waiting: _Waiting) -> None:
        state = self._state
        probe = _Probe(token, receipts)
        for offset, delivery in receipts:
            if offset < waiting.head or offset in state.live or offset in state.removed_above_cursor:
                continue
            if offset >= state.log_end or delivery < 1:
                probe.unknown.add(offset)
            elif offset >= waiting.end:
                probe.open.add(offset)
            elif not waiting.holds(offset):
                probe.unknown.add(offset)
        self._probes.append(probe)

    def wanted_offset(self) -> int:
        return min(self._probes[0].open)

    def fetched(self, from_offset: int, ranges: Sequence[FreshRange], end: int) -> None:
        """The log was read from there up to `end`."""
        if not any(from_offset in probe.open for probe in self._probes):
            return
        for probe in self._probes:
            for offset in [o for o in probe.open if from_offset <= o < end]:
                probe.open.remove(offset)
                if not any(first <= offset <= last for first, last, _ in ranges):
                    probe.unknown.add(offset)
        self._stage_decided()

    def _stage_decided(self) -> None:
        decided = [probe for probe in self._probes if not probe.open]
        self._probes = [probe for probe in self._probes if probe.open]
        for probe in decided:
            unknown = probe.unknown
            codes = [ErrorCode.UNKNOWN_RECORD if o in unknown else ErrorCode.OK for o, _ in probe.receipts]
            receipts = [receipt for receipt in probe.receipts if receipt[0] not in unknown]
            self._staging.deleted(receipts, CommandAnswer(probe.token, codes))

    def tokens(self) -> list[Token]:
        return [probe.token for probe in self._probes]
