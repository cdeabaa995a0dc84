"""Pages about money: what they show, whose it is, and that nobody else gets it."""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browsing import Browser, deny_in_account, person, queue_row

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]
ATTACK = '=HYPERLINK("http://x")'


@pytest.fixture
def shop(ann: Browser) -> Browser:
    """Ann's account was open before, has a plan of its own, and used two queues two months ago and in this month."""
    from api.billing.actions.invoices import BILLING, draft_invoice, issue_invoice
    from api.billing.settling import UsageRow
    from tests.api.billing.test_invoices import plan
    from tests.api.billing.usage import NOW, PERIOD, open_since, row, settle_month, settle_rows

    open_since(ann.account_id)
    plan(ann.account_id, taxes=[{"name": "VAT", "rate_ppm": 190_000}])
    orders = queue_row(ann.account_id, "orders")
    letters = queue_row(ann.account_id, "-letters")
    type(letters).objects.filter(pk=letters.pk).update(tags={"team": ATTACK})
    rows = [
        row(ann.account_id, 5, queue_uuid=orders.uuid, sent_units=1_100, messages_sent=11),
        row(ann.account_id, 30, queue_uuid=orders.uuid, sent_units=500, origin="cron"),
        row(ann.account_id, 31, queue_uuid=letters.uuid, sent_units=500),
        row(ann.account_id, 40, queue_uuid=letters.uuid, messages_sent=-1),
    ]
    settle_month(rows)
    assert issue_invoice(BILLING, ann.account_id, PERIOD) is not None
    settle_rows([UsageRow(ann.account_id, NOW.start, orders.uuid, 12, "client", sent_units=1_100)])
    assert draft_invoice(ann.account_id, NOW) is not None
    return ann


def invoice_of(browser: Browser, state: str = "issued") -> Any:
    from api.billing.models import Invoice

    return Invoice.objects.get(account_id=browser.account_id, state=state)


def text_of(browser: Browser, path: str) -> str:
    answer = browser.get(browser.at(path))
    assert answer.status_code == 200, (path, answer.status_code)
    return str(answer.content.decode())


def month_name() -> str:
    from tests.api.billing.usage import PERIOD

    return PERIOD.name


def see_open_usage(account_id: str, units: int, source: str = "one/12") -> None:
    from api import clock
    from api.billing.models import ProvisionalUsage
    from api.billing.pricing.periods import floor_hour

    hour = floor_hour(clock.now())
    ProvisionalUsage.objects.create(
        hour=hour, account_id=account_id, queue_uuid=uuid.UUID(int=9), source=source, origin="client",
        sent_units=units, requests=units,
    )  # fmt: skip


def test_month_so_far_shows_settled_and_open_usage_apart(shop: Browser) -> None:
    see_open_usage(shop.account_id, 500)
    text = text_of(shop, "billing")
    assert "1.00 USD" in text and "0.50 USD" in text and "1.50 USD" in text and "1.79 USD" in text
    assert text.count("<rect") >= 2 and "/billing/usage?queue=" in text
    assert "billing/now" in text and "1.50 USD" in text_of(shop, "billing/now")


def test_usage_is_cut_by_queue_day_hour_origin_and_tag_and_the_parts_sum_to_the_charge(shop: Browser) -> None:
    from tests.api.billing.usage import month_hour

    base = f"billing/usage.csv?period={month_name()}"
    day = f"{month_hour(30):%Y-%m-%d}"
    for cut, expected in (
        ("by=queue", {"orders": 1_523_809_524, "'-letters": 476_190_476}),
        ("by=day", {f"{month_hour(5):%Y-%m-%d}": 1_047_619_048, day: 952_380_952}),
        ("by=origin", {"Clients": 1_523_809_524, "Schedules": 476_190_476}),
        ("by=tag&tag=team", {"Without the tag team": 1_523_809_524, f"'{ATTACK}": 476_190_476}),
        (f"by=hour&day={day}", {f"{day} 06:00": 476_190_476, f"{day} 07:00": 476_190_476}),
    ):
        rows = list(csv.DictReader(io.StringIO(text_of(shop, f"{base}&{cut}"))))
        found = {row[cut.partition("=")[2].partition("&")[0]]: int(row["amount_nanos"]) for row in rows}
        assert found == expected, cut


