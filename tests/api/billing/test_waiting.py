"""No account's billing waits for another one's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from smtplib import SMTPRecipientsRefused
from threading import Event
from typing import Any

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.db import connection

from api import clock
from api.audit.actions import OPERATOR
from api.billing import due, limits
from api.billing.actions import invoices
from api.billing.actions.budgets import BudgetSpec, put_budget
from api.billing.actions.invoices import draft_invoice
from api.billing.actions.plans import assign_plan
from api.billing.models import BudgetEvent, Invoice, SpendingBudget, WorkFailure
from api.billing.plan_reads import plans_of
from api.billing.settling import UsageRow
from tests.api.billing.test_budgets import spec, spend
from tests.api.billing.test_invoices import plan
from tests.api.billing.usage import NOW, QUEUE, open_since, settle_rows
from tests.support.control_plane import new_caller
from workers.billing import rounds
from workers.usage import meter_round


def opened(name: str) -> str:
    account_id = new_caller(name).account_id
    open_since(account_id)
    return account_id


@contextmanager
def draft_under_way(account_id: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of this month, while its usage is read; whoever waits here for a lock fails."""
    real, is_reading, may_go_on = invoices.month_of, Event(), Event()

    def slow(*given: Any) -> Any:
        is_reading.set()
        may_go_on.wait(30)
        return real(*given)

    monkeypatch.setattr(invoices, "month_of", slow)

    def draft() -> None:
        try:
            draft_invoice(account_id, NOW)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads, connection.cursor() as cursor:
        done = threads.submit(draft)
        assert is_reading.wait(30)
        cursor.execute("SET statement_timeout = '2s'")
        try:
            yield
        finally:
            may_go_on.set()
            done.result(30)
            cursor.execute("RESET statement_timeout")


@pytest.mark.django_db(transaction=True)
def test_draft_of_a_large_account_keeps_no_other_account_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """All drafts begin with the standard plan, and so do the pages of all accounts: where it is there, none locks it.
    A draft that held it while another piece of work held the account was a deadlock, too."""
    large, other = opened("large"), opened("other")
    plan(large)
    spend(large, 100)
    with draft_under_way(large, monkeypatch):
        assert [one["plan"] for one in plans_of(other)] == ["standard"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_first", [True, False])
def test_draft_keeps_no_change_of_its_account_waiting(monkeypatch: pytest.MonkeyPatch, is_first: bool) -> None:
    """Who creates a queue locks the account; a draft of 20,000 queues takes seconds, each hour."""
    large = opened("large")
    plan(large)
    spend(large, 100)
    if is_first:
        Invoice.objects.all().delete()
    with draft_under_way(large, monkeypatch):
        put_budget(OPERATOR, large, "b", spec())
    assert Invoice.objects.get().charges_minor == 100


@pytest.mark.django_db(transaction=True)
def test_draft_that_is_under_way_holds_no_second_thread_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker gives a round that takes long to another worker; each tick is another round."""
    large, other = opened("large"), opened("other")
    plan(large)
    spend(large, 100)
    settle_rows([UsageRow(one, NOW.start, QUEUE, 12, "client", sent_units=600) for one in (large, other)])
    with draft_under_way(large, monkeypatch):
        monkeypatch.undo()
        assert rounds.refresh_drafts() > 0 and not WorkFailure.objects.exists()
        assert set(Invoice.objects.filter(period_start=NOW.start).values_list("account_id", "charges_minor")) == {
            (large, 100), (other, 0),
        }  # fmt: skip
    assert Invoice.objects.get(account_id=large, period_start=NOW.start).charges_minor == 50


@pytest.fixture
def noisy_and_quiet(db: None, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The noisy one has more mails waiting than a round takes, all before the quiet one's."""
    monkeypatch.setattr(limits, "BUDGET_MAILS_AT_ONCE_MAX", 3)
    noisy, quiet = opened("noisy"), opened("quiet")
    plan(noisy)
    assign_plan(OPERATOR, quiet, "test", None, ())
    put_budget(OPERATOR, noisy, "b", BudgetSpec(10, [10, 20, 30, 40, 50], "alert", ["x@refused.example"]))
    spend(noisy, 100)
    put_budget(OPERATOR, quiet, "b", BudgetSpec(10, [50, 100], "alert", ["y@quiet.example"]))
    spend(quiet, 100)
    return noisy, quiet


def test_accounts_have_their_mails_by_turns(noisy_and_quiet: tuple[str, str]) -> None:
    noisy, quiet = noisy_and_quiet
    assert [(event.account_id, event.percent) for event in due.unmailed_events()] == [
        (noisy, 10), (quiet, 50), (noisy, 20),
    ]  # fmt: skip


def test_mails_that_no_server_takes_keep_no_other_waiting(
    noisy_and_quiet: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = EmailMessage.send

    def send(message: EmailMessage, fail_silently: bool = False) -> int:
        if "x@refused.example" in message.to:
            raise OSError("550 no such user")
        return real(message, fail_silently)

    monkeypatch.setattr(EmailMessage, "send", send)
    assert rounds.watch_budgets() == 1 and rounds.watch_budgets() == 1
    assert [message.to for message in mail.outbox] == [["y@quiet.example"]] * 2
    assert all(event.account_id == noisy_and_quiet[0] for event in due.unmailed_events())


def test_budgets_of_an_account_write_so_many_mails_an_hour(noisy_and_quiet: tuple[str, str]) -> None:
    """Each change of one that is used up begins its alerts again, to addresses that nobody has confirmed."""
    noisy, _ = noisy_and_quiet
    for number in range(8):
        put_budget(
            OPERATOR, noisy, "b", BudgetSpec(number, [10, 50], "alert", [f"{n}@victim.example" for n in range(10)])
        )
    events = BudgetEvent.objects.filter(account_id=noisy).order_by("pk")
    found = [(event.not_mailed, event.mailed_at is None) for event in events]
    # Five of before, to one address each; then eleven to ten each.
    assert found == [("", True)] * 16 + [("too many mails", False)] * 5
    BudgetEvent.objects.update(at=clock.now() - timedelta(hours=1))
    put_budget(OPERATOR, noisy, "b", BudgetSpec(1, [10], "alert", ["a@b.example"]))
    assert BudgetEvent.objects.latest("pk").not_mailed == ""


def test_mail_that_the_server_refuses_for_good_is_given_up(
    noisy_and_quiet: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"x@refused.example": (550, b"no such user"), "y@quiet.example": (450, b"later")}

    def refuse(message: EmailMessage, fail_silently: bool = False) -> int:
        raise SMTPRecipientsRefused({address: answers[address] for address in message.to})

    monkeypatch.setattr(EmailMessage, "send", refuse)
    for _ in range(3):
        rounds.watch_budgets()
    noisy, quiet = noisy_and_quiet
    assert [event.account_id for event in due.unmailed_events()] == [quiet, quiet]
    refused = BudgetEvent.objects.filter(account_id=noisy).values_list("not_mailed", flat=True)
    assert set(refused) == {"refused by the mail server"}


@pytest.mark.django_db
def test_account_whose_month_cannot_be_priced_keeps_no_other_budget_from_being_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accounts = {opened("one"), opened("two")}
    for account_id in accounts:
        put_budget(OPERATOR, account_id, "b", spec())
    assert SpendingBudget.objects.count() == 2
    judged: set[str] = set()

    def fail(account_id: str) -> int:
        judged.add(account_id)
        raise AssertionError("a month has one currency")

    monkeypatch.setattr(meter_round, "judge_budgets", fail)
    assert meter_round.judge_spending(accounts, lambda: False) == 0 and judged == accounts
