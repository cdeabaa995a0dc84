"""Drafts, issued invoices, corrections. What is issued never changes, and is priced again to the same cents."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.utils import DatabaseError

from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.billing.account_month import recomputed
from api.billing.actions.invoices import BILLING, correct_invoice, draft_invoice, issue_invoice
from api.billing.actions.plans import add_plan_version, assign_plan, ensure_standard_plan, grant_credit
from api.billing.errors import BillingError
from api.billing.models import (
    AccountPlan,
    BillingCredit,
    CreditNote,
    Invoice,
    InvoiceKind,
    InvoiceQueueLine,
    InvoiceState,
    PricePlanVersion,
    QuarantinedUsage,
)
from api.billing.pricing.meters import PRICED_METERS
from api.billing.pricing.periods import HOUR, period_before, period_of
from api.billing.settling import UsageRow
from tests.api.billing.usage import (
    MONTH,
    MONTH_HOURS,
    PERIOD,
    QUEUE,
    forget_usage,
    month_hour,
    open_since,
    row,
    settle_month,
    settle_rows,
)

pytestmark = pytest.mark.django_db
OTHER = uuid.UUID(int=8)


def document(price_nanos: int = 1_000_000, **given: Any) -> dict[str, Any]:
    tier = {"up_to": None, "price_nanos": price_nanos, "per": 1}
    prices = {meter.value: {"included": True} for meter in PRICED_METERS}
    prices["sent_units"] = {"free": 100, "tiers": [tier]}  # type: ignore[dict-item]
    return {"currency": "USD", "base_fee_minor": 0, "minimum_minor": 0, "prices": prices, **given}


def plan(account: str, code: str = "test", since: datetime | None = None, taxes: Any = (), **given: Any) -> None:
    """Units beyond 100 cost 0.001 USD each unless `given` says otherwise."""
    add_plan_version(OPERATOR, code, "Test", document(**given), None)
    assign_plan(OPERATOR, account, code, since, taxes)


def units(account: str, *counts: int, queue: uuid.UUID = QUEUE) -> list[UsageRow]:
    return [row(account, hour, sent_units=count, queue_uuid=queue) for hour, count in enumerate(counts)]


def money(invoice: Any) -> tuple[int, int, int, int]:
    return invoice.charges_minor, invoice.credits_minor, invoice.tax_minor, invoice.total_minor


def issued(account: str) -> Invoice:
    invoice = issue_invoice(BILLING, account, PERIOD)
    assert invoice is not None and invoice.state == InvoiceState.ISSUED
    return invoice


def test_draft_is_made_again_and_says_up_to_where(account: str) -> None:
    plan(account)
    settle_rows(units(account, 10_100), 0, 5)
    first = draft_invoice(account, PERIOD)
    assert first is not None and (money(first), first.settled_up_to) == ((1000, 0, 0, 1000), month_hour(5))
    settle_rows([row(account, 5, sent_units=5_000)], 5, 2)
    second = draft_invoice(account, PERIOD)
    assert second is not None and (money(second)[3], second.settled_up_to) == (1500, month_hour(7))
    assert (second.pk, Invoice.objects.count(), second.state, second.number) == (first.pk, 1, "draft", None)
    assert sum(line.amount_minor for line in second.lines.all()) == second.total_minor
    # Of a queue's row by meter: one, although there were two hours.
    assert [(line.meter, int(line.amount_nanos)) for line in second.queue_lines.all()] == [
        ("sent_units", 15_000_000_000)
    ]


def test_month_that_has_not_begun_has_no_draft(account: str) -> None:
    plan(account)
    assert draft_invoice(account, period_of(datetime.now(UTC) + timedelta(days=32))) is None
    assert not Invoice.objects.exists()


def test_draft_that_was_made_while_a_merge_was_committed_is_stale(account: str) -> None:
    """The merge says when it ended before it is committed: a draft in between is younger, and does not know of it."""
    from api.billing.due import stale_drafts
    from api.billing.models import FillLedger

    at = PERIOD.end + timedelta(days=1)
    assert stale_drafts(at) == []
    settle_rows(units(account, 100), 0, 1)
    assert stale_drafts(at) == [(account, PERIOD)]
    draft = draft_invoice(account, PERIOD)
    assert draft is not None and stale_drafts(at) == []
    settle_rows([row(account, 1, sent_units=5_000)], 1, 1)
    FillLedger.objects.update(done_at=draft.made_at - timedelta(seconds=1))
    assert stale_drafts(at) == [(account, PERIOD)]
    draft_invoice(account, PERIOD)
    assert stale_drafts(at) == []


def test_month_is_issued_only_when_all_of_it_is_settled(account: str) -> None:
    settle_rows(units(account, 1), 0, MONTH_HOURS + 5)
    with pytest.raises(BillingError, match="settled up to"):
        issue_invoice(BILLING, account, PERIOD)
    settle_rows([], MONTH_HOURS + 5, 1)
    assert issued(account).number == f"PS-{MONTH:%Y%m}-000001"


def test_issuing_twice_is_issuing_once(account: str) -> None:
    settle_month(units(account, 1))
    first, second = issued(account), issued(account)
    assert (first.pk, first.issued_at) == (second.pk, second.issued_at)
    assert AuditEntry.objects.filter(action="invoice.issue").count() == 1


def test_numbers_of_a_month_have_no_gap(account: str) -> None:
    from tests.support.control_plane import new_caller

    other = new_caller("another").account_id
    open_since(other)
    settle_month(units(account, 1) + units(other, 1))
    with pytest.raises(RuntimeError), transaction.atomic():
        issued(account)
        raise RuntimeError("the process died before the commit")
    assert [issued(one).number for one in (other, account)] == [f"PS-{MONTH:%Y%m}-00000{n}" for n in (1, 2)]


def test_closed_month_is_priced_again_to_the_same_cents(account: str) -> None:
    """Although prices, plan, taxes, credits and queues have changed since."""
    plan(account, taxes=[{"name": "VAT", "rate_ppm": 190_000}], minimum_minor=50)
    grant_credit(OPERATOR, account, "hello", "USD", 300, None)
    settle_month(units(account, 4_133, 7_777) + units(account, 999, queue=OTHER))
    invoice = issued(account)
    assert money(invoice) == (1281, 300, 186, 1167)
    later = period_of(datetime.now(MONTH.tzinfo)).end
    add_plan_version(OPERATOR, "test", "Test", document(9_000_000), later)
    assign_plan(OPERATOR, account, "test", later, [{"name": "VAT", "rate_ppm": 500_000}])
    grant_credit(OPERATOR, account, "late", "USD", 800, None)
    again = recomputed(invoice).priced
    assert money(again) == money(invoice)
    lines = invoice.lines.order_by("position")
    stored = [(line.kind, line.meter, line.tier, int(line.quantity), line.amount_minor) for line in lines]
    assert stored == [
        (line.kind, line.meter or "", line.tier, line.quantity, line.amount_minor) for line in again.lines
    ]


def test_credit_is_used_once_over_the_months(account: str) -> None:
    before = period_before(PERIOD)
    open_since(account, before.start)
    plan(account)
    grant_credit(OPERATOR, account, "hello", "USD", 1500, None)
    rows = [row(account, -24, sent_units=10_100), row(account, 0, sent_units=10_100)]
    settle_rows(rows, -24 * 31, MONTH_HOURS + 24 * 31 + 6)
    first = issue_invoice(BILLING, account, before)
    second = issued(account)
    assert first is not None and (money(first), money(second)) == ((1000, 1000, 0, 0), (1000, 500, 0, 500))
    assert money(recomputed(first).priced) == money(first) and money(recomputed(second).priced) == money(second)


def test_credit_that_ended_before_the_month_gives_nothing(account: str) -> None:
    plan(account)
    old = grant_credit(OPERATOR, account, "old", "USD", 500, None)
    BillingCredit.objects.filter(pk=old.pk).update(ends_at=MONTH)
    grant_credit(OPERATOR, account, "foreign", "EUR", 500, None)
    settle_month(units(account, 10_100))
    assert money(issued(account)) == (1000, 0, 0, 1000)


def test_plan_that_changes_within_the_month_prices_each_span_by_its_own_terms(account: str) -> None:
    plan(account)
    middle = month_hour(MONTH_HOURS // 2)
    plan(account, "dear", middle, price_nanos=2_000_000)
    rows = [row(account, 0, sent_units=1050), row(account, MONTH_HOURS // 2, sent_units=1050)]
    settle_month(rows)
    invoice = issued(account)
    lines = invoice.lines.order_by("position")
    used = [(line.plan, line.tier, int(line.quantity), line.amount_minor) for line in lines]
    assert used == [("test@1", 0, 50, 0), ("test@1", 1, 1000, 100), ("dear@1", 0, 50, 0), ("dear@1", 1, 1000, 200)]


def test_numbers_go_on_after_a_million_invoices(account: str) -> None:
    settle_month(units(account, 1))
    made = draft_invoice(account, PERIOD)
    assert made is not None
    made.state, made.issued_at = InvoiceState.ISSUED, made.made_at
    for back, number in ((40, 999_999), (80, 1_000_000)):
        made.pk, made.period_start = uuid.uuid4(), MONTH - timedelta(days=back)
        made.number = f"PS-{MONTH:%Y%m}-{number}"
        made.save(force_insert=True)
    assert issued(account).number == f"PS-{MONTH:%Y%m}-1000001"


def test_plan_in_another_currency_begins_with_a_month(account: str) -> None:
    add_plan_version(OPERATOR, "euro", "Euro", document(currency="EUR"), None)
    with pytest.raises(BillingError, match="begins with a month"):
        assign_plan(OPERATOR, account, "euro", month_hour(5), [])
    plan(account, since=month_hour(10))
    with pytest.raises(BillingError, match="another currency within a month"):
        assign_plan(OPERATOR, account, "euro", MONTH, [])
    AccountPlan.objects.all().delete()
    assign_plan(OPERATOR, account, "euro", MONTH, [])
    settle_month(units(account, 10_100))
    assert issued(account).currency == "EUR"


def test_account_without_a_plan_has_the_standard_one(account: str) -> None:
    settle_month([row(account, sent_units=3_000_000, delivered_units=1_000_000, requests=10**9)])
    invoice = issued(account)
    assert (money(invoice)[3], {line.plan for line in invoice.lines.all()}) == (80, {"standard@1"})


def test_account_that_was_not_open_gets_no_invoice(account: str) -> None:
    open_since(account, PERIOD.end)
    settle_month(units(account, 1))
    assert issue_invoice(BILLING, account, PERIOD) is None


# --- final is final ---


def test_issued_invoice_and_its_lines_cannot_be_changed(account: str) -> None:
    settle_month(units(account, 5))
    settle_rows([row(account, queue_uuid=OTHER)._replace(hour=PERIOD.end, sent_units=1)], MONTH_HOURS, 1)
    invoice, other = issued(account), draft_invoice(account, period_of(PERIOD.end))
    assert other is not None and other.queue_lines.count() == 1
    changes = (
        lambda: Invoice.objects.filter(pk=invoice.pk).update(total_minor=1),
        lambda: Invoice.objects.filter(pk=invoice.pk).delete(),
        lambda: invoice.lines.update(amount_minor=1),
        lambda: invoice.lines.all().delete(),
        lambda: invoice.lines.create(position=99, kind="fee", plan="", text="", amount_minor=1),
        lambda: invoice.queue_lines.update(amount_nanos=1),
        lambda: invoice.queue_lines.all().delete(),
        lambda: invoice.queue_lines.create(queue_uuid=OTHER, meter="sent_bytes", amount_nanos=1),
        lambda: InvoiceQueueLine.objects.filter(invoice=other).update(invoice=invoice),
        lambda: InvoiceQueueLine.objects.filter(invoice=invoice).update(invoice=other),
    )
    for change in changes:
        with pytest.raises(DatabaseError, match="final"), transaction.atomic():
            change()
    draft = draft_invoice(account, PERIOD)
    assert draft is not None and draft.state == InvoiceState.ISSUED


def test_version_of_a_plan_that_is_in_effect_cannot_be_changed() -> None:
    ensure_standard_plan()
    ensure_standard_plan()
    version = PricePlanVersion.objects.get()
    for change in (lambda: PricePlanVersion.objects.update(number=2), version.delete):
        with pytest.raises(DatabaseError, match="final"), transaction.atomic():
            change()
    later = add_plan_version(OPERATOR, "standard", "Standard", document(), period_of(datetime.now(MONTH.tzinfo)).end)
    later.delete()


def test_later_version_begins_in_the_future_and_keeps_the_currency() -> None:
    add_plan_version(OPERATOR, "test", "Test", document(), None)
    coming = period_of(datetime.now(MONTH.tzinfo)).end
    within_this_hour = datetime.now(MONTH.tzinfo).replace(minute=59, second=59, microsecond=999_999)
    for wrong in (None, MONTH, within_this_hour):
        with pytest.raises(BillingError, match="still to come"):
            add_plan_version(OPERATOR, "test", "Test", document(), wrong)
    with pytest.raises(BillingError, match="2000 to 8999"):
        add_plan_version(OPERATOR, "test", "Test", document(), datetime(9_999, 12, 31, tzinfo=MONTH.tzinfo))
    with pytest.raises(BillingError, match="another plan"):
        add_plan_version(OPERATOR, "test", "Test", document(currency="EUR"), coming)
    assert add_plan_version(OPERATOR, "test", "Test", document(), coming).number == 2


def test_plan_without_a_price_is_refused_when_it_is_made() -> None:
    incomplete = document()
    del incomplete["prices"]["stored_byte_ms"]
    with pytest.raises(BillingError, match="nothing for stored_byte_ms"):
        add_plan_version(OPERATOR, "test", "Test", incomplete, None)


@pytest.mark.parametrize(
    "taxes",
    [
        [{"name": "VAT"}],
        [{"name": "VAT", "rate_ppm": -1}],
        [{"name": "", "rate_ppm": 1}],
        [{"name": "VAT", "rate_ppm": True}],
        [{"name": "VAT", "rate_ppm": 1}] * 6,
    ],
)
def test_taxes_that_make_no_sense_are_refused(account: str, taxes: list[dict[str, Any]]) -> None:
    ensure_standard_plan()
    with pytest.raises(BillingError):
        assign_plan(OPERATOR, account, "standard", None, taxes)


# --- bad input ---


def test_usage_without_a_price_is_quarantined_and_the_rest_is_billed(account: str) -> None:
    """A version that was made before a meter existed."""
    plan(account)
    incomplete = document()
    del incomplete["prices"]["messages_moved"]
    from api.billing.models import PricePlan

    old = PricePlan.objects.create(code="old", name="Old", created_at=MONTH)
    old.versions.create(number=1, effective_from=MONTH, terms=incomplete, created_at=MONTH)
    assign_plan(OPERATOR, account, "old", MONTH, [])
    settle_month([row(account, sent_units=10_100, messages_moved=7)])
    assert money(issued(account))[3] == 1000
    noted = QuarantinedUsage.objects.get()
    assert (noted.reason, noted.account_id, noted.resolved_at) == ("no_price", account, None)
    assert "messages_moved: 7" in noted.detail


def test_unpriced_usage_is_resolved_once_it_has_a_price(account: str) -> None:
    from api.billing.models import PricePlan

    incomplete = document()
    del incomplete["prices"]["messages_moved"]
    old = PricePlan.objects.create(code="old", name="Old", created_at=MONTH)
    old.versions.create(number=1, effective_from=MONTH, terms=incomplete, created_at=MONTH)
    assign_plan(OPERATOR, account, "old", MONTH, [])
    settle_rows([row(account, messages_moved=7)])
    draft_invoice(account, PERIOD)
    assert QuarantinedUsage.objects.get().resolved_at is None
    add_plan_version(OPERATOR, "new", "New", document(), None)
    assign_plan(OPERATOR, account, "new", MONTH, [])
    draft_invoice(account, PERIOD)
    assert QuarantinedUsage.objects.get().resolved_at is not None


# --- corrections ---


def test_usage_that_was_too_high_is_corrected_by_a_credit_note(account: str) -> None:
    plan(account, taxes=[{"name": "VAT", "rate_ppm": 200_000}])
    settle_month(units(account, 10_100))
    invoice = issued(account)
    assert correct_invoice(OPERATOR, account, invoice.pk, "nothing changed") is None
    settle_rows(units(account, 6_100))
    note = correct_invoice(OPERATOR, account, invoice.pk, "counted twice")
    assert note is not None and (note.kind, note.charges_minor, note.tax_minor, note.total_minor) == (
        "credit", 400, 80, 480,
    )  # fmt: skip
    assert note.differences == [{"meter": "sent_units", "quantity": -4000}]
    assert correct_invoice(OPERATOR, account, invoice.pk, "again") is None
    invoice.refresh_from_db()
    assert invoice.total_minor == 1200


def test_late_usage_is_corrected_by_a_debit_note_and_back_again(account: str) -> None:
    plan(account)
    settle_month(units(account, 10_100))
    invoice = issued(account)
    settle_rows([row(account, 3, sent_units=2_000)], 3, 1)
    late = correct_invoice(OPERATOR, account, invoice.pk, "late")
    assert late is not None and (late.kind, late.total_minor) == ("debit", 200)
    forget_usage()
    back = correct_invoice(OPERATOR, account, invoice.pk, "none of it")
    assert back is not None and (back.kind, back.total_minor) == ("credit", 1200)
    assert [note.number[-6:] for note in CreditNote.objects.order_by("number")] == ["000001", "000002"]
    with pytest.raises(DatabaseError, match="final"), transaction.atomic():
        CreditNote.objects.update(total_minor=0)


def test_credit_that_was_used_for_too_much_comes_back(account: str) -> None:
    plan(account)
    grant_credit(OPERATOR, account, "hello", "USD", 900, None)
    settle_month(units(account, 10_100))
    invoice = issued(account)
    assert money(invoice) == (1000, 900, 0, 100)
    settle_rows(units(account, 5_100))
    note = correct_invoice(OPERATOR, account, invoice.pk, "counted twice")
    assert note is not None and (note.charges_minor, note.credits_minor, note.total_minor) == (500, 400, 100)
    assert BillingCredit.objects.get(name__startswith="Returned").amount_minor == 400
    assert correct_invoice(OPERATOR, account, invoice.pk, "again") is None


def test_draft_is_not_corrected_and_neither_is_an_invoice_of_others(account: str) -> None:
    from tests.support.control_plane import new_caller

    settle_month(units(account, 1))
    draft = draft_invoice(account, PERIOD)
    assert draft is not None
    with pytest.raises(BillingError, match="nothing here"):
        correct_invoice(OPERATOR, account, draft.pk, "x")
    invoice = issued(account)
    with pytest.raises(BillingError, match="nothing here"):
        correct_invoice(OPERATOR, new_caller("another").account_id, invoice.pk, "x")


@pytest.mark.parametrize("reason", ["", "x" * 201, "two\nlines"])
def test_reason_that_no_note_can_have_is_refused(account: str, reason: str) -> None:
    settle_month(units(account, 1))
    with pytest.raises(BillingError, match="200 printable"):
        correct_invoice(OPERATOR, account, issued(account).pk, reason)


# --- closing an account ---


def close(account: str, at: datetime) -> None:
    from api.people.models import AccountLife, AccountState

    AccountLife.objects.create(account_id=account, title="t", state=AccountState.CLOSED, state_since=at)


def test_account_that_closes_gets_its_last_invoice_up_to_that_hour(account: str) -> None:
    plan(account, base_fee_minor=MONTH_HOURS * 10)
    close(account, month_hour(99) + HOUR / 2)
    settle_rows([row(account, 99, sent_units=10_100), row(account, 100, sent_units=77)], 0, 105)
    with pytest.raises(BillingError, match="settled"):
        issue_invoice(BILLING, account, PERIOD)
    settle_rows([], 105, 1)
    invoice = issued(account)
    assert (invoice.kind, invoice.open_end) == (InvoiceKind.CLOSING, month_hour(100))
    assert money(invoice)[3] == 1000 + 1000
    following = period_of(PERIOD.end)
    assert issue_invoice(BILLING, account, following) is None


def test_one_invoice_of_an_account_and_month(account: str) -> None:
    settle_month(units(account, 1))
    invoice = issued(account)
    invoice.pk, invoice.number = uuid.uuid4(), "PS-X"
    with pytest.raises(IntegrityError), transaction.atomic():
        invoice.save(force_insert=True)