def test_line_of_an_invoice_leads_to_the_days_and_hours_behind_it(shop: Browser) -> None:
    from tests.api.billing.usage import month_hour

    found = invoice_of(shop)
    text = text_of(shop, f"billing/invoices/{found.pk}")
    link = f"billing/usage?period={month_name()}&amp;meter=sent_units&amp;by=day"
    assert link in text and found.number in text and "2.38 USD" in text
    days = text_of(shop, link.replace("&amp;", "&"))
    day = f"{month_hour(30):%Y-%m-%d}"
    assert f"by=hour&amp;meter=sent_units&amp;day={day}" in days and "1,100" in days
    hours = text_of(shop, f"billing/usage?period={month_name()}&meter=sent_units&by=hour&day={day}")
    assert f"{day} 06:00" in hours and f"{day} 07:00" in hours and "1,100" not in hours
    assert "negative_counter" in hours, "what is not billed is said"


def test_usage_by_key_outlives_the_hour_that_is_settled(shop: Browser) -> None:
    from api.billing.models import ProvisionalUsage
    from api.billing.provisional import drop_settled
    from tests.api.billing.usage import month_hour

    see_open_usage(shop.account_id, 5, "ab/1/AKPSONE")
    see_open_usage(shop.account_id, 7, "cd/1/AKPSONE")
    see_open_usage(shop.account_id, 3, "cd/1/AKPSTWO")
    see_open_usage(shop.account_id, 9, "one/12")
    see_open_usage(shop.account_id, 9, "cd/1/")
    assert keys_told(shop, "") == ["AKPSONE,,12,0", "AKPSTWO,,3,0"]
    ProvisionalUsage.objects.update(hour=month_hour(0))
    assert drop_settled() == 5 and drop_settled() == 0
    assert keys_told(shop, "") == []
    assert keys_told(shop, month_name()) == ["AKPSONE,,12,0", "AKPSTWO,,3,0"]
    for other in (f"queue={queue_uuid(shop)}", f"day={month_hour(0):%Y-%m-%d}"):
        text = text_of(shop, f"billing/usage?by=key&period={month_name()}&{other}")
        assert "AKPSONE" in text and "Queue: orders" not in text and "Day: " not in text, "figures are of the account"


def keys_told(browser: Browser, period: str) -> list[str]:
    lines = text_of(browser, f"billing/usage.csv?by=key&period={period}").splitlines()
    return [line.split(",", 1)[1] for line in lines[1:]]


@pytest.mark.parametrize(
    "query",
    ["period=x", "by=zzz", "meter=zzz&by=queue", "queue=x", "day=2026-99-99", "by=hour", "page=99999&by=queue",
     "page=-1", "tag=%00&by=tag", "by=day&day=1999-01-01", "period=2099-01"],
)  # fmt: skip
def test_address_that_makes_no_sense_is_a_page_all_the_same(shop: Browser, query: str) -> None:
    text_of(shop, f"billing/usage?{query}")
    text_of(shop, f"billing/usage.csv?{query}")


