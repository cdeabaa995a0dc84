"""Every bound of billing, in one place."""

from __future__ import annotations

from storage_nodes.ids import CLUSTER_ID_CHARS_MAX, PARTITION_ID_MAX

# --- rollups ------------------------------------------------------------------------------------------------
# A window's hour may lie so far ahead of the database's clock; beyond, a clock was wrong.
USAGE_AHEAD_S_MAX = 600
# Hours that one run may settle: a backfill of a year.
HOURS_PER_RUN_MAX = 366 * 24
# Of a queue's hour, as of a window of the usage stream (`COUNTER_MAX` of the pipeline); of storage 16 PiB, kept for the
# whole hour. Beyond, a row is not believed: its price alone could be more than an invoice holds.
HOUR_COUNTER_MAX = 1 << 48
HOUR_STORED_BYTE_MS_MAX = (1 << 54) * 3_600_000
# Amounts that rows hold, in minor units. Prices that a plan may have reach beyond with usage that is possible.
MINOR_HELD_MAX = 2**63 - 1
# Sums of a month must fit: 10 PiB stored for a month is 3e22 byte-milliseconds.
QUANTITY_DIGITS = 38
# Of what the hours of a day sum to.
SUM_DIGITS = 60
REASON_CHARACTERS_MAX = 64
DETAIL_CHARACTERS_MAX = 500
QUARANTINE_LISTED_MAX = 1_000
USAGE_RUNS_LISTED_MAX = 200
# Text of days that a merge stages at once: what it needs on disk beside the rows, whatever a month has.
STAGED_BYTES = 256 * 1024 * 1024
# One run merges at a time; the lock is held for its transaction.
SETTLING_LOCK_KEY = 0x75736167
NUMBERING_LOCK_KEY = 0x696E766F

# --- the live meter -----------------------------------------------------------------------------------------
# Rows of hours that are not settled. With more than these nothing is added, and the meter says that it lacks some.
PROVISIONAL_ROWS_MAX = 2_000_000
# CLUSTER_ID/PARTITION: cut, rows of two partitions would be one.
USAGE_SOURCE_CHARACTERS_MAX = 160
assert CLUSTER_ID_CHARS_MAX + 1 + len(str(PARTITION_ID_MAX)) <= USAGE_SOURCE_CHARACTERS_MAX
# Every look closes the windows that are open; one that took long leaves the nodes so many times as long,
METER_INTERVAL_S = 30
METER_REST_FACTOR = 10
# No longer than this, however long a look took: budgets are to stop sends within a minute.
METER_REST_S_MAX = 20
# A reading that is older is named as such: the meter is not live.
METER_LIVE_S = 120
# Less of a month says too little about the rest of it.
FORECAST_HOURS_MIN = 12

# --- plans and accounts -------------------------------------------------------------------------------------
PLAN_CODE_CHARACTERS_MAX = 40
PLAN_NAME_CHARACTERS_MAX = 100
TAXES_PER_ACCOUNT_MAX = 5
TAX_NAME_CHARACTERS_MAX = 60
TAX_PPM_MAX = 500_000
CREDIT_NAME_CHARACTERS_MAX = 100

# --- invoices -----------------------------------------------------------------------------------------------
# A month is closed so long after its end, for records that come late; what comes later is a correction.
CLOSE_AFTER_HOURS = 6
# An invoice that is owed and not issued so long after the end of its month is overdue: usage of a quiet installation is
# settled every six hours, and a close waits for CLOSE_AFTER_HOURS of it.
OVERDUE_AFTER_HOURS = 24
INVOICES_AT_ONCE_MAX = 500
# A draft of an account without usage is made again so often: for changes of plans, credits and taxes.
QUIET_DRAFT_HOURS = 24
# Months behind the last three: how many of them one round of closing looks at, and how long one rests that lacks no
# invoice, or none but those that fail.
OLD_MONTHS_AT_ONCE_MAX = 12
CLOSED_MONTH_REST_HOURS = 24
FAILING_MONTH_REST_HOURS = 1
# One task drafts, closes and watches budgets for so long, and never beyond the next tick, which goes on.
BILLING_SLICE_S = 20.0
INVOICE_TEXT_CHARACTERS_MAX = 200
# Queue lines that a PDF lists; CSV and JSON have all.
PDF_QUEUES_MAX = 200
# The text of a transfer.
PAYMENT_REFERENCE_CHARACTERS_MAX = 100
# Who sells and who buys, as documents name them: their names, tax numbers and lines of text.
PARTY_LINE_CHARACTERS_MAX = 100
PARTY_LINES_MAX = 6
PAYMENT_DAYS_MAX = 365
# Keys of tags by which a page offers to split an invoice.
TAG_KEYS_OFFERED_MAX = 50

# --- budgets ------------------------------------------------------------------------------------------------
BUDGETS_PER_ACCOUNT_MAX = 20
BUDGET_NAME_CHARACTERS_MAX = 80
BUDGET_MINOR_MAX = 10**12
ALERT_PERCENTS_MAX = 10
ALERT_PERCENT_MAX = 1_000
BUDGET_MAILS_MAX = 10
BUDGET_MAILS_AT_ONCE_MAX = 200
# Of one account, an address each: a change of a budget begins its alerts again, to addresses that nobody has confirmed.
BUDGET_MAILS_PER_HOUR_MAX = 120
BUDGET_EVENTS_LISTED_MAX = 1_000
# What an account, or all who send to a queue, may send while a budget that throttles is used up.
THROTTLED_SENDS_PER_S = 1

# --- work on the schedule, as operators see it --------------------------------------------------------------
WORK_CHARACTERS_MAX = 80
WORK_FAILURES_KEPT_MAX = 1_000

# --- ticks of the schedule ----------------------------------------------------------------------------------
# Drafts and budgets, where PENSTOCK_BILLING_INTERVAL_S says nothing else.
BILLING_INTERVAL_S = 60
BILLING_INTERVAL_S_MIN = 2
BILLING_INTERVAL_S_MAX = 3_600
CLOSE_INTERVAL_S = 300

assert OVERDUE_AFTER_HOURS >= 3 * CLOSE_AFTER_HOURS
assert min(BILLING_INTERVAL_S, CLOSE_INTERVAL_S, METER_INTERVAL_S) > BILLING_SLICE_S

# Queues whose names and tags are read at once for the lines of an invoice: what one with many holds of them is bounded.
QUEUES_AT_ONCE_MAX = 1_000
# Sets of tags that a queue had within a month, each a part of its lines: later ones count for the last of these.
TAG_SETS_PER_QUEUE_MAX = 100
