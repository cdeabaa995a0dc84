"""Calls that authorisation refused here, counted until the control plane is told of them (frontend/key_uses.py).

A caller chooses what it is refused, so kinds are bounded: of an account, beyond which they are counted as "*", and in
all, beyond which they are not. Of calls from several addresses the last one is told.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from frontend.limits import (
    REFUSED_CALLS_HELD_MAX,
    REFUSED_CALLS_PER_ACCOUNT_MAX,
    REFUSED_RESOURCE_CHARS_MAX,
    SOURCE_CHARS_MAX,
)

OTHERS = "*"


class RefusedCall(NamedTuple):
    account_id: str
    access_key_id: str
    action: str
    resource: str


class RefusedCalls:
    def __init__(self) -> None:
        self._counts: dict[RefusedCall, int] = {}
        self._sources: dict[RefusedCall, str] = {}
        self._kinds: Counter[str] = Counter()

    def note(self, call: RefusedCall, source: str) -> None:
        # Callers choose the names of what they are refused: one that is too long must not cost the others their report.
        call = call._replace(resource=call.resource[:REFUSED_RESOURCE_CHARS_MAX])
        if call not in self._counts and self._kinds[call.account_id] >= REFUSED_CALLS_PER_ACCOUNT_MAX:
            call = RefusedCall(call.account_id, OTHERS, OTHERS, OTHERS)
        if call not in self._counts:
            if len(self._counts) >= REFUSED_CALLS_HELD_MAX:
                return
            self._counts[call] = 0
            self._kinds[call.account_id] += 1
        self._counts[call] += 1
        self._sources[call] = source[:SOURCE_CHARS_MAX]

    def take(self, most: int) -> list[tuple[str | int, ...]]:
        """Rows as the control plane is told them: the call, its last source, how many."""
        rows: list[tuple[str | int, ...]] = []
        for call in list(self._counts)[:most]:
            rows.append((*call, self._sources.pop(call), self._counts.pop(call)))
            self._kinds[call.account_id] -= 1
            if not self._kinds[call.account_id]:
                del self._kinds[call.account_id]
        return rows
