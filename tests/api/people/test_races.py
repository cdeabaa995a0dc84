"""Two requests at once: one wins, and no rule gives way."""

from __future__ import annotations

import importlib
import threading
import time
import uuid
from collections.abc import Callable

import pytest
from django.db import connection

from api.people.models import AccountMembership, Person, RecoveryCode
from tests.api.people.visitor import PASSWORD, Visitor, enrol, join, mailed_token, new_visitor

pytestmark = pytest.mark.django_db(transaction=True)
THREADS = 4
LINGER_S = 0.3


def at_once(*calls: Callable[[], int]) -> list[int]:
    """Statuses, sorted."""
    barrier = threading.Barrier(len(calls))
    found: list[int] = []

    def run(call: Callable[[], int]) -> None:
        try:
            barrier.wait(10)
            found.append(call())
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return sorted(found)


def linger(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A function returns late, so that the other requests come to the same place if nothing holds them."""
    module, _, function = name.rpartition(".")
    real = getattr(importlib.import_module(module), function)

    def late(*args: object, **given: object) -> object:
        found = real(*args, **given)
        time.sleep(LINGER_S)
        return found

    monkeypatch.setattr(name, late)


def test_two_owners_who_leave_at_once_leave_one(monkeypatch: pytest.MonkeyPatch) -> None:
    linger(monkeypatch, "api.people.actions.members._require_owner_beside")
    ann, bob = enrol("ann@example.com"), enrol("bob@example.com")
    join(ann, bob, "owner")

    def leave(who: Visitor) -> int:
        return int(who.call("DELETE", f"/v1/accounts/{ann.account_id}/members/{who.person_id}").status_code)

    assert at_once(lambda: leave(ann), lambda: leave(bob)) == [204, 409]
    assert AccountMembership.objects.filter(account_id=ann.account_id, role="owner").count() == 1


def test_invitation_accepted_twice_at_once_makes_one_member(monkeypatch: pytest.MonkeyPatch) -> None:
    linger(monkeypatch, "api.people.actions.invitations.membership_of")
    ann, bob = enrol("ann@example.com"), enrol("bob@example.com")
    ann.call("POST", f"/v1/accounts/{ann.account_id}/invitations", {"email": bob.email, "role": "reader"})
    payload = {"token": mailed_token(bob.email)}
    accept = [lambda: int(bob.call("POST", "/v1/invitations/acceptance", payload).status_code)] * THREADS
    assert at_once(*accept) == [201] + [400] * (THREADS - 1)


def test_address_confirmed_twice_at_once_makes_one_account(monkeypatch: pytest.MonkeyPatch) -> None:
    linger(monkeypatch, "api.people.actions.enrolment.find_token")
    guest = new_visitor()
    guest.call("POST", "/v1/people", {"email": "ann@example.com", "password": PASSWORD})
    payload = {"token": mailed_token("ann@example.com"), "password": PASSWORD}
    confirm = [lambda: int(guest.call("POST", "/v1/people/confirmation", payload).status_code)] * THREADS
    assert at_once(*confirm) == [201] + [400] * (THREADS - 1)
    assert AccountMembership.objects.count() == 1


def test_address_confirmed_at_once_with_two_tokens_makes_one_account(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = new_visitor()
    payloads = []
    for _ in range(2):
        guest.call("POST", "/v1/people", {"email": "ann@example.com", "password": PASSWORD})
        payloads.append({"token": mailed_token("ann@example.com"), "password": PASSWORD})
    linger(monkeypatch, "api.people.actions.enrolment.use_up")

    def confirm(payload: dict[str, str]) -> int:
        return int(guest.call("POST", "/v1/people/confirmation", payload).status_code)

    assert at_once(lambda: confirm(payloads[0]), lambda: confirm(payloads[1])) == [201, 400]
    assert AccountMembership.objects.count() == 1


def test_address_signed_up_at_once_is_one_person() -> None:
    payload = {"email": "ann@example.com", "password": PASSWORD}
    assert at_once(*[lambda: int(new_visitor().call("POST", "/v1/people", payload).status_code)] * THREADS) == [202] * 4
    assert Person.objects.count() == 1


def test_attempts_at_once_are_all_counted() -> None:
    from api.people.errors import PeopleError
    from api.people.rates import Rate, charge

    rate = Rate("tested", 2, 600)

    def attempt() -> int:
        try:
            charge(rate, "a")
        except PeopleError as error:
            return error.status
        return 200

    assert at_once(*[attempt] * THREADS) == [200, 200, 429, 429]


def test_code_of_the_authenticator_used_at_once_opens_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.api.people.test_second_factor import answer_with, challenged, switch_on

    ann = enrol("ann@example.com")
    authenticator, _ = switch_on(ann)
    guests = [challenged(ann.email) for _ in range(THREADS)]
    linger(monkeypatch, "api.people.actions.factors.matching_step")
    code = authenticator.code()
    calls = [lambda one=one: int(answer_with(*one, code).status_code) for one in guests]  # type: ignore[misc]
    assert at_once(*calls) == [201] + [400] * (THREADS - 1)


def test_recovery_code_used_at_once_opens_one_session() -> None:
    from tests.api.people.test_second_factor import answer_with, challenged, switch_on

    ann = enrol("ann@example.com")
    _, codes = switch_on(ann)
    guests = [challenged(ann.email) for _ in range(THREADS)]
    calls = [lambda one=one: int(answer_with(*one, codes[0]).status_code) for one in guests]  # type: ignore[misc]
    assert at_once(*calls) == [201] + [400] * (THREADS - 1)
    assert RecoveryCode.objects.count() == len(codes) - 1


@pytest.mark.parametrize("is_written", [False, True])
def test_session_that_ends_while_a_ticket_is_made_leaves_none(
    monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    from api.people.errors import PeopleError
    from api.people.models import PersonSession
    from api.tails.actions import make_ticket
    from api.tails.models import TailTicket

    ann = enrol("ann@example.com")
    session, make = PersonSession.objects.get(), TailTicket.objects.create
    if not is_written:
        linger(monkeypatch, "api.tails.actions.mint_token")

    def late(**given: object) -> object:
        found = make(**given)
        time.sleep(LINGER_S)
        return found

    def ticket() -> int:
        try:
            make_ticket(session, ann.account_id, "orders")
        except PeopleError as error:
            return error.status
        return 200

    def sign_out() -> int:
        time.sleep(LINGER_S / 3)
        return int(ann.call("DELETE", "/v1/session").status_code)

    if is_written:
        monkeypatch.setattr(TailTicket.objects, "create", late)
    assert at_once(ticket, sign_out) == [200, 204]
    assert not TailTicket.objects.exists() and not PersonSession.objects.exists()
    assert ticket() == 401


def test_member_who_goes_while_an_operator_begins_to_act_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    from api import clock
    from api.people.actions.acting import begin_acting
    from api.people.errors import PeopleError
    from api.people.models import ActingVisit, Operator, PersonSession
    from api.people.origin import RequestOrigin

    linger(monkeypatch, "api.people.actions.acting.check_printable")
    linger(monkeypatch, "api.people.actions.acting.note_visit")
    ann, bob, eve = (enrol(f"{name}@example.com") for name in ("ann", "bob", "eve"))
    join(ann, bob, "reader")
    session = PersonSession.objects.get(person_id=eve.person_id)
    Operator.objects.create(person_id=eve.person_id, created_at=clock.now())

    def act() -> int:
        try:
            begin_acting(RequestOrigin("203.0.113.7"), session, ann.account_id, uuid.UUID(bob.person_id), "ticket 7")
        except PeopleError as error:
            return error.status
        return 200

    def remove() -> int:
        time.sleep(LINGER_S * 1.2)
        return int(ann.call("DELETE", f"/v1/accounts/{ann.account_id}/members/{bob.person_id}").status_code)

    assert at_once(act, remove) == [200, 204]
    assert not ActingVisit.objects.exists()
    assert AccountMembership.objects.filter(account_id=ann.account_id).count() == 1
