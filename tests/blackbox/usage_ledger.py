"""What clients know of what they did, per account and queue: acknowledged for certain, or of unknown outcome.

A counter that the invoice shows must lie between what was acknowledged and that with the unknown on top. Where
nothing is unknown, the difference must be 0.

A lease of a standard queue is answered before a majority has it (docs/decisions/0005): one that was answered just
before its leader was killed may be forgotten, and then it is not billed either. Such deliveries are of unknown outcome
downwards, those of all other moments must be billed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

UNIT_BYTES = 65_536
SENT, DELIVERED, DELETED = "messages_sent", "messages_delivered", "messages_deleted"
SENT_BYTES, SENT_UNITS = "sent_bytes", "sent_units"
# Between the answer of a receive and the moment when a majority has its lease: LEASE_LINGER_MS and a group commit. As
# much again between the kill of the leader and the moment when a client reads what was answered before.
LEASE_AT_RISK_S = 0.1
JUDGED = (SENT, SENT_BYTES, SENT_UNITS, DELIVERED, DELETED)


class Finding(NamedTuple):
    """A counter of a queue. `low` was acknowledged and is kept, up to `high` may have happened."""

    account: str
    queue: str
    meter: str
    low: int
    high: int
    billed: int

    @property
    def is_right(self) -> bool:
        return self.low <= self.billed <= self.high

    @property
    def is_exact(self) -> bool:
        return self.low == self.high == self.billed


class UsageLedger:
    """Of all clients; they are threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Counter[str]] = {}
        self._unknown: dict[tuple[str, str], Counter[str]] = {}
        # Of standard queues: when receives were answered, with how many messages.
        self._leased: dict[tuple[str, str], list[tuple[float, int]]] = {}
        self._kills: list[float] = []
        self.operations = 0
        self.unknown: list[str] = []

    def know(self, account: str, queue: str, **counts: int) -> None:
        self._add(self._known, account, queue, counts)

    def doubt(self, account: str, queue: str, why: str, **counts: int) -> None:
        """It may have happened, or a part of it."""
        self._add(self._unknown, account, queue, counts)
        with self._lock:
            self.unknown.append(f"{account}/{queue}: {counts} ({why})")

    def leased(self, account: str, queue: str, count: int, at_s: float) -> None:
        """A receive of a standard queue was answered; `at_s` is of the monotonic clock."""
        with self._lock:
            self._leased.setdefault((account, queue), []).append((at_s, count))

    def killed(self, at_s: float) -> None:
        """A storage node."""
        self._kills.append(at_s)

    def _at_risk(self, key: tuple[str, str]) -> int:
        return sum(
            count
            for at_s, count in self._leased.get(key, ())
            if any(abs(at_s - kill_s) <= LEASE_AT_RISK_S for kill_s in self._kills)
        )

    def _add(
        self, kept: dict[tuple[str, str], Counter[str]], account: str, queue: str, counts: Mapping[str, int]
    ) -> None:
        with self._lock:
            kept.setdefault((account, queue), Counter()).update(counts)
            self.operations += counts.get(SENT, 0) + counts.get(DELIVERED, 0) + counts.get(DELETED, 0)

    def judge(self, billed: Mapping[tuple[str, str], Mapping[str, int]]) -> list[Finding]:
        """`billed`: per account and queue, by the names of the invoice's meters."""
        found = []
        for key in sorted({*self._known, *self._unknown}):
            known, unknown = self._known.get(key, Counter()), self._unknown.get(key, Counter())
            of_queue = billed.get(key, {})
            for meter in JUDGED:
                high = known[meter] + unknown[meter]
                low = known[meter] - (self._at_risk(key) if meter == DELIVERED else 0)
                found.append(Finding(*key, meter, low, high, int(of_queue.get(meter, 0))))
        return found


def size_counts(bodies: list[str]) -> dict[str, int]:
    """What a send of these is billed for; ASCII."""
    units = sum(max(1, -(-len(body) // UNIT_BYTES)) for body in bodies)
    return {SENT: len(bodies), SENT_BYTES: sum(map(len, bodies)), SENT_UNITS: units}
