"""When keys were used last, until the control plane is told (`frontend/key_uses.py`)."""

from __future__ import annotations

from frontend.limits import KEY_USES_HELD_MAX


class KeyUses:
    """By access key, Unix seconds. Bounded: what does not fit is noted by the next use."""

    __slots__ = ("_last_s",)

    def __init__(self) -> None:
        self._last_s: dict[str, float] = {}

    def note(self, access_key_id: str, now_s: float) -> None:
        if len(self._last_s) < KEY_USES_HELD_MAX or access_key_id in self._last_s:
            self._last_s[access_key_id] = now_s

    def take(self, most: int) -> dict[str, int]:
        """Up to so many of the oldest, in milliseconds; they are forgotten here."""
        taken = list(self._last_s)[:most]
        return {access_key_id: int(self._last_s.pop(access_key_id) * 1000) for access_key_id in taken}
