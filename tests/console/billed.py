"""An account with two months of usage and all that billing makes of it: for pictures and browser tests.

Runs within the installation: `manage.py shell -c "from tests.console.billed import bill; bill('shop')"`.
`bill_last_month` makes one invoice, of a young account.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from api import clock
from api.accounts.models import Account
from api.audit.actions import OPERATOR
from api.billing.actions.budgets import BudgetSpec, put_budget
from api.billing.actions.invoices import BILLING, correct_invoice, draft_invoice, issue_invoice
from api.billing.actions.parties import Party, name_buyer, name_seller
from api.billing.actions.payments import record_payment
from api.billing.actions.plans import add_plan_version, assign_plan, grant_credit
from api.billing.models import ProvisionalUsage, QueueTags
from api.billing.pricing.meters import BYTE_MS_PER_GIB_HOUR, PRICED_METERS
from api.billing.pricing.periods import DAY, HOUR, BillingPeriod, Interval, floor_hour, period_before, period_of
from api.billing.provisional import note_reading
from api.billing.selectors import invoice_for
from api.billing.settling import UsageRow, settle
from api.billing.work_notes import FailureSubject, Work, note_failure, note_round
from api.people.models import AccountLife
from api.queues.models import Queue

SHARES = {"orders": 9_000, "customer-events.fifo": 4_200, "search-index": 2_500, "webhooks": 700, "exports": 90}
FAILED = "BillingError: The settled usage of this month has a gap."


def bill(account_name: str) -> None:
    """Safe to call once an account."""
    account = Account.objects.get(name=account_name)
    now = clock.now()
    last = period_before(period_of(now))
    first = period_before(last)
    Account.objects.filter(pk=account.pk).update(created_at=first.start)
    AccountLife.objects.filter(account=account).update(state_since=first.start)
    account.refresh_from_db()
    prices = _prices()
    add_plan_version(OPERATOR, "house", "House prices", prices, None)
    assign_plan(OPERATOR, account.pk, "house", first.start, [{"name": "VAT", "rate_ppm": 190_000}])
    grant_credit(OPERATOR, account.pk, "Welcome", "USD", 2_500, None)
    queues = dict(Queue.objects.filter(account=account, name__in=SHARES).values_list("name", "uuid"))
    Queue.objects.filter(account=account, name__in=("orders", "webhooks")).update(tags={"team": "checkout"})
    # As if they had been tagged when they were made: usage of before today counts for the team.
    tagged = [queues[name] for name in ("orders", "webhooks") if name in queues]
    QueueTags.objects.filter(account_id=account.pk, queue_uuid__in=tagged).update(tags={"team": "checkout"})
    _settle(Interval(first.start, floor_hour(now)), account.pk, queues)
    lines = ["By bank transfer to IBAN AT00 1234 5678 9012 3456"]
    name_seller(OPERATOR, Party("Queues Ltd", ["Main Street 1", "1010 Vienna"], "VAT ATU12345678", lines, 14))
    name_buyer(OPERATOR, account.pk, Party("Shop AG", ["Harbour 7", "20457 Hamburg"], "VAT DE123456789"))
    for period in (first, last):
        issue_invoice(BILLING, account.pk, period)
    _correct(account.pk, first, queues)
    _pay(account.pk, first)
    draft_invoice(account.pk, period_of(now))
    _meter(account.pk, queues, now)
    put_budget(OPERATOR, account.pk, "All of it", BudgetSpec(6_000, [50, 80, 100], "stop", ["money@example.com"]))
    put_budget(OPERATOR, account.pk, "Orders", BudgetSpec(1_500, [50, 100], "alert", [], "orders"))
    note_round(Work.METER, 41, 1, "")
    note_round(Work.USAGE, 61_000, 1, "settle ended with 1: no space left on device")
    note_failure(Work.INVOICES, FailureSubject(f"{account.pk} {last.name}", account.pk, last.start), FAILED)


def bill_last_month(account_id: str, queue_name: str, sent: int) -> str:
    """As if the account had been opened a month ago and the messages had been sent then. The number of the invoice."""
    now = clock.now()
    last = period_before(period_of(now))
    Account.objects.filter(pk=account_id).update(created_at=last.start)
    AccountLife.objects.filter(account_id=account_id).update(state_since=last.start)
    code = f"house-{account_id}"
    add_plan_version(OPERATOR, code, "House prices", _prices(), None)
    assign_plan(OPERATOR, account_id, code, last.start, [{"name": "VAT", "rate_ppm": 190_000}])
    queue = Queue.objects.get(account_id=account_id, name=queue_name)
    rows = [_row(account_id, last.start + 12 * HOUR, queue.uuid, sent)]
    settle(uuid.uuid4(), Interval(last.start, floor_hour(now)), rows)
    invoice = issue_invoice(BILLING, account_id, last)
    assert invoice is not None and invoice.number is not None
    return invoice.number


def _prices() -> dict[str, object]:
    prices: dict[str, object] = {meter.value: {"included": True} for meter in PRICED_METERS}
    tiers = [{"up_to": 2_000_000, "price_nanos": 9_000, "per": 1}, {"up_to": None, "price_nanos": 6_000, "per": 1}]
    prices |= {"sent_units": {"free": 100_000, "tiers": tiers}, "delivered_units": {"free": 100_000, "tiers": tiers}}
    storage = {"up_to": None, "price_nanos": 400_000, "per": BYTE_MS_PER_GIB_HOUR}
    prices["stored_byte_ms"] = {"free": 0, "tiers": [storage]}
    return {"currency": "USD", "base_fee_minor": 500, "minimum_minor": 0, "prices": prices}


def _settle(span: Interval, account_id: str, queues: dict[str, uuid.UUID]) -> None:
    rows = []
    day = span.start
    while day < span.end:
        for name, queue_uuid in queues.items():
            for number, hour in enumerate((8, 12, 19)):
                at = day + hour * HOUR
                if at < span.end:
                    rows.append(_row(account_id, at, queue_uuid, SHARES[name] * (3 + (day.day * 7 + number) % 5) // 4))
        day += DAY
    rows.append(_row(account_id, span.end - HOUR, uuid.UUID(int=3), 1)._replace(messages_sent=-1))
    settle(uuid.uuid4(), span, rows)


def _row(account_id: str, at: datetime, queue_uuid: uuid.UUID, sent: int) -> UsageRow:
    return UsageRow(
        account_id, at, queue_uuid, 0, "cron" if at.hour == 19 else "client", messages_sent=sent,
        messages_delivered=sent, messages_deleted=sent, sent_bytes=sent * 900, delivered_bytes=sent * 900,
        sent_units=sent, delivered_units=sent, stored_byte_ms=sent * BYTE_MS_PER_GIB_HOUR // 3_000,
        requests=sent * 2, empty_receives=sent // 9,
    )  # fmt: skip


def _correct(account_id: str, period: BillingPeriod, queues: dict[str, uuid.UUID]) -> None:
    at = period.start + 8 * HOUR
    row = _row(account_id, at, queues["orders"], 1_000)
    settle(uuid.uuid4(), Interval(at, at + HOUR), [row])
    invoice = draft_invoice(account_id, period)
    assert invoice is not None
    correct_invoice(BILLING, account_id, invoice.pk, "An hour was counted twice")


def _pay(account_id: str, period: BillingPeriod) -> None:
    invoice = invoice_for(account_id, period)
    assert invoice is not None
    record_payment(OPERATOR, account_id, invoice.pk, invoice.due_minor, clock.now().date(), "Transfer 4711")


def _meter(account_id: str, queues: dict[str, uuid.UUID], now: datetime) -> None:
    for source in ("one/4", "aa/1/AKPSEXAMPLE1", "aa/1/AKPSEXAMPLE2"):
        sent = 0 if "/" in source.partition("/")[2] else 4_000
        ProvisionalUsage.objects.create(
            hour=floor_hour(now), account_id=account_id, queue_uuid=queues["orders"], source=source, origin="client",
            messages_sent=sent, sent_bytes=sent * 900, sent_units=sent, delivered_units=sent,
            requests=0 if sent else 3_210,
        )  # fmt: skip
    note_reading(now - timedelta(seconds=5), 40, now, "")
