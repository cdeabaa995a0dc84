"""What each role sees, and that the server refuses what a page does not offer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.console.browsing import Browser, deny, person, queue_row

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]

READS = {
    "": "owner admin developer reader",
    "queues": "owner admin developer reader",
    "queues/orders": "owner admin developer reader",
    "queues/orders/tags": "owner admin developer reader",
    "queues/orders/quotas": "owner admin developer reader",
    "queues/orders/access": "owner admin developer reader",
    "queues/orders/moves": "owner admin developer reader",
    "queues/orders/schedules": "owner admin developer reader",
    "queues/orders/messages": "owner admin developer",
    "queues/orders/messages/list": "owner admin developer",
    "queues/orders/messages/body?id=a&message=b": "owner admin developer",
    "queues/orders/messages/download?text=x": "owner admin developer",
    "queues/orders/scheduled": "owner admin developer",
    "queues/orders/tail": "owner admin developer",
    "queues/orders/send": "owner admin developer",
    "queues/orders/purge": "owner admin developer",
    "queues/orders/edit": "owner admin developer",
    "queues/orders/delete": "owner admin developer",
    "new-queue": "owner admin developer",
    "people": "owner admin developer reader",
    "keys": "owner admin developer reader",
    "people/{person}": "owner admin developer reader",
    "groups": "owner admin developer reader",
    "policies": "owner admin developer reader",
    "new-policy": "owner admin",
    "simulator": "owner admin developer reader",
    "simulator?action=sqs:SendMessage&resource=orders": "owner admin developer reader",
    "encryption-keys": "owner admin developer reader",
    "quotas": "owner admin developer reader",
    "audit": "owner admin developer reader",
    "audit/download?form=csv": "owner admin",
    "definitions": "owner admin developer reader",
    "definitions/document": "owner admin developer reader",
    "deleted-queues": "owner admin developer reader",
    "settings": "owner admin developer reader billing guest",
    "counts?names=orders": "owner admin developer reader",
    "attention": "owner admin developer reader",
    "jump?q=o": "owner admin developer reader",
    "queues/orders/metrics": "owner admin developer reader",
    "queues/orders/charts": "owner admin developer reader",
    "queues/orders/costs": "owner admin",
    "cost": "owner admin billing",
    "traffic": "owner admin developer reader",
    "alarms": "owner admin developer reader",
    "webhooks": "owner admin developer reader",
    "alarms/new": "owner admin developer",
    "queues/orders/counts": "owner admin developer reader",
    "queues/orders/moves/progress": "owner admin developer reader",
    "queues/orders/messages/resend?id=a&message=b": "owner admin developer",
    "billing": "owner admin billing",
    "billing/now": "owner admin billing",
    "billing/usage": "owner admin billing",
    "billing/usage?by=key": "owner admin billing",
    "billing/usage.csv": "owner admin billing",
    "billing/invoices": "owner admin billing",
    "billing/budgets": "owner admin billing",
    "billing/budgets/edit": "owner admin billing",
    "billing/buyer": "owner admin billing",
    "billing/prices": "owner admin billing",
}
MEMBER = "11111111-1111-4111-8111-111111111111"
CHANGES = {
    "queues/orders/pause": "owner admin developer",
    "queues/orders/delete": "owner admin developer",
    "queues/orders/tags": "owner admin developer",
    "queues/orders/quotas": "owner admin developer",
    "queues/orders/access": "owner admin developer",
    "queues/orders/moves": "owner admin developer",
    "queues/orders/schedules": "owner admin developer",
    "queues/orders/tail/ticket": "owner admin developer",
    "queues/orders/send": "owner admin developer",
    "queues/orders/purge": "owner admin developer",
    "queues/orders/messages/chosen": "owner admin developer",
    "queues/orders/messages/delete": "owner admin developer",
    "queues/orders/messages/dead-letter": "owner admin developer",
    "queues/orders/scheduled/cancel": "owner admin developer",
    "queues/orders/scheduled/reschedule": "owner admin developer",
    "deleted-queues/11111111-1111-4111-8111-111111111111/restore": "owner admin developer",
    "deleted-queues/11111111-1111-4111-8111-111111111111/end": "owner admin",
    "keys/new": "owner admin",
    "keys/AKPS/revoke": "owner admin",
    "new-policy": "owner admin",
    "groups": "owner admin",
    "encryption-keys": "owner admin",
    "quotas": "owner admin",
    "people/11111111-1111-4111-8111-111111111111/policies": "owner admin",
    "people/invite": "owner admin",
    "settings": "owner admin",
    "people/11111111-1111-4111-8111-111111111111/role": "owner admin",
    "invitations/11111111-1111-4111-8111-111111111111/withdraw": "owner admin",
    "new-queue": "owner admin developer",
    "new-queue/same-as": "owner admin developer",
    "queues/orders/resume": "owner admin developer",
    "queues/orders/edit": "owner admin developer",
    "queues/orders/messages/resend": "owner admin developer",
    "queues/orders/moves/11111111-1111-4111-8111-111111111111/cancel": "owner admin developer",
    "queues/orders/schedules/nightly/delete": "owner admin developer",
    "queues/orders/schedules/nightly/edit": "owner admin developer",
    "alarms/new": "owner admin developer",
    "alarm/backlog": "owner admin developer",
    "webhooks/ops/test": "owner admin developer",
    "webhooks/ops/rotate": "owner admin developer",
    "webhooks/ops/delete": "owner admin developer",
    "alarm/backlog/mute": "owner admin developer",
    "alarm/backlog/delete": "owner admin developer",
    "billing/budgets/edit": "owner admin billing",
    "billing/budgets/delete": "owner admin billing",
    "billing/buyer": "owner admin billing",
    "billing/buyer/delete": "owner admin billing",
    "keys/AKPS/rotate": "owner admin",
    "queues/orders/policy-editor": "owner admin developer reader",
    "policy-editor": "owner admin developer reader billing guest",
    "close": "owner",
    "reopen": "owner",
}


# Pages of one thing: who may see it finds that there is none; who may not is refused before anybody looks.
ONE_OF = {
    "alarm/none": "owner admin developer reader",
    "queues/orders/schedules/none/edit": "owner admin developer",
    "webhooks/none": "owner admin developer reader",
    "webhooks/none/deliveries": "owner admin developer reader",
    "groups/none": "owner admin developer reader",
    "policies/none": "owner admin developer reader",
    "keys/none": "owner admin developer reader",
    "encryption-keys/none": "owner admin developer reader",
    f"billing/invoices/{MEMBER}": "owner admin billing",
    f"billing/invoices/{MEMBER}.pdf": "owner admin billing",
    f"billing/notes/{MEMBER}.pdf": "owner admin billing",
}


# Everybody may leave, so nobody is refused at the door: test_reader_removes_nobody_else.
LEAVES = "people/<uuid:person_id>/remove"


def patterns(routes: Any, before: str = "") -> Iterator[str]:
    for route in routes:
        path = before + str(route.pattern)
        if hasattr(route, "url_patterns"):
            yield from patterns(route.url_patterns, path)
        else:
            yield path


def test_every_address_of_an_account_has_its_roles_in_the_tables() -> None:
    """A page that is added without a row here fails."""
    from django.urls import Resolver404, resolve

    from console.urls import _ACCOUNT

    filled = dict.fromkeys((*READS, *CHANGES, *ONE_OF))
    known = set()
    for path in filled:
        at = f"/console/a/123456789012/{path.partition('?')[0]}".replace("{person}", MEMBER)
        try:
            known.add(resolve(at).route.partition("a/<name:account_id>/")[2])
        except Resolver404:
            raise AssertionError(f"{path} is no address") from None
    assert sorted(set(patterns(_ACCOUNT)) - known) == [LEAVES]


def test_reader_removes_nobody_else(ann: Browser, join: Joins) -> None:
    from api.people.models import AccountMembership, Person

    guest, other = join(ann, "reader"), join(ann, "developer")
    for email in (other.email, ann.email):
        person_id = Person.objects.get(email=email).pk
        assert guest.post(guest.at(f"people/{person_id}/remove")).status_code == 403, email
    assert AccountMembership.objects.filter(account_id=ann.account_id).count() == 3
    own = Person.objects.get(email=guest.email).pk
    assert guest.post(guest.at(f"people/{own}/remove")).status_code == 302
    assert AccountMembership.objects.filter(account_id=ann.account_id).count() == 2


@pytest.mark.parametrize("role", ["admin", "developer", "reader", "billing", "guest"])
def test_role_opens_its_pages_and_no_others(ann: Browser, join: Joins, data_plane: Any, role: str) -> None:
    queue_row(ann.account_id, "orders")
    seen = {"message": "b", "id": "a", "body": "x", "state": "waiting", "receive_count": 0, "sent_ms": 1}
    data_plane.answers["messages/find"] = {"messages": [seen], "scanned": 1, "cursor": None}
    data_plane.answers["orders/scheduled"] = {"messages": [], "next_cursor": None}
    guest = join(ann, role)
    from api.people.models import Person

    member = str(Person.objects.get(email=guest.email).pk)
    for path, roles in READS.items():
        asked = len(data_plane.asked)
        status = guest.get(guest.at(path.replace("{person}", member))).status_code
        if role in roles.split():
            assert status == 200, path
        else:
            assert status in (403, 302) and len(data_plane.asked) == asked, path
    for path, roles in ONE_OF.items():
        assert guest.get(guest.at(path)).status_code == (404 if role in roles.split() else 403), path


@pytest.mark.parametrize("role", ["developer", "reader", "billing", "guest"])
def test_role_is_refused_what_it_may_not_change(ann: Browser, join: Joins, data_plane: Any, role: str) -> None:
    queue = queue_row(ann.account_id, "orders")
    guest = join(ann, role)
    form = {"typed": "orders", "key": "a", "value": "b", "label": "x", "accounts": "123456789012", "name": "n"}
    form["what"] = "attach"
    for path, roles in CHANGES.items():
        if role not in roles.split():
            answer = guest.post(guest.at(path), {**form, "actions": ["SendMessage"]})
            assert answer.status_code == 403, path
            assert b"Ask an owner or admin" in answer.content, path
    queue.refresh_from_db()
    assert queue.state == "active" and not queue.tags and not data_plane.asked


def refused(account_id: str) -> list[tuple[str, str, str]]:
    """What the audit trail tells of refusals: who, the action, on what."""
    from api.audit.models import AuditEntry

    rows = AuditEntry.objects.filter(account_id=account_id, action__startswith="refused.").order_by("id")
    return [(row.actor, row.action.removeprefix("refused."), row.subject.rpartition("::")[2]) for row in rows]


def test_refusals_of_pages_stand_in_the_audit_trail(ann: Browser, join: Joins, data_plane: Any) -> None:
    from api.people.models import Person

    queue_row(ann.account_id, "orders")
    reader, developer = join(ann, "reader"), join(ann, "developer")
    deny(developer, "penstock:RemoveMessage", "orders")
    deny(developer, "sqs:ListQueues", "")
    asked = [
        (reader, "GET", "queues/orders/messages", "penstock:PeekMessages"),
        (reader, "POST", "queues/orders/pause", "sqs:SetQueueAttributes"),
        (reader, "POST", "keys/new", "penstock:CreateKey"),
        (reader, "GET", "new-policy", "penstock:CreatePolicy"),
        (reader, "GET", "billing", "billing:GetMeter"),
        (developer, "POST", "queues/orders/messages/delete", "penstock:RemoveMessage"),
        (developer, "POST", "queues/orders/moves", "penstock:RemoveMessage"),
        (developer, "GET", "queues", "sqs:ListQueues"),
        (developer, "POST", "settings", "penstock:UpdateAccount"),
    ]
    expected = []
    for browser, method, path, action in asked:
        answer = browser.get(browser.at(path)) if method == "GET" else browser.post(browser.at(path), {"message": "m"})
        assert answer.status_code == 403, path
        who = f"person:{Person.objects.get(email=browser.email).pk}"
        if (who, action) not in [one[:2] for one in expected]:
            expected.append((who, action, "orders" if path.startswith("queues/") else ""))
    found = refused(ann.account_id)
    assert [one[:2] for one in found] == [one[:2] for one in expected], "again is counted, and no entry of its own"
    assert [subject.rpartition(":")[2] for _, _, subject in found][:2] == ["orders", "orders"]


def test_pages_that_a_member_may_see_tell_of_no_refusals(ann: Browser, join: Joins, data_plane: Any) -> None:
    """What is not offered was not asked for."""
    queue_row(ann.account_id, "orders")
    guest = join(ann, "reader")
    for path in ("", "attention", "traffic", "queues", "queues/orders", "people", "keys", "definitions", "settings"):
        assert guest.get(guest.at(path)).status_code == 200, path
    assert refused(ann.account_id) == []


def test_overview_names_no_queues_to_those_who_may_not_list_them(ann: Browser, join: Joins, data_plane: Any) -> None:
    import json

    from api import clock
    from api.series.models import SeriesQueue

    arn = f"arn:aws:sqs:us-east-1:{ann.account_id}:payroll-dead"
    queue_row(ann.account_id, "payroll-dead", **{"Penstock.Paused": "true"})
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    queue = queue_row(ann.account_id, "payroll", RedrivePolicy=redrive)
    waits = {"waiting": 777, "oldest_sent_ms": 1, "looked_at": clock.now()}
    SeriesQueue.objects.create(account_id=ann.account_id, queue_uuid=queue.uuid, **waits)
    data_plane.answers["payroll-dead"] = {"waiting": 777, "parked_groups": 2}
    guest = join(ann, "developer")
    parts = ("", "attention", "traffic")
    before = [guest.get(guest.at(part)).content.decode() for part in parts]
    assert all("payroll" in text for text in before) and any(re.search(r"\b777\b", text) for text in before)
    data_plane.asked.clear()
    deny(guest, "sqs:ListQueues", "")
    for part in parts:
        answer = guest.get(guest.at(part))
        text = answer.content.decode().partition("Activity")[0]
        # A whole number: an account's id may hold the same digits.
        assert answer.status_code == 200 and "payroll" not in text and not re.search(r"\b777\b", text), part
    assert not data_plane.asked and "No queues yet" not in guest.get(guest.at()).content.decode()


def test_reader_sees_no_button_that_it_may_not_press(ann: Browser, join: Joins) -> None:
    queue_row(ann.account_id, "orders")
    guest = join(ann, "reader")
    for path in ("", "queues", "queues/orders", "queues/orders/tags", "queues/orders/schedules", "keys", "people"):
        text = guest.get(guest.at(path)).content.decode()
        buttons = ("New queue", "Pause delivery", "Create a key", "Invite")
        for offered in (*buttons, "/edit", "/purge", "/send", "/messages"):
            assert offered not in text.replace("invitation", ""), f"{path}: {offered}"


def test_secret_of_a_key_is_shown_in_one_answer_alone(ann: Browser) -> None:
    from api.accounts.models import AccessKey

    page = ann.at("keys")
    text = ann.post(ann.at("keys/new"), {"name": "worker", "days": "7"}, page).content.decode()
    key = AccessKey.objects.get(account_id=ann.account_id)
    assert key.access_key_id in text and "pstk_" in text and key.expires_at is not None
    token = "pstk_" + text.partition("pstk_")[2].partition("<")[0]
    after = ann.get(page).content.decode()
    assert key.access_key_id in after and "pstk_" not in after and token not in after
    assert ann.post(ann.at(f"keys/{key.access_key_id}/revoke"), {}, page).status_code == 302
    assert not AccessKey.objects.filter(pk=key.pk).exists()
    assert ann.post(ann.at(f"keys/{key.access_key_id}/revoke"), {}, page).status_code == 404


def test_key_of_another_account_cannot_be_revoked(ann: Browser) -> None:
    from api.accounts.actions import create_key
    from api.accounts.models import AccessKey
    from api.audit.actions import OPERATOR

    bob = person("bob@example.com")
    key = create_key(OPERATOR, bob.account_id, "bobs").key
    assert ann.post(ann.at(f"keys/{key.access_key_id}/revoke")).status_code == 404
    assert AccessKey.objects.filter(pk=key.pk).exists()


def test_account_of_others_is_not_here(ann: Browser, data_plane: Any) -> None:
    bob = person("bob@example.com")
    queue_row(bob.account_id, "secret-orders")
    for path in (*READS, "counts?names=secret-orders", "jump?q=secret", "queues/secret-orders/messages/list"):
        answer = ann.get(f"/console/a/{bob.account_id}/{path}")
        assert answer.status_code == 404 and b"secret-orders" not in answer.content, path
    assert ann.post(f"/console/a/{bob.account_id}/queues/secret-orders/pause").status_code == 404
    assert not data_plane.asked


def test_removed_member_is_out_with_the_next_click(ann: Browser, join: Joins) -> None:
    guest = join(ann, "admin")
    from api.people.models import Person

    person_id = Person.objects.get(email=guest.email).pk
    assert ann.post(ann.at(f"people/{person_id}/remove"), {}, ann.at("people")).status_code == 302
    assert guest.get(guest.at("queues")).status_code == 404


def test_role_is_changed_by_an_owner_shortly_after_the_password(ann: Browser, join: Joins) -> None:
    from datetime import timedelta

    from api import clock
    from api.people.models import AccountMembership, Person, PersonSession

    guest = join(ann, "reader")
    member = Person.objects.get(email=guest.email)
    path = ann.at(f"people/{member.pk}/role")
    PersonSession.objects.update(authenticated_at=clock.now() - timedelta(hours=1))
    assert ann.post(path, {"role": "admin"}, ann.at("people"))["Location"].startswith("/console/again")
    assert AccountMembership.objects.get(person=member, account_id=ann.account_id).role == "reader"
    again = {"password": "correct horse battery", "next": ann.at("people")}
    assert ann.post("/console/again", again, "/console/again")["Location"] == ann.at("people")
    assert ann.post(path, {"role": "admin"}, ann.at("people")).status_code == 302
    assert AccountMembership.objects.get(person=member, account_id=ann.account_id).role == "admin"


def test_audit_log_tells_who_and_what(ann: Browser) -> None:
    from api.people.models import Person
    from api.queues.actions import delete_queue
    from frontend.authn import principal

    queue_row(ann.account_id, "orders")
    who = principal.person(ann.account_id, str(Person.objects.get(email=ann.email).pk))
    delete_queue(who, ann.account_id, "orders")
    text = ann.get(ann.at("audit?action=queue.d")).content.decode()
    assert "queue.delete" in text and "queue.create" not in text and ann.email in text
    assert "Nothing found" in ann.get(ann.at("audit?subject=queue:none")).content.decode()
    assert ann.get(ann.at("audit?before=x&action=%00")).status_code == 200


def test_suspended_account_is_read_and_not_changed(ann: Browser, data_plane: Any) -> None:
    from api.audit.actions import OPERATOR
    from api.people.actions.account_life import suspend_account

    queue = queue_row(ann.account_id, "orders")
    suspend_account(OPERATOR, ann.account_id, "unpaid")
    text = ann.get(ann.at("queues/orders")).content.decode()
    assert "This account is suspended" in text and "Pause delivery" not in text
    for path in ("queues/orders/pause", "queues/orders/send", "keys/new", "queues/orders/messages/delete"):
        assert ann.post(ann.at(path), {"name": "x", "body": "x"}).status_code == 409, path
    assert ann.get(ann.at("queues/orders/counts")).status_code == 204 and not data_plane.asked
    queue.refresh_from_db()
    assert queue.attributes.get("Penstock.Paused") is None
