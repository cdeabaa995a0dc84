"""How often keys of queues were used, until the control plane is told (frontend/key_uses.py): data keys and encryption
keys.

Of data keys it counts the messages that were sealed. The control plane replaces a data key long before so many messages
were sealed that two random nonces may be the same. So small counts can wait, and those of a process that is killed may
be lost. Workers count in the same way (workers/sealing.py).

Surface: other planes may import this module.
"""

from __future__ import annotations

from typing import NamedTuple

from frontend.limits import DATA_KEY_USES_TOLD_MIN, DATA_KEYS_COUNTED_MAX, KEY_USES_HELD_MAX


class DataKeyUses:
    """By queue and version. Bounded: where there are too many, the smaller half is forgotten."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[bytes, int], int] = {}

    def note(self, queue_uuid: bytes, version: int, messages: int) -> None:
        name = (queue_uuid, version)
        before = self._counts.get(name)
        if before is None:
            if len(self._counts) >= DATA_KEYS_COUNTED_MAX:
                self._forget_half()
            before = 0
        self._counts[name] = before + messages

    def take(self, most: int) -> list[tuple[str, int, int]]:
        """(queue, version, messages) of up to so many keys, whose counts are worth telling; they begin again at 0."""
        due = [name for name, count in self._counts.items() if count >= DATA_KEY_USES_TOLD_MIN][:most]
        return [(name[0].hex(), name[1], self._counts.pop(name)) for name in due]

    def _forget_half(self) -> None:
        by_count = sorted(self._counts.items(), key=lambda item: item[1])
        self._counts = dict(by_count[len(by_count) // 2 :])


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
