"""Lines by tag follow the tags' history (docs/billing.md): an hour counts for the tags of its beginning."""

from __future__ import annotations

import random
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from api import clock
from api.billing import limits
from api.billing.account_month import month_of
from api.billing.actions.invoices import BILLING, draft_invoice, issue_invoice
from api.billing.documents.content import invoice_content, tag_shares
from api.billing.documents.invoice_csv import invoice_csv
from api.billing.models import Invoice, QueueTags
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.periods import HOUR, Interval, floor_hour
from api.billing.tagged_usage import tag_history
from api.billing.usage_reports import UsageAsked, UsageCut, usage_parts
from api.queues.models import Queue
from tests.api.billing.test_invoices import plan
from tests.api.billing.usage import (
    MONTH,
    MONTH_HOURS,
    PERIOD,
    QUEUE,
    make_queue,
    month_hour,
    open_since,
    row,
    settle_month,
)

pytestmark = pytest.mark.django_db
NANOS = 10**9


def tags_since(account: str, queue: uuid.UUID, at: datetime, **tags: str) -> None:
    QueueTags.objects.create(account_id=account, queue_uuid=queue, since=at, tags=tags)


def moved_queue(account: str) -> uuid.UUID:
    """Of the team red for ten hours, then of blue."""
    queue = uuid.uuid4()
    tags_since(account, queue, MONTH - timedelta(days=9), team="green")
    tags_since(account, queue, MONTH - timedelta(days=3), team="red")
    tags_since(account, queue, month_hour(10), team="blue")
    return queue


def sums_by_team(invoice: Invoice | None) -> dict[str, int]:
    assert invoice is not None
    return {one["value"]: one["amount_nanos"] for one in tag_shares(invoice, "team")}


def test_hour_counts_for_the_team_that_had_the_queue_when_it_began(account: str) -> None:
    plan(account)
    queue = moved_queue(account)
    steady = make_queue(account, "steady", team="red")
    rows = [
        row(account, hour, queue_uuid=queue, sent_units=units) for hour, units in ((0, 100), (9, 3_000), (10, 7_000))
    ]
    settle_month([*rows, row(account, queue_uuid=steady, sent_units=90_000)])
    invoice = issue_invoice(BILLING, account, PERIOD)
    # 100,090 units, of which 100 are free: 99.99 USD.
    assert invoice is not None and invoice.charges_minor == 10_000
    assert sums_by_team(invoice) == {
        "blue": 6_993_006_993, "red": 93_006_993_007,
    }  # fmt: skip
    lines = [line for line in invoice_content(invoice, [])["queues"] if line["queue_uuid"] == str(queue)]
    assert [(line["tags"], line["quantity"]) for line in lines] == [({"team": "red"}, 3_100), ({"team": "blue"}, 7_000)]
    assert invoice_csv(invoice_content(invoice, [])).count(str(queue)) == 2


def test_parts_sum_to_the_shares_of_the_queue(account: str) -> None:
    plan(account, base_fee_minor=7)
    queue = moved_queue(account)
    settle_month([row(account, hour, queue_uuid=queue, sent_units=333, sent_bytes=hour) for hour in range(30)])
    invoice = draft_invoice(account, PERIOD)
    month = month_of(invoice.account, PERIOD) if invoice else None
    assert invoice is not None and month is not None
    for share in month.priced.shares:
        parts = invoice.queue_lines.filter(meter=share.meter.value)
        assert sum(int(part.amount_nanos) for part in parts) == share.amount_nanos
        assert sum(int(part.quantity) for part in parts) == share.quantity
    assert draft_invoice(account, PERIOD) is not None, "it is made again"


