"""Budgets that are used up throttle or stop an account or a queue, as front ends hear it."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.core import mail
from django.core.management import call_command

from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.billing.actions.budget_effects import lift_stop
from api.billing.actions.budgets import BudgetSpec, delete_budget, judge_budgets, put_budget
from api.billing.limits import THROTTLED_SENDS_PER_S
from api.billing.models import BudgetEvent, SpendingEffect
from api.models import FeedChange
from api.queues.actions import create_queue, delete_queue
from api.queues.models import Queue
from api.quotas.actions import resume_sending, stop_sending
from api.quotas.models import QueueSending
from frontend.metadata.records import RecordKind
from tests.api.billing.test_budgets import spend
from tests.api.billing.test_invoices import plan
from tests.api.billing.usage import NOW, forget_usage, open_since
from tests.api.test_single_quotas import record_of
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage
from workers.billing import rounds

pytestmark = pytest.mark.django_db(transaction=True)
USED_UP = "The budget cap of this month is used up."
SLOW = THROTTLED_SENDS_PER_S


@pytest.fixture
def shop(transactional_db: None, storage: ScriptedStorage) -> Iterator[Caller]:
    found = new_caller()
    open_since(found.account_id)
    for name in ("orders", "mails"):
        create_queue(OPERATOR, found.account_id, name, {}, {})
    plan(found.account_id)
    yield found


def put(shop: Caller, effect: str, queue: str = "", limit_minor: int = 1000, name: str = "cap", **more: Any) -> None:
    spec = BudgetSpec(limit_minor, [], effect, [], queue)._replace(**more)
    put_budget(OPERATOR, shop.account_id, name, spec)


def use(shop: Caller, cents: int = 1000, queue: str = "orders") -> None:
    spend(shop.account_id, cents, uuid_of(shop, queue))
    judge_budgets(shop.account_id)


def uuid_of(shop: Caller, name: str) -> uuid.UUID:
    return Queue.objects.get(account_id=shop.account_id, name=name).uuid


def of_account(shop: Caller) -> tuple[str, int]:
    """What front ends hear of the account's sends."""
    record = record_of(RecordKind.ACCOUNT, shop.account_id)
    return record.sending_stopped, record.sends_per_s


def of_queue(shop: Caller, name: str = "orders") -> tuple[str, int]:
    record = record_of(RecordKind.QUEUE, f"{shop.account_id}/{name}")
    return record.sending_stopped, record.sends_per_s


def trail(shop: Caller, verbs: str) -> list[tuple[str, str]]:
    rows = AuditEntry.objects.filter(account_id=shop.account_id, action__regex=verbs).order_by("pk")
    return list(rows.values_list("action", "subject"))


def in_force(shop: Caller) -> list[tuple[str, bool, str]]:
    shown = shop.request("GET", "/v1/billing/budgets").json()["in_force"]
    return [(one["budget"], one["queue_uuid"] is not None, one["effect"]) for one in shown]


@pytest.mark.parametrize(("effect", "told"), [("stop", (USED_UP, 0)), ("throttle", ("", SLOW))])
def test_queue_is_held_through_the_change_feed_and_no_other_one(
    shop: Caller, effect: str, told: tuple[str, int]
) -> None:
    put(shop, effect, "orders")
    use(shop, 999)
    assert of_queue(shop) == ("", 0)
    changes = FeedChange.objects.filter(kind="queue", key=f"{shop.account_id}/orders")
    before, version = changes.count(), record_of(RecordKind.QUEUE, f"{shop.account_id}/orders").version
    use(shop)
    judge_budgets(shop.account_id)
    assert of_queue(shop) == told
    assert changes.count() == before + 1, "once"
    assert changes.order_by("-version")[0].version == record_of(RecordKind.QUEUE, f"{shop.account_id}/orders").version
    assert record_of(RecordKind.QUEUE, f"{shop.account_id}/orders").version > version
    assert of_queue(shop, "mails") == ("", 0) and of_account(shop) == ("", 0)
    assert in_force(shop) == [("cap", True, effect)]
    assert shop.request("GET", "/v1/billing/budgets").json()["sending_stopped"] is False
    shown = shop.request("GET", "/v1/queues/orders/quotas").json()
    assert (shown["sending_stopped"] or "", shown["sends_per_s"] or 0) == told
    assert trail(shop, "^queue.*_sending$") == [(f"queue.{effect}_sending", "queue:orders")]


def test_usage_of_another_queue_holds_nothing(shop: Caller) -> None:
    put(shop, "stop", "orders")
    use(shop, 5000, "mails")
    assert of_queue(shop) == of_queue(shop, "mails") == ("", 0)


def test_account_is_throttled_through_the_change_feed(shop: Caller) -> None:
    put(shop, "throttle")
    changes = FeedChange.objects.filter(kind="account", key=shop.account_id)
    before = changes.count()
    use(shop)
    judge_budgets(shop.account_id)
    assert of_account(shop) == ("", SLOW) and of_queue(shop) == ("", 0)
    assert changes.count() == before + 1 and in_force(shop) == [("cap", False, "throttle")]
    assert trail(shop, "(throttle|stop)") == [
        ("account.throttle_sending", f"account:{shop.account_id}"),
        ("sending.throttle", f"account:{shop.account_id}"),
    ]
    assert shop.request("GET", "/v1/quotas").json()["sends_per_s"] == SLOW


