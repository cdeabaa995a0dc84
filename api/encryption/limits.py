"""Every bound of encryption keys."""

from __future__ import annotations

# Those that are not deleted. The record of a queue names at most so many (frontend/metadata/records.py).
KEYS_PER_ACCOUNT_MAX = 100
# A record with all of them takes some 12 KB of the metadata service's frame.
VERSIONS_PER_KEY_MAX = 100
NAME_CHARACTERS_MAX = 64
DESCRIPTION_CHARACTERS_MAX = 256
SHARED_ACCOUNTS_MAX = 100
# Between the request to delete a key and its deletion: time to find out who still needs it.
DELETION_DAYS_MIN = 7
DELETION_DAYS_MAX = 30
DELETION_DAYS_DEFAULT = 30
# Keys that one look of a worker deletes.
DELETED_AT_ONCE_MAX = 100
# Counts of use are kept for so long, and so many hours are shown of a key.
USE_DAYS_KEPT = 90
USE_HOURS_SHOWN_MAX = 24 * 31

assert DELETION_DAYS_MIN <= DELETION_DAYS_DEFAULT <= DELETION_DAYS_MAX
