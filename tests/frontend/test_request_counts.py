"""Requests that a front end counts: whose they are, that a report which is repeated counts once, and the bounds."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from frontend import limits
from frontend.errors import throttled
from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import AccountLimits, Rates
from frontend.metering import request_counts
from frontend.metering.request_counts import (
    ERRORS,
    HOUR_MS,
    NO_KEY,
    NO_QUEUE,
    CountedRow,
    Counters,
    RequestCounts,
)
from frontend.queues.names import Address
from frontend.usage_reports import KIND_REQUESTS, USAGE_TAG, UsageReports
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import PartitionInfo, QueueConfig
from storage_nodes.protocol.records import decode_body
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, QUEUE_URL, Installation, sign
from workers.spark_jobs.schemas import usage_record
from workers.spark_jobs.source.stream_reading import USAGE_TAG_PREFIX

HOUR = 500_000 * HOUR_MS
QUEUE = b"q" * 16


class Stream:
    """In the place of the usage stream: `taken` are the values of its records."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.failures = 0

    async def create_partition(self, kind: int, tag: str, config: QueueConfig) -> PartitionInfo:
        assert tag == USAGE_TAG
        return PartitionInfo(7, kind, [1, 2, 3], tag)

    async def stream_append(self, partition: int, bodies: list[bytes]) -> Any:
        assert partition == 7
        # What fails may have been taken all the same.
        self.taken += [decode_body(body).value for body in bodies]
        if self.failures:
            self.failures -= 1
            raise StorageError(ErrorCode.UNAVAILABLE, "away")

    def reports(self) -> list[usage_record.RequestReport]:
        found = [usage_record.decode_record(value) for value in self.taken]
        return [report for report in found if isinstance(report, usage_record.RequestReport)]


def rows_of(counts: RequestCounts) -> dict[tuple[str, bytes, str], Counters]:
    return {row.key: row.counters for hour in counts.hours() for row in hour.untold()}


def counted(front: Installation) -> dict[tuple[str, bytes, str], Counters]:
    return rows_of(front.plane.request_counts)


async def test_requests_count_for_the_queue_and_the_key(front: Installation) -> None:
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})
    await front.rest("/v1/queues/orders/messages", {"messages": [{"body": "x"}] * 3})
    await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": 10})
    await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})
    await front.sqs("ListQueues", {})
    uuid = (await front.plane.queues.find(Address(ACCOUNT, "orders"))).record.queue_uuid
    key = front.key.access_key_id
    assert counted(front) == {(ACCOUNT, uuid, key): (4, 1, 0, 0), (ACCOUNT, NO_QUEUE, key): (1, 0, 0, 0)}


async def test_report_that_is_repeated_is_the_same_record_with_greater_figures(front: Installation) -> None:
    stream = Stream()
    reports = UsageReports(front.plane, stream)
    counts = front.plane.request_counts
    counts.count(ACCOUNT, QUEUE, "KEY")
    stream.failures = 1
    assert not await reports.tell()
    counts.count(ACCOUNT, QUEUE, "KEY")
    assert await reports.tell() and await reports.tell()
    first, second = stream.reports()
    assert (first.front_end, first.sequence, first.hour_ms) == (second.front_end, second.sequence, second.hour_ms)
    assert [report.rows[0].requests for report in (first, second)] == [1, 2], "and the third call had nothing to tell"


async def test_hour_that_is_over_is_told_under_its_own(front: Installation) -> None:
    stream = Stream()
    reports = UsageReports(front.plane, stream)
    front.plane.request_counts.count(ACCOUNT, QUEUE, "KEY")
    began_ms = int(front.clock.now_s * 1000) // HOUR_MS * HOUR_MS
    front.clock.now_s += 3600
    await reports.tell()
    front.plane.request_counts.count(ACCOUNT, QUEUE, "KEY")
    await reports.tell()
    assert [(report.hour_ms, report.rows[0].requests) for report in stream.reports()] == [
        (began_ms, 1), (began_ms + HOUR_MS, 1),
    ]  # fmt: skip


