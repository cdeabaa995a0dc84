"""An account with alarms that have changed their states: for pictures and browser tests.

Runs within the installation: `manage.py shell -c "from tests.console.alarmed import alarm; alarm('shop')"`.
"""

from __future__ import annotations

from datetime import timedelta

from api import clock
from api.accounts.models import Account
from api.alarms.actions import AlarmSpec, mute_alarm, note_values, put_alarm
from api.alarms.judging import Comparison, MissingData
from api.audit.actions import OPERATOR
from api.series.metrics import Statistic

PERIOD_S = 300
# How many messages waited, one value for each time that the alarm is judged.
WAITED = (120.0, 1_840.0, 2_210.0, 310.0, None, 1_502.0)
STEP = timedelta(minutes=25)


def alarm(account_name: str) -> None:
    """Safe to call once an account."""
    account_id = Account.objects.get(name=account_name).pk
    waiting = AlarmSpec(
        "orders", "ApproximateNumberOfMessagesVisible", Statistic.MAXIMUM, PERIOD_S, Comparison.ABOVE, 1_000.0, 1, 1,
        MissingData.MISSING, ["on-call@example.com"],
    )  # fmt: skip
    backlog, _ = put_alarm(OPERATOR, account_id, "backlog", waiting)
    now = clock.now()
    for back, value in zip(range(len(WAITED), 0, -1), WAITED, strict=True):
        at = now - back * STEP
        assert note_values(backlog, at, [value], at)
    errors = waiting._replace(metric="NumberOfErrors", statistic=Statistic.SUM, threshold=5.0, mail_to=[])
    put_alarm(OPERATOR, account_id, "errors-of-orders", errors)
    mute_alarm(OPERATOR, account_id, "errors-of-orders", now + timedelta(hours=8))
