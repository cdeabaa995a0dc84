"""What a member sees to whom a policy opens single queues: their pages, and nothing of the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browsing import Browser, attach, queue_row

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]
ALL = ("sqs:*", "penstock:*")


def give(browser: Browser, *actions: str, queue: str = "orders", effect: str = "Allow", **more: Any) -> None:
    """A policy about one queue, or about those that a pattern names, attached to the member."""
    from api.iam.models import Policy

    statement = {"Effect": effect, "Action": list(actions), "Resource": f"arn:aws:sqs:*:*:{queue}", **more}
    attach(browser, f"given-{Policy.objects.count()}", statement)


@pytest.fixture
def guest(ann: Browser, join: Joins, data_plane: Any) -> Browser:
    """Of the role that opens nothing; the account has three queues."""
    for name in ("orders", "payroll", "salaries"):
        queue_row(ann.account_id, name)
    data_plane.answers["messages/find"] = {"messages": [], "scanned": 0, "cursor": None}
    data_plane.answers["scheduled"] = {"messages": [], "next_cursor": None}
    return join(ann, "guest")


PAGES = (
    "", "/counts", "/metrics", "/charts", "/edit", "/tags", "/quotas", "/access", "/messages", "/messages/list",
    "/messages/download", "/tail", "/send", "/moves", "/moves/progress", "/schedules", "/scheduled", "/purge",
    "/delete",
)  # fmt: skip


def test_policy_about_one_queue_opens_its_pages_and_no_others(guest: Browser, data_plane: Any) -> None:
    assert guest.get(guest.at("queues/orders")).status_code == 403, "before the policy"
    give(guest, *ALL)
    for tail in PAGES:
        assert guest.get(guest.at(f"queues/orders{tail}")).status_code == 200, tail
    asked = len(data_plane.asked)
    for tail in PAGES:
        assert guest.get(guest.at(f"queues/payroll{tail}")).status_code == 403, tail
    assert len(data_plane.asked) == asked


def test_list_shows_the_queues_that_a_policy_opens(guest: Browser) -> None:
    assert guest.get(guest.at("queues")).status_code == 403 and "/queues" not in menu(guest)
    give(guest, *ALL, queue="*r*")
    page = guest.get(guest.at("queues")).content.decode()
    assert [name in page for name in ("orders", "payroll", "salaries")] == [True, True, True]
    assert "1 to 3 of 3" in page
    give(guest, "sqs:GetQueueAttributes", queue="pay*", effect="Deny")
    page = guest.get(guest.at("queues?sort=-name")).content.decode()
    assert "payroll" not in page and "1 to 2 of 2" in page and page.index(">salaries<") < page.index(">orders<")
    assert "1 to 1 of 1" in guest.get(guest.at("queues?q=ORD")).content.decode()
    assert "No queue matches" in guest.get(guest.at("queues?q=pay")).content.decode()
    jumps = guest.get(guest.at("jump?q=a")).content.decode()
    assert "salaries" in jumps and "payroll" not in jumps


def test_counts_are_of_the_queues_that_a_policy_opens(guest: Browser, data_plane: Any) -> None:
    give(guest, *ALL)
    assert guest.get(guest.at("counts?names=payroll,orders")).status_code == 200
    assert data_plane.asked[-1][3] == {"queues": ["orders"]}
    assert guest.get(guest.at("counts?names=payroll")).status_code == 403


def test_guest_without_policies_is_told_whom_to_ask(guest: Browser, ann: Browser) -> None:
    assert guest.get(guest.at())["Location"] == guest.at("settings")
    assert "No policy opens anything" in guest.get(guest.at("settings")).content.decode()
    assert "No policy opens anything" not in ann.get(ann.at("settings")).content.decode()


def menu(browser: Browser) -> str:
    return browser.get(browser.at("settings")).content.decode().partition("<nav")[2].partition("</nav>")[0]


def test_menu_leads_to_the_list_and_not_to_pages_of_all_queues(guest: Browser, ann: Browser) -> None:
    give(guest, *ALL)
    assert guest.get(guest.at())["Location"] == guest.at("queues")
    on_queue = guest.get(guest.at("queues/orders")).content.decode().partition("<nav")[2].partition("</nav>")[0]
    for found in (menu(guest), on_queue):
        assert "/queues" in found and "/definitions" not in found and ">Overview<" not in found
    assert "No policy opens anything" not in guest.get(guest.at("settings")).content.decode()
    for path in ("definitions", "attention", "traffic", "new-queue"):
        assert guest.get(guest.at(path)).status_code == 403, path
    assert "/definitions" in menu(ann) and ">Overview<" in menu(ann)


def test_queue_is_opened_by_its_tag(guest: Browser, ann: Browser) -> None:
    from api.queues.models import Queue

    condition = {"StringEquals": {"aws:ResourceTag/team": "green"}}
    give(guest, "sqs:Get*", queue="*", Condition=condition)
    assert guest.get(guest.at("queues")).status_code == 403
    Queue.objects.filter(account_id=ann.account_id, name="payroll").update(tags={"team": "green"})
    page = guest.get(guest.at("queues")).content.decode()
    assert "payroll" in page and "orders" not in page
    assert guest.get(guest.at("queues/payroll")).status_code == 200
    assert guest.get(guest.at("queues/payroll/messages")).status_code == 403
    assert guest.get(guest.at("queues/orders")).status_code == 403


def test_reader_reads_the_messages_of_one_queue(ann: Browser, join: Joins, guest: Browser) -> None:
    reader = join(ann, "reader")
    give(reader, "penstock:PeekMessages", "sqs:ReceiveMessage")
    assert reader.get(reader.at("queues/orders/messages/list")).status_code == 200
    assert reader.get(reader.at("queues/payroll/messages/list")).status_code == 403
    page = reader.get(reader.at("queues/orders")).content.decode()
    assert "/orders/messages" in page
    assert not [one for one in ("/send", "/purge", "/delete", "/edit", "/pause") if f'orders{one}"' in page]


@pytest.mark.parametrize(
    ("actions", "path", "form"),
    [
        (("sqs:SendMessage",), "send", {"body": "x", "count": "1"}),
        (("sqs:PurgeQueue",), "purge", {"typed": "orders"}),
        (("sqs:DeleteQueue",), "delete", {"typed": "orders"}),
    ],
)
def test_one_action_is_enough_for_its_page_and_its_button(
    ann: Browser, join: Joins, guest: Browser, data_plane: Any, actions: Any, path: str, form: dict[str, str]
) -> None:
    data_plane.answers["orders/messages"] = {"id": "a"}
    data_plane.answers["messages/purge"] = {}
    reader = join(ann, "reader")
    assert reader.post(reader.at(f"queues/orders/{path}"), form).status_code == 403
    give(reader, *actions)
    assert f'queues/orders/{path}"' in reader.get(reader.at("queues/orders")).content.decode()
    assert f'queues/payroll/{path}"' not in reader.get(reader.at("queues/payroll")).content.decode()
    assert reader.post(reader.at(f"queues/orders/{path}"), form).status_code in (200, 302)
    assert reader.post(reader.at(f"queues/payroll/{path}"), {**form, "typed": "payroll"}).status_code == 403


def test_what_a_queue_has_is_shown_by_the_action_that_reads_it(guest: Browser, ann: Browser) -> None:
    from api.queues.models import Queue

    redrive = {"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:{ann.account_id}:orders", "maxReceiveCount": 1}
    queue_row(ann.account_id, "payslips", RedrivePolicy=json.dumps(redrive))
    Queue.objects.filter(account_id=ann.account_id, name="orders").update(tags={"team": "green-team"})
    actions = {"tags": "sqs:ListQueueTags", "schedules": "penstock:ListSchedules", "moves": "sqs:ListMessageMoveTasks"}
    give(guest, "sqs:GetQueueAttributes")
    for path, action in actions.items():
        page = guest.get(guest.at("queues/orders")).content.decode()
        assert f'orders/{path}"' not in page and guest.get(guest.at(f"queues/orders/{path}")).status_code == 403, path
        assert ("green-team" in page) == (path != "tags"), path
        give(guest, action)
        assert f'orders/{path}"' in guest.get(guest.at("queues/orders")).content.decode(), path
        assert guest.get(guest.at(f"queues/orders/{path}")).status_code == 200, path


def test_denied_list_gives_no_part_of_itself(guest: Browser) -> None:
    give(guest, *ALL)
    give(guest, "sqs:ListQueues", queue="*", effect="Deny")
    assert guest.get(guest.at("queues")).status_code == 403
    assert guest.get(guest.at("jump?q=o")).status_code == 403
    assert guest.get(guest.at("queues/orders")).status_code == 200


def test_forms_of_one_queue_name_no_others(guest: Browser, ann: Browser) -> None:
    from api.queues.models import Queue

    arn = f"arn:aws:sqs:us-east-1:{ann.account_id}:orders"
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    queue_row(ann.account_id, "payslips", RedrivePolicy=redrive)
    assert Queue.objects.get(name="payslips").dead_letter_target == "orders"
    give(guest, "sqs:Get*", "sqs:Set*", "sqs:DeleteQueue", "penstock:*")
    for tail in ("", "/edit", "/delete", "/moves", "/access", "/messages"):
        page = guest.get(guest.at(f"queues/orders{tail}")).content.decode()
        assert not [name for name in ("payroll", "salaries", "payslips") if name in page], tail
    give(guest, "sqs:ListDeadLetterSourceQueues")
    assert "payslips" in guest.get(guest.at("queues/orders")).content.decode()


def test_live_tail_opens_by_the_policy_of_one_queue(ann: Browser, join: Joins, guest: Browser) -> None:
    from api.tails.actions import open_tail
    from api.tails.selectors import TailEnd

    reader = join(ann, "reader")
    give(reader, "penstock:PeekMessages", "sqs:ReceiveMessage")
    made = reader.post(reader.at("queues/orders/tail/ticket"))
    assert made.status_code == 200
    start = open_tail(made.json()["ticket"], "orders", reader.source, False, "r")
    assert start is not None and start.end is TailEnd.NOT
    assert reader.post(reader.at("queues/payroll/tail/ticket")).status_code == 403


def test_search_weighs_so_many_queues_and_says_so(guest: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    from api.iam import open_queues

    give(guest, *ALL, queue="*a*")
    monkeypatch.setattr(open_queues, "QUEUES_WEIGHED_MAX", 2)
    monkeypatch.setattr(open_queues, "_FIRST", 1)  # `orders` is the first, and not open
    page = guest.get(guest.at("queues")).content.decode()
    assert "payroll" in page and "salaries" not in page and "search for a part of the name" in page
    page = guest.get(guest.at("queues?q=sal")).content.decode()
    assert "salaries" in page and "search for a part of the name" not in page


def test_conditions_on_tags_hold_for_the_page_of_tags(guest: Browser, ann: Browser) -> None:
    """Who may be kept from a queue by its tag must not be able to take the tag away."""
    from api.queues.models import Queue

    row = Queue.objects.filter(account_id=ann.account_id, name="orders")
    row.update(tags={"team": "green"})
    give(guest, *ALL)
    kept = {"ForAnyValue:StringEquals": {"aws:TagKeys": "team"}}
    give(guest, "sqs:TagQueue", "sqs:UntagQueue", effect="Deny", Condition=kept)
    page = guest.at("queues/orders/tags")
    for form in ({"key": "team", "value": "red"}, {"key": " team ", "value": ""}, {"key": "team", "remove": "1"}):
        assert guest.post(page, form, page).status_code == 403, form
    assert row.get().tags == {"team": "green"}
    assert guest.post(page, {"key": "env", "value": "live"}, page).status_code == 302
    assert guest.post(page, {"key": "env", "remove": "1"}, page).status_code == 302


def test_tag_is_set_where_a_policy_allows_this_one(guest: Browser, ann: Browser) -> None:
    give(guest, "sqs:GetQueueAttributes", "sqs:SetQueueAttributes", "sqs:ListQueueTags")
    give(guest, "sqs:TagQueue", Condition={"StringEquals": {"aws:RequestTag/team": "green"}})
    page = guest.at("queues/orders/tags")
    assert guest.post(page, {"key": "team", "value": "red"}, page).status_code == 403
    assert guest.post(page, {"key": "team", "value": "green"}, page).status_code == 302
