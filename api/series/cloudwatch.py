"""Values of metrics in the words of CloudWatch's GetMetricData: what is asked, and the answer with its pages.

Not taken, and refused by name: expressions, other accounts, other namespaces, LabelOptions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rest_framework import serializers

from api import clock
from api.limits import PAGE_TOKEN_CHARACTERS_MAX, QUEUE_NAME_CHARACTERS_MAX
from api.pages import PagedList
from api.people.strict import (
    StrictBooleanField,
    StrictCharField,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
)
from api.queues.models import Queue
from api.series import limits, reading, selectors
from api.series.metrics import METRICS, Statistic
from api.series.points import MetricPoint
from api.series.reading import MetricQuery, MetricSpan, SeriesError, SeriesReader

NAMESPACE, DIMENSION = "AWS/SQS", "QueueName"
NEWEST_FIRST, OLDEST_FIRST = "TimestampDescending", "TimestampAscending"
COMPLETE, PARTIAL = "Complete", "PartialData"
_ID = r"^[a-z][A-Za-z0-9_]*\Z"
# What a token is bound to beside the queries.
_FILTERS = ("StartTime", "EndTime", "ScanBy")


class TimeField(serializers.DateTimeField):
    """As text, or as a number of seconds since 1970, as clients of AWS write it."""

    def to_internal_value(self, value: Any) -> datetime:
        if type(value) in (int, float):
            try:
                return datetime.fromtimestamp(value, UTC)
            except (ValueError, OverflowError, OSError):
                self.fail("invalid", format="seconds since 1970")
        found: datetime = super().to_internal_value(value)
        return found


class DimensionSerializer(StrictSerializer):
    Name = StrictChoiceField(choices=[DIMENSION])
    Value = StrictCharField(max_length=QUEUE_NAME_CHARACTERS_MAX)


class CloudWatchMetricSerializer(StrictSerializer):
    Namespace = StrictChoiceField(choices=[NAMESPACE])
    MetricName = StrictChoiceField(choices=list(METRICS))
    Dimensions = serializers.ListField(child=DimensionSerializer(), min_length=1, max_length=1)


class MetricStatSerializer(StrictSerializer):
    Metric = CloudWatchMetricSerializer()
    Period = StrictIntegerField(min_value=limits.METRIC_PERIOD_S_MIN, max_value=limits.METRIC_PERIOD_S_MAX)
    Stat = StrictChoiceField(choices=[statistic.value for statistic in Statistic])


class MetricDataQuerySerializer(StrictSerializer):
    Id = serializers.RegexField(_ID, max_length=limits.METRIC_QUERY_ID_CHARACTERS_MAX)
    MetricStat = MetricStatSerializer()
    Label = StrictCharField(required=False, max_length=limits.METRIC_LABEL_CHARACTERS_MAX)
    ReturnData = StrictBooleanField(default=True)


class CloudWatchRequestSerializer(StrictSerializer):
    MetricDataQueries = serializers.ListField(
        child=MetricDataQuerySerializer(), min_length=1, max_length=limits.METRIC_QUERIES_MAX
    )
    StartTime = TimeField()
    EndTime = TimeField()
    ScanBy = StrictChoiceField(choices=[NEWEST_FIRST, OLDEST_FIRST], default=NEWEST_FIRST)
    MaxDatapoints = StrictIntegerField(
        min_value=1, max_value=limits.METRIC_POINTS_MAX, default=limits.METRIC_POINTS_MAX
    )
    NextToken = StrictCharField(required=False, max_length=PAGE_TOKEN_CHARACTERS_MAX)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["StartTime"] >= attrs["EndTime"]:
            raise serializers.ValidationError({"EndTime": "must come after StartTime"})
        names = [query["Id"] for query in attrs["MetricDataQueries"]]
        if len(set(names)) < len(names):
            raise serializers.ValidationError({"MetricDataQueries": "each needs an Id of its own"})
        return attrs


class CloudWatchNoteSerializer(serializers.Serializer):
    Code = serializers.CharField()
    Value = serializers.CharField()


class CloudWatchResultSerializer(serializers.Serializer):
    """`StatusCode` PartialData: more of it comes with the next page."""

    Id = serializers.CharField()
    Label = serializers.CharField(help_text="As it was given, else the queue and the metric.")
    Timestamps = serializers.ListField(child=serializers.DateTimeField())
    Values = serializers.ListField(child=serializers.FloatField())
    StatusCode = serializers.ChoiceField(choices=[COMPLETE, PARTIAL])
    Messages = CloudWatchNoteSerializer(many=True)


class CloudWatchDataSerializer(serializers.Serializer):
    MetricDataResults = CloudWatchResultSerializer(many=True)
    NextToken = serializers.CharField(required=False, help_text="Absent on the last page.")
    Messages = CloudWatchNoteSerializer(many=True)


class PagePlace(NamedTuple):
    """Behind the point at `at_s` of query `number`; of a query that has begun to be answered."""

    number: int
    at_s: int | None


def metric_data(account_id: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """`asked`: of CloudWatchRequestSerializer. Raises ValidationError."""
    queries: Sequence[Mapping[str, Any]] = asked["MetricDataQueries"]
    queues = selectors.queues_named(account_id, map(_queue_of, queries))
    reader = SeriesReader(account_id, MetricSpan(asked["StartTime"], asked["EndTime"]), clock.now())
    of = _paged(account_id, asked)
    place = _place_of(of, asked.get("NextToken", ""))
    left, results, token = asked["MaxDatapoints"], [], None
    for number, query in enumerate(queries):
        if number < place.number or not query["ReturnData"]:
            continue
        if left == 0:
            token = _token(of, PagePlace(number, None))
            break
        queue = queues.get(_queue_of(query))
        points = _points(reader, query, queue, number)
        if asked["ScanBy"] == NEWEST_FIRST:
            points.reverse()
        if number == place.number:
            points = _behind(points, place.at_s, asked["ScanBy"])
        shown, more = points[:left], points[left:]
        left -= len(shown)
        results.append(_result(query, shown, bool(more), queue is None))
        if more:
            token = _token(of, PagePlace(number, shown[-1].at_s))
            break
    answer = {"MetricDataResults": results, "Messages": []}
    return answer | ({"NextToken": token} if token else {})


def _points(reader: SeriesReader, query: Mapping[str, Any], queue: Queue | None, number: int) -> list[MetricPoint]:
    """A queue that is not there has none, as with CloudWatch."""
    asked = query["MetricStat"]
    metric, statistic = METRICS[asked["Metric"]["MetricName"]], Statistic(asked["Stat"])
    try:
        reading.check_query(metric, statistic, asked["Period"])
        if queue is None:
            return []
        return list(reader.points(MetricQuery(queue.uuid, queue.created_at, metric, statistic, asked["Period"])))
    except SeriesError as error:
        raise serializers.ValidationError({"MetricDataQueries": {str(number): [str(error)]}}) from None


def _behind(points: list[MetricPoint], at_s: int | None, scan_by: str) -> list[MetricPoint]:
    if at_s is None:
        return points
    return [point for point in points if (point.at_s < at_s if scan_by == NEWEST_FIRST else point.at_s > at_s)]


def _result(query: Mapping[str, Any], points: list[MetricPoint], is_partial: bool, is_unknown: bool) -> dict[str, Any]:
    queue, metric = _queue_of(query), query["MetricStat"]["Metric"]["MetricName"]
    note = {"Code": "NoSuchQueue", "Value": f"There is no queue {queue}."}
    return {
        "Id": query["Id"],
        "Label": query.get("Label", f"{queue} {metric}"),
        "Timestamps": [datetime.fromtimestamp(point.at_s, UTC) for point in points],
        "Values": [point.value for point in points],
        "StatusCode": PARTIAL if is_partial else COMPLETE,
        "Messages": [note] if is_unknown else [],
    }


def _queue_of(query: Mapping[str, Any]) -> str:
    return str(query["MetricStat"]["Metric"]["Dimensions"][0]["Value"])


def _paged(account_id: str, asked: Mapping[str, Any]) -> PagedList:
    """A token is of these queries, this span and this order; MaxDatapoints may change from page to page."""
    filters = (json.dumps(asked["MetricDataQueries"], sort_keys=True), *(str(asked[name]) for name in _FILTERS))
    return PagedList(account_id, "metric-data", filters)


def _token(of: PagedList, place: PagePlace) -> str:
    return of.token(f"{place.number}.{'' if place.at_s is None else place.at_s}")


def _place_of(of: PagedList, token: str) -> PagePlace:
    """Raises ValidationError."""
    if not token:
        return PagePlace(0, None)
    try:
        number, _, at_s = of.after(token).partition(".")
    except ValueError:
        raise serializers.ValidationError({"NextToken": "is not a token of these queries"}) from None
    return PagePlace(int(number), int(at_s) if at_s else None)
