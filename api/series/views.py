"""REST: metrics of the queues of the account that asks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, PolymorphicProxySerializer, extend_schema
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from api import clock
from api.internal.rest import caller
from api.operation_view import OperationView
from api.pages import text_asked
from api.queues.models import Queue
from api.series import cloudwatch, reading, selectors
from api.series.metrics import METRICS, Statistic
from api.series.reading import MetricQuery, MetricSpan, SeriesError, SeriesReader
from api.series.scrape import scraped_text
from api.series.serializers import MetricDataRequestSerializer, MetricDataSerializer, MetricsSerializer

PREFIX = OpenApiParameter("prefix", OpenApiTypes.STR, description="Only queues whose names begin with it.")
ASKED = PolymorphicProxySerializer(
    "MetricDataAsked", [MetricDataRequestSerializer, cloudwatch.CloudWatchRequestSerializer], None
)
ANSWERED = PolymorphicProxySerializer(
    "MetricDataAnswered", [MetricDataSerializer, cloudwatch.CloudWatchDataSerializer], None
)
TEXT = OpenApiResponse(OpenApiTypes.STR, description="Prometheus text format.")


class MetricsView(OperationView):
    @extend_schema(operation_id="metrics.list", responses=MetricsSerializer)
    def get(self, request: Request) -> Response:
        """The metrics that every queue has."""
        return Response(MetricsSerializer({"metrics": [metric._asdict() for metric in METRICS.values()]}).data)


class MetricDataView(OperationView):
    @extend_schema(operation_id="metrics.data", request=ASKED, responses=ANSWERED)
    def post(self, request: Request) -> Response:
        """Values of metrics of queues, one for each period: several queries in one call. With the members of
        CloudWatch's GetMetricData (`MetricDataQueries`) the answer has CloudWatch's members, too."""
        if isinstance(request.data, dict) and "MetricDataQueries" in request.data:
            return self._as_cloudwatch(request)
        asked = MetricDataRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        given, account_id = asked.validated_data, caller(request).account_id
        queues = selectors.queues_named(account_id, (query["queue"] for query in given["queries"]))
        collected = reading.collected_up_to()
        reader = SeriesReader(account_id, MetricSpan(given["start"], given["end"]), clock.now())
        results = [_result(reader, query, queues, number) for number, query in enumerate(given["queries"])]
        return Response(MetricDataSerializer({"collected_up_to": collected, "results": results}).data)

    def _as_cloudwatch(self, request: Request) -> Response:
        asked = cloudwatch.CloudWatchRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        found = cloudwatch.metric_data(caller(request).account_id, asked.validated_data)
        return Response(cloudwatch.CloudWatchDataSerializer(found).data)


class MetricScrapeView(OperationView):
    @extend_schema(operation_id="metrics.scrape", parameters=[PREFIX], responses={(200, "text/plain"): TEXT})
    def get(self, request: Request) -> HttpResponse:
        """Totals and levels of each queue, for Prometheus."""
        found = selectors.scraped_queues(caller(request).account_id, text_asked(request, "prefix"))
        return HttpResponse(scraped_text(found, clock.now()), content_type=CONTENT_TYPE_PLAIN_0_0_4)


def _result(reader: SeriesReader, asked: Mapping[str, Any], queues: Mapping[str, Queue], number: int) -> dict[str, Any]:
    metric = METRICS[asked["metric"]]
    statistic = Statistic(asked.get("statistic", metric.statistics[0]))
    queue, period_s = queues.get(asked["queue"]), asked["period_s"]
    try:
        if queue is None:
            raise SeriesError(f"There is no queue {asked['queue']}.")
        reading.check_query(metric, statistic, period_s)
        points = reader.points(MetricQuery(queue.uuid, queue.created_at, metric, statistic, period_s))
    except SeriesError as error:
        raise ValidationError({"queries": {str(number): [str(error)]}}) from None
    return {
        "id": asked["id"],
        "queue": queue.name,
        "metric": metric.name,
        "statistic": statistic.value,
        "unit": metric.unit,
        "period_s": period_s,
        "timestamps": [datetime.fromtimestamp(point.at_s, UTC) for point in points],
        "values": [point.value for point in points],
    }
