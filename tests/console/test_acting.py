"""An operator who acts as a member: by whom, for how long, with which rights, and what the trail says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.console.browsing import Browser, queue_row
from tests.console.test_access import SEND, make_key, make_policy, person_id

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]


@pytest.fixture
def operator(db: None) -> Browser:
    from api.people.actions.console_links import make_operator_link

    browser = Browser()
    browser.open_link(make_operator_link())
    return browser


def act_as(operator: Browser, member: Browser, reason: str = "ticket 7") -> Any:
    path = f"/console/operators/accounts/{member.account_id}"
    return operator.post(f"{path}/act-as", {"person": person_id(member), "reason": reason}, path)


def trail(account_id: str, action: str) -> list[Any]:
    from api.audit.selectors import AuditQuery, entries_of

    return entries_of(account_id, None, 50, AuditQuery(action))


def test_operator_sees_what_the_member_sees_under_a_banner(ann: Browser, operator: Browser, join: Joins) -> None:
    queue_row(ann.account_id, "orders")
    guest = join(ann, "reader")
    assert operator.get(ann.at("queues")).status_code == 404
    assert act_as(operator, guest)["Location"] == ann.at()
    for path in (ann.at("queues"), ann.at("queues/orders"), "/console/operators/accounts", "/console/me"):
        text = operator.get(path).content.decode()
        assert "You act as" in text and guest.email in text and "ticket 7" in text, path
    assert operator.get(ann.at("queues/orders/messages")).status_code == 403, "a reader sees no bodies"
    assert "You act as" not in guest.get(guest.at("queues")).content.decode()
    answer = operator.post("/console/operators/acting/end", {}, ann.at("queues"))
    assert answer["Location"] == f"/console/operators/accounts/{ann.account_id}"
    assert operator.get(ann.at("queues")).status_code == 404


def test_trail_of_the_account_has_both_names(ann: Browser, operator: Browser, storage: Any) -> None:
    queue_row(ann.account_id, "orders")
    act_as(operator, ann)
    page = ann.at("queues/orders/tags")
    assert operator.post(page, {"key": "team", "value": "a"}, page).status_code == 302
    operator.post("/console/operators/acting/end", {}, ann.at())
    member = f"person:{person_id(ann)}"
    for action in ("acting.begin", "queue.tag", "acting.end"):
        (entry,) = trail(ann.account_id, action)
        assert entry.actor != member and entry.actor.startswith("person:"), action
        assert entry.details["acting_as"] == member, action
        assert entry.details["source"] == operator.source, action
    assert trail(ann.account_id, "acting.begin")[0].details["reason"] == "ticket 7"
    text = ann.get(ann.at("audit")).content.decode()
    assert "operator operator" in text and f"acting as {ann.email}" in text


def test_each_request_for_messages_is_in_the_trail_before_it_is_made(
    ann: Browser, operator: Browser, data_plane: Any
) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/find"] = {"messages": [], "scanned": 0, "cursor": None}
    ann.get(ann.at("queues/orders/messages/list"))
    assert not trail(ann.account_id, "acting."), "of members nothing is noted"
    act_as(operator, ann)
    assert operator.get(ann.at("queues/orders/messages/list")).status_code == 200
    (entry,) = trail(ann.account_id, "acting.request")
    assert entry.details["operation"] == "find" and entry.details["queue"] == "orders"
    assert data_plane.asked[-1][0] != person_id(ann), "the front end is told who really asks"


def test_nothing_that_outlasts_the_visit_can_be_done(ann: Browser, operator: Browser, join: Joins) -> None:
    import json

    from api.accounts.models import AccessKey
    from api.iam.models import Policy, PolicyAttachment
    from api.people.models import AccountMembership, Invitation

    key = make_key(ann)
    make_policy(ann)
    queue = queue_row(ann.account_id, "orders")
    guest = join(ann, "reader")
    act_as(operator, ann)
    for path, form in (
        ("keys/new", {"name": "mine"}),
        (f"keys/{key.access_key_id}/rotate", {"hours": "24"}),
        (f"keys/{key.access_key_id}/revoke", {}),
        (f"keys/{key.access_key_id}", {"what": "free"}),
        ("new-policy", {"name": "mine", "as": "json", "policy": json.dumps(SEND)}),
        ("policies/send-orders", {"as": "json", "policy": json.dumps(SEND)}),
        (f"people/{person_id(guest)}/policies", {"what": "attach", "policy": "send-orders"}),
        (f"people/{person_id(guest)}/role", {"role": "admin"}),
        (f"people/{person_id(guest)}/remove", {}),
        ("people/invite", {"email": "eve@example.com", "role": "admin"}),
        ("groups", {"name": "mine"}),
        ("queues/orders/access", {"as": "json", "policy": "{}"}),
        ("queues/orders/access", {"label": "x", "accounts": "123456789012", "actions": "SendMessage"}),
        ("settings", {"auto_create": "true"}),
        ("alarms/new", {"name": "mine"}),
        ("billing/budgets/edit", {"name": "mine"}),
        ("billing/buyer", {"name": "mine"}),
        ("queues/orders/schedules", {"name": "mine", "cron": "* * * * *", "body": "x"}),
        ("close", {"typed": ann.account_id}),
    ):
        answer = operator.post(ann.at(path), form, ann.at("queues"))
        assert answer.status_code in (403, 404), (path, answer.status_code)
    queue.refresh_from_db()
    assert "Policy" not in queue.attributes and not Invitation.objects.exists()
    assert AccessKey.objects.filter(account_id=ann.account_id).count() == 1
    assert Policy.objects.count() == 1 and not PolicyAttachment.objects.exists()
    assert AccountMembership.objects.get(account_id=ann.account_id, person_id=person_id(guest)).role == "reader"
    for offered in ("Create a key", "New policy"):
        assert offered not in operator.get(ann.at("keys")).content.decode(), offered


def test_what_was_deleted_is_not_ended_and_the_trail_not_exported(ann: Browser) -> None:
    from api.iam.authorisation import Targets
    from api.iam.member_rights import MemberRights
    from api.people.acting_rights import acting_policy
    from api.people.models import AccountMembership
    from frontend.authn.principal import person

    owner = AccountMembership.objects.get(account_id=ann.account_id)
    who = person(ann.account_id, str(owner.person_id), "", True)
    targets = Targets("orders", ("orders",), item="AKPS1")
    for operation in ("deleted_queues.end", "audit.export", "account.update"):
        assert MemberRights(owner, who).may(operation, targets), operation
        assert not MemberRights(owner, who, [acting_policy()]).may(operation, targets), operation
    left_behind = (
        "alarms.put", "alarms.delete", "budgets.put", "budgets.delete", "buyer.put", "buyer.delete", "schedules.create",
        "schedules.update", "schedules.delete", "webhooks.put", "webhooks.rotate", "webhooks.delete", "keys.put_quotas",
    )  # fmt: skip
    for operation in left_behind:
        assert MemberRights(owner, who).may(operation, targets), operation
        assert not MemberRights(owner, who, [acting_policy()]).may(operation, targets), operation
    for operation in ("alarms.mute", "schedules.pause", "alarms.list", "budgets.list", "webhooks.test"):
        assert MemberRights(owner, who, [acting_policy()]).may(operation, targets), operation
    for operation in ("deleted_queues.restore", "audit.list", "account.get"):
        assert MemberRights(owner, who, [acting_policy()]).may(operation, targets), operation


def test_act_ends_by_time_with_the_session_and_with_the_office(ann: Browser, operator: Browser) -> None:
    from api import clock
    from api.people.models import ActingVisit, Operator

    act_as(operator, ann)
    ActingVisit.objects.update(ends_at=clock.now() - timedelta(seconds=1))
    assert operator.get(ann.at("queues")).status_code == 404
    assert "You act as" not in operator.get("/console/operators/accounts").content.decode()
    act_as(operator, ann)
    assert operator.get(ann.at("queues")).status_code == 200
    kept = Operator.objects.all()[:]
    rows = list(kept)
    Operator.objects.all().delete()
    assert operator.get(ann.at("queues")).status_code == 404, "an operator no longer"
    Operator.objects.bulk_create(rows)
    operator.post("/console/sign-out", {}, ann.at("queues"))
    assert not ActingVisit.objects.exists()


@pytest.mark.parametrize("way", ["sign-out", "me/sessions/end-others", "sign-in"])
def test_trail_tells_the_end_of_a_visit_whose_session_ends(ann: Browser, operator: Browser, way: str) -> None:
    from api.people.actions.console_links import make_operator_link
    from api.people.models import ActingVisit

    act_as(operator, ann)
    member = f"person:{person_id(ann)}"
    if way == "me/sessions/end-others":
        other = Browser()
        other.open_link(make_operator_link())
        other.post(f"/console/{way}", {}, "/console/me")
    elif way == "sign-in":
        operator.open_link(make_operator_link())
    else:
        operator.post(f"/console/{way}", {}, ann.at("queues"))
    (entry,) = trail(ann.account_id, "acting.end")
    assert entry.details["acting_as"] == member and not ActingVisit.objects.exists()


def test_visit_that_is_over_ends_once(ann: Browser, operator: Browser) -> None:
    from api import clock
    from api.people.models import ActingVisit

    act_as(operator, ann)
    ActingVisit.objects.update(ends_at=clock.now() - timedelta(seconds=1))
    operator.post("/console/sign-out", {}, "/console/me")
    assert not trail(ann.account_id, "acting.end"), "its beginning has told when"


def test_what_is_refused_to_an_operator_who_acts_has_both_names(ann: Browser, operator: Browser) -> None:
    act_as(operator, ann)
    for _ in range(2):
        assert operator.get(ann.at("new-policy")).status_code == 403
    found = trail(ann.account_id, "refused.penstock:CreatePolicy")
    assert [entry.details["acting_as"] for entry in found] == [f"person:{person_id(ann)}"] * 2
    assert all(entry.details["source"] == operator.source for entry in found)


def test_operator_acts_in_that_account_alone(ann: Browser, operator: Browser) -> None:
    from tests.console.browsing import person

    bob = person("bob@example.com")
    act_as(operator, ann)
    assert operator.get(bob.at("queues")).status_code == 404
    form = {"person": person_id(bob), "reason": "x"}
    path = f"/console/operators/accounts/{ann.account_id}"
    assert operator.post(f"{path}/act-as", form, path).status_code == 404, "no member of this account"
    act_as(operator, bob)
    assert operator.get(bob.at("queues")).status_code == 200 and operator.get(ann.at("queues")).status_code == 404
    assert len(trail(ann.account_id, "acting.end")) == 1


def test_act_wants_an_operator_a_reason_and_a_recent_password(ann: Browser, operator: Browser, join: Joins) -> None:
    from api import clock
    from api.people.models import ActingVisit, PersonSession

    guest = join(ann, "admin")
    assert act_as(guest, ann).status_code == 404
    assert act_as(operator, ann, " ").status_code == 400
    assert act_as(operator, ann, "x" * 201).status_code == 400
    path = f"/console/operators/accounts/{ann.account_id}"
    assert operator.post(f"{path}/act-as", {"person": "x", "reason": "x"}, path).status_code == 400
    PersonSession.objects.update(authenticated_at=clock.now() - timedelta(hours=1))
    assert act_as(operator, ann)["Location"].startswith("/console/again")
    answer = operator.client.post(f"{path}/act-as", {"person": person_id(ann), "reason": "x"})
    assert answer.status_code == 403 and b"not sent from this site" in answer.content
    assert not ActingVisit.objects.exists() and not trail(ann.account_id, "acting.")


def test_what_needs_rights_of_the_own_is_refused_and_not_shown(ann: Browser, operator: Browser) -> None:
    """A document without what the operator may not read would look like an account that has nothing."""
    queue_row(ann.account_id, "orders")
    act_as(operator, ann)
    tail, definitions = ann.at("queues/orders/tail"), ann.at("definitions")
    refused = (
        operator.get(tail), operator.post(f"{tail}/ticket", {}, ann.at()), operator.get(f"{definitions}/document"),
        operator.post(definitions, {"document": "{}"}, definitions),
    )  # fmt: skip
    for answer in refused:
        assert answer.status_code == 403 and "An operator who acts as a member" in answer.content.decode()
    page = operator.get(ann.at("queues/orders")).content.decode()
    assert f'href="{tail}"' not in page and f'href="{definitions}"' not in page
    page = ann.get(ann.at("queues/orders")).content.decode()
    assert f'href="{tail}"' in page and f'href="{definitions}"' in page


def test_operator_who_is_a_member_uses_the_own_role(ann: Browser, join: Joins) -> None:
    from api import clock
    from api.people.models import Operator, Person

    guest = join(ann, "reader")
    Operator.objects.create(person=Person.objects.get(email=guest.email), created_at=clock.now())
    assert act_as(guest, ann).status_code == 409
    assert guest.post(guest.at("keys/new"), {"name": "x"}).status_code == 403


def test_operator_who_acts_gets_no_form_for_who_has_access(ann: Browser, operator: Browser) -> None:
    queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/access")
    assert "Save the policy" in ann.get(page).content.decode()
    act_as(operator, ann)
    assert operator.post(page, {"as": "json", "policy": ""}, page).status_code == 403
    shown = operator.get(page).content.decode()
    assert "Save the policy" not in shown and "Permit another account" not in shown
