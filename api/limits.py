"""Every bound of the control plane, in one place."""

from __future__ import annotations

from typing import Any

from frontend.limits import (
    CONTROL_PATIENCE_MS,
    CONTROL_PROBE_INTERVAL_MS,
    CONTROL_PROBE_MS_MAX,
    CONTROL_TIMEOUT_S,
    FIFO_GENERATIONS_MAX,
    FIFO_PARTITIONS_DEFAULT,
    MOVE_MESSAGES_PER_S_MAX,
    MOVE_TASKS_LISTED_MAX,
    PARTITIONS_PER_LEVEL_MAX,
    PARTITIONS_PER_QUEUE_MAX,
    PRIORITY_LEVELS_MAX,
    QUOTA_REPORT_S,
)
from storage_nodes.limits import BROWSE_MESSAGES_MAX, FRAME_BYTES_MAX, RECORD_BYTES_MAX, REMOVES_PER_CALL_MAX

__all__ = [
    "FIFO_GENERATIONS_MAX",
    "FIFO_PARTITIONS_DEFAULT",
    "MOVE_MESSAGES_PER_S_MAX",
    "MOVE_TASKS_LISTED_MAX",
    "PARTITIONS_PER_LEVEL_MAX",
    "PARTITIONS_PER_QUEUE_MAX",
    "PRIORITY_LEVELS_MAX",
]

# --- requests -----------------------------------------------------------------------------------------------
REQUEST_BYTES_MAX = 1024 * 1024
PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1_000
PAGE_TOKEN_CHARACTERS_MAX = 512
# Of a refused query: how many parameters are told, and how much of each name.
QUERY_PARAMETERS_TOLD_MAX = 10
QUERY_PARAMETER_CHARACTERS_TOLD_MAX = 100
# Of members of bodies that an operation does not take, in its refusal.
UNKNOWN_MEMBERS_TOLD_MAX = 20
MEMBER_CHARACTERS_TOLD_MAX = 100
# Of what is wrong with one body; what of the first error stands in the text of the problem.
ERRORS_TOLD_MAX = 100
FIRST_ERROR_CHARACTERS_MAX = 1_000
# Of each part of a path that names nothing.
ABSENT_NAME_CHARACTERS_MAX = 80

# --- entity tags --------------------------------------------------------------------------------------------
ETAGS_ASKED_MAX = 20

# --- idempotency keys ---------------------------------------------------------------------------------------
IDEMPOTENCY_KEY_CHARACTERS_MAX = 255
# So long a request with the same key is not carried out again, but answered as the first one was.
IDEMPOTENCY_KEPT_S = 24 * 3_600
# So long where the answer showed a secret: time for a client that lost the answer to ask again.
IDEMPOTENCY_SECRET_KEPT_S = 600
# Larger answers are not kept.
IDEMPOTENCY_ANSWER_BYTES_MAX = 64 * 1024
# Within IDEMPOTENCY_KEPT_S; of a person who asks for no account as many.
IDEMPOTENCY_KEYS_PER_ACCOUNT_MAX = 10_000
IDEMPOTENCY_RETRY_AFTER_S = 1
IDEMPOTENCY_FULL_RETRY_AFTER_S = 3_600
# In one round of the clean-up, which runs every RESYNC_INTERVAL_S.
IDEMPOTENCY_FORGOTTEN_AT_ONCE_MAX = 10_000

# --- accounts -----------------------------------------------------------------------------------------------
ACCOUNT_NAME_CHARACTERS_MAX = 64
ACCOUNT_ID_DIGITS = 12
ACCOUNT_ID_ATTEMPTS_MAX = 10
KEY_NAME_CHARACTERS_MAX = 64
KEYS_PER_ACCOUNT_MAX = 1_000
# `last_used_at` is written at most this often per key.
KEY_USE_RECORDED_EVERY_S = 60

# --- quotas -------------------------------------------------------------------------------------------------
STOP_REASON_CHARACTERS_MAX = 200
QUOTA_REASON_CHARACTERS_MAX = 500
# That an account came near a quota is written into the audit trail once within this time, for each quota and level.
QUOTA_NOTICE_HOURS = 1
# And for so many queues and keys of an account together.
SINGLE_NOTICES_MAX = 200
# `queue:` and a name, or `key:` and an id.
NOTICE_SUBJECT_CHARACTERS_MAX = 96
# A front end that has not reported for so long is not counted: its shares go to the others.
QUOTA_REPORT_STALE_S = 3.5