@pytest.mark.parametrize("queue", ["", "orders"])
@pytest.mark.parametrize("effect", ["stop", "throttle"])
def test_budget_that_is_raised_changed_deleted_or_of_a_month_that_is_over_holds_nothing(
    shop: Caller, effect: str, queue: str
) -> None:
    held = of_queue if queue else of_account
    put(shop, effect, queue)
    use(shop)
    assert held(shop) != ("", 0)
    put(shop, effect, queue, 2000)
    assert held(shop) == ("", 0)
    put(shop, effect, queue)
    assert held(shop) != ("", 0)
    put(shop, "alert", queue)
    assert held(shop) == ("", 0)
    put(shop, effect, queue)
    assert held(shop) != ("", 0)
    assert delete_budget(OPERATOR, shop.account_id, "cap")
    assert held(shop) == ("", 0)
    put(shop, effect, queue)
    SpendingEffect.objects.update(period_start=NOW.start.replace(year=NOW.start.year - 1))
    forget_usage()
    assert rounds.watch_budgets() == 1 and held(shop) == ("", 0)
    assert not SpendingEffect.objects.exists() and not QueueSending.objects.exists()
    assert BudgetEvent.objects.filter(kind="resume").exists()


def test_stop_is_stronger_than_a_throttle_which_follows_it(shop: Caller) -> None:
    put(shop, "throttle", "orders", name="slow")
    use(shop)
    assert of_queue(shop) == ("", SLOW)
    put(shop, "stop", "orders")
    assert of_queue(shop) == (USED_UP, 0)
    delete_budget(OPERATOR, shop.account_id, "cap")
    assert of_queue(shop) == ("", SLOW) and not BudgetEvent.objects.filter(kind="resume").exists()
    put(shop, "stop", "orders", name="slow")
    assert of_queue(shop)[1] == 0 and "slow" in of_queue(shop)[0]


def test_throttle_passes_to_another_budget_which_senders_are_told(shop: Caller) -> None:
    put(shop, "throttle", "orders")
    put(shop, "throttle", "orders", name="second")
    use(shop)
    of_orders = f"{shop.account_id}/orders"
    assert record_of(RecordKind.QUEUE, of_orders).held_reason == USED_UP
    before = FeedChange.objects.filter(kind="queue").count()
    delete_budget(OPERATOR, shop.account_id, "cap")
    assert of_queue(shop) == ("", SLOW) and in_force(shop) == [("second", True, "throttle")]
    assert record_of(RecordKind.QUEUE, of_orders).held_reason == USED_UP.replace("cap", "second")
    assert FeedChange.objects.filter(kind="queue").count() == before + 1


def test_record_of_a_throttled_account_names_the_budget(shop: Caller) -> None:
    put(shop, "throttle")
    use(shop)
    assert record_of(RecordKind.ACCOUNT, shop.account_id).held_reason == USED_UP
    delete_budget(OPERATOR, shop.account_id, "cap")
    assert record_of(RecordKind.ACCOUNT, shop.account_id).held_reason == ""


def test_budgets_of_account_and_queue_hold_side_by_side(shop: Caller) -> None:
    put(shop, "throttle", name="all")
    put(shop, "stop", "orders")
    use(shop)
    assert of_account(shop) == ("", SLOW) and of_queue(shop) == (USED_UP, 0)
    delete_budget(OPERATOR, shop.account_id, "all")
    assert of_account(shop) == ("", 0) and of_queue(shop) == (USED_UP, 0)


def test_throttle_leaves_the_stop_of_an_operator(shop: Caller) -> None:
    stop_sending(OPERATOR, shop.account_id, "abuse")
    put(shop, "throttle")
    use(shop)
    assert of_account(shop) == ("abuse", SLOW)
    resume_sending(OPERATOR, shop.account_id)
    assert of_account(shop) == ("", SLOW)
    stop_sending(OPERATOR, shop.account_id, "abuse")
    delete_budget(OPERATOR, shop.account_id, "cap")
    assert of_account(shop) == ("abuse", 0)


def test_throttle_that_is_due_holds_when_an_operator_lifts_the_stop_beside_it(shop: Caller) -> None:
    put(shop, "throttle", name="slow")
    put(shop, "stop")
    use(shop)
    assert of_account(shop)[0] == USED_UP and in_force(shop) == [("cap", False, "stop")], "the strongest"
    resume_sending(OPERATOR, shop.account_id)
    assert of_account(shop) == ("", SLOW) and in_force(shop) == [("slow", False, "throttle")]
    judge_budgets(shop.account_id)
    assert of_account(shop) == ("", SLOW) and in_force(shop) == [("slow", False, "throttle")]
    assert shop.request("GET", "/v1/billing/budgets").json()["sending_stopped"] is False
    delete_budget(OPERATOR, shop.account_id, "slow")
    assert of_account(shop) == ("", 0) and in_force(shop) == []


