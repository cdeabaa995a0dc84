"""Every bound of the supervisor and the commands, in one place. Names end in their unit."""

from __future__ import annotations

# --- restarting a child that died ---------------------------------------------------------------------------
# The first retry is quick: a storage node that was killed should be a follower again before its peers notice much.
RESTART_DELAY_S_MIN = 0.2
RESTART_DELAY_S_MAX = 10.0
RESTART_DELAY_FACTOR = 2.0
# A child that lived this long has recovered: its next death starts again at the shortest delay.
RESTART_RESET_S = 30.0

# --- starting -----------------------------------------------------------------------------------------------
READY_DEADLINE_S = 60.0
# A node that was killed may have much to recover, a database too; still bounded, so that a hang is reported.
RECOVERY_DEADLINE_S = 300.0
READY_PROBE_INTERVAL_S = 0.05
READY_PROBE_TIMEOUT_S = 2.0
MIGRATE_DEADLINE_S = 180.0
DEMO_KEY_DEADLINE_S = 60.0
# `status` asks for the names of quarantined queues and for the last round of usage, and does without.
DATABASE_LOOK_DEADLINE_S = 5
REPORT_DEADLINE_S = 300.0
# Of a report with --now: hours that are over are settled first, which Spark takes minutes for.
REPORT_NOW_DEADLINE_S = 1_800.0
# A month is counted again by Spark, and each of its invoices priced again.
RECOUNT_DEADLINE_S = 6 * 3_600.0
REPORT_ROUND_WAIT_S = 600.0
# After this many deaths before it was ever ready, `up` gives up and shows the log.
START_ATTEMPTS_MAX = 4
# A life shorter than this is a crash. So many crashes in a row, and the process is said to fail, even in the moment in
# which it happens to answer; one that has lived longer is well again.
CRASH_LIFE_S = 5.0
FAILING_CRASHES = 3

# --- stopping -----------------------------------------------------------------------------------------------
# Front ends let the calls that are under way end, for up to 17 s.
STOP_DEADLINE_S = 20.0
# Whole `down`: all stages, each up to STOP_DEADLINE_S, and a little more.
DOWN_DEADLINE_S = 150.0
LEFTOVER_TERM_S = 5.0

# --- logs ---------------------------------------------------------------------------------------------------
LOG_FILE_BYTES_MAX = 16 * 1024 * 1024
LOG_CHECK_INTERVAL_S = 15.0
LOG_TAIL_LINES = 15
# Read from the end of a log for its last lines, and shown of one line.
LOG_TAIL_BYTES = 64 * 1024
LOG_LINE_CHARACTERS_MAX = 600
# Shown by `status` and `doctor` for a process that is not up.
LAST_WORDS_LINES = 6

# --- control socket -----------------------------------------------------------------------------------------
CONTROL_LINE_BYTES_MAX = 1024 * 1024
CONTROL_TIMEOUT_S = 10.0
HEALTH_TIMEOUT_S = 2.0

# --- watching moves of replicas ------------------------------------------------------------------------------
WATCH_INTERVAL_S = 0.25
# Away from a terminal a line a change would be too many.
WATCH_LINE_INTERVAL_S = 1.0
WATCH_STALL_S = 20.0
# A batch that `send` waits for so long is told.
SEND_SILENCE_S = 5.0

# --- addresses ----------------------------------------------------------------------------------------------
DEFAULT_PORT = 9324
PORT_MAX = 65_535
DEFAULT_NODES = 3
NODES_MAX = 9
# With fewer there is no majority without one of them.
NODES_TO_LOSE_ONE_MIN = 3
# By default a front end for each second core: the other half goes to storage nodes and the rest (docs/processes.md).
CORES_PER_FRONT_END = 2
FRONT_ENDS_MAX = 16
# `doctor` tells of a certificate that is about to expire.
CERTIFICATE_DAYS_LEFT_MIN = 14
# What processes show each other (deploy/certificates.py): renewed in the last third of its life, this long before at
# most; an authority is made anew from so many days before its end on.
CERTIFICATE_DAYS = 90
CERTIFICATE_RENEW_DAYS = 30
CERTIFICATE_LOOK_S = 3_600.0
AUTHORITY_DAYS = 3_650
AUTHORITY_RENEW_DAYS = 365
# Below the kernel's range for outgoing connections, so that a port stays free while its process restarts.
INTERNAL_PORT_MIN = 20_000
INTERNAL_PORT_MAX = 32_000
PORT_ATTEMPTS_MAX = 200

# --- send and receive ---------------------------------------------------------------------------------------
BATCH_MESSAGES = 500
# A quarter of what a frame may have: several are under way.
BATCH_BYTES_MAX = 1_000_000
# Of a read of its input; where no more comes within the second, what was read goes.
READ_BYTES = 65_536
SEND_LINGER_S = 0.02
BATCHES_IN_FLIGHT = 8
# Messages that come ahead of what was written and deleted.
RECEIVE_PREFETCH = 2_000
SEND_ATTEMPTS_MAX = 5
RECEIVE_IDLE_S = 3.0

# --- keys ---------------------------------------------------------------------------------------------------
POLICY_FILE_BYTES_MAX = 32_768

assert RESTART_DELAY_S_MIN < RESTART_DELAY_S_MAX < RESTART_RESET_S, "a crash loop must never look like recovery"
assert FAILING_CRASHES < START_ATTEMPTS_MAX and CRASH_LIFE_S < RESTART_RESET_S
assert READY_DEADLINE_S < RECOVERY_DEADLINE_S
assert CERTIFICATE_RENEW_DAYS < CERTIFICATE_DAYS < AUTHORITY_RENEW_DAYS, "an authority outlives what it signs"
assert STOP_DEADLINE_S < DOWN_DEADLINE_S
assert 1024 < INTERNAL_PORT_MIN < INTERNAL_PORT_MAX < 32_768
