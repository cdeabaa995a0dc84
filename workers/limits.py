"""Every bound of the workers."""

from __future__ import annotations

from api.limits import CRON_CLAIM_LEASE_MS, LIFECYCLE_STEP_MS_MAX, MOVE_SLICE_MS, MOVE_VISIBILITY_MS

WORKER_THREADS = 4
# A hint whose worker died is given to another one after this long; kombu looks every RESTORE_INTERVAL_S.
BROKER_VISIBILITY_S = 60
BROKER_RESTORE_INTERVAL_S = 5
BROKER_RESTORE_THROTTLE_S = 1
BROKER_SOCKET_TIMEOUT_S = 5
SCHEDULE_LOCK_RETRY_S = 5
# The advisory lock that makes one schedule of many: any number will do, as long as it is the only one.
SCHEDULE_LOCK_KEY = 0x70656E73
RETRY_HINT_S_MAX = 15
STORAGE_STOP_S_MAX = 5

assert BROKER_VISIBILITY_S * 1000 > LIFECYCLE_STEP_MS_MAX, "a hint under work must not be given twice"

# One step of a move at the storage plane: a lease, a batch of sends with its deletes.
MOVE_STEP_S_MAX = 12.0
# A longer pause is not slept: the worker has other work, and comes back.
MOVE_PAUSE_SLEPT_S_MAX = 0.2

assert MOVE_STEP_S_MAX * 1000 < MOVE_VISIBILITY_MS, "messages are sent and deleted while their lease holds"
# One round of cron messages at a partition, and one send of it.
CRON_STEP_S_MAX = 12.0
CRON_BATCH_BYTES_MAX = 1024 * 1024
# One task ends after so many rounds of claims: the next one is due in seconds, and others have work too.
CRON_ROUNDS_MAX = 40

assert CRON_STEP_S_MAX * 2000 < CRON_CLAIM_LEASE_MS, "a claim outlives the work done under it"
assert BROKER_VISIBILITY_S * 1000 > MOVE_SLICE_MS + 2 * MOVE_STEP_S_MAX * 1000, "a slice under work is not given twice"
