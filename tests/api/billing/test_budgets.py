"""Budgets alert once a level, stop and resume an account, and mail."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.core import mail
from django.core.management import CommandError, call_command

from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.billing.actions.budgets import BudgetSpec, delete_budget, judge_budgets, levels_reached, put_budget
from api.billing.actions.invoices import draft_invoice
from api.billing.errors import BillingError
from api.billing.limits import BILLING_INTERVAL_S
from api.billing.models import BudgetEvent, SpendingBudget, SpendingEffect
from api.billing.pricing.periods import BillingPeriod
from api.billing.selectors import effects_in_force
from api.billing.settling import UsageRow
from api.billing.work_notes import FailureSubject, Work
from api.models import FeedChange
from api.queues.models import Queue
from api.quotas.actions import resume_sending, stop_sending
from api.quotas.selectors import holder_of
from api.settings.environment import BILLING_INTERVAL, billing_interval_s
from api.settings.server_urls import SettingsError
from tests.api.billing.test_invoices import plan
from tests.api.billing.usage import NOW, QUEUE, forget_usage, make_queue, open_since, settle_rows
from tests.support.control_plane import Caller, new_caller
from workers.billing import rounds

pytestmark = pytest.mark.django_db


def spend(account: str, cents: int, queue: uuid.UUID = QUEUE) -> None:
    """So much in all of this month, on a plan of 0.001 USD a unit."""
    used = UsageRow(account, NOW.start, queue, 12, "client", sent_units=100 + 10 * cents)
    settle_rows([used])
    draft_invoice(account, NOW)


def spec(limit_minor: int = 1000, **given: Any) -> BudgetSpec:
    return BudgetSpec(limit_minor, [50, 100], "alert", [])._replace(**given)


def events(account: str) -> list[tuple[str, int, int]]:
    rows = BudgetEvent.objects.filter(account_id=account).order_by("id")
    return [(event.kind, event.percent, event.spent_minor) for event in rows]


def stop_reason(account: str) -> str:
    """What senders of the account are told; empty: it may send."""
    holder = holder_of(account)
    return "" if holder is None else holder.sending_stopped


def announced(account: str) -> int:
    return FeedChange.objects.filter(kind="account", key=account).count()


def test_level_alerts_once_and_the_next_one_again(account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "all", spec())
    spend(account, 499)
    assert events(account) == []
    spend(account, 500)
    assert events(account) == [("alert", 50, 500)] and judge_budgets(account) == 0
    spend(account, 1200)
    assert events(account) == [("alert", 50, 500), ("alert", 100, 1200)]
    assert not SpendingEffect.objects.exists()


def test_budget_that_is_used_up_stops_the_account_through_the_change_feed(account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "cap", spec(effect="stop", alert_percents=[]))
    before = announced(account)
    spend(account, 1000)
    judge_budgets(account)
    judge_budgets(account)
    assert events(account) == [("stop", 100, 1000)]
    assert SpendingEffect.objects.get().budget.name == "cap" and announced(account) == before + 1
    assert AuditEntry.objects.filter(action="account.stop_sending").count() == 1


def test_what_goes_beyond_a_budget_that_stops_is_reported(caller: Caller, account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "cap", spec(effect="stop", alert_percents=[100]))
    spend(account, 1003)
    over = [(event.kind, event.over_minor) for event in BudgetEvent.objects.order_by("id")]
    assert over == [("alert", 0), ("stop", 3)]
    spend(account, 1040)  # what was sent until front ends heard of the stop
    spend(account, 1039)  # a recount
    shown = caller.request("GET", "/v1/billing/budget-events").json()["events"]
    assert [(one["kind"], one["spent_minor"], one["over_minor"]) for one in shown] == [
        ("stop", 1003, 40), ("alert", 1003, 0),
    ]  # fmt: skip
    put_budget(OPERATOR, account, "cap", spec(2000, effect="stop"))
    spend(account, 1500)
    assert BudgetEvent.objects.get(kind="stop").over_minor == 40, "that limit's"


def test_trail_has_what_a_budget_was(account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "cap", spec(effect="stop"))
    put_budget(OPERATOR, account, "cap", spec(effect="alert"))
    assert delete_budget(OPERATOR, account, "cap")
    made, changed, ended = AuditEntry.objects.filter(subject="budget:cap").order_by("pk")
    assert "before" not in made.details and made.details["effect"] == "stop"
    assert (changed.details["before"]["effect"], changed.details["effect"]) == ("stop", "alert")
    assert changed.details["before"]["limit_minor"] == made.details["limit_minor"]
    assert ended.details["before"]["mail_to"] == changed.details["mail_to"]


def test_raised_budget_lets_the_account_send_and_alerts_again(account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "cap", spec(effect="stop"))
    spend(account, 1000)
    judge_budgets(account)
    before = announced(account)
    put_budget(OPERATOR, account, "cap", spec(1800, effect="stop"))
    assert not SpendingEffect.objects.exists() and announced(account) == before + 1
    assert events(account)[-2:] == [("alert", 50, 1000), ("resume", 0, 0)]
    put_budget(OPERATOR, account, "cap", spec(900, effect="stop"))
    assert SpendingEffect.objects.exists()
    assert delete_budget(OPERATOR, account, "cap") and not SpendingEffect.objects.exists()
    assert not delete_budget(OPERATOR, account, "cap")
    assert BudgetEvent.objects.filter(budget=None).count() == len(events(account)), "events outlive their budget"


def test_events_name_the_currency_of_the_account(account: str) -> None:
    plan(account, currency="EUR")
    put_budget(OPERATOR, account, "cap", spec(effect="stop"))
    spend(account, 1000)
    judge_budgets(account)
    put_budget(OPERATOR, account, "cap", spec(5000, effect="stop"))
    events = BudgetEvent.objects.order_by("id").values_list("kind", "currency")
    assert list(events) == [("alert", "EUR"), ("alert", "EUR"), ("stop", "EUR"), ("resume", "EUR")]


def test_stop_passes_to_another_budget_that_is_used_up_and_ends_with_that_one(account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "first", spec(effect="stop"))
    put_budget(OPERATOR, account, "second", spec(effect="stop"))
    spend(account, 1000)
    judge_budgets(account)
    assert "first" in stop_reason(account)
    delete_budget(OPERATOR, account, "first")
    assert SpendingEffect.objects.get().budget.name == "second" and "second" in stop_reason(account)
    delete_budget(OPERATOR, account, "second")
    assert not SpendingEffect.objects.exists() and stop_reason(account) == ""


def test_stop_of_an_operator_outlasts_that_of_a_budget(account: str) -> None:
    plan(account)
    stop_sending(OPERATOR, account, "abuse")
    put_budget(OPERATOR, account, "cap", spec(effect="stop"))
    spend(account, 1000)
    judge_budgets(account)
    assert SpendingEffect.objects.exists() and stop_reason(account) == "abuse"
    delete_budget(OPERATOR, account, "cap")
    assert stop_reason(account) == "abuse"


def test_stop_that_an_operator_lifts_is_shown_as_in_force_no_more(account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "cap", spec(effect="stop"))
    spend(account, 1000)
    judge_budgets(account)
    assert [one.budget.name for one in effects_in_force(account)] == ["cap"]
    resume_sending(OPERATOR, account)
    judge_budgets(account)
    assert stop_reason(account) == "" and effects_in_force(account) == []
    put_budget(OPERATOR, account, "cap", spec(effect="throttle"))
    assert [one.effect for one in effects_in_force(account)] == ["throttle"]


def test_stop_that_an_operator_lifts_holds_again_when_the_budget_changes(account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "cap", spec(effect="stop"))
    spend(account, 2000)
    judge_budgets(account)
    resume_sending(OPERATOR, account)
    put_budget(OPERATOR, account, "cap", spec(1500, effect="stop"))
    assert "cap" in stop_reason(account) and [one.budget.name for one in effects_in_force(account)] == ["cap"]


def test_stop_that_an_operator_lifts_holds_again_for_a_budget_that_is_used_up_later(account: str) -> None:
    plan(account)
    for name, limit_minor in (("first", 1000), ("second", 1500), ("third", 3000)):
        put_budget(OPERATOR, account, name, spec(limit_minor, effect="stop"))
    spend(account, 2000)
    judge_budgets(account)
    resume_sending(OPERATOR, account)
    judge_budgets(account)
    delete_budget(OPERATOR, account, "first")
    assert stop_reason(account) == "", "the second one was used up, too, when the stop was lifted"
    spend(account, 3000)
    judge_budgets(account)
    assert "third" in stop_reason(account) and SpendingEffect.objects.get().budget.name == "third"
    delete_budget(OPERATOR, account, "third")
    assert "second" in stop_reason(account)


def test_stop_that_an_operator_lifts_holds_again_in_the_next_month(account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "cap", spec(effect="stop"))
    spend(account, 1000)
    judge_budgets(account)
    resume_sending(OPERATOR, account)
    for model in (SpendingEffect, BudgetEvent):
        model.objects.update(period_start=NOW.start.replace(year=NOW.start.year - 1))
    judge_budgets(account)
    assert "cap" in stop_reason(account) and SpendingEffect.objects.get().period_start == NOW.start


def test_stop_of_an_operator_stays_when_a_lifted_budget_changes(account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "cap", spec(effect="stop"))
    spend(account, 2000)
    judge_budgets(account)
    resume_sending(OPERATOR, account)
    stop_sending(OPERATOR, account, "abuse")
    put_budget(OPERATOR, account, "cap", spec(1500, effect="stop"))
    assert stop_reason(account) == "abuse"


def test_budget_that_is_used_up_in_the_next_month_too_keeps_its_stop(account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "cap", spec(effect="stop"))
    spend(account, 1000)
    SpendingEffect.objects.update(period_start=NOW.start.replace(year=NOW.start.year - 1))
    judge_budgets(account)
    assert SpendingEffect.objects.get().period_start == NOW.start, "else each look would find it again"


def test_new_month_lets_the_account_send(account: str) -> None:
    plan(account)
    put_budget(OPERATOR, account, "cap", spec(effect="stop"))
    spend(account, 1000)
    judge_budgets(account)
    assert rounds.watch_budgets() == 0
    SpendingEffect.objects.update(period_start=NOW.start.replace(year=NOW.start.year - 1))
    # Nothing was used in this month: the stop is of one that is over.
    forget_usage()
    assert rounds.watch_budgets() == 1 and not SpendingEffect.objects.exists()


def test_minimum_that_is_not_reached_yet_is_not_spent(account: str) -> None:
    plan(account, minimum_minor=5000)
    put_budget(OPERATOR, account, "cap", spec(effect="stop"))
    spend(account, 10)
    judge_budgets(account)
    assert events(account) == []


def test_budget_of_a_queue_counts_that_queue_alone(account: str) -> None:
    plan(account)
    orders = make_queue(account, "orders")
    put_budget(OPERATOR, account, "orders", spec(100, queue_name="orders"))
    spend(account, 5000)
    assert events(account) == []
    spend(account, 80, orders)
    judge_budgets(account)
    assert [event[:2] for event in events(account)] == [("alert", 50)]


def test_budget_of_a_name_is_that_of_the_queue_that_has_it(account: str) -> None:
    """A queue that was restored is older than the one of its name that was made and deleted between."""
    restored, between = make_queue(account, "orders"), make_queue(account, "dead")
    Queue.objects.filter(uuid=between).update(name="orders", state="kept", deleted_at=NOW.start, kept_until=NOW.start)
    put_budget(OPERATOR, account, "orders", spec(queue_name="orders"))
    assert SpendingBudget.objects.get().queue_uuid == restored
    Queue.objects.filter(uuid=restored).update(state="deleted", deleted_at=NOW.end)
    put_budget(OPERATOR, account, "orders", spec(queue_name="orders"))
    assert SpendingBudget.objects.get().queue_uuid == restored, "of several that are gone the one that went last"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("", {}),
        ("a/b", {}),
        ("x" * 81, {}),
        ("x", {"limit_minor": -1}),
        ("x", {"alert_percents": [0]}),
        ("x", {"alert_percents": [1001]}),
        ("x", {"alert_percents": list(range(1, 12))}),
        ("x", {"mail_to": ["nobody"]}),
        ("x", {"mail_to": ["a@example.com"] * 11}),
        ("x", {"queue_name": "absent"}),
        ("x", {"effect": "pause"}),
    ],
)
def test_budget_that_makes_no_sense_is_refused(account: str, name: str, given: dict[str, Any]) -> None:
    with pytest.raises(BillingError):
        put_budget(OPERATOR, account, name, spec()._replace(**given))
    assert not SpendingBudget.objects.exists()


def test_account_has_a_bounded_number_of_budgets(account: str) -> None:
    for number in range(20):
        put_budget(OPERATOR, account, f"b{number}", spec())
    put_budget(OPERATOR, account, "b0", spec())
    with pytest.raises(BillingError, match="at most 20"):
        put_budget(OPERATOR, account, "b20", spec())


def test_each_event_is_mailed_once_and_a_mail_that_fails_is_tried_again(
    account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(account)
    put_budget(OPERATOR, account, "cap", spec(effect="stop", mail_to=["Ann@Example.com"]))
    spend(account, 700)
    judge_budgets(account)
    from django.core.mail import EmailMessage

    def refuse(self: object) -> None:
        raise OSError("no mail server")

    with monkeypatch.context() as away:
        away.setattr(EmailMessage, "send", refuse)
        assert rounds.watch_budgets() == 0
    assert rounds.watch_budgets() == 1 and rounds.watch_budgets() == 0
    spend(account, 1001)
    judge_budgets(account)
    rounds.watch_budgets()
    assert [(one.to, one.subject) for one in mail.outbox] == [
        (["ann@example.com"], "Budget cap: 50 % are reached"),
        (["ann@example.com"], "Budget cap: 100 % are reached"),
        (["ann@example.com"], "Budget cap is used up: sending is stopped"),
    ]
    assert "USD 10.01 of USD 10.00" in mail.outbox[-1].body


@pytest.mark.parametrize(
    ("limit", "spent", "reached"),
    [(1000, 499, []), (1000, 500, [50]), (1000, 1000, [50, 100]), (0, 0, []), (0, 1, [50, 100])],
)
def test_levels(limit: int, spent: int, reached: list[int]) -> None:
    assert levels_reached(limit, spent * 10**7, 10**7, [100, 50, 50]) == reached


# --- rounds of the schedule ---


def test_rounds_draft_then_issue_and_find_nothing_more(account: str) -> None:
    from api.billing.models import Invoice
    from tests.api.billing.usage import MONTH, row, settle_month

    open_since(account, MONTH)
    plan(account)
    settle_month([row(account, sent_units=10_100)])
    assert rounds.refresh_drafts() >= 1 and rounds.refresh_drafts() == 0
    assert {invoice.state for invoice in Invoice.objects.all()} == {"draft"}
    assert rounds.issue_months() == 1 and rounds.issue_months() == 0
    invoice = Invoice.objects.get(state="issued")
    assert invoice.total_minor == 1000
    settle_rows([row(account, 3, sent_units=1)], 3, 1)
    rounds.refresh_drafts()
    invoice.refresh_from_db()
    assert invoice.total_minor == 1000, "late usage is a correction's"


def test_round_leaves_months_that_are_not_settled(account: str) -> None:
    from tests.api.billing.usage import row

    settle_rows([row(account, sent_units=10_100)], 0, 20)
    assert rounds.issue_months() == 0


def test_account_that_fails_keeps_no_other_from_its_invoice(account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from api.billing.actions import invoices
    from tests.api.billing.usage import row, settle_month

    other = new_caller("another").account_id
    open_since(other)
    settle_month([row(account, sent_units=1), row(other, sent_units=1)])
    real = invoices.issue_invoice

    def one_fails(actor: Any, account_id: str, period: BillingPeriod) -> Any:
        if account_id == account:
            raise RuntimeError("a bug")
        return real(actor, account_id, period)

    monkeypatch.setattr(invoices, "issue_invoice", one_fails)
    assert rounds.issue_months() == 1


def test_schedule_names_tasks_that_exist_and_work_in_their_own_queue() -> None:
    from workers.application import app

    app.loader.import_default_modules()
    ours = [entry for name, entry in app.conf.beat_schedule.items() if name.startswith("billing_")]
    assert len(ours) == 4 and all(entry["task"] in app.tasks for entry in ours)
    assert {app.amqp.router.route({}, entry["task"])["queue"].name for entry in ours} == {"billing"}


def test_interval_of_drafts_and_budgets_is_named_and_what_is_no_interval_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(BILLING_INTERVAL, raising=False)
    assert billing_interval_s() == BILLING_INTERVAL_S
    monkeypatch.setenv(BILLING_INTERVAL, "2")
    assert billing_interval_s() == 2
    for wrong in ("1", "3601", "-5", "60 s", "1e1", "²"):
        monkeypatch.setenv(BILLING_INTERVAL, wrong)
        with pytest.raises(SettingsError, match=BILLING_INTERVAL):
            billing_interval_s()


def test_round_ends_before_the_next_tick_where_ticks_come_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BILLING_INTERVAL, "2")
    now_s = iter([0.0, 1.9, 2.1])
    monkeypatch.setattr(rounds, "monotonic", lambda: next(now_s))
    done: list[int] = []
    found = rounds._each(Work.MAILS, [1, 2, 3], done.append, lambda number: FailureSubject(str(number)))
    assert found == 1 and done == [1]


def test_amount_that_no_row_holds_stops_all_the_same(account: str) -> None:
    """The price of a unit is a million times too high: the account has no draft, and its budget is used up."""
    plan(account, price_nanos=10**15)
    put_budget(OPERATOR, account, "cap", spec(effect="stop"))
    settle_rows([UsageRow(account, NOW.start, QUEUE, 12, "client", sent_units=10**12)])
    with pytest.raises(BillingError, match="more than an invoice holds"):
        draft_invoice(account, NOW)
    assert judge_budgets(account) == 3 and stop_reason(account)
    assert events(account)[0] == ("alert", 50, 2**63 - 1)
    put_budget(OPERATOR, account, "cap", spec(effect="throttle"))
    with pytest.raises(CommandError, match="more than an invoice holds"):
        call_command("billing_report", "invoice", "--account=tests", f"--period={NOW.name}")
