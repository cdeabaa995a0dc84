"""Limits of attempts, and that every open route has one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F

from api import clock
from api.people import limits, rates
from api.people.actions.familiar_sources import note_source
from api.people.actions.upkeep import forget_expired
from api.people.errors import PeopleError
from api.people.models import AttemptRate, FamiliarSource, Person
from api.people.origin import RequestOrigin
from api.people.rates import Rate, charge
from tests.api.people.visitor import PASSWORD, Visitor, mailed_token, new_visitor, refused

pytestmark = pytest.mark.django_db
RATE = Rate("tested", 3, 60)


def spend(rate: Rate, subject: str, attempts: int) -> None:
    for _ in range(attempts):
        charge(rate, subject)


def test_burst_is_allowed_and_one_more_is_not() -> None:
    spend(RATE, "a", 3)
    with pytest.raises(PeopleError) as caught:
        charge(RATE, "a")
    assert (caught.value.code, caught.value.status) == ("too-many-attempts", 429)
    assert caught.value.retry_after_s is not None and 58 <= caught.value.retry_after_s <= 60


def test_one_more_is_allowed_after_its_time_and_not_before() -> None:
    spend(RATE, "a", 3)
    AttemptRate.objects.update(empty_at=F("empty_at") - timedelta(seconds=50))
    with pytest.raises(PeopleError) as caught:
        charge(RATE, "a")
    assert caught.value.retry_after_s is not None and 8 <= caught.value.retry_after_s <= 10
    AttemptRate.objects.update(empty_at=F("empty_at") - timedelta(seconds=10))
    charge(RATE, "a")
    with pytest.raises(PeopleError):
        charge(RATE, "a")


def test_refused_attempts_are_not_counted() -> None:
    spend(RATE, "a", 3)
    for _ in range(5):
        with pytest.raises(PeopleError):
            charge(RATE, "a")
    assert AttemptRate.objects.get().empty_at - clock.now() <= timedelta(seconds=180)


def test_subjects_and_rates_are_counted_apart() -> None:
    spend(RATE, "a", 3)
    charge(RATE, "b")
    charge(Rate("other", 3, 60), "a")


def test_counts_that_are_back_at_nothing_go() -> None:
    for subject in "abc":
        charge(RATE, subject)
    AttemptRate.objects.update(empty_at=clock.now() - timedelta(seconds=1))
    charge(RATE, "d")
    charge(RATE, "d")
    assert AttemptRate.objects.count() == 1


@pytest.mark.parametrize(
    ("source", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("", ""),
    ],
)
def test_ipv6_network_counts_as_one_source(source: str, counted: str) -> None:
    assert RequestOrigin(source).counted == counted


def test_sign_in_is_limited_per_address_from_any_source_known_or_not(ann: Visitor) -> None:
    for email in (ann.email, "unknown@example.com"):
        for _ in range(rates.SIGN_IN_PER_ADDRESS.burst - (email == ann.email)):  # its own sign-in
            assert refused(new_visitor().sign_in(email, "wrong wrong wrong")) == (401, "sign-in-refused")
        answer = new_visitor().sign_in(email)
        assert refused(answer) == (429, "too-many-attempts")
        assert 1 <= int(answer["Retry-After"]) <= rates.SIGN_IN_PER_ADDRESS.every_s
    assert new_visitor().sign_in("bob@example.com").status_code == 401


def use_up_address(email: str) -> None:
    """By strangers, each from a source of its own."""
    with pytest.raises(PeopleError):
        spend(rates.SIGN_IN_PER_ADDRESS, email, rates.SIGN_IN_PER_ADDRESS.burst + 1)
    assert refused(new_visitor().sign_in(email)) == (429, "too-many-attempts")


@pytest.fixture
def known(ann: Visitor) -> Visitor:
    """Signed in before the count of the address is used up."""
    AttemptRate.objects.all().delete()
    use_up_address(ann.email)
    return ann


def test_owner_signs_in_from_a_familiar_source_when_strangers_used_up_the_address(known: Visitor) -> None:
    assert Visitor(known.source).sign_in(known.email).status_code == 201
    assert refused(new_visitor().sign_in(known.email)) == (429, "too-many-attempts")


def test_a_familiar_source_is_one_of_one_person(known: Visitor, bob: Visitor) -> None:
    use_up_address(bob.email)
    assert refused(Visitor(known.source).sign_in(bob.email)) == (429, "too-many-attempts")
    assert refused(Visitor(bob.source).sign_in(known.email)) == (429, "too-many-attempts")


def test_attempts_from_a_familiar_source_are_limited_and_leave_those_of_the_address(ann: Visitor) -> None:
    AttemptRate.objects.all().delete()
    for _ in range(rates.SIGN_IN_PER_FAMILIAR_SOURCE.burst):
        assert refused(Visitor(ann.source).sign_in(ann.email, "wrong wrong wrong")) == (401, "sign-in-refused")
    assert refused(Visitor(ann.source).sign_in(ann.email)) == (429, "too-many-attempts")
    assert new_visitor().sign_in(ann.email).status_code == 201


def test_a_source_that_was_not_used_for_long_is_familiar_no_more(known: Visitor) -> None:
    days = timedelta(days=limits.FAMILIAR_SOURCE_DAYS)
    FamiliarSource.objects.update(last_used_at=clock.now() - days + timedelta(minutes=1))
    assert Visitor(known.source).sign_in(known.email).status_code == 201  # which makes it familiar again
    FamiliarSource.objects.update(last_used_at=clock.now() - days)
    assert refused(Visitor(known.source).sign_in(known.email)) == (429, "too-many-attempts")
    forget_expired()
    assert not FamiliarSource.objects.exists()


def test_the_sources_used_last_are_kept(ann: Visitor) -> None:
    person = Person.objects.get(pk=ann.person_id)
    for number in range(limits.FAMILIAR_SOURCES_PER_PERSON_MAX):
        note_source(RequestOrigin(f"192.0.2.{number}"), person, clock.now())
    assert FamiliarSource.objects.filter(person=person).count() == limits.FAMILIAR_SOURCES_PER_PERSON_MAX
    use_up_address(ann.email)
    assert refused(Visitor(ann.source).sign_in(ann.email)) == (429, "too-many-attempts")
    assert Visitor("192.0.2.0").sign_in(ann.email).status_code == 201


def test_a_refused_sign_in_makes_no_source_familiar(ann: Visitor) -> None:
    guest = new_visitor()
    assert refused(guest.sign_in(ann.email, "wrong wrong wrong")) == (401, "sign-in-refused")
    use_up_address(ann.email)
    assert refused(guest.sign_in(ann.email)) == (429, "too-many-attempts")


def test_who_resets_the_password_by_mail_signs_in_there(known: Visitor) -> None:
    guest = new_visitor()
    assert guest.call("POST", "/v1/people/password-reset", {"email": known.email}).status_code == 202
    body = {"token": mailed_token(known.email), "new_password": "another long password"}
    assert guest.call("POST", "/v1/people/password", body).status_code == 204
    assert guest.sign_in(known.email, "another long password").status_code == 201


def test_strangers_do_not_keep_who_is_signed_in_from_giving_the_password_again(known: Visitor) -> None:
    path = "/v1/session/authentication"
    elsewhere = Visitor(session_token=known.session_token)
    changed = {"current_password": PASSWORD, "new_password": "another long password"}
    assert elsewhere.call("POST", "/v1/people/me/password", changed).status_code == 204
    right = {"password": "another long password"}
    assert elsewhere.call("POST", path, right).status_code == 200
    for _ in range(rates.PASSWORD_PER_PERSON.burst - 2):
        assert elsewhere.call("POST", path, {"password": "wrong wrong wrong"}).status_code == 401
    assert refused(elsewhere.call("POST", path, right)) == (429, "too-many-attempts")


def test_limit_per_address_does_not_go_by_case(visitor: Visitor) -> None:
    for _ in range(rates.SIGN_IN_PER_ADDRESS.burst):
        visitor.sign_in("ann@example.com")
    assert refused(visitor.sign_in("ANN@example.com")) == (429, "too-many-attempts")


@pytest.mark.parametrize(
    ("path", "body", "rate"),
    [
        ("/v1/session", {"email": "{}@example.com", "password": PASSWORD}, rates.SIGN_IN_PER_SOURCE),
        ("/v1/people", {"email": "{}@example.com", "password": PASSWORD}, rates.SIGN_UP_PER_SOURCE),
        ("/v1/people/password-reset", {"email": "{}@example.com"}, rates.RESET_PER_SOURCE),
        ("/v1/people/confirmation", {"token": "x{}", "password": PASSWORD}, rates.TOKEN_PER_SOURCE),
        ("/v1/people/password", {"token": "x{}", "new_password": PASSWORD}, rates.TOKEN_PER_SOURCE),
        ("/v1/session/challenge", {"challenge_token": "x{}", "code": "123456"}, rates.TOKEN_PER_SOURCE),
    ],
)
def test_open_route_is_limited_per_source(visitor: Visitor, path: str, body: dict[str, str], rate: Rate) -> None:
    spend(rate, visitor.source, rate.burst - 1)

    def attempt(who: Visitor, number: int) -> int:
        given = {name: value.format(number) for name, value in body.items()}
        return int(who.call("POST", path, given).status_code)

    assert attempt(visitor, 1) != 429
    assert attempt(visitor, 2) == 429
    assert attempt(new_visitor(), 3) != 429


@pytest.mark.parametrize(
    ("path", "rate"),
    [("/v1/people", rates.SIGN_UP_PER_ADDRESS), ("/v1/people/password-reset", rates.RESET_PER_ADDRESS)],
)
def test_mails_to_an_address_are_limited(db: None, path: str, rate: Rate) -> None:
    body = {"email": "ann@example.com"} | ({"password": PASSWORD} if path == "/v1/people" else {})
    for _ in range(rate.burst):
        assert new_visitor().call("POST", path, body).status_code == 202
    assert refused(new_visitor().call("POST", path, body)) == (429, "too-many-attempts")


def test_limited_attempt_costs_no_hash(visitor: Visitor, hashes: list[str]) -> None:
    spend(rates.SIGN_IN_PER_SOURCE, visitor.source, rates.SIGN_IN_PER_SOURCE.burst)
    assert refused(visitor.sign_in("ann@example.com")) == (429, "too-many-attempts")
    assert hashes == []
