"""Deletes of messages that this leader never handed out.

A lease that was not committed before a failover is lost, but its receipt is not: the consumer may delete a message
that stands at or beyond the cursor. That must hold (an acknowledged delete is never redelivered), yet a control record
or an offset that was made up must not be counted as a message. The window knows what is near the head; beyond it the
log is asked, one Fetch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage_nodes.machines.driver_contract import Token
from storage_nodes.machines.queue.delivery.window import Window
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


class Probes:
    __slots__ = ("_probes",)

    def __init__(self) -> None:
        self._probes: list[_Probe] = []

    def __len__(self) -> int:
        return len(self._probes)

    def add(self, token: Token, receipts: Sequence[Receipt], window: Window, state: QueueState) -> None:
        probe = _Probe(token, receipts)
        for offset, delivery in receipts:
            if offset < window.head or offset in state.live or offset in state.removed_above_cursor:
                continue
            if offset >= state.log_end or delivery < 1:
                probe.unknown.add(offset)
            elif offset >= window.end:
                probe.open.add(offset)
            elif not window.holds(offset):
                probe.unknown.add(offset)
        self._probes.append(probe)

    def wanted_offset(self) -> int:
        return min(self._probes[0].open)

    def asks(self, from_offset: int) -> bool:
        return any(from_offset in probe.open for probe in self._probes)

    def fetched(self, from_offset: int, ranges: Sequence[FreshRange], end: int) -> None:
        for probe in self._probes:
            for offset in [o for o in probe.open if from_offset <= o < end]:
                probe.open.remove(offset)
                if not any(first <= offset <= last for first, last, _ in ranges):
                    probe.unknown.add(offset)

    def take_decided(self) -> Iterator[tuple[list[Receipt], CommandAnswer]]:
        """Receipts to be deleted and what to answer when they are."""
        decided = [probe for probe in self._probes if not probe.open]
        self._probes = [probe for probe in self._probes if probe.open]
        for probe in decided:
            unknown = probe.unknown
            codes = [ErrorCode.UNKNOWN_RECORD if o in unknown else ErrorCode.OK for o, _ in probe.receipts]
            yield (
                [receipt for receipt in probe.receipts if receipt[0] not in unknown],
                CommandAnswer(probe.token, codes),
            )

    def tokens(self) -> list[Token]:
        return [probe.token for probe in self._probes]
