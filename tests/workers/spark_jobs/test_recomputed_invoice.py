"""A closed month counted again from a lake that is made from the log again, to the same cents. From the same lake:
test_settlement.py, where a second run changes nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from api.audit.actions import OPERATOR
from api.billing.account_month import recomputed
from api.billing.actions.invoices import BILLING, issue_invoice
from api.billing.actions.plans import add_plan_version, assign_plan
from api.billing.models import DailyUsage, Invoice
from api.billing.pricing.meters import PRICED_METERS
from api.billing.pricing.periods import period_of
from api.billing.settling import SettledRun
from tests.api.billing.usage import open_since
from tests.support.control_plane import Caller
from tests.workers.spark_jobs.frames import OTHER_QUEUE, QUEUE, counters, encode_record, window
from tests.workers.spark_jobs.streams import Streams
from workers.spark_jobs.jobs.ingest import ingest_stream
from workers.spark_jobs.jobs.settle import settle_hours
from workers.spark_jobs.lake.manifest import Lake
from workers.spark_jobs.limits import HOUR_MS
from workers.spark_jobs.schemas.usage_record import UsageWindow
from workers.spark_jobs.spans import HourSpan
from workers.usage.recount import count_again
from workers.usage.rounds import JobRunner
from workers.usage.settling import begin_settlement, merge_settlement

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

# February 2026: over, and the shortest. An issue waits for six hours more.
MONTH = datetime(2026, 2, 1, tzinfo=UTC)
FIRST_MS = int(MONTH.timestamp() * 1000)
SPAN = HourSpan(FIRST_MS, FIRST_MS + (28 * 24 + 6) * HOUR_MS)


def february(account_id: str, at: int, partition: int, queue: bytes, sent: int, stored: int) -> UsageWindow:
    hour_ms = FIRST_MS + at * HOUR_MS
    used = [counters(sent=sent, sent_bytes=sent * 997, sent_units=sent, delivered=sent // 3)]
    fields = {
        "account_id": account_id, "queue_uuid": queue, "hour_ms": hour_ms, "until_ms": hour_ms + HOUR_MS,
        "stored_byte_ms": stored * HOUR_MS // 2, "stored_bytes": stored, "origins": used,
    }  # fmt: skip
    return msgspec.structs.replace(window(0, partition), **fields)


def count(spark: SparkSession, lake: Lake) -> SettledRun:
    run = uuid.uuid4()
    answer = settle_hours(spark, lake, SPAN, str(run), SPAN.to_ms)
    begin_settlement(run, SPAN)
    return merge_settlement(Path(answer["directory"]), run, SPAN)


def job_in(spark: SparkSession) -> JobRunner:
    """The job `settle`, in this process."""

    def run(name: str, arguments: list[str], holds_claim: Callable[[], bool], time_s_max: float) -> dict[str, Any]:
        given = dict(zip(arguments[::2], arguments[1::2], strict=True))
        span = HourSpan(int(given["--from"]), int(given["--to"]))
        return settle_hours(spark, Lake(given["--lake"]), span, given["--run"], span.to_ms)

    return run


def cents(invoice: Invoice) -> tuple[int, ...]:
    return invoice.charges_minor, invoice.tax_minor, invoice.total_minor


def cents_again(invoice: Invoice) -> tuple[int, ...]:
    priced = recomputed(invoice).priced
    return priced.charges_minor, priced.tax_minor, priced.total_minor


def test_closed_month_from_a_lake_that_is_made_again_gives_the_same_cents(
    spark: SparkSession, caller: Caller, streams: Streams, tmp_path: Path
) -> None:
    account = caller.account_id
    open_since(account, MONTH)
    tiers = [{"up_to": 500, "price_nanos": 7_000_000, "per": 1}, {"up_to": None, "price_nanos": 3_000_000, "per": 1}]
    prices: dict[str, object] = {meter.value: {"included": True} for meter in PRICED_METERS}
    prices |= {"sent_units": {"free": 100, "tiers": tiers}}
    prices |= {"delivered_bytes": {"included": True}}
    add_plan_version(
        OPERATOR,
        "again",
        "Again",
        {"currency": "USD", "base_fee_minor": 99, "minimum_minor": 0, "prices": prices},
        None,
    )
    assign_plan(OPERATOR, account, "again", None, [{"name": "VAT", "rate_ppm": 190_000}])
    early = february(account, 5, 7, QUEUE, 300, 4_000)
    partial = msgspec.structs.replace(early, until_ms=early.until_ms - HOUR_MS // 2, origins=[counters(sent=90)])
    rows = [
        encode_record(one)
        for one in (partial, early, early, february(account, 400, 8, OTHER_QUEUE, 777, 0),
                    february(account, 27 * 24, 7, QUEUE, 41, 12))
    ]  # fmt: skip
    streams.append(0, *rows[:3])
    streams.append(1, *rows[3:], b"rubbish")
    lake = Lake(tmp_path / "lake")
    ingest_stream(spark, lake, streams.cluster.cluster_id, streams.nodes)
    assert count(spark, lake).merged > 0
    invoice = issue_invoice(BILLING, account, period_of(MONTH))
    assert invoice is not None
    # 1,118 units, 100 of them free, 500 for 0.7 cents and the rest for 0.3; the base fee; 19 % on all of it.
    assert cents(invoice)[0] == 99 + 350 + 155 and cents(invoice) == cents_again(invoice)

    from_log = Lake(tmp_path / "from-log")
    ingest_stream(spark, from_log, streams.cluster.cluster_id, streams.nodes)
    once_more = count(spark, from_log)
    assert (once_more.merged, once_more.removed) == (0, 0)
    assert cents_again(invoice) == cents(invoice)
    told = count_again(from_log, period_of(MONTH), account, job_in(spark), lambda: True)
    assert told["equal"] and (told["invoices"], told["differences"]) == (1, [])
    assert set(told["hours"].values()) == {0}, "nothing would be changed"

    DailyUsage.objects.filter(account_id=account, messages_sent=41).delete()
    assert cents_again(invoice) != cents(invoice), "a record that is lacking is noticed"