@pytest.mark.parametrize(
    "before",
    ["x", "2026-11-27", "2099-01-01T00:00:00%2B23:59", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00%2B14:00"],
)
def test_list_that_goes_on_at_a_strange_time_is_a_list_all_the_same(shop: Browser, before: str) -> None:
    text_of(shop, f"billing/invoices?before={before}")


def test_documents_of_an_invoice_are_files_with_its_number(shop: Browser) -> None:
    found = invoice_of(shop)
    for form, begins in (("pdf", b"%PDF"), ("csv", b"row,"), ("json", b"{")):
        answer = shop.get(shop.at(f"billing/invoices/{found.pk}.{form}"))
        assert answer.status_code == 200 and answer.content.startswith(begins), form
        assert answer["Content-Disposition"] == f'attachment; filename="invoice-{found.number}.{form}"'
        assert answer["X-Content-Type-Options"] == "nosniff" and "no-store" in answer["Cache-Control"]
    assert json.loads(answer.content)["total_minor"] == found.total_minor
    assert shop.get(shop.at(f"billing/invoices/{found.pk}.html")).status_code == 404


def note_of(browser: Browser) -> Any:
    """A credit note of Ann's invoice."""
    from api.audit.actions import OPERATOR
    from api.billing.actions.invoices import correct_invoice
    from tests.api.billing.usage import row, settle_rows

    used = row(browser.account_id, 30, queue_uuid=queue_uuid(browser), sent_units=400, origin="cron")
    settle_rows([used], 30, 1)
    note = correct_invoice(OPERATOR, browser.account_id, invoice_of(browser).pk, "=late")
    assert note is not None
    return note


def test_notes_are_told_from_invoices_and_have_their_own_documents(shop: Browser) -> None:
    note, found, bob = note_of(shop), invoice_of(shop), person("bob@example.com")
    listed = text_of(shop, "billing/invoices")
    assert listed.count(">Credit note<") == 1 and f"of {found.number}" in listed and "-0.12 USD" in listed
    for page in (listed, text_of(shop, f"billing/invoices/{found.pk}")):
        assert f"/billing/notes/{note.pk}.pdf" in page and note.number in page
    for form, begins in (("pdf", b"%PDF"), ("csv", b"row,"), ("json", b"{")):
        answer = shop.get(shop.at(f"billing/notes/{note.pk}.{form}"))
        assert answer.status_code == 200 and answer.content.startswith(begins), form
        assert answer["Content-Disposition"] == f'attachment; filename="credit-note-{note.number}.{form}"'
        assert bob.get(bob.at(f"billing/notes/{note.pk}.{form}")).status_code == 404
    assert json.loads(answer.content)["invoice_number"] == found.number
    assert "'=late" in text_of(shop, f"billing/notes/{note.pk}.csv")
    assert shop.get(shop.at(f"billing/notes/{note.pk}.html")).status_code == 404
    assert shop.get(shop.at(f"billing/notes/{found.pk}.pdf")).status_code == 404


def test_csv_has_no_formula_in_any_cell(shop: Browser) -> None:
    """A spreadsheet computes what begins so."""
    found = invoice_of(shop)
    month = month_name()
    paths = [f"billing/invoices/{found.pk}.csv"]
    paths += [f"billing/usage.csv?period={month}&by={by}" for by in ("queue", "tag&tag=team", "origin", "day")]
    for path in paths:
        text = text_of(shop, path)
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        wrong = [cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "\r", "\n", "-l"))]
        assert not wrong, (path, wrong)
    assert "'-letters" in text_of(shop, paths[0]) and "'-letters" in text_of(shop, paths[1])


def test_invoice_of_another_account_is_not_here(shop: Browser) -> None:
    bob = person("bob@example.com")
    found = invoice_of(shop)
    for tail in ("", ".pdf", ".csv", ".json", "?tag=team"):
        answer = bob.get(bob.at(f"billing/invoices/{found.pk}{tail}"))
        assert answer.status_code == 404 and found.number.encode() not in answer.content, tail
        assert bob.get(shop.at(f"billing/invoices/{found.pk}{tail}")).status_code == 404, tail
    orders = str(queue_uuid(shop))
    text = text_of(bob, f"billing/usage?queue={orders}&period={month_name()}")
    assert "orders" not in text.replace("Deleted:", ""), "no name, no usage"


def queue_uuid(browser: Browser) -> uuid.UUID:
    from api.queues.models import Queue

    return Queue.objects.get(account_id=browser.account_id, name="orders").uuid


