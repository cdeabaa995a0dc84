"""Sign-up and confirmation of an address."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core import mail
from django.db import IntegrityError, transaction

from api import clock
from api.accounts.models import Account
from api.audit.models import AuditEntry
from api.people import limits
from api.people.models import AccountLife, AccountMembership, Person, PersonToken
from tests.api.people.visitor import PASSWORD, Visitor, audit, enrol, mailed_token, new_visitor, refused

pytestmark = pytest.mark.django_db
EMAIL = "ann@example.com"
SIGN_UP = {"email": EMAIL, "password": PASSWORD}


def confirm(visitor: Visitor, token: str, password: str = PASSWORD, **more: str) -> object:
    return visitor.call("POST", "/v1/people/confirmation", {"token": token, "password": password, **more})


def test_person_signs_up_confirms_and_owns_an_account(visitor: Visitor) -> None:
    assert visitor.call("POST", "/v1/people", SIGN_UP).status_code == 202
    assert Person.objects.get().email_confirmed_at is None
    assert Account.objects.count() == 0
    answer = confirm(visitor, mailed_token(EMAIL), name="Ann", account_title="Ann's shop")
    assert answer.status_code == 201 and answer["Cache-Control"] == "no-store"
    made = answer.json()
    assert (made["email"], made["name"], made["second_factor"]) == (EMAIL, "Ann", False)
    assert AccountLife.objects.get(pk=made["account_id"]).title == "Ann's shop"
    assert AccountMembership.objects.get().role == "owner"
    assert Account.objects.get().active
    assert audit() == ["person.sign_up", "person.confirm"]
    assert audit(made["account_id"]) == ["account.create", "member.add"]


def test_audit_entry_says_who_and_from_where(visitor: Visitor) -> None:
    visitor.call("POST", "/v1/people", SIGN_UP, **{"X-Request-Id": "req-7"})
    entry = AuditEntry.objects.get(action="person.sign_up")
    assert entry.actor == f"person:{Person.objects.get().pk}"
    assert (entry.request_id, entry.details) == ("req-7", {"source": visitor.source})


def test_title_of_the_account_is_the_address_where_none_is_given(ann: Visitor) -> None:
    assert AccountLife.objects.get().title == EMAIL


def test_sign_up_of_a_known_address_answers_the_same_and_mails_its_owner(ann: Visitor, hashes: list[str]) -> None:
    mail.outbox.clear()
    known = new_visitor().call("POST", "/v1/people", {"email": "Ann@Example.com", "password": "another long one"})
    spent, mails = hashes.copy(), [one.subject for one in mail.outbox]
    hashes.clear()
    unknown = new_visitor().call("POST", "/v1/people", {"email": "new@example.com", "password": "another long one"})
    assert (known.status_code, known.content) == (unknown.status_code, unknown.content) == (202, b"")
    assert spent == hashes == ["encode"]
    assert mails == ["You have an account already"]
    assert Person.objects.filter(email__iexact=EMAIL).count() == 1
    assert ann.sign_in(EMAIL).status_code == 201


def test_answer_of_a_sign_up_waits_for_nothing_that_depends_on_the_address(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[object] = []
    monkeypatch.setattr("api.people.errands.leave", left.append)
    assert visitor.call("POST", "/v1/people", SIGN_UP).status_code == 202
    assert len(left) == 1 and not Person.objects.exists() and not mail.outbox


def test_unconfirmed_person_cannot_sign_in_and_the_answer_does_not_tell(visitor: Visitor, hashes: list[str]) -> None:
    visitor.call("POST", "/v1/people", SIGN_UP)
    hashes.clear()
    assert refused(visitor.sign_in(EMAIL)) == (401, "sign-in-refused")
    assert hashes == ["verify"]


def test_confirmation_wants_the_password_of_the_same_sign_up(visitor: Visitor) -> None:
    """Who signs up with an address of another person gains nothing when that person follows the mail."""
    visitor.call("POST", "/v1/people", {"email": EMAIL, "password": "password of a thief"})
    stolen = mailed_token(EMAIL)
    visitor.call("POST", "/v1/people", SIGN_UP)
    own = mailed_token(EMAIL)
    assert refused(confirm(visitor, stolen)) == (400, "invalid-token")
    assert confirm(visitor, own).status_code == 201
    assert refused(visitor.sign_in(EMAIL, "password of a thief")) == (401, "sign-in-refused")
    assert refused(confirm(visitor, stolen, "password of a thief")) == (400, "invalid-token")


def test_token_is_used_once(visitor: Visitor) -> None:
    visitor.call("POST", "/v1/people", SIGN_UP)
    token = mailed_token(EMAIL)
    assert confirm(visitor, token).status_code == 201
    assert refused(confirm(visitor, token)) == (400, "invalid-token")
    assert AccountMembership.objects.count() == 1


@pytest.mark.parametrize(("left_s", "status"), [(60, 201), (0, 400), (-60, 400)])
def test_token_expires(visitor: Visitor, left_s: int, status: int) -> None:
    visitor.call("POST", "/v1/people", SIGN_UP)
    PersonToken.objects.update(expires_at=clock.now() + timedelta(seconds=left_s))
    assert confirm(visitor, mailed_token(EMAIL)).status_code == status


def test_token_is_gone_after_too_many_wrong_passwords(visitor: Visitor) -> None:
    visitor.call("POST", "/v1/people", SIGN_UP)
    token = mailed_token(EMAIL)
    for _ in range(limits.TOKEN_ATTEMPTS_MAX - 1):
        confirm(visitor, token, "wrong wrong wrong")
    assert PersonToken.objects.get().attempts == limits.TOKEN_ATTEMPTS_MAX - 1
    confirm(visitor, token, "wrong wrong wrong")
    assert refused(confirm(visitor, token)) == (400, "invalid-token")


@pytest.mark.parametrize("token", ["x", "pstc_" + "A" * 43, "pstr_" + "A" * 43, "pstc_" + "A" * 42, "é" * 48])
def test_made_up_token_is_refused_after_one_hash(visitor: Visitor, hashes: list[str], token: str) -> None:
    assert refused(confirm(visitor, token)) == (400, "invalid-token")
    assert hashes == ["verify"]


def test_tokens_of_a_person_are_bounded(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOKENS_PER_PERSON_MAX", 2)
    tokens = []
    for _ in range(3):
        new_visitor().call("POST", "/v1/people", SIGN_UP)
        tokens.append(mailed_token(EMAIL))
    assert PersonToken.objects.count() == 2
    assert confirm(visitor, tokens[0]).status_code == 400
    assert confirm(visitor, tokens[1]).status_code == 201


def test_address_is_one_person_whatever_its_case(ann: Visitor) -> None:
    assert new_visitor().sign_in("ANN@EXAMPLE.com").status_code == 201
    with pytest.raises(IntegrityError), transaction.atomic():
        Person.objects.create(email="Ann@example.com", created_at=clock.now())


def test_database_keeps_no_password_of_an_unconfirmed_person(db: None) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Person.objects.create(email="x@example.com", password="hash", created_at=clock.now())


@pytest.mark.parametrize(
    ("email", "taken"),
    [
        ("a" * 63 + "@" + "b" * 63 + "." + "c" * 63 + "." + "d" * 53 + ".example", True),
        (" padded@example.com ", True),
        ("nobody", False),
        ("a@b", False),
        ("a\n@example.com", False),
        ("a@example.com\r\nBcc: b@example.com", False),
        ("ſ@example.com", False),
        ("a@münchen.de", False),
        ("a@xn--mnchen-3ya.de", True),
        ("", False),
    ],
)
def test_address_is_one_that_can_be_written_to(visitor: Visitor, email: str, taken: bool) -> None:
    answer = visitor.call("POST", "/v1/people", {"email": email, "password": PASSWORD})
    assert (answer.status_code == 202) == taken
    assert Person.objects.exists() == taken
    if not taken:
        assert refused(answer) == (400, "invalid-request")


def test_longest_address_is_taken_and_one_more_is_not() -> None:
    from api.people.errors import PeopleError
    from api.people.mails import normal_email

    def address(length: int) -> str:
        rest = f"@{'b' * 63}.{'c' * 63}.{{}}.example"
        return "a" * 60 + rest.format("d" * (length - 60 - len(rest.format(""))))

    assert len(normal_email(address(limits.EMAIL_CHARACTERS_MAX))) == 254
    with pytest.raises(PeopleError):
        normal_email(address(limits.EMAIL_CHARACTERS_MAX + 1))


def test_unconfirmed_sign_ups_are_forgotten(visitor: Visitor) -> None:
    from api.people.actions.upkeep import forget_expired

    enrol("kept@example.com")
    visitor.call("POST", "/v1/people", SIGN_UP)
    old = clock.now() - timedelta(days=limits.UNCONFIRMED_DAYS_MAX)
    Person.objects.update(created_at=old + timedelta(minutes=1))
    PersonToken.objects.update(expires_at=clock.now())
    assert forget_expired() == 1  # the token
    Person.objects.update(created_at=old)
    assert forget_expired() == 1
    assert [person.email for person in Person.objects.all()] == ["kept@example.com"]


def test_unconfirmed_person_with_a_live_token_is_kept(visitor: Visitor) -> None:
    from api.people.actions.upkeep import forget_expired

    visitor.call("POST", "/v1/people", SIGN_UP)
    Person.objects.update(created_at=clock.now() - timedelta(days=limits.UNCONFIRMED_DAYS_MAX + 1))
    assert forget_expired() == 0
    assert confirm(visitor, mailed_token(EMAIL)).status_code == 201


def test_token_that_went_while_its_password_was_verified_confirms_nothing(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from api.people import passwords

    def verified_then_gone(password: str, encoded: str) -> bool:
        PersonToken.objects.all().delete()
        return True

    visitor.call("POST", "/v1/people", SIGN_UP)
    monkeypatch.setattr(passwords, "verify_password", verified_then_gone)
    assert refused(confirm(visitor, mailed_token(EMAIL))) == (400, "invalid-token")
    assert Person.objects.get().email_confirmed_at is None


def test_stored_hash_says_which_kind_of_token_it_is_of() -> None:
    from api.people.tokens import TokenKind, hash_token, mint_token

    tokens = {kind: mint_token(kind)[:5] + "x" * 43 for kind in TokenKind}
    assert len({hash_token(kind, token) for kind, token in tokens.items()}) == len(TokenKind)
    for kind in TokenKind:
        for other, token in tokens.items():
            assert (hash_token(kind, token) is None) == (kind != other)