def test_tags_that_come_back_are_one_part_and_many_are_bounded(account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = uuid.uuid4()
    for hour, team in enumerate(("red", "blue", "red", "blue")):
        tags_since(account, queue, month_hour(hour), team=team)
    settle_month([row(account, hour, queue_uuid=queue, sent_units=1) for hour in range(4)])
    found = tag_history(account, Interval(*PERIOD), [queue]).changed[queue]
    assert [(part.tags["team"], part.quantity(UsageMeter.SENT_UNITS)) for part in found] == [("red", 2), ("blue", 2)]
    monkeypatch.setattr(limits, "TAG_SETS_PER_QUEUE_MAX", 1)
    bounded = tag_history(account, Interval(*PERIOD), [queue]).changed[queue]
    assert [(part.tags["team"], part.quantity(UsageMeter.SENT_UNITS)) for part in bounded] == [("red", 4)]


def test_usage_by_tag_follows_the_history_too(account: str) -> None:
    plan(account)
    queue = moved_queue(account)
    settle_month([row(account, hour, queue_uuid=queue, sent_units=1_000) for hour in (9, 10, 11)])
    month = month_of(draft_invoice(account, PERIOD).account, PERIOD, is_provisional=True)  # type: ignore[union-attr]
    assert month is not None
    parts = usage_parts(month, UsageAsked(UsageCut.TAG, tag="team"))
    found = {part.key: (part.quantity(UsageMeter.SENT_UNITS), part.amount_nanos) for part in parts}
    assert {key: quantity for key, (quantity, _) in found.items()} == {"red": 1_000, "blue": 2_000}
    assert sum(nanos for _, nanos in found.values()) == month.priced.charges_minor * NANOS // 100


def history_of(queue: uuid.UUID) -> list[tuple[datetime, Any]]:
    return list(QueueTags.objects.filter(queue_uuid=queue).order_by("since").values_list("since", "tags"))


def test_database_keeps_the_history_with_every_change(account: str) -> None:
    queue = make_queue(account, "orders", team="red")
    made = history_of(queue)
    assert [tags for _, tags in made] == [{"team": "red"}] and made[0][0] == floor_hour(made[0][0])
    queues = Queue.objects.filter(uuid=queue)
    queues.update(tags={"team": "red"})
    queues.update(name="letters")
    assert history_of(queue) == made, "nothing changed"
    queues.update(tags={"team": "pink"})
    assert history_of(queue) == [(made[0][0], {"team": "pink"})], "in the hour in which it was made"
    long_ago = made[0][0] - 5 * HOUR
    queues.update(created_at=long_ago)
    QueueTags.objects.filter(queue_uuid=queue).update(since=long_ago)
    queues.update(tags={"team": "white"})
    queues.update(tags={"team": "blue"})
    after = history_of(queue)
    assert after[0] == (long_ago, {"team": "pink"}) and [tags for _, tags in after[1:]] == [{"team": "blue"}], (
        "one of an hour, the last"
    )
    now = clock.now()
    assert after[1][0] - now <= HOUR and after[1][0] == floor_hour(after[1][0]) and after[1][0] > now - HOUR


def test_queue_that_is_gone_keeps_its_tags(account: str) -> None:
    open_since(account)
    plan(account)
    queue = make_queue(account, "orders", team="red")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM queue WHERE uuid = %s", (queue,))
    settle_month([row(account, queue_uuid=queue, sent_units=1_100), row(account, queue_uuid=QUEUE, sent_units=1_000)])
    assert set(sums_by_team(issue_invoice(BILLING, account, PERIOD))) == {"", "red"}


def tags_asked(captured: CaptureQueriesContext) -> list[int]:
    """How many rows each statement gave that read the history of tags of many queues."""
    statements = [query["sql"] for query in captured if "min(t.tags::text)" in query["sql"]]
    counts = []
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            counts.append(len(cursor.fetchall()))
    return counts


def test_invoice_reads_tags_of_its_own_queues_alone_and_a_bounded_number_at_once(
    account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account has 5,000 queues, each with tags of 20 hours of before; 7 are used."""
    plan(account)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO queue_tags SELECT %s, lpad(to_hex(n), 32, '0')::uuid, %s - h * interval '1 hour', '{}'"
            " FROM generate_series(1, 5000) n, generate_series(1, 20) h",
            (account, MONTH),
        )
    settle_month([row(account, queue_uuid=uuid.UUID(int=number), sent_units=1_000) for number in range(1, 8)])
    monkeypatch.setattr(limits, "QUEUES_AT_ONCE_MAX", 3)
    with CaptureQueriesContext(connection) as captured:
        invoice = draft_invoice(account, PERIOD)
    assert invoice is not None and invoice.queue_lines.count() == 7
    assert tags_asked(captured) == [3, 3, 1]
    copies = [query["sql"] for query in captured if "COPY invoice_queue_line" in query["sql"]]
    assert len(copies) == 3, "no more lines are held than those of so many queues"


@pytest.mark.parametrize("seed", range(4))
def test_parts_from_days_and_hours_are_those_of_each_hour_alone(account: str, seed: int) -> None:
    """Of the month, of one that began within a day, and of a few hours."""
    chance = random.Random(seed)
    queues = [uuid.UUID(int=number) for number in range(1, 6)]
    tags_of: dict[uuid.UUID, list[tuple[int, str]]] = {}
    for queue in queues:
        hours = sorted({chance.choice((-30, chance.randrange(-50, 200), 24 * chance.randrange(8))) for _ in range(4)})
        tags_of[queue] = [(hour, chance.choice("abc")) for hour in hours]
        for hour, team in tags_of[queue]:
            tags_since(account, queue, month_hour(hour), team=team)
    used = {(queue, chance.randrange(200)): chance.randrange(1, 1_000) for queue in queues for _ in range(80)}
    settle_month([row(account, hour, queue_uuid=queue, sent_units=units) for (queue, hour), units in used.items()])

    def team_at(queue: uuid.UUID, hour: int) -> str:
        before = [team for since, team in tags_of[queue] if since <= hour]
        return before[-1] if before else tags_of[queue][0][1]

    for first, end in ((0, MONTH_HOURS), (37, MONTH_HOURS), (30, 45), (20, 70)):
        found = tag_history(account, Interval(month_hour(first), month_hour(end)), queues)
        for queue in queues:
            wanted: dict[str, int] = {}
            for (of, hour), units in sorted(used.items(), key=lambda one: one[0][1]):
                if of == queue and first <= hour < end:
                    wanted[team_at(queue, hour)] = wanted.get(team_at(queue, hour), 0) + units
            if queue in found.steady:
                assert set(wanted) <= {found.steady[queue]["team"]}
            else:
                parts = found.changed.get(queue, [])
                assert [(part.tags["team"], part.quantity(UsageMeter.SENT_UNITS)) for part in parts] == list(
                    wanted.items()
                )