def test_name_and_tag_with_markup_are_text(shop: Browser) -> None:
    from api.audit.actions import OPERATOR
    from api.billing.actions.budgets import BudgetSpec, put_budget

    evil = "<img src=x onerror=alert(1)>"
    put_budget(OPERATOR, shop.account_id, evil, BudgetSpec(100, [50], "alert", []))
    for path in ("billing", "billing/budgets", f"billing/budgets/edit?name={evil}", f"billing/usage?by=tag&tag={evil}"):
        assert "<img src=x" not in text_of(shop, path), path


def budget_names(browser: Browser) -> dict[str, int]:
    from api.billing.models import SpendingBudget

    return {one.name: one.limit_minor for one in SpendingBudget.objects.filter(account_id=browser.account_id)}


EDIT = "billing/budgets/edit"
FORM = {"name": "All", "limit": "0.50", "alerts": "50, 100", "effect": "stop", "mail": "a@example.com\nb@example.com"}


def test_budget_is_made_stops_sending_is_raised_and_deleted(shop: Browser) -> None:
    from api.audit.actions import OPERATOR
    from api.billing.actions.budget_effects import lift_stop
    from api.billing.models import SpendingBudget, SpendingEffect

    assert shop.post(shop.at(EDIT), FORM, shop.at(EDIT)).status_code == 302
    made = SpendingBudget.objects.get(account_id=shop.account_id)
    assert (made.limit_minor, made.alert_percents, made.effect) == (50, [50, 100], "stop")
    assert made.mail_to == ["a@example.com", "b@example.com"]
    assert SpendingEffect.objects.filter(account_id=shop.account_id).exists()
    text = text_of(shop, "billing/budgets")
    assert "Sending is stopped" in text and "200 %" in text and "100 % reached" in text and "Sending stopped" in text
    assert "Sending is stopped" in text_of(shop, "billing")
    lift_stop(OPERATOR, shop.account_id)
    text = text_of(shop, "billing/budgets")
    assert "The operator lifted the stop of the budget All" in text and "Stop lifted by the operator" in text
    assert "the end of the month" in text and "Sending is stopped" not in text
    page = f"{EDIT}?name=All"
    assert shop.post(shop.at(page), FORM | {"limit": "90"}, shop.at(page)).status_code == 302
    assert budget_names(shop) == {"All": 9_000} and not SpendingEffect.objects.exists()
    assert shop.post(shop.at("billing/budgets/delete"), {"name": "All"}, shop.at("billing/budgets")).status_code == 302
    assert budget_names(shop) == {}
    assert shop.post(shop.at("billing/budgets/delete"), {"name": "All"}).status_code == 404


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"limit": "1,5"}, "written like 50.00"),
        ({"limit": "0.005"}, "written like 50.00"),
        ({"limit": "-1"}, "written like 50.00"),
        ({"limit": "٣"}, "written like 50.00"),
        ({"limit": "9999999999999"}, "imit_minor"),
        ({"alerts": "half"}, "percents"),
        ({"alerts": "0"}, "lert_percents"),
        ({"mail": "nobody"}, "addres"),
        ({"name": "a/b"}, "no slash"),
        ({"name": "\0"}, "printable"),
        ({"effect": "all"}, "ffect is one of"),
        ({"queue": "none", "effect": "alert"}, "There is no queue"),
        ({"queue": "none\0", "effect": "alert"}, "There is no queue"),
    ],
)
def test_budget_that_makes_no_sense_comes_back_with_what_was_typed(
    shop: Browser, wrong: dict[str, str], says: str
) -> None:
    answer = shop.post(shop.at(EDIT), FORM | wrong, shop.at(EDIT))
    text = answer.content.decode()
    assert answer.status_code in (400, 404) and says in text, text
    assert budget_names(shop) == {}


