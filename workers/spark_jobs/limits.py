"""Every bound of the usage pipeline. Names end in their unit."""

from __future__ import annotations

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

# --- what a record may say ----------------------------------------------------------------------------------
# A record of an hour that begins later than this after its reading is not believed.
CLOCK_AHEAD_MS_MAX = DAY_MS
# 281 TB, or as many messages, in one hour of one partition: not believed. Far below what sums of a year overflow at.
COUNTER_MAX = 1 << 48
# 2 TiB in one partition. The level of a window and the time within its hour fit one signed 64-bit number.
STORED_BYTES_BITS = 41
STORED_BYTES_MAX = (1 << STORED_BYTES_BITS) - 1
STORED_BYTE_MS_MAX = STORED_BYTES_MAX * HOUR_MS
assert (HOUR_MS << STORED_BYTES_BITS) + STORED_BYTES_MAX < 1 << 63
assert STORED_BYTE_MS_MAX < 1 << 63
UNIT_BYTES = 64 * 1024

# --- reading a stream ---------------------------------------------------------------------------------------
READ_BYTES = 4 * 1024 * 1024
READ_TIMEOUT_S = 30.0
# Rows of one Arrow batch on their way to the JVM.
ARROW_ROWS_MAX = 20_000
# The same where a row is a whole record batch, which has at most 2 MiB.
ARROW_BATCHES_MAX = 16
# What select(2) can wait for; what a session opens in its own process: the gateway's sockets, one or two a thread.
SELECT_DESCRIPTORS_MAX = 1024
SESSION_DESCRIPTORS_MAX = 100
# Windows of a settlement that are cut by queue at once.
PIECE_WINDOWS = 250_000
# One task reads at most so many offsets; one micro-batch at most so many records.
TASK_OFFSETS_MAX = 500_000
BATCH_RECORDS_MAX = 4_000_000

# --- writing the lake ---------------------------------------------------------------------------------------
# Rows of one group of a file: some 40 MB before they are encoded.
FILE_GROUP_ROWS = 200_000

# --- Spark --------------------------------------------------------------------------------------------------
DRIVER_MEMORY_MIB = 1536
DRIVER_MEMORY_MIB_MIN = 512
EXECUTOR_MEMORY_MIB = 1024
JAVA_VERSION_MIN = 17
# A master of a cluster that takes no connection within this does not answer.
MASTER_CONNECT_S_MAX = 5.0
# Windows that one task of a shuffle groups: a hash table of some 130 MB; two cores hold two in the least heap in use.
TASK_WINDOWS_MAX = 500_000

# Levels of all partitions that are kept for the settlements of later hours, one for each day.
LEVELS_KEPT_MAX = 40

# --- settling -----------------------------------------------------------------------------------------------
# An hour is settled so long after its end; what comes later is late, and its hours are settled again.
CLOSE_GRACE_MS = 10 * 60 * 1000
# Quarantined records, and refused files, shown in a job's report; all are kept in the lake.
QUARANTINE_SHOWN_MAX = 20
# Quarantined records of one entry, and whole files, that the control plane is told of one by one; of all the number.
SHOWN_RECORDS_MAX = 1_000
SHOWN_TEXT_CHARACTERS_MAX = 512
# Partitions whose records contradict each other, of which a settlement shows some.
CONFLICTS_SHOWN_MAX = 20

# --- operators' reports -------------------------------------------------------------------------------------
TOP_ACCOUNTS = 50
# Of one cluster and span, in minor units: its price of a million operations fits 64 bits.
COST_MINOR_MAX = 10**12
ANOMALY_DAYS = 7
# A day with this many times the operations of the mean day before it, or this part of them, is shown.
ANOMALY_FACTOR = 4.0
ANOMALY_OPERATIONS_MIN = 10_000
