"""What webhooks are told of a change of an alarm's state: a JSON object, whose members stay."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from api.alarms.judging import AlarmState
from api.alarms.models import MetricAlarm
from api.queues.models import GONE, Queue


def alarm_content(alarm: MetricAlarm, before: AlarmState, now: datetime) -> dict[str, Any]:
    """`queue` is null where it is gone."""
    rows = Queue.objects.filter(account_id=alarm.account_id, uuid=alarm.queue_uuid).exclude(state__in=GONE)
    return {
        "type": "alarm.state_changed",
        "account_id": alarm.account_id,
        "alarm": alarm.name,
        "queue": rows.values_list("name", flat=True).first(),
        "before": before.value,
        "state": alarm.state,
        "since": now.isoformat(timespec="milliseconds"),
        "reason": alarm.state_reason,
        "metric": alarm.metric,
        "statistic": alarm.statistic,
        "comparison": alarm.comparison,
        "threshold": alarm.threshold,
        "period_s": alarm.period_s,
        "periods": alarm.periods,
        "breaching": alarm.breaching,
    }
