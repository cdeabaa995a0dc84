"""Every bound of series, in one place."""

from __future__ import annotations

from api.billing.limits import METER_INTERVAL_S

# --- collecting ---------------------------------------------------------------------------------------------
# A tick does nothing where the live meter has not looked since the last one.
COLLECT_INTERVAL_S = 10
# Queues that one tick writes; the others come with the next one, those that waited longest first.
COLLECTED_QUEUES_MAX = 10_000
# The figures of an hour are compared with what was collected of it; older hours are left out.
COLLECTED_HOURS = 2
MARKS_KEPT_HOURS = 24
# Complete looks that are no further apart cover all minutes between them.
COVERED_GAP_S_MAX = 180
# A figure belongs to the middle between two looks, and never lies further before the second one.
FIGURES_BACK_S_MAX = 30
# Counts of what queues hold are asked of their leaders: so many partitions a tick, so many at once, in this time.
LEVEL_PARTITIONS_MAX = 2_000
LEVEL_CALLS_AT_ONCE_MAX = 32
LEVEL_S_MAX = 8.0
# What a queue holds is written when it changes; where it does not change, so often. It holds until the next row.
LEVEL_WRITTEN_EVERY_S = 1_800
LEVEL_HELD_S = 7_200
# A tick has its own claim, a session of the database.
COLLECT_CLAIM_KEY = 0x73657269

# --- retention ----------------------------------------------------------------------------------------------
MINUTES_KEPT_HOURS = 25
FIVE_MINUTES_KEPT_DAYS = 8
HOURS_KEPT_DAYS = 400
ROLL_INTERVAL_S = 60
# A bucket is rolled up so long after its end: figures of its last minute have come by then.
ROLL_GRACE_S = 120
# Of one tick: buckets that it rolls up, rows that one statement removes.
ROLLED_AT_ONCE_MAX = 24
REMOVED_AT_ONCE_MAX = 50_000

# --- reading ------------------------------------------------------------------------------------------------
METRIC_QUERIES_MAX = 100
METRIC_QUERY_ID_CHARACTERS_MAX = 64
METRIC_LABEL_CHARACTERS_MAX = 255
METRIC_PERIOD_S_MIN = 60
METRIC_PERIOD_S_MAX = 86_400
# Steps of the stored series that one call goes through, over all of its queries.
METRIC_STEPS_MAX = 150_000
METRIC_POINTS_MAX = 50_000
# Queues of one answer to Prometheus: some 4 MB of text.
SCRAPED_QUEUES_MAX = 5_000

assert COLLECT_INTERVAL_S < METER_INTERVAL_S, "each look of the meter is collected before the next one"
assert METER_INTERVAL_S < COVERED_GAP_S_MAX
assert LEVEL_WRITTEN_EVERY_S * 2 < LEVEL_HELD_S, "a row may be missed, and the level still holds"
assert LEVEL_HELD_S < MINUTES_KEPT_HOURS * 3600
assert COLLECTED_HOURS < MARKS_KEPT_HOURS, "no hour is collected whose mark is gone"
