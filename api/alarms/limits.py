"""Every bound of alarms, in one place."""

from __future__ import annotations

from api.billing.limits import METER_INTERVAL_S
from api.series.limits import COVERED_GAP_S_MAX
from api.webhooks.limits import WEBHOOKS_PER_ACCOUNT_MAX

ALARMS_PER_ACCOUNT_MAX = 200
ALARM_NAME_CHARACTERS_MAX = 80
ALARM_PERIODS_MAX = 60
ALARM_PERIOD_S_MAX = 3_600
# All periods of an alarm together: their minutes are kept.
ALARM_SPAN_S_MAX = 86_400
ALARM_THRESHOLD_MAX = 1e15
ALARM_MAILS_MAX = 10
# As many as an account has.
ALARM_WEBHOOKS_MAX = WEBHOOKS_PER_ACCOUNT_MAX
ALARM_REASON_CHARACTERS_MAX = 300
ALARM_MUTE_DAYS_MAX = 30
# Where the series stand still, periods that ended so long ago are judged as periods without a value.
ALARM_WAIT_S = 300
JUDGE_INTERVAL_S = 30
# Of one tick.
JUDGED_AT_ONCE_MAX = 1_000
JUDGE_SLICE_S = 10.0
ALARM_MAILS_AT_ONCE_MAX = 200
# Mails that all alarms of an account write in an hour; the history has every change.
ALARM_MAILS_PER_HOUR_MAX = 60
ALARM_EVENTS_KEPT_DAYS = 90
ALARM_EVENTS_LISTED_MAX = 100

assert ALARM_PERIOD_S_MAX <= ALARM_SPAN_S_MAX
assert ALARM_WAIT_S > COVERED_GAP_S_MAX > METER_INTERVAL_S, "a look that is late is waited for"
assert JUDGE_SLICE_S < JUDGE_INTERVAL_S
