"""Every bound of the workers."""

from __future__ import annotations

from typing import Any

from api.limits import (
    CRON_AHEAD_MS,
    CRON_CLAIM_LEASE_MS,
    DATABASE_POOL_MAX,
    LIFECYCLE_STEP_MS_MAX,
    MOVE_SLICE_MS,
    MOVE_VISIBILITY_MS,
    QUEUE_READY_WAIT_MS_MAX,
)
from api.webhooks.limits import CALL_S_MAX, DELIVER_ROUND_S

WORKER_THREADS = 4
# A hint whose worker died is given to another one after this long; kombu looks every RESTORE_INTERVAL_S.
BROKER_VISIBILITY_S = 60
BROKER_RESTORE_INTERVAL_S = 5
BROKER_RESTORE_THROTTLE_S = 1
BROKER_SOCKET_TIMEOUT_S = 5
SCHEDULE_LOCK_RETRY_S = 5
# The advisory lock that makes one schedule of many: any number will do, as long as it is the only one.
SCHEDULE_LOCK_KEY = 0x70656E73
STORAGE_STOP_S_MAX = 5
# A lock falls with its session. Where its host or the network went without a word, the server finds out after some 40 s
# by keep-alives of its own (by default after two hours, in which there is no schedule and nothing is settled); the
# holder after some 10 s, so that it has stopped before another one begins.
LOCK_SESSION_KEEPALIVES: dict[str, Any] = {
    "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000,
}  # fmt: skip
LOCK_SERVER_KEEPALIVES = {"tcp_keepalives_idle": 20, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 4}

assert BROKER_VISIBILITY_S * 1000 > LIFECYCLE_STEP_MS_MAX, "a hint under work must not be given twice"

# --- work without the broker (workers/watcher.py) -----------------------------------------------------------
LIFECYCLE_THREADS = 4
MOVE_THREADS = 2
# Rows of one kind that a worker has taken on, under work or waiting for a thread.
LANE_ROWS_MAX = 64
# A pending row is left to the hint that the broker carries for this long.
WATCH_GRACE_MS = 150
# Between two looks where nothing was announced; give or take a quarter, so that workers do not look together.
WATCH_INTERVAL_MS = 3_000
WATCH_RETRY_S_MAX = 5.0

assert WATCH_INTERVAL_MS * 1.25 < CRON_AHEAD_MS, "a tick is handed over before it is due"
assert 2 * WATCH_INTERVAL_MS < QUEUE_READY_WAIT_MS_MAX, "CreateQueue waits for a look that nothing announced"
assert WORKER_THREADS + LIFECYCLE_THREADS + MOVE_THREADS + 2 <= DATABASE_POOL_MAX, "each thread has a connection"

# --- moves and cron -----------------------------------------------------------------------------------------
# One step of a move at the storage plane: a lease, a batch of sends with its deletes.
MOVE_STEP_S_MAX = 12.0
# A longer pause is not slept: the worker has other work, and comes back.
MOVE_PAUSE_SLEPT_S_MAX = 0.2
# How soon a task is looked at again whose account may not send.
MOVE_STOPPED_PAUSE_MS = 10_000
# Data keys whose messages are told at a time.
DATA_KEYS_TOLD_MAX = 1_000
# Encryption keys whose uses are told at a time.
ENCRYPTION_KEYS_TOLD_MAX = 1_000

assert MOVE_STEP_S_MAX * 1000 < MOVE_VISIBILITY_MS, "messages are sent and deleted while their lease holds"
# One round of cron messages at a partition, and one send of it.
CRON_STEP_S_MAX = 12.0
CRON_BATCH_BYTES_MAX = 1024 * 1024
# One task ends after so many rounds of claims: the next one is due in seconds, and others have work too.
CRON_ROUNDS_MAX = 40

assert CRON_STEP_S_MAX * 2000 < CRON_CLAIM_LEASE_MS, "a claim outlives the work done under it"
assert BROKER_VISIBILITY_S * 1000 > MOVE_SLICE_MS + 2 * MOVE_STEP_S_MAX * 1000, "a slice under work is not given twice"

# --- usage (workers/usage): Spark's jobs, which take minutes --------------------------------------------------
# The claim is a session of the database; it is renewed while a job runs, and a job whose claim is lost is stopped.
USAGE_CLAIM_KEY = 0x7573676A
USAGE_CLAIM_RENEW_S = 5.0
# A report that wants hours settled looks so often whether another round has ended.
USAGE_CLAIM_WAIT_S = 2.0
USAGE_JOB_S_MAX = 6 * 3600.0
USAGE_JOB_STOP_S_MAX = 10.0
USAGE_JOB_NICE = 10
USAGE_LAST_WORDS_CHARACTERS = 4_096
# Frames of Java are left out of them.
USAGE_LAST_WORDS_READ_BYTES = 65_536
# Between two looks for hours that are due; Spark starts only where there are some.
USAGE_INTERVAL_S = 300
# Hours in which nothing was used are settled together, a quarter of a day at a time.
USAGE_QUIET_HOURS = 6

# --- the live meter (workers/usage): closes open windows, reads the end of the usage stream ---------------------
USAGE_CLOSE_S_MAX = 10.0
USAGE_CLOSE_CALL_S_MAX = 15.0
USAGE_CLOSE_POLL_S = 0.05
USAGE_CLOSE_PAUSE_S = 0.5
USAGE_CLOSE_ROUNDS_MAX = 4
METER_READ_BYTES = 4 * 1024 * 1024
METER_READ_S_MAX = 10.0
# Of one transaction, and how many of those a look does.
METER_RECORDS_MAX = 50_000
METER_BYTES_MAX = 16 * 1024 * 1024
METER_READS_MAX = 4
# One look on the schedule at a time: the claim is a session of the database.
METER_CLAIM_KEY = 0x6D657465
# What the budgets have at its end.
METER_JUDGE_S_MAX = 10.0

assert USAGE_CLOSE_S_MAX < USAGE_CLOSE_CALL_S_MAX
assert USAGE_CLOSE_CALL_S_MAX + 2 * METER_READ_S_MAX + METER_JUDGE_S_MAX < BROKER_VISIBILITY_S, "a look is given once"
assert USAGE_CLAIM_RENEW_S < BROKER_VISIBILITY_S, "the broker's time says nothing about a job: its claim does"

# --- webhooks (workers/webhooks) ------------------------------------------------------------------------------
# One round at a time: the claim is a session of the database.
WEBHOOK_CLAIM_KEY = 0x77656268

assert BROKER_VISIBILITY_S > DELIVER_ROUND_S + CALL_S_MAX, "a round under work is not given twice"
