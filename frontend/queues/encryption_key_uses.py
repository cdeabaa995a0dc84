"""How often encryption keys were used, until the control plane is told (`frontend/key_uses.py`)."""

from __future__ import annotations

from typing import NamedTuple

from frontend.limits import KEY_USES_HELD_MAX


class KeyUseCounts(NamedTuple):
    """Messages."""

    sealed: int = 0
    opened: int = 0


class EncryptionKeyUses:
    """By key id. Bounded: what does not fit is not counted."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, KeyUseCounts] = {}

    def note(self, key_id: str, sealed: int, opened: int) -> None:
        before = self._counts.get(key_id)
        if before is None:
            if len(self._counts) >= KEY_USES_HELD_MAX:
                return
            before = KeyUseCounts()
        self._counts[key_id] = KeyUseCounts(before.sealed + sealed, before.opened + opened)

    def take(self, most: int) -> dict[str, KeyUseCounts]:
        """Up to so many of the oldest; they are forgotten here."""
        return {key_id: self._counts.pop(key_id) for key_id in list(self._counts)[:most]}
