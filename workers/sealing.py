"""Messages that this worker sealed and opened, for all of its threads (frontend/queues/key_uses.py): under data keys of
queues, told to the rows of the keys from as many on as front ends tell theirs; and under encryption keys."""

from __future__ import annotations

import threading
import uuid

from api.encryption.actions import note_uses
from api.queues.data_keys import DataKeyUse, note_data_key_uses
from frontend.queues.key_uses import DataKeyUses, EncryptionKeyUses, KeyUseCounts
from workers.limits import DATA_KEYS_TOLD_MAX, ENCRYPTION_KEYS_TOLD_MAX


class SealedMessages(DataKeyUses):
    """A count that threads share."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def note(self, queue_uuid: bytes, version: int, messages: int) -> None:
        with self._lock:
            super().note(queue_uuid, version, messages)

    def take(self, most: int) -> list[tuple[str, int, int]]:
        with self._lock:
            return super().take(most)

    def tell(self) -> None:
        """What the database does not take is counted again."""
        due = self.take(DATA_KEYS_TOLD_MAX)
        if not due:
            return
        try:
            note_data_key_uses([DataKeyUse(uuid.UUID(hex=queue), version, count) for queue, version, count in due])
        except Exception:
            for queue, version, count in due:
                self.note(bytes.fromhex(queue), version, count)
            raise


class SharedEncryptionKeyUses(EncryptionKeyUses):
    """A count that threads share."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def note(self, key_id: str, sealed: int, opened: int) -> None:
        with self._lock:
            super().note(key_id, sealed, opened)

    def take(self, most: int) -> dict[str, KeyUseCounts]:
        with self._lock:
            return super().take(most)

    def tell(self) -> None:
        """What the database does not take is counted again."""
        due = self.take(ENCRYPTION_KEYS_TOLD_MAX)
        if not due:
            return
        try:
            note_uses({uuid.UUID(key_id): count for key_id, count in due.items()})
        except Exception:
            for key_id, count in due.items():
                self.note(key_id, count.sealed, count.opened)
            raise


sealed_messages = SealedMessages()
encryption_key_uses = SharedEncryptionKeyUses()


def tell_key_uses() -> None:
    """After a piece of work."""
    sealed_messages.tell()
    encryption_key_uses.tell()