# --- audit trail --------------------------------------------------------------------------------------------
# Refused calls of one kind are counted for so long before the trail has their number. Kinds that are counted apart, of
# a caller and of an account at a time: an account's refusals make some 400 entries an hour at most.
REFUSAL_WINDOW_S = 3_600
REFUSALS_PER_ACTOR_MAX = 20
REFUSALS_PER_ACCOUNT_MAX = 200
REFUSAL_KINDS_CLOSED_MAX = 1_000
# Of one export. The operator's command removes no entry that is younger.
AUDIT_EXPORT_ENTRIES_MAX = 10_000
AUDIT_DAYS_MIN = 90
AUDIT_DAYS_MAX = 36_500
# So long entries are kept where nothing else is said.
AUDIT_DAYS_DEFAULT = 400
# Of one statement that removes old entries, and how many of those a day's round makes.
AUDIT_TRIM_ENTRIES_MAX = 20_000
AUDIT_TRIM_STATEMENTS_MAX = 500
# When the schedule asks for it, in UTC.
AUDIT_TRIM_HOUR, AUDIT_TRIM_MINUTE = 3, 17

# --- queues -------------------------------------------------------------------------------------------------
QUEUE_NAME_CHARACTERS_MAX = 80
# Of them made by a send, where the account allows that.
AUTO_CREATED_PER_HOUR_MAX = 100
QUEUE_TAGS_MAX = 50
TAG_KEY_CHARACTERS_MAX = 128
TAG_VALUE_CHARACTERS_MAX = 256
# Of a policy that is refused, as much is shown in the answer. Its own limits: frontend/authz/policy_limits.py.
POLICY_BYTES_SHOWN_MAX = 512
PERMISSION_LABEL_CHARACTERS_MAX = 80
REDRIVE_SOURCES_MAX = 10
REDRIVE_RECEIVES_MAX = 1_000
REDRIVE_RECEIVES_DEFAULT = 10
ARN_CHARACTERS_MAX = 256
# Queues whose keys are granted onward: a dead-letter queue of a dead-letter queue, and so forth.
REDRIVE_CHAIN_MAX = 16
# Keys that a dead-letter queue holds of other queues, and how long it keeps those of queues that are gone: a message
# waits at most 14 days in each queue of a chain.
KEY_GRANTS_MAX = 5_000
KEY_GRANT_DAYS = 60
# A closed partition is looked at so often, until it is empty; its deduplication ids are waited for a little longer.
DRAIN_CHECK_MS = 2_000
DRAIN_WINDOW_MARGIN_MS = 15_000
# A deleted queue's name is not given again before this long after the delete was asked for.
QUEUE_NAME_COOLDOWN_S = 60
# A data key is replaced when so many messages were sealed under it (api/queues/data_keys.py).
DATA_KEY_MESSAGES_MAX = 2**31
# A version that was replaced is needed for so long at most: a message is scheduled up to 366 days ahead, waits 14 days,
# and KEY_GRANT_DAYS in dead-letter queues.
DATA_KEY_REPLACED_DAYS = 366 + 14 + KEY_GRANT_DAYS
# Queues whose versions are forgotten in one round, and the time between two rounds.
DATA_KEYS_FORGOTTEN_AT_ONCE_MAX = 100
DATA_KEYS_FORGET_INTERVAL_S = 600
# Of accounts that keep deleted queues. No message lives longer than retention may be (14 days), kept or not.
DELETION_GRACE_DAYS_MAX = 30
# Deleted queues that are let go, and restored ones whose retention is as it was, by one round of the resync tick.
KEPT_ENDED_AT_ONCE_MAX = 500
QUEUE_READY_WAIT_MS_MAX = 15_000
# How often a waiting request looks at the row although nothing was announced: a lost LISTEN connection costs this.
QUEUE_READY_POLL_MS = 1_000

# --- lifecycle ----------------------------------------------------------------------------------------------
# Who claimed a row works on it alone for this long, and gives up well before.
CLAIM_LEASE_MS = 60_000
LIFECYCLE_STEP_MS_MAX = 30_000
LIFECYCLE_RETRY_MS_MIN = 1_000
LIFECYCLE_RETRY_MS_MAX = 60_000
LIFECYCLE_ERROR_CHARACTERS_MAX = 500
# How long one step waits for the last usage of a partition to be confirmed. The leader goes on between steps.
LAST_USAGE_WAIT_MS = 2_000
# After so many failures in a row, some 65 minutes, a step waits longer, and then deletes the partition all the same.
LAST_USAGE_FAILURES_MAX = 70
LAST_USAGE_LAST_WAIT_MS = 10_000
# The same where most replicas of the partition have stopped (QUARANTINED), some 10 minutes: each is tried again every
# 30 s and at each start, and none is known to come back by waiting longer.
LAST_USAGE_QUARANTINED_FAILURES_MAX = 15
LAST_USAGE_POLL_MS = 20
RESYNC_INTERVAL_S = 30
RESYNC_HINTS_MAX = 1_000
# A pending row younger than this has its own hint under way.
RESYNC_AGE_MS_MIN = 5_000
RECONCILE_ROUNDS_MAX = 3