@pytest.mark.parametrize(
    ("effect", "row", "event"),
    [
        ("throttle", "is held to 1 message a second: the budget All is used up", "Sending throttled"),
        ("stop", "is stopped: the budget All is used up", "Sending stopped"),
    ],
)
def test_pages_say_what_a_budget_does_to_a_queue(shop: Browser, effect: str, row: str, event: str) -> None:
    form = FORM | {"effect": effect, "queue": "orders", "limit": "0"}
    assert shop.post(shop.at(EDIT), form, shop.at(EDIT)).status_code == 302
    text = text_of(shop, "billing/budgets")
    assert f"Sending to orders {row}" in text and event in text
    assert f"Sending to orders {row}" in text_of(shop, "billing")
    assert f'value="{effect}" selected' in shop.get(shop.at(f"{EDIT}?name=All")).content.decode()
    assert shop.post(shop.at("billing/budgets/delete"), {"name": "All"}, shop.at("billing/budgets")).status_code == 302
    assert row not in text_of(shop, "billing/budgets")


def test_second_budget_of_a_name_does_not_replace_the_first(shop: Browser) -> None:
    assert shop.post(shop.at(EDIT), FORM | {"effect": "alert"}, shop.at(EDIT)).status_code == 302
    assert shop.post(shop.at(EDIT), FORM | {"limit": "7"}, shop.at(EDIT)).status_code == 409
    assert budget_names(shop) == {"All": 50}


def test_form_of_another_site_changes_no_budget(shop: Browser) -> None:
    from django.test import Client

    for path in (EDIT, "billing/budgets/delete"):
        answer = shop.client.post(shop.at(path), FORM, REMOTE_ADDR=shop.source)
        assert answer.status_code == 403, path
    assert isinstance(shop.client, Client) and budget_names(shop) == {}


def test_billing_role_sees_money_and_nothing_else(shop: Browser, join: Joins) -> None:
    guest = join(shop, "billing")
    assert guest.get(guest.at())["Location"] == guest.at("billing")
    text = text_of(guest, "billing")
    for path in ("/queues", "/people", "/keys", "/audit"):
        assert f'{shop.account_id}{path}"' not in text, path
    assert "/billing/budgets/edit" in text
    assert guest.post(guest.at(EDIT), FORM, guest.at(EDIT)).status_code == 302
    from api.accounts.actions import create_key
    from api.audit.actions import OPERATOR

    key = create_key(OPERATOR, shop.account_id, "payroll-worker").key
    see_open_usage(shop.account_id, 5, f"ab/1/{key.access_key_id}")
    assert "payroll-worker" not in text_of(guest, "billing/usage?by=key")
    assert "payroll-worker" in text_of(shop, "billing/usage?by=key")


@pytest.mark.parametrize(
    ("action", "path", "offered"),
    [
        ("billing:GetMeter", "billing", '/billing"'),
        ("billing:GetUsage", "billing/usage", "/billing/usage"),
        ("billing:ListInvoices", "billing/invoices", '/billing/invoices"'),
        ("billing:GetInvoice", "billing/invoices/{invoice}", "/billing/invoices/"),
        ("billing:GetInvoice", "billing/invoices/{invoice}.pdf", "/billing/invoices/"),
        ("billing:ListBudgets", "billing/budgets", '/billing/budgets"'),
        ("billing:PutBudget", "billing/budgets/edit", "/budgets/edit"),
        ("billing:PutBuyer", "billing/buyer", "/billing/buyer"),
        ("billing:ListPlans", "billing/prices", "/billing/prices"),
    ],
)
def test_policy_that_denies_a_page_is_obeyed(shop: Browser, join: Joins, action: str, path: str, offered: str) -> None:
    guest = join(shop, "admin")
    deny_in_account(guest, action)
    assert guest.get(guest.at(path.format(invoice=invoice_of(shop).pk))).status_code == 403
    for page in ("billing", "billing/invoices", "billing/budgets", "billing/usage"):
        answer = guest.get(guest.at(page))
        assert answer.status_code == 403 or offered not in answer.content.decode(), page


