"""Pages of operators about money and background work, and that they are for no other person."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.console.browsing import Browser, queue_row

pytestmark = pytest.mark.django_db
BASE = "/console/operators/billing"
WORK = "/console/operators/background"


@pytest.fixture
def operator(db: None) -> Browser:
    from api.people.actions.console_links import make_operator_link

    browser = Browser()
    browser.open_link(make_operator_link())
    return browser


@pytest.fixture
def billed(ann: Browser) -> str:
    """The account has an issued invoice of two months ago, of 2.00 USD."""
    from api.billing.actions.invoices import BILLING, issue_invoice
    from tests.api.billing.test_invoices import plan
    from tests.api.billing.usage import PERIOD, open_since, row, settle_month

    open_since(ann.account_id)
    plan(ann.account_id)
    settle_month([row(ann.account_id, 5, sent_units=2_100), row(ann.account_id, 6, messages_sent=-1)])
    assert issue_invoice(BILLING, ann.account_id, PERIOD) is not None
    return ann.account_id


def text_of(operator: Browser, path: str) -> str:
    answer = operator.get(path)
    assert answer.status_code == 200, (path, answer.status_code)
    return str(answer.content.decode())


def month_name() -> str:
    from tests.api.billing.usage import PERIOD

    return PERIOD.name


def test_pages_and_changes_are_not_there_for_owners(ann: Browser, billed: str) -> None:
    from api.billing.models import BillingCredit, PricePlanVersion

    versions = PricePlanVersion.objects.count()
    for path in ("", "/accounts", f"/accounts/{billed}", "/settling", "/seller", "/plans", "/new-plan", "/plans/test"):
        assert ann.get(f"{BASE}{path}").status_code == 404, path
    assert ann.get(WORK).status_code == 404
    credit = {"what": "credit", "name": "Mine", "currency": "USD", "amount_minor": "99999"}
    payment = {"what": "pay", "invoice": "x", "amount": "", "received": "2026-01-01", "reference": "Mine"}
    for path, form in (
        (f"{BASE}/accounts/{billed}", credit),
        (f"{BASE}/accounts/{billed}", payment),
        (f"{BASE}/plans/test", {"what": "add", "terms": "{}"}),
        (f"{BASE}/new-plan", {"what": "add", "terms": "{}"}),
        (f"{WORK}/1/retry", {}),
        (f"{WORK}/queues/{billed}/orders/retry", {}),
    ):
        assert ann.post(path, form).status_code == 404, path
    assert not BillingCredit.objects.exists() and PricePlanVersion.objects.count() == versions


def test_months_show_what_is_issued_and_what_waits(operator: Browser, billed: str) -> None:
    from api import clock
    from api.billing.provisional import note_reading

    note_reading(None, 7, clock.now(), "Nodes 3 did not close their windows.")
    text = text_of(operator, BASE)
    assert "Issued" in text and "2.00 USD" in text and "Nodes 3 did not close" in text


def test_months_that_are_open_are_shown_with_the_reason_also_old_ones(operator: Browser, billed: str) -> None:
    from api import clock
    from api.billing.pricing.periods import Interval, floor_hour, period_before, period_of
    from api.billing.settling import UsageRow, settle
    from tests.api.billing.usage import QUEUE, open_since

    old = period_of(clock.now())
    for _ in range(6):
        old = period_before(old)
    assert f"<h2>{old.start:%B %Y}</h2>" not in text_of(operator, BASE)
    open_since(billed, old.start)
    used = UsageRow(billed, old.start, QUEUE, 12, "client", sent_units=1)
    settle(uuid.uuid4(), Interval(old.start, floor_hour(clock.now())), [used])
    section = text_of(operator, BASE).partition(f"<h2>{old.start:%B %Y}</h2>")[2].partition("</section>")[0]
    assert "Open: 1 to be issued by the next rounds." in section


def test_months_say_which_invoices_are_unpaid_and_how_much_is_due(operator: Browser, billed: str) -> None:
    from api import clock
    from api.audit.actions import OPERATOR
    from api.billing.actions.payments import record_payment
    from api.billing.models import Invoice
    from api.billing.operator_selectors import unpaid_invoices

    invoice = Invoice.objects.get(account_id=billed, state="issued")
    for cents, due in ((0, 200), (50, 150), (150, 0)):
        if cents:
            record_payment(OPERATOR, billed, invoice.pk, cents, clock.now().date(), f"p{cents}")
        found = unpaid_invoices()
        assert [(one.number, one.due_minor) for one in found] == ([(invoice.number, due)] if due else []), cents
        assert Invoice.objects.get(pk=invoice.pk).due_minor == due
        section = text_of(operator, BASE).partition("Unpaid invoices")[2].partition("</section>")[0]
        assert (str(invoice.number) in section) is (due > 0) and (f"/billing/accounts/{billed}" in section) is (due > 0)
    assert "Every invoice that was issued is paid" in text_of(operator, BASE)


def test_accounts_are_listed_by_charges_with_unusual_days(operator: Browser, billed: str) -> None:
    from api.billing.operator_selectors import unusual_accounts
    from tests.api.billing.usage import month_hour, row, settle_rows

    text = text_of(operator, f"{BASE}/accounts?period={month_name()}")
    assert billed in text and "2.00 USD" in text
    rows = [row(billed, 24 * day, queue_uuid=uuid.UUID(int=5), sent_units=1_000) for day in range(2, 9)]
    settle_rows([*rows, row(billed, 24 * 9, queue_uuid=uuid.UUID(int=5), sent_units=9_000)], 24, 240)
    found = unusual_accounts(month_hour(24 * 10))
    assert [(one.account_id, one.units, one.before) for one in found] == [(billed, 9_000, 1_000)]
    assert unusual_accounts(month_hour(24 * 9)) == [] and unusual_accounts(None) == []


def test_runs_and_records_that_are_not_billed_are_shown(operator: Browser, billed: str) -> None:
    from api.billing.models import UsageRunState
    from api.billing.settling import begin_run, note_run
    from tests.api.billing.usage import hours

    run = uuid.uuid4()
    begin_run(run, hours(0, 2))
    note_run(run, "settle ended with 1: no space left", UsageRunState.FAILED)
    text = text_of(operator, f"{BASE}/settling?period={month_name()}")
    assert "no space left" in text and "Failed" in text and "Done" in text
    assert "negative_counter" in text and "&#x27;messages_sent&#x27;: -1" in text


def test_invoice_is_corrected_by_a_note_with_a_reason(operator: Browser, billed: str) -> None:
    from api.billing.models import CreditNote, Invoice
    from tests.api.billing.usage import row, settle_rows

    path, found = f"{BASE}/accounts/{billed}", Invoice.objects.get(account_id=billed, state="issued")
    form = {"what": "correct", "invoice": str(found.pk), "reason": "counted twice"}
    assert b"nothing to correct" in follow(operator, path, form)
    settle_rows([row(billed, 5, sent_units=1_100)], 5, 1)
    assert operator.post(path, form | {"reason": " "}).status_code == 400
    assert operator.post(path, form | {"invoice": str(uuid.uuid4())}).status_code == 404
    assert b"a credit note" in follow(operator, path, form)
    note = CreditNote.objects.get()
    assert (note.total_minor, note.reason) == (100, "counted twice")


def test_usage_that_came_after_an_invoice_is_shown_with_the_note_that_corrects_it(
    operator: Browser, billed: str
) -> None:
    from api.billing.models import CreditNote, Invoice
    from tests.api.billing.usage import row, settle_rows
    from workers.billing import rounds

    found = Invoice.objects.get(account_id=billed, state="issued")
    assert "Usage after the invoice" not in text_of(operator, BASE)
    settle_rows([row(billed, 5, sent_units=1_100)], 5, 1)
    rounds.find_differences()
    section = text_of(operator, BASE).partition("Usage after the invoice")[2].partition("</section>")[0]
    assert str(found.number) in section and "-1.00 USD" in section and "Issue a credit note" in section
    path = f"{BASE}/accounts/{billed}"
    assert f'action="{path}"' in section and f'value="{found.pk}"' in section
    assert b"a credit note" in follow(operator, path, {"what": "correct", "invoice": str(found.pk), "reason": "late"})
    assert "Usage after the invoice" not in text_of(operator, BASE) and CreditNote.objects.count() == 1
    listed = text_of(operator, path)
    assert ">Credit note<" in listed and f"of {found.number}" in listed and CreditNote.objects.get().number in listed


def test_payment_is_recorded_and_seen_by_the_customer(operator: Browser, ann: Browser, billed: str) -> None:
    from api.billing.models import Invoice

    path, found = f"{BASE}/accounts/{billed}", Invoice.objects.get(account_id=billed, state="issued")
    page = ann.at(f"billing/invoices/{found.pk}")
    today = datetime.now(UTC).date().isoformat()
    form = {"what": "pay", "invoice": str(found.pk), "amount": "", "received": today, "reference": "<b>4711"}
    for wrong in ({"amount": "1,50"}, {"amount": "--1"}, {"received": "soon"}, {"reference": " "}, {"invoice": "x"}):
        assert operator.post(path, form | wrong).status_code == 400, wrong
    assert operator.post(path, form | {"invoice": str(uuid.uuid4())}).status_code == 404
    assert operator.post(path, form | {"amount": "2.01"}).status_code == 409
    assert ">Due</span>" in text_of(ann, page) and ">Due</span>" in text_of(ann, ann.at("billing/invoices"))
    assert f"{found.number} has 0.50 USD due".encode() in follow(operator, path, form | {"amount": "1.50"})
    assert operator.post(path, form).status_code == 409, "the same transfer"
    assert f"{found.number} is paid".encode() in follow(operator, path, form | {"reference": "4712"})
    text = text_of(ann, page)
    assert ">Paid</span>" in text and "&lt;b&gt;4711" in text and "1.50 USD" in text
    assert ">Paid</span>" in text_of(ann, ann.at("billing/invoices")) and ">Paid</span>" in text_of(operator, path)
    assert b"has 2.00 USD due" in follow(operator, path, form | {"amount": "-2.00", "reference": "back"})


def test_empty_amount_gives_nothing_back(operator: Browser, billed: str) -> None:
    """It is all that is due: of an invoice that a credit note left less than nothing of, that is nothing."""
    from api.billing.models import CreditNote, Invoice, InvoicePayment

    path, found = f"{BASE}/accounts/{billed}", Invoice.objects.get(account_id=billed, state="issued")
    today = datetime.now(UTC).date().isoformat()
    form = {"what": "pay", "invoice": str(found.pk), "amount": "", "received": today, "reference": "1"}
    assert operator.post(path, form).status_code == 302
    amounts = {"charges_minor": 50, "credits_minor": 0, "tax_minor": 0, "total_minor": 50}
    CreditNote.objects.create(
        invoice=found, number="PN-1", kind="credit", reason="x", issued_at=found.issued_at, **amounts
    )  # fmt: skip
    again = operator.post(path, form | {"reference": "2"})
    assert (again.status_code, InvoicePayment.objects.count()) == (409, 1) and b"Nothing of" in again.content
    assert operator.post(path, form | {"reference": "back", "amount": "-0.50"}).status_code == 302


def follow(operator: Browser, path: str, form: dict[str, str]) -> bytes:
    answer = operator.post(path, form)
    assert answer.status_code == 302, answer.content
    return bytes(operator.get(answer["Location"]).content)


def test_plan_is_given_and_credit_granted(operator: Browser, billed: str) -> None:
    from api.billing.models import AccountPlan, BillingCredit

    path = f"{BASE}/accounts/{billed}"
    assign = {"what": "assign", "code": "standard", "since": "2099-01-01T00:00", "taxes": "VAT=19\nCity=0.0005 %"}
    assert b"VAT 19 %, City 0.0005 %" in follow(operator, path, assign)
    row = AccountPlan.objects.get(account_id=billed, plan_id="standard")
    assert row.taxes == [{"name": "VAT", "rate_ppm": 190_000}, {"name": "City", "rate_ppm": 5}]
    assert 'value="withdraw"' in text_of(operator, path)
    withdrawn = follow(operator, path, {"what": "withdraw"})
    assert b"will not have the plan standard" in withdrawn and b'value="withdraw"' not in withdrawn
    assert operator.post(path, {"what": "withdraw"}).status_code == 400
    taxes = [{"taxes": one} for one in ("VAT", "VAT=x", "VAT=190000", "VAT=19.00001")]
    for wrong in (*taxes, {"since": "soon"}, {"since": "2000-01-01"}, {"code": "none"}, {"code": "a\0b"}):
        assert operator.post(path, assign | wrong).status_code == 400, wrong
    never = [{"since": f"{at}:00"} for at in ("0001-01-01T00:00", "9999-12-31T23:59:59-14", "0001-01-01T00:00+14")]
    for wrong in (*never, {"taxes": "V\0T=19"}):
        assert operator.post(path, assign | wrong).status_code == 400, wrong
    poison = {"what": "credit", "name": "Never", "currency": "USD", "amount_minor": "500"}
    for ends in ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00+14:00"):
        assert operator.post(path, poison | {"ends": ends}).status_code == 400, ends
    assert operator.get(path).status_code == 200
    # PostgreSQL takes no offset of 16 hours or more.
    assert operator.post(path, poison | {"ends": "2099-01-01T00:00+23:59"}).status_code == 302
    assert BillingCredit.objects.get().ends_at == datetime(2098, 12, 31, 0, 1, tzinfo=UTC)
    BillingCredit.objects.all().delete()
    credit = {"what": "credit", "name": "Sorry", "currency": "USD", "amount_minor": "500"}
    assert operator.post(path, credit | {"amount_minor": "5.0"}).status_code == 400
    assert b"no invoice uses it" not in follow(operator, path, credit)
    assert BillingCredit.objects.get(account_id=billed).amount_minor == 500
    said = b"No plan of the account is in EUR, but in USD: no invoice uses it."
    assert said in follow(operator, path, credit | {"currency": "EUR"})
    assert operator.post(path, {"what": "nothing"}).status_code == 404


def terms(**given: Any) -> str:
    from tests.api.billing.test_invoices import document

    return json.dumps(document(**given))


def test_terms_are_looked_at_on_a_month_before_they_are_added(operator: Browser, billed: str) -> None:
    from api.billing.models import PricePlanVersion

    path, before = f"{BASE}/plans/test", PricePlanVersion.objects.count()
    form = {"what": "preview", "terms": terms(price_nanos=3_000_000, base_fee_minor=700), "period": month_name()}
    text = operator.post(path, form).content.decode()
    assert billed in text and "2.00 USD" in text and "13.00 USD" in text and "11.00 USD" in text
    assert PricePlanVersion.objects.count() == before
    half_a_character = terms().replace('"sent_units"', '"\\ud800"')
    assert operator.post(path, form | {"terms": half_a_character}).status_code == 400
    for wrong in ({"terms": "{"}, {"terms": "{}"}, {"account": "000"}, {"account": "000\0"}, {"period": "1999-01"}):
        assert operator.post(path, form | wrong).status_code == 400, wrong
    add = form | {"what": "add", "since": "2099-01-01T00:00"}
    assert operator.post(path, add | {"since": "2000-01-01T00:00"}).status_code == 400
    assert operator.post(path, add).status_code == 302
    assert "Future" in text_of(operator, path) and PricePlanVersion.objects.count() == before + 1
    assert operator.post(path, add | {"terms": terms(price_nanos=7)}).status_code == 302
    assert PricePlanVersion.objects.count() == before + 1 and "is replaced" in text_of(operator, path)
    assert operator.post(path, {"what": "withdraw"}).status_code == 302
    assert "Future" not in text_of(operator, path) and PricePlanVersion.objects.count() == before
    assert operator.post(path, {"what": "withdraw"}).status_code == 400


def test_plan_of_a_code_that_is_taken_is_not_changed_by_the_form_of_a_new_one(operator: Browser, billed: str) -> None:
    from api.billing.models import PricePlan

    form = {"what": "add", "code": "test", "name": "Other", "terms": terms()}
    assert operator.post(f"{BASE}/new-plan", form).status_code == 409
    assert operator.post(f"{BASE}/new-plan", form | {"code": "house"}).status_code == 302
    assert set(PricePlan.objects.values_list("code", flat=True)) == {"standard", "test", "house"}


def test_who_came_by_a_link_is_told_the_command_of_another_one(operator: Browser) -> None:
    from api.people.actions.console_links import make_owner_link

    assert "./penstock console-link --operator<" in text_of(operator, "/console/again")
    visitor, link = Browser(), make_owner_link("linked")
    visitor.open_link(link.token, link.account_id)
    assert f"./penstock console-link --account {link.account_id}<" in text_of(visitor, "/console/again")


def test_change_of_prices_wants_a_recent_sign_in(operator: Browser, billed: str) -> None:
    from api import clock
    from api.billing.models import BillingCredit, PricePlan
    from api.people.models import PersonSession

    PersonSession.objects.update(authenticated_at=clock.now() - timedelta(hours=1))
    credit = {"what": "credit", "name": "Sorry", "currency": "USD", "amount_minor": "500"}
    plan = {"what": "add", "code": "house", "name": "House", "terms": terms()}
    for path, form in ((f"{BASE}/accounts/{billed}", credit), (f"{BASE}/new-plan", plan)):
        assert operator.post(path, form)["Location"].startswith("/console/again")
    assert not BillingCredit.objects.exists() and not PricePlan.objects.filter(code="house").exists()


# --- background work ---


def test_work_that_failed_is_shown_until_it_is_done(
    operator: Browser, billed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from api.billing.actions import invoices
    from api.billing.errors import BillingError
    from api.billing.models import WorkFailure
    from tests.api.billing.usage import row, settle_rows
    from workers.billing import rounds

    def fail(*given: Any, **__: Any) -> None:
        raise BillingError("over-limit", "the moon is full")

    settle_rows([row(billed, 2, sent_units=1)], 2, 1)
    with monkeypatch.context() as broken:
        broken.setattr(invoices, "draft_invoice", fail)
        broken.setattr("api.billing.due.stale_drafts", lambda now: [(billed, period())])
        assert rounds.refresh_drafts() == 0 and rounds.refresh_drafts() == 0
    failure = WorkFailure.objects.get()
    assert (failure.failures, failure.account_id) == (2, billed)
    text = text_of(operator, WORK)
    assert "the moon is full" in text and "Drafts of the month" in text
    with monkeypatch.context() as broken:
        broken.setattr("api.billing.retrying.draft_invoice", fail)
        assert operator.post(f"{WORK}/{failure.pk}/retry").status_code == 409
    assert operator.post(f"{WORK}/{failure.pk}/retry").status_code in (302, 409)
    assert operator.post(f"{WORK}/{failure.pk + 1}/retry").status_code == 404


def test_page_does_not_say_that_nothing_failed_beside_a_round_that_did(operator: Browser) -> None:
    from api.billing.work_notes import Work, note_round

    note_round(Work.USAGE, 5, 0, "")
    assert "Nothing failed in its last attempt" in text_of(operator, WORK)
    note_round(Work.USAGE, 5, 0, "the lake has an hour that cannot be read")
    text = text_of(operator, WORK)
    assert "cannot be read" in text and "which rounds fail" in text and "Nothing failed" not in text


@pytest.mark.parametrize(("of", "shown_with"), [("DRAFTS", "DRAFTS"), ("MAILS", "BUDGETS")])
def test_round_is_not_ok_beside_what_failed_in_it(operator: Browser, billed: str, of: str, shown_with: str) -> None:
    from api.billing.work_notes import FailureSubject, Work, note_failure, note_round

    note_round(Work[shown_with], 5, 7, "")
    note_round(Work.METER, 5, 7, "")
    assert text_of(operator, WORK).count(">OK<") == 2
    note_failure(Work[of], FailureSubject("x", billed), "the moon is full")
    text = text_of(operator, WORK)
    assert text.count(">OK<") == 1 and ">1 failed<" in text


def period() -> Any:
    from tests.api.billing.usage import PERIOD

    return PERIOD


def test_failure_goes_with_the_round_that_succeeds(billed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from api.billing.models import WorkFailure
    from api.billing.work_notes import FailureSubject, Work, note_failure
    from workers.billing import rounds

    note_failure(Work.DRAFTS, FailureSubject(f"{billed} {period().name}", billed, period().start), "x")
    monkeypatch.setattr("api.billing.due.stale_drafts", lambda now: [(billed, period())])
    assert rounds.refresh_drafts() == 1 and not WorkFailure.objects.exists()


def test_round_leaves_a_row_of_how_it_went(operator: Browser) -> None:
    from api.billing.models import WorkRound
    from workers.tasks import noted_round

    def fail() -> int:
        raise ValueError("no disk")

    noted_round("meter", lambda: 7)
    for _ in range(2):
        with pytest.raises(ValueError, match="no disk"):
            noted_round("drafts", fail)
    noted_round("usage", lambda: 0, lambda: "Java is missing")
    found = {row.work: (row.done, row.troubled_rounds, row.trouble) for row in WorkRound.objects.all()}
    assert found == {
        "meter": (7, 0, ""),
        "drafts": (0, 2, "ValueError: no disk"),
        "usage": (0, 1, "Java is missing"),
    }
    text = text_of(operator, WORK)
    assert "Java is missing" in text and "2 rounds" in text
    noted_round("drafts", lambda: 1)
    assert WorkRound.objects.get(work="drafts").troubled_rounds == 0


def test_queue_that_waits_is_tried_again_now(ann: Browser, operator: Browser) -> None:
    from api import clock
    from api.queues.models import Queue

    queue = queue_row(ann.account_id, "orders")
    later = clock.now() + timedelta(hours=1)
    Queue.objects.filter(pk=queue.pk).update(observed_generation=0, failures=9, last_error="E1", next_attempt_at=later)
    assert "E1" in text_of(operator, WORK)
    path = f"{WORK}/queues/{ann.account_id}/orders/retry"
    assert b"within seconds" in follow(operator, path, {})
    queue.refresh_from_db()
    assert queue.next_attempt_at <= clock.now()
    Queue.objects.filter(pk=queue.pk).update(claim=uuid.uuid4(), next_attempt_at=later)
    assert b"nothing left" in follow(operator, path, {})
    queue.refresh_from_db()
    assert queue.next_attempt_at == later