# --- message moves ------------------------------------------------------------------------------------------
MOVE_MESSAGES_MAX = 1_000_000_000
MOVE_TASKS_ACTIVE_PER_ACCOUNT_MAX = 100
MOVE_TASK_HOURS_MAX = 36
MOVE_FAILURE_CHARACTERS_MAX = 200
MOVE_HANDLE_CHARACTERS_MAX = 512
# A worker moves messages of one task for this long, then stands in line again behind the other work.
MOVE_SLICE_MS = 5_000
MOVE_BATCH_MESSAGES_MAX = 50
# What a worker that died had leased stays invisible for this long.
MOVE_VISIBILITY_MS = 30_000
MOVE_CLAIM_LEASE_MS = 40_000
# While messages of a dead worker are still invisible, and after storage did not answer.
MOVE_RETRY_MS = 2_000
# What a task that looks for its messages reads of a queue at a time, and sends together.
MOVE_PAGE_MESSAGES_MAX = 200
MOVE_BATCH_BYTES_MAX = 1024 * 1024
MOVE_RETURNED_MAX = 1_000_000_000
MOVE_FAILURES_MAX = 60

# --- schedules ----------------------------------------------------------------------------------------------
SCHEDULE_NAME_CHARACTERS_MAX = 80
SCHEDULES_PER_QUEUE_MAX = 1_000
CRON_CHARACTERS_MAX = 200
CRON_YEARS_MAX = 12
ZONE_CHARACTERS_MAX = 64
SCHEDULE_ERROR_CHARACTERS_MAX = 200
# A worker looks this often for ticks, and hands those that come within CRON_AHEAD_MS to the storage nodes, which keep
# the time. A change or a pause of a schedule therefore takes effect for ticks that are further away.
CRON_INTERVAL_S = 2
CRON_AHEAD_MS = 5_000
# A tick that nobody looked at for longer than this was missed: the first such comes late, the others do not come.
CRON_LATE_MS_MAX = 60_000
# Schedules that one worker takes at a time, ticks of one of them, and for how long they are its own.
CRON_CLAIMED_MAX = 50
CRON_TICKS_AT_ONCE_MAX = 100
CRON_CLAIM_LEASE_MS = 30_000
CRON_RETRY_MS = 5_000

# --- connections --------------------------------------------------------------------------------------------
DATABASE_POOL_MIN = 1
DATABASE_POOL_MAX = 12
# Calls that are worked on at a time, each with a thread and a connection (api/call_places.py): holders share them. The
# other connections are for looks of calls that wait for storage, and for what front ends tell.
CALLS_WORKED_ON_MAX = 10
# Of them comparisons and imports of definitions, which compute for seconds: two of one holder.
DEFINITIONS_CALLS_MAX = 5
# A call without a place waits this long for one; holders share the waiting, too.
CALL_WAIT_S_MAX = 5.0
CALLS_WAITING_MAX = 512
CALL_RETRY_AFTER_S = 1
DATABASE_CONNECT_TIMEOUT_S = 5
# Of a command of operators: a person waits at a terminal, and hears within some 5 s that the database is away.
COMMAND_CONNECT_TIMEOUT_S = 3
# A call waits this long for a connection while the others are busy. While the database is away nobody waits so long:
# the front end hears of it from the probe below.
DATABASE_POOL_WAIT_MS_MAX = 5_000
# The pool gives a connection up after this long instead of trying again at ever longer intervals: the next call that
# needs one starts a new attempt, so the control plane is back with the database.
DATABASE_RECONNECT_S_MAX = 1
# Whether the database answers is asked at most this often, and it has so long for the answer.
DATABASE_PROBE_MS_MIN = 100
DATABASE_PROBE_MS_MAX = 750
DATABASE_WAIT_S_MAX = 60
HINT_TIMEOUT_MS = 1_000
HINTS_WAITING_MAX = 1_000
# After a hint could not be sent none is tried for this long, longer each time; the workers look for themselves.
HINT_PAUSE_MS_MIN = 500
HINT_PAUSE_MS_MAX = 5_000
METADATA_CONNECTIONS_MAX = 4
METADATA_CONNECT_MS_MAX = 2_000
# Where PostgreSQL takes no more connections, a read looks so often, about so long apart, for one of the service's own.
METADATA_FULL_ATTEMPTS_MAX = 10
METADATA_FULL_RETRY_MS = 50
# Waiting for one of them, and the read itself.
METADATA_READ_MS_MAX = 1_000
# Rows of a full copy that are fetched at a time, and how long PostgreSQL may take for them.
METADATA_LOAD_ROWS = 250
METADATA_LOAD_MS_MAX = 30_000
# The log of changes is read so often although nothing was announced: finds a database that has fallen silent.
METADATA_POLL_MS = 5_000
# Absences that are asked for within this time are confirmed together, by one look at the log.
METADATA_CONFIRM_MS = 5
# Records that have changed are read again by so many at a time; the other connections are for those who ask.
METADATA_REFRESHERS = 2
# What the full copy may hold; beyond, the least recently used records leave, and are read from PostgreSQL when asked
# for. A queue takes about 0.62 KB, a key 0.35 KB (tests/api/measure_metadata_copy.py): 1.3 million queues fit.
QUEUES_HELD_BYTES_MAX = 768 * 1024 * 1024
KEYS_HELD_BYTES_MAX = 192 * 1024 * 1024
ACCOUNTS_HELD_BYTES_MAX = 64 * 1024 * 1024
ENCRYPTION_KEYS_HELD_BYTES_MAX = 64 * 1024 * 1024
# What a record costs beside its own bytes: its name, and its places in tables.
HELD_ROW_OVERHEAD_BYTES = 200
# A front end that comes back is told what it missed while that is among the last so many changes, and compares all
# that it holds otherwise.
CHANGES_REMEMBERED_MAX = 10_000
# As far back the service itself can catch up; it loads everything anew otherwise.
FEED_CHANGES_KEPT_MAX = 100_000
METADATA_CLIENTS_MAX = 1_024
# A client says who it is within this time of its handshake.
METADATA_GREETING_S_MAX = 5.0
METADATA_CLIENT_BUFFER_BYTES_MAX = 4 * 1024 * 1024
METADATA_LOOKUPS_PER_CLIENT_MAX = 256
LISTEN_BACKOFF_MS_MIN = 50
LISTEN_BACKOFF_MS_MAX = 2_000
# A LISTEN connection that died without a word is found by TCP keep-alives after about 11 s.
LISTEN_KEEPALIVES: dict[str, Any] = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}