def test_charges_of_the_month_before_are_shown_to_those_who_list_invoices(shop: Browser, join: Joins) -> None:
    from api.billing.actions.invoices import draft_invoice
    from api.billing.pricing.periods import period_before
    from tests.api.billing.usage import NOW

    draft_invoice(shop.account_id, period_before(NOW))
    guest = join(shop, "admin")
    assert "The month before" in text_of(guest, "billing") and "The month before" in text_of(guest, "billing/now")
    deny_in_account(guest, "billing:ListInvoices")
    assert "The month before" not in text_of(guest, "billing") + text_of(guest, "billing/now")


def test_prices_are_in_words_with_what_is_left_of_credits(shop: Browser) -> None:
    from api.audit.actions import OPERATOR
    from api.billing.actions.plans import grant_credit

    grant_credit(OPERATOR, shop.account_id, "Welcome", "USD", 300, None)
    text = text_of(shop, "billing/prices")
    assert "1000.00 USD per million units" in text and "100 units a month are free" in text
    assert "Welcome" in text and "3.00 USD" in text


def test_correction_stands_with_its_invoice(shop: Browser) -> None:
    from api.billing.actions.invoices import BILLING, correct_invoice
    from tests.api.billing.usage import row, settle_rows

    settle_rows([row(shop.account_id, 5, queue_uuid=queue_uuid(shop), sent_units=100)], 5, 1)
    found = invoice_of(shop)
    note = correct_invoice(BILLING, shop.account_id, found.pk, "counted twice")
    assert note is not None
    text = text_of(shop, f"billing/invoices/{found.pk}")
    assert note.number in text and "Credit note" in text and "counted twice" in text and "-1,000" in text


def test_overview_shows_what_the_month_costs_so_far(shop: Browser, join: Joins) -> None:
    from api import clock
    from api.accounts.models import Account
    from api.billing.meter import cost_meter
    from console.templatetags.money import minor
    from tests.api.billing.usage import NOW

    now = clock.now()
    meter = cost_meter(Account.objects.get(pk=shop.account_id), NOW, now)
    assert meter is not None and meter.charges_minor > 0
    text = text_of(shop, "cost")
    assert minor(meter.charges_minor, meter.currency) in text and "Sending is stopped" not in text
    assert f"{shop.at('cost')}" in text_of(shop, "")
    reader = join(shop, "reader")
    assert reader.get(reader.at("cost")).status_code == 403
    assert reader.at("cost") not in reader.get(reader.at()).content.decode()


@pytest.mark.parametrize("span", ["24h", "7d"])
def test_cost_of_a_queue_stands_beside_its_charts(shop: Browser, join: Joins, span: str) -> None:
    from api import clock
    from api.accounts.models import Account
    from api.billing.account_month import month_of
    from api.billing.models import ProvisionalUsage
    from api.billing.pricing.periods import floor_hour, period_of
    from api.queues.models import Queue
    from console.metric_charts import span_named
    from console.queue_cost import queue_cost

    now = clock.now()
    orders = Queue.objects.get(account_id=shop.account_id, name="orders")
    ProvisionalUsage.objects.create(
        hour=floor_hour(now), account_id=shop.account_id, queue_uuid=orders.uuid, source="one/4", origin="client",
        messages_sent=5, sent_units=900_000,
    )  # fmt: skip
    cost = queue_cost(Account.objects.get(pk=shop.account_id), orders.uuid, span_named(span), now)
    assert cost is not None and cost.chart is not None and cost.rows[-1].provisional > 0
    assert len(cost.rows) == {"24h": 24, "7d": 7}[span]
    month = month_of(Account.objects.get(pk=shop.account_id), period_of(now), is_provisional=True)
    assert month is not None
    share = sum(one.amount_nanos for one in month.priced.shares if one.queue_uuid == orders.uuid)
    assert 0 < sum(row.settled + row.provisional for row in cost.rows) <= share
    assert cost.total in text_of(shop, f"queues/orders/costs?span={span}")
    assert f"/costs?span={span}" in text_of(shop, f"queues/orders/metrics?span={span}")
    reader = join(shop, "reader")
    assert reader.get(reader.at("queues/orders/costs")).status_code == 403
    assert "/costs?" not in reader.get(reader.at("queues/orders/metrics")).content.decode()
