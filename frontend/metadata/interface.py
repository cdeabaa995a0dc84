"""What the front end may ask about the control plane, whoever answers it.

Surface: other planes may import this module.
"""

from __future__ import annotations

import enum
from typing import Final, Literal, Protocol

from frontend.metadata.limits import METADATA_RETRY_AFTER_S
from frontend.metadata.records import AccountRecord, EncryptionKeyRecord, KeyRecord, QueueRecord


class MetadataUnavailable(Exception):
    """Neither the cache nor the service can answer now. Callers answer 503 with Retry-After."""

    retry_after_s: int = METADATA_RETRY_AFTER_S


class Missing(enum.Enum):
    MISS = "miss"


# "The cache does not know", as against None, "known to be absent".
MISS: Final = Missing.MISS


class MetadataService(Protocol):
    """Lookups by exact name. None = it does not exist. All async calls may raise MetadataUnavailable."""

    def cached_key(self, access_key_id: str) -> KeyRecord | Literal[Missing.MISS] | None:
        """Without waiting; MISS where only the service can tell."""

    def cached_queue(self, account_id: str, name: str) -> QueueRecord | Literal[Missing.MISS] | None:
        """As `cached_key`."""

    def cached_account(self, account_id: str) -> AccountRecord | Literal[Missing.MISS] | None:
        """As `cached_key`."""

    def cached_encryption_key(self, key_id: str) -> EncryptionKeyRecord | Literal[Missing.MISS] | None:
        """As `cached_key`."""

    async def get_key(self, access_key_id: str) -> KeyRecord | None: ...

    async def get_queue(self, account_id: str, name: str) -> QueueRecord | None: ...

    async def get_account(self, account_id: str) -> AccountRecord | None: ...

    async def get_encryption_key(self, account_id: str, key_id: str) -> EncryptionKeyRecord | None:
        """`account_id`: in whose share of the look-ups it counts."""

    async def refresh_encryption_key(self, account_id: str, key_id: str) -> EncryptionKeyRecord | None:
        """As the database has it, past every cache."""

    async def refresh_queue(self, account_id: str, name: str) -> QueueRecord | None:
        """As the database has it, past every cache; the answer takes the place of what the cache held."""

    async def look_up_queue(self, asker: str, account_id: str, name: str) -> QueueRecord | None:
        """As `get_queue`, past the cache, for a caller of the account `asker`: counts in its share of the look-ups, and
        takes as long whether there is such a queue or not."""

    async def repeat_look_up(self, asker: str, account_id: str, name: str) -> None:
        """What `look_up_queue` asks and waits for, of a queue that is at hand: the cache stays as it is."""
