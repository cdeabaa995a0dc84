"""Reads of alarms: always as one account, but for what workers have to do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from uuid import UUID

from api.alarms import limits
from api.alarms.judging import AlarmState
from api.alarms.models import AlarmEvent, MetricAlarm
from api.queues.models import GONE, Queue
from api.series.metrics import METRICS, Statistic
from api.series.reading import MetricQuery, MetricSpan, SeriesReader, collected_up_to

# A period from before the queue was created has no value that is not 0.
_EVER = datetime(1970, 1, 1, tzinfo=UTC)


def alarms_of(account_id: str, queue_uuid: UUID | None = None) -> list[MetricAlarm]:
    """By name, those in ALARM first."""
    rows = MetricAlarm.objects.filter(account_id=account_id)
    if queue_uuid is not None:
        rows = rows.filter(queue_uuid=queue_uuid)
    return sorted(rows, key=lambda alarm: (alarm.state != AlarmState.ALARM, alarm.name))


def lock_alarm(account_id: str, name: str) -> None:
    """Until the transaction ends, if there is such an alarm."""
    MetricAlarm.objects.select_for_update().filter(account_id=account_id, name=name).first()


def alarm_of(account_id: str, name: str) -> MetricAlarm | None:
    return MetricAlarm.objects.filter(account_id=account_id, name=name).first()


def alarm_events_of(account_id: str, name: str = "") -> list[AlarmEvent]:
    """The latest first; of one alarm, or of all."""
    rows = AlarmEvent.objects.filter(account_id=account_id)
    if name:
        rows = rows.filter(alarm_name=name)
    return list(rows.order_by("-pk")[: limits.ALARM_EVENTS_LISTED_MAX])


def queue_names(account_id: str, queues: Iterable[UUID]) -> dict[UUID, str]:
    """Of those that are there."""
    rows = Queue.objects.filter(account_id=account_id, uuid__in=set(queues)).exclude(state__in=GONE)
    return dict(rows.values_list("uuid", "name"))


# --- for workers ---


def judged_until(now: datetime) -> datetime:
    """Periods that end before can be judged: their figures are in the series, or will never be."""
    collected = collected_up_to()
    patience = now - timedelta(seconds=limits.ALARM_WAIT_S)
    return patience if collected is None else min(max(collected, patience), now)


def alarms_due(until: datetime) -> list[MetricAlarm]:
    return list(MetricAlarm.objects.filter(next_at__lte=until).order_by("next_at")[: limits.JUDGED_AT_ONCE_MAX])


def values_of(alarm: MetricAlarm, until: datetime, now: datetime) -> tuple[datetime, list[float | None]]:
    """The end of the last period that is over, and the values of the alarm's periods: none of a deleted queue."""
    end_s = int(until.timestamp()) // alarm.period_s * alarm.period_s
    times = range(end_s - alarm.periods * alarm.period_s, end_s, alarm.period_s)
    end = datetime.fromtimestamp(end_s, UTC)
    if not queue_names(alarm.account_id, [alarm.queue_uuid]):
        return end, [None] * alarm.periods
    reader = SeriesReader(alarm.account_id, MetricSpan(datetime.fromtimestamp(times[0], UTC), end), now)
    statistic = Statistic(alarm.statistic)
    query = MetricQuery(alarm.queue_uuid, _EVER, METRICS[alarm.metric], statistic, alarm.period_s)
    found = {point.at_s: point.value for point in reader.points(query)}
    return end, [found.get(time) for time in times]


def unmailed_alarm_events() -> list[AlarmEvent]:
    return list(AlarmEvent.objects.filter(mailed_at=None).order_by("pk")[: limits.ALARM_MAILS_AT_ONCE_MAX])