def test_rows_beyond_the_bound_count_for_the_account_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_counts, "REQUEST_ROWS_MAX", 2)
    dropped: list[int] = []
    counts = RequestCounts(HOUR, dropped.append)
    for number in range(6):
        counts.count("a", bytes([number]) * 16, "KEY")
    assert rows_of(counts)["a", NO_QUEUE, NO_KEY] == (4, 0, 0, 0) and len(rows_of(counts)) == 3
    counts.count("b", QUEUE, "KEY")
    counts.count("c", QUEUE, "KEY")
    assert len(rows_of(counts)) == 4 and dropped == [1]


def test_request_that_comes_while_its_row_is_told_is_told_by_the_next_report() -> None:
    counts = RequestCounts(HOUR)
    counts.count("a", QUEUE, "KEY")
    (hour,) = counts.hours()
    rows = hour.untold()
    counts.count("a", QUEUE, "KEY")
    hour.note_told(rows)
    assert [row.counters for row in hour.untold()] == [(2, 0, 0, 0)]
    hour.note_told(hour.untold())
    assert hour.untold() == []


def test_hours_that_wait_for_the_stream_are_bounded() -> None:
    dropped: list[int] = []
    counts = RequestCounts(HOUR, dropped.append)
    for number in range(limits.REQUEST_HOURS_HELD_MAX + 2):
        counts.count("a", QUEUE, "KEY")
        counts.roll(HOUR + (number + 1) * HOUR_MS)
    hours = counts.hours()
    assert len(hours) == limits.REQUEST_HOURS_HELD_MAX + 1 and dropped == [1, 1]
    hours[0].note_told([CountedRow(("a", QUEUE, "KEY"), (1, 0, 0, 0))])
    assert len(counts.hours()) == limits.REQUEST_HOURS_HELD_MAX


def test_front_end_and_pipeline_mean_the_same_stream_and_kind() -> None:
    assert KIND_REQUESTS == usage_record.KIND_REQUESTS and USAGE_TAG.startswith(USAGE_TAG_PREFIX)


# --- what did not succeed ---


async def uuid_of(front: Installation, name: str) -> bytes:
    return (await front.plane.queues.find(Address(ACCOUNT, name))).record.queue_uuid


async def test_refused_requests_count_for_the_queue_that_they_name(front: Installation) -> None:
    uuid, key = await uuid_of(front, "orders"), front.key.access_key_id
    assert (await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": ""})).status == 400
    form = f"Action=SendMessage&QueueUrl={QUEUE_URL}&MessageBody=".encode()
    headers = sign(front.key, "POST", "/", form, "", front.clock.now_s, "application/x-www-form-urlencoded")
    assert (await front.call("POST", "/", headers, form)).status == 400
    assert (await front.rest("/v1/queues/orders/messages", {"nothing": 1})).status == 400
    front.storage.fail_with = ErrorCode.UNREACHABLE
    assert (await front.rest("/v1/queues/orders/messages", {"body": "x"})).status == 503
    assert counted(front)[ACCOUNT, uuid, key][ERRORS] == 4


async def test_errors_of_no_queue_of_the_account_count_for_the_account_or_not_at_all(front: Installation) -> None:
    key = front.key.access_key_id
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL + "-none", "MessageBody": "x"})
    await front.rest("/v1/queues/orders/messages", {"body": "x"}, token="pstk_" + "A" * 70)
    await front.sqs("SendMessage", {"QueueUrl": f"http://{HOST}/{OTHER_ACCOUNT}/secret", "MessageBody": "x"})
    assert counted(front) == {(ACCOUNT, NO_QUEUE, key): (0, 0, 0, 1)}, "no row for what another account owns"


async def test_throttled_requests_count_for_the_queue_that_they_name() -> None:
    rates = AccountLimits(Rates(requests_per_s=1))
    front = Installation(quotas=QuotaTree(lambda _: rates, burst_s=1.0))
    for _ in range(3):
        await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})
    uuid = front.metadata.queues[ACCOUNT, "orders"].queue_uuid
    assert counted(front) == {(ACCOUNT, uuid, front.key.access_key_id): (1, 0, 2, 0)}


async def test_request_over_a_share_is_throttled_and_no_error(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = await uuid_of(front, "orders")
    monkeypatch.setattr(front.plane, "polls", mock.Mock(place=mock.Mock(side_effect=throttled(1.0))))
    reply = await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, "WaitTimeSeconds": 1})
    assert reply.error == "RequestThrottled"
    assert counted(front)[ACCOUNT, uuid, front.key.access_key_id] == (1, 0, 1, 0)
