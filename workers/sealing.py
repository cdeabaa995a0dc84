"""Messages that this worker sealed under data keys of queues, for all of its threads: told to the rows of the keys from
as many on as front ends tell theirs (frontend/queues/key_uses.py)."""

from __future__ import annotations

import threading
import uuid

from api.queues.data_keys import DataKeyUse, note_data_key_uses
from frontend.queues.key_uses import DataKeyUses
from workers.limits import DATA_KEYS_TOLD_MAX


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


sealed_messages = SealedMessages()