def test_stop_that_an_operator_lifts_is_told_to_the_customer(shop: Caller) -> None:
    put(shop, "stop", mail_to=["a@example.com"])
    use(shop)
    assert shop.request("GET", "/v1/billing/budgets").json()["lifted"] is None
    out = io.StringIO()
    call_command("quotas", "resume", "--account", "tests", stdout=out)
    assert json.loads(out.getvalue())["lifted"] == {"budget": "cap", "until": f"{NOW.end:%Y-%m-%d} 00:00 UTC"}
    lifted = shop.request("GET", "/v1/billing/budgets").json()["lifted"]
    assert (lifted["budget"], lifted["lifted_by"]) == ("cap", "operator")
    assert lifted["until"] == f"{NOW.end:%Y-%m-%dT%H:%M:%SZ}"
    (event, _) = shop.request("GET", "/v1/billing/budget-events").json()["events"]
    assert (event["kind"], event["currency"], event["at"]) == ("lift", "USD", lifted["at"])
    lift_stop(OPERATOR, shop.account_id)
    assert BudgetEvent.objects.filter(kind="lift").count() == 1, "nothing was stopped"
    rounds.watch_budgets()
    assert "Budget cap: the operator lifted the stop" in [one.subject for one in mail.outbox]
    put(shop, "stop", limit_minor=999)
    assert shop.request("GET", "/v1/billing/budgets").json()["lifted"] is None and of_account(shop)[0] == USED_UP


def test_throttle_that_is_used_up_after_a_stop_was_lifted_holds(shop: Caller) -> None:
    put(shop, "stop")
    put(shop, "throttle", name="slow", limit_minor=2000)
    use(shop)
    resume_sending(OPERATOR, shop.account_id)
    judge_budgets(shop.account_id)
    assert of_account(shop) == ("", 0)
    use(shop, 2000)
    assert of_account(shop) == ("", SLOW), "and the stop stays lifted"
    put(shop, "stop", limit_minor=1500)
    assert of_account(shop) == (USED_UP, SLOW), "the budget was changed"
    put(shop, "stop", limit_minor=3000)
    assert of_account(shop) == ("", SLOW) and not BudgetEvent.objects.filter(kind="resume").exists()
    put(shop, "throttle", name="slow", limit_minor=3000)
    assert of_account(shop) == ("", 0) and BudgetEvent.objects.filter(kind="resume").count() == 1


def test_queue_that_is_made_anew_under_the_name_is_free(shop: Caller) -> None:
    put(shop, "stop", "orders")
    use(shop)
    delete_queue(OPERATOR, shop.account_id, "orders")
    Queue.objects.filter(name="orders").update(state="deleted", deleted_at=NOW.start)
    create_queue(OPERATOR, shop.account_id, "orders", {}, {})
    judge_budgets(shop.account_id)
    assert of_queue(shop) == ("", 0)
    put(shop, "stop", "orders", 2000)
    assert of_queue(shop) == ("", 0)


def test_event_of_a_queue_says_how_far_the_queue_went_beyond(shop: Caller) -> None:
    put(shop, "throttle", "orders")
    use(shop, 1003)
    spend(shop.account_id, 500, uuid_of(shop, "mails"))
    judge_budgets(shop.account_id)
    shown = shop.request("GET", "/v1/billing/budget-events").json()["events"]
    assert [one["kind"] for one in shown] == ["throttle"]
    # Not what the account did; a queue's share of the free units shrinks when others are used.
    assert 3 <= shown[0]["over_minor"] < 100


def test_mail_says_that_sends_are_throttled_and_where(shop: Caller) -> None:
    put(shop, "throttle", "orders", mail_to=["a@example.com"])
    use(shop)
    rounds.watch_budgets()
    assert [one.subject for one in mail.outbox] == ["Budget cap is used up: sending is throttled"]
    body = mail.outbox[0].body
    assert f"held to {SLOW} message a second" in body and "Of the queue orders alone." in body


def test_rest_takes_each_effect_and_no_other(shop: Caller) -> None:
    path, asked = "/v1/billing/budgets/cap", {"limit_minor": 1000, "queue": "orders"}
    assert shop.request("PUT", path, asked).json()["effect"] == "alert"
    for effect in ("throttle", "stop", "alert"):
        assert shop.request("PUT", path, {**asked, "effect": effect}).json()["effect"] == effect
    for wrong in ("pause", "", None, True, ["stop"]):
        assert shop.request("PUT", path, {**asked, "effect": wrong}).status_code == 400, wrong
    assert shop.request("PUT", path, {**asked, "stops_sending": True}).status_code == 400


def test_command_shows_what_is_held(shop: Caller) -> None:
    put(shop, "throttle", name="all")
    put(shop, "stop", "orders")
    use(shop)

    def command(*arguments: str) -> Any:
        out = io.StringIO()
        call_command("quotas", "list", "--account", "tests", *arguments, stdout=out)
        return json.loads(out.getvalue())

    assert (command()["sending_stopped"], command()["sends_per_s"]) == (None, SLOW)
    shown = command("--queue", "orders")
    assert (shown["sending_stopped"], shown["sends_per_s"]) == (USED_UP, None)
