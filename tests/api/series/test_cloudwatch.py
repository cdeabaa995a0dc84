"""Metrics in the words of CloudWatch's GetMetricData: members as botocore has them, pages, refusals by name."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import botocore.session
import pytest

from api.series.models import SeriesMinute
from tests.api.series.test_metrics_rest import DATA, queue_of, start
from tests.support.control_plane import Caller, new_caller

pytestmark = pytest.mark.django_db
__all__ = ["start"]


def query(name: str = "sent", queue: str = "orders", **more: Any) -> dict[str, Any]:
    dimensions = [{"Name": "QueueName", "Value": queue}]
    metric = {"Namespace": "AWS/SQS", "MetricName": "NumberOfMessagesSent", "Dimensions": dimensions}
    return {"Id": name, "MetricStat": {"Metric": metric, "Period": 900, "Stat": "Sum"}, **more}


def ask(start: datetime, *queries: dict[str, Any], **more: Any) -> dict[str, Any]:
    end = start + timedelta(hours=1)
    return {"MetricDataQueries": list(queries), "StartTime": start.isoformat(), "EndTime": end.isoformat(), **more}


@pytest.fixture
def orders(caller: Caller, start: datetime) -> None:
    """1, 2, 3 and 4 messages in the quarters of the hour."""
    queue = queue_of(caller.account_id, "orders", start)
    for quarter in range(4):
        at = start + timedelta(minutes=15 * quarter)
        SeriesMinute.objects.create(account_id=caller.account_id, queue_uuid=queue, at=at, messages_sent=quarter + 1)


@pytest.mark.usefixtures("orders")
def test_answer_has_the_members_of_cloudwatch_the_newest_first(caller: Caller, start: datetime) -> None:
    answer = caller.request("POST", DATA, ask(start, query(), query("mine", Label="Orders", ReturnData=True)))
    assert answer.status_code == 200, answer.text
    first, second = answer.json()["MetricDataResults"]
    assert (first["Id"], first["Label"], first["StatusCode"]) == ("sent", "orders NumberOfMessagesSent", "Complete")
    assert first["Values"] == [4, 3, 2, 1] and second["Label"] == "Orders" and "NextToken" not in answer.json()
    assert [datetime.fromisoformat(at) - start for at in first["Timestamps"]] == [
        timedelta(minutes=minutes) for minutes in (45, 30, 15, 0)
    ]
    model = botocore.session.Session().get_service_model("cloudwatch").operation_model("GetMetricData")
    asked, told = model.input_shape.members, model.output_shape.members
    assert set(ask(start, ScanBy="", MaxDatapoints=1, NextToken="")) <= set(asked)
    assert set(answer.json()) <= set(told) and set(first) <= set(told["MetricDataResults"].member.members)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("scan_by", ["TimestampAscending", "TimestampDescending"])
@pytest.mark.parametrize("size", [1, 3, 4, 5, 8, 50])
def test_pages_have_each_point_once(caller: Caller, start: datetime, scan_by: str, size: int) -> None:
    asked = ask(start, query("a"), query("hidden", ReturnData=False), query("b"), ScanBy=scan_by, MaxDatapoints=size)
    found: dict[str, list[float]] = {"a": [], "b": []}
    token, status = "", {}
    for _ in range(20):
        answer = caller.request("POST", DATA, asked | ({"NextToken": token} if token else {})).json()
        page = answer["MetricDataResults"]
        assert 0 < sum(len(one["Values"]) for one in page) <= size
        for one in page:
            found[one["Id"]] += one["Values"]
            status[one["Id"]] = one["StatusCode"]
        token = answer.get("NextToken", "")
        if not token:
            break
        assert all(one["StatusCode"] == "Complete" for one in page[:-1])
    values = [1, 2, 3, 4] if scan_by == "TimestampAscending" else [4, 3, 2, 1]
    assert found == {"a": values, "b": values} and status == {"a": "Complete", "b": "Complete"}


@pytest.mark.usefixtures("orders")
def test_times_may_be_seconds_as_clients_of_aws_write_them(caller: Caller, start: datetime) -> None:
    asked = ask(start, query()) | {"StartTime": start.timestamp(), "EndTime": int(start.timestamp()) + 1800}
    assert caller.request("POST", DATA, asked).json()["MetricDataResults"][0]["Values"] == [2, 1]
    asked["EndTime"] = 1e300
    assert caller.request("POST", DATA, asked).status_code == 400


def test_queue_that_is_not_there_or_of_others_has_no_values(caller: Caller, start: datetime) -> None:
    queue_of(new_caller("stranger").account_id, "orders", start)
    (result,) = caller.request("POST", DATA, ask(start, query())).json()["MetricDataResults"]
    assert (result["Values"], result["StatusCode"], result["Messages"][0]["Code"]) == ([], "Complete", "NoSuchQueue")


def changed(path: str, value: Any) -> dict[str, Any]:
    one = query()
    inner, *rest = path.split("/")
    at = one
    for part in rest:
        at, inner = at[inner], part
    at[inner] = value
    return one


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("Expression", "SUM(METRICS())"),
        ("AccountId", "123456789012"),
        ("Id", "Sent"),
        ("MetricStat/Period", 90),
        ("MetricStat/Stat", "SampleCount"),
        ("MetricStat/Stat", "Maximum"),
        ("MetricStat/Metric/Namespace", "AWS/EC2"),
        ("MetricStat/Metric/MetricName", "CPUUtilization"),
        ("MetricStat/Metric/Dimensions", []),
        ("MetricStat/Metric/Dimensions", [{"Name": "Host", "Value": "x"}]),
    ],
)
@pytest.mark.usefixtures("orders")
def test_query_that_is_not_answered_is_refused_by_name(caller: Caller, start: datetime, path: str, value: Any) -> None:
    answer = caller.request("POST", DATA, ask(start, changed(path, value)))
    assert answer.status_code == 400
    assert all(error["pointer"].startswith("/MetricDataQueries/0") for error in answer.json()["errors"]), answer.text


@pytest.mark.parametrize(
    "more",
    [
        {"NextToken": "eA"}, {"NextToken": "?"}, {"NextToken": "OTku"}, {"MaxDatapoints": 0}, {"ScanBy": "x"},
        {"LabelOptions": {}}, {"EndTime": "2020-01-01T00:00:00Z"}, {"queries": []},
    ],
)  # fmt: skip
def test_request_that_makes_no_sense_is_refused_by_name(caller: Caller, start: datetime, more: dict[str, Any]) -> None:
    answer = caller.request("POST", DATA, ask(start, query(), **more))
    assert answer.status_code == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == [f"/{next(iter(more))}"]
