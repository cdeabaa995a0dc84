"""The live tail: who gets a ticket, what one opens, and what ends the right to look."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browsing import Browser, deny, person, queue_row
from tests.support.control_plane import Caller

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]
PAGE = "queues/orders/tail"
FRONT_END = Caller("", "")


@pytest.fixture
def shop(ann: Browser) -> Browser:
    for name in ("orders", "payroll"):
        queue_row(ann.account_id, name)
    return ann


def ticket_of(browser: Browser, queue: str = "orders") -> str:
    path = browser.at(f"queues/{queue}/tail")
    answer = browser.post(f"{path}/ticket", {}, path)
    assert answer.status_code == 200, answer.content
    assert answer.json()["socket"] == f"/v1/queues/{queue}/tail"
    assert answer["Cache-Control"].startswith("max-age=0, no-cache, no-store")
    return str(answer.json()["ticket"])


def opened(ticket: str, queue: str = "orders") -> Any:
    asked = {"ticket": ticket, "queue": queue, "source_ip": "10.0.0.7", "is_secure": False}
    return FRONT_END.request("POST", "/internal/tails/open", asked)


def why(start: dict[str, Any], queue: str = "orders", **changes: Any) -> str:
    """Why the tail must end, "" where it goes on."""
    claim = {"account_id": start["account_id"], "session_id": start["session_id"], "queue": queue, **changes}
    answer = FRONT_END.request("POST", "/internal/tails/confirm", {"tails": [claim]})
    assert answer.status_code == 200, answer.content
    (end,) = answer.json()["ends"]
    return str(end)


# --- tickets ---


def test_ticket_says_who_looks_and_is_noted_in_the_audit_trail(shop: Browser) -> None:
    from api.audit.models import AuditEntry
    from api.people.models import PersonSession

    start = opened(ticket_of(shop)).json()
    session = PersonSession.objects.get(pk=start["session_id"])
    assert start["account_id"] == shop.account_id and start["person_id"] == str(session.person_id)
    row = AuditEntry.objects.get(action="message.tail")
    assert (row.account_id, row.actor, row.subject) == (shop.account_id, f"person:{session.person_id}", "queue:orders")
    assert row.details == {"source": "10.0.0.7"} and row.request_id == "req-1"


def test_ticket_is_good_once(shop: Browser) -> None:
    ticket = ticket_of(shop)
    assert opened(ticket).status_code == 200
    assert (opened(ticket).status_code, opened(ticket).json()["code"]) == (401, "InvalidClientTokenId")


def test_ticket_is_good_for_a_minute(shop: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    from api import clock

    early, late = ticket_of(shop), ticket_of(shop)
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(seconds=59))
    assert opened(early).status_code == 200
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(seconds=61))
    assert opened(late).status_code == 401


def test_ticket_of_one_queue_opens_no_other_and_is_used_up(shop: Browser) -> None:
    ticket = ticket_of(shop)
    assert opened(ticket, "payroll").status_code == 401
    assert opened(ticket).status_code == 401


def test_ticket_opens_its_account_alone(shop: Browser) -> None:
    bob = person("bob@example.com")
    queue_row(bob.account_id, "orders")
    assert opened(ticket_of(shop)).json()["account_id"] == shop.account_id
    assert bob.post(f"/console/a/{shop.account_id}/{PAGE}/ticket").status_code == 404


@pytest.mark.parametrize("ticket", ["", "pstt_" + "a" * 43, "psts_" + "a" * 43, "pstt_short"])
def test_what_is_no_ticket_opens_nothing(shop: Browser, ticket: str) -> None:
    assert opened(ticket).status_code == 401


def test_ticket_of_an_ended_session_opens_nothing(shop: Browser) -> None:
    ticket = ticket_of(shop)
    shop.post("/console/sign-out", {})
    assert opened(ticket).status_code == 401


def test_session_keeps_its_latest_tickets(shop: Browser) -> None:
    from api.tails.actions import TICKETS_PER_SESSION_MAX
    from api.tails.models import TailTicket

    first = ticket_of(shop)
    for _ in range(TICKETS_PER_SESSION_MAX):
        last = ticket_of(shop)
    assert TailTicket.objects.count() == TICKETS_PER_SESSION_MAX
    assert opened(first).status_code == 401 and opened(last).status_code == 200


def test_ticket_is_stored_as_a_mac_alone(shop: Browser) -> None:
    from api.tails.models import TailTicket

    ticket = ticket_of(shop)
    assert ticket.encode() not in bytes(TailTicket.objects.get().token_hash)


def test_form_of_another_site_gets_no_ticket(shop: Browser) -> None:
    assert shop.client.post(shop.at(f"{PAGE}/ticket"), {}).status_code == 403


# --- rights ---


def test_reader_gets_no_ticket_and_no_page(shop: Browser, join: Joins) -> None:
    guest = join(shop, "reader")
    assert guest.get(guest.at(PAGE)).status_code == 403
    assert guest.post(guest.at(f"{PAGE}/ticket")).status_code == 403
    assert "orders/tail" not in guest.get(guest.at("queues/orders")).content.decode()


def test_policy_about_one_queue_refuses_its_ticket_alone(shop: Browser, join: Joins) -> None:
    guest = join(shop, "developer")
    deny(guest, "penstock:PeekMessages", "payroll")
    path = guest.at("queues/payroll/tail")
    assert guest.get(path).status_code == 403 and guest.post(f"{path}/ticket").status_code == 403
    assert opened(ticket_of(guest)).status_code == 200


def test_right_that_went_after_the_ticket_was_made_opens_nothing(shop: Browser, join: Joins) -> None:
    guest = join(shop, "developer")
    ticket = ticket_of(guest)
    deny(guest, "penstock:PeekMessages", "orders")
    assert (opened(ticket).status_code, opened(ticket).status_code) == (403, 401)


def test_tail_ends_with_the_session(shop: Browser) -> None:
    start = opened(ticket_of(shop)).json()
    assert why(start) == ""
    shop.post("/console/sign-out", {})
    assert why(start) == "session-ended"


def test_tail_ends_when_the_session_is_too_old(shop: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    from api import clock
    from api.people.limits import SESSION_IDLE_S_MAX

    start = opened(ticket_of(shop)).json()
    later = clock.now() + timedelta(seconds=SESSION_IDLE_S_MAX + 1)
    monkeypatch.setattr(clock, "now", lambda: later)
    assert why(start) == "session-ended", "a tail is no sign of a person"


def lift_policies(browser: Browser) -> None:
    """Takes away all policies that are attached to the member."""
    from api.iam.models import PolicyAttachment

    PolicyAttachment.objects.filter(member__person__email=browser.email).delete()


def test_tail_ends_with_the_policy_the_role_and_the_membership(shop: Browser, join: Joins) -> None:
    from api.people.models import Person

    guest = join(shop, "developer")
    start = opened(ticket_of(guest)).json()
    deny(guest, "penstock:PeekMessages", "orders")
    assert why(start) == "access-denied" and why(start, queue="payroll") == ""
    lift_policies(guest)
    assert why(start) == ""
    person_id = Person.objects.get(email=guest.email).pk
    assert shop.post(shop.at(f"people/{person_id}/role"), {"role": "reader"}, shop.at("people")).status_code == 302
    assert why(start) == "access-denied"
    assert shop.post(shop.at(f"people/{person_id}/remove"), {}, shop.at("people")).status_code == 302
    assert why(start) == "not-a-member"


def test_tail_ends_with_the_account(shop: Browser) -> None:
    from api.audit.actions import OPERATOR
    from api.people.actions.account_life import suspend_account

    start = opened(ticket_of(shop)).json()
    suspend_account(OPERATOR, shop.account_id, "unpaid")
    assert why(start) == "account-not-active"
    assert shop.post(shop.at(f"{PAGE}/ticket")).status_code == 409


def test_tail_of_another_account_is_not_confirmed(shop: Browser) -> None:
    bob = person("bob@example.com")
    start = opened(ticket_of(shop)).json()
    assert why(start, account_id=bob.account_id) == "not-a-member"
    assert why(start, session_id=str(uuid.uuid4())) == "session-ended"


@pytest.mark.parametrize("path", ["open", "confirm"])
def test_front_ends_alone_may_ask(shop: Browser, path: str) -> None:
    from django.test import Client

    target = f"/internal/tails/{path}"
    assert Client().post(target, {}, content_type="application/json").status_code == 401
    assert Caller(shop.account_id, "AKPS").request("POST", target, {}).status_code == 401
    assert FRONT_END.request("POST", target, {"more": 1}).status_code == 400
    assert FRONT_END.request("GET", target).status_code == 401
