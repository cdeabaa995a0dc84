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
        """`account_id` is that of the queue which names it."""

    async def refresh_encryption_key(self, account_id: str, key_id: str) -> EncryptionKeyRecord | None:
        """As the database has it, past every cache."""

    async def refresh_queue(self, account_id: str, name: str) -> QueueRecord | None:
        """As the database has it, past every cache; the answer takes the place of what the cache held."""
