"""Every bound of the metadata path, shared by the client here and the service in `api/metadata`.

Surface: other planes may import this module.
"""

from __future__ import annotations

# With the service unreachable, while PostgreSQL may be changing, cached entries are served this long; also the bound on
# how late a key revocation may act then. A service that is there but has lost PostgreSQL sets no such bound: nothing
# can have changed.
METADATA_STALENESS_MS_MAX = 300_000
# A known absence is believed this long even without news from the feed: a queue that another front end has just
# created is then found after at most this time, and a caller who probes absent names costs one lookup per period.
METADATA_NEGATIVE_MS_MAX = 1_000
METADATA_HEARTBEAT_MS = 5_000
# Silence after which a feed is taken for dead: two heartbeats lost, the third late.
METADATA_SILENCE_MS_MAX = 12_500
# When readiness is asked for, a service that said nothing for so long is asked whether it is there, and has so long to
# answer: one that hangs is told of within both together. One question at a time.
METADATA_HEARD_LATELY_MS = 500
METADATA_ALIVE_MS_MAX = 1_000
METADATA_REQUEST_TIMEOUT_MS = 2_000
METADATA_CONNECT_TIMEOUT_MS = 1_000
# How long after the connection broke a caller still waits for the next one before he is refused.
METADATA_RECONNECT_WAIT_MS = 1_000
METADATA_BACKOFF_MS_MIN = 50
METADATA_BACKOFF_MS_MAX = 2_000
# Fills repeated because a change of the same key was heard meanwhile.
METADATA_FILL_ATTEMPTS_MAX = 5
METADATA_REQUESTS_IN_FLIGHT_MAX = 4_096
# Look-ups of one account under way at a time; the others of the account wait. All key look-ups together have the
# share of one account each: whose they are is known only afterwards.
METADATA_SHARE_MAX = 64
# Accounts that changed are looked up before anybody asks, while fewer look-ups than this are under way.
METADATA_LOOKUPS_AHEAD_MAX = 256
# So many look-ups in a row without an answer, and nothing else heard: the next ones are refused at once until the
# service says something.
METADATA_UNANSWERED_MAX = 3
# Records compared per question after changes were missed; front ends that are told so together begin within this time.
METADATA_COMPARE_RECORDS_MAX = 500
METADATA_COMPARE_JITTER_MS = 1_000
METADATA_FRAME_BYTES_MAX = 256 * 1024
METADATA_RETRY_AFTER_S = 2

# Entries per cache. A key record is about 0.5 KB, a queue record about 1.5 KB: 40 MB at the very most.
KEYS_CACHED_MAX = 20_000
QUEUES_CACHED_MAX = 20_000
ACCOUNTS_CACHED_MAX = 5_000
ENCRYPTION_KEYS_CACHED_MAX = 5_000
NEGATIVES_CACHED_MAX = 10_000

# Requests are refused beyond these: longer ones name nothing that can exist.
ACCESS_KEY_ID_CHARACTERS_MAX = 64
ACCOUNT_ID_CHARACTERS_MAX = 12
QUEUE_NAME_CHARACTERS_MAX = 80

assert METADATA_HEARTBEAT_MS * 2 < METADATA_SILENCE_MS_MAX < METADATA_STALENESS_MS_MAX
assert METADATA_HEARD_LATELY_MS + METADATA_ALIVE_MS_MAX <= 2_000, "a hung service is told of within two seconds"
assert METADATA_SHARE_MAX < METADATA_REQUESTS_IN_FLIGHT_MAX
assert METADATA_LOOKUPS_AHEAD_MAX < METADATA_REQUESTS_IN_FLIGHT_MAX
assert METADATA_COMPARE_RECORDS_MAX * 128 < METADATA_FRAME_BYTES_MAX
assert METADATA_BACKOFF_MS_MIN <= METADATA_BACKOFF_MS_MAX