assert LAST_USAGE_QUARANTINED_FAILURES_MAX < LAST_USAGE_FAILURES_MAX
assert LAST_USAGE_WAIT_MS < LAST_USAGE_LAST_WAIT_MS <= LIFECYCLE_STEP_MS_MAX // 2, "there is time left to delete"
assert LIFECYCLE_STEP_MS_MAX * 2 <= CLAIM_LEASE_MS, "a claim must outlive the work done under it"
assert MOVE_BATCH_MESSAGES_MAX <= MOVE_MESSAGES_PER_S_MAX
assert MOVE_BATCH_MESSAGES_MAX <= REMOVES_PER_CALL_MAX
assert MOVE_PAGE_MESSAGES_MAX <= BROWSE_MESSAGES_MAX
assert MOVE_BATCH_BYTES_MAX + RECORD_BYTES_MAX < FRAME_BYTES_MAX, "one batch must fit one frame"
assert MOVE_SLICE_MS + 20_000 < MOVE_VISIBILITY_MS < MOVE_CLAIM_LEASE_MS, "a lease outlives the work under it"
assert QUOTA_REPORT_STALE_S > 3 * QUOTA_REPORT_S, "two reports may be lost"
assert METADATA_REFRESHERS < METADATA_CONNECTIONS_MAX
assert CHANGES_REMEMBERED_MAX <= FEED_CHANGES_KEPT_MAX
assert CALLS_WORKED_ON_MAX + 2 <= DATABASE_POOL_MAX, "calls that wait for storage find connections for their looks"
assert DEFINITIONS_CALLS_MAX <= CALLS_WORKED_ON_MAX // 2, "slow calls leave half of the places"
assert CALL_WAIT_S_MAX + QUEUE_READY_WAIT_MS_MAX / 1000 < CONTROL_TIMEOUT_S, "front ends hear the answer"
assert DATABASE_PROBE_MS_MIN < CONTROL_PROBE_INTERVAL_MS, "every question of a front end looks anew"
assert CONTROL_PATIENCE_MS + CONTROL_PROBE_INTERVAL_MS + DATABASE_PROBE_MS_MAX < 1_000, "refused within a second"
assert DATABASE_PROBE_MS_MAX < CONTROL_PROBE_MS_MAX, "the front end hears the answer"
assert QUEUE_READY_POLL_MS < QUEUE_READY_WAIT_MS_MAX
assert PAGE_SIZE_DEFAULT <= PAGE_SIZE_MAX
assert CRON_INTERVAL_S * 1000 < CRON_AHEAD_MS < CRON_LATE_MS_MAX, "a tick is handed over before it is due"
assert CRON_TICKS_AT_ONCE_MAX * 1000 > CRON_AHEAD_MS + CRON_LATE_MS_MAX, "a schedule of every second keeps up"
