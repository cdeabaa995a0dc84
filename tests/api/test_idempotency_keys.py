"""Idempotency keys: a request is carried out once, however often it comes (docs/rest_management.md)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from api import clock, limits
from api.accounts.models import AccessKey
from api.audit.models import AuditEntry
from api.iam.actions import keys
from api.iam.models import PeopleGroup
from api.idempotency import actions as idempotency
from api.idempotency import outcomes
from api.idempotency.asked import AskedOutcome
from api.idempotency.models import IdempotentOutcome
from api.query_parameters import without_signature
from api.queues.models import Queue
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db(transaction=True)

KEY = '"8e03978e-40d5-43dd-bc93-6894a57f9324"'
REPLAYED = "Idempotent-Replayed"


@pytest.fixture
def caller(transactional_db: None) -> Caller:
    return new_caller()


def post(caller: Caller, path: str, content: Any = None, key: str = KEY) -> Any:
    return caller.request("POST", path, content, **{"Idempotency-Key": key})


def code(answer: Any) -> tuple[int, str]:
    assert answer["Content-Type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


def make_group(caller: Caller, name: str = "people", key: str = KEY) -> Any:
    return post(caller, "/v1/groups", {"name": name}, key)


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = clock.now() + timedelta(seconds=seconds)
    monkeypatch.setattr(clock, "now", lambda: now)


def test_repetition_is_answered_as_the_first_request_and_changes_nothing(caller: Caller) -> None:
    first, again = make_group(caller), make_group(caller)
    assert first.status_code == again.status_code == 201
    assert first.content == again.content
    assert first["Content-Type"] == again["Content-Type"] == "application/json"
    assert not first.has_header(REPLAYED) and again[REPLAYED] == "true"
    assert PeopleGroup.objects.count() == 1
    assert AuditEntry.objects.filter(action="group.create").count() == 1
    # Without a key, or with another one, it is another request.
    assert code(caller.request("POST", "/v1/groups", {"name": "people"}))[0] == 409
    assert code(make_group(caller, key='"another"'))[0] == 409


def test_first_answer_comes_again_after_what_it_tells_has_changed(caller: Caller) -> None:
    first = make_group(caller)
    assert caller.request("DELETE", "/v1/groups/people").status_code == 204
    assert make_group(caller).content == first.content
    assert not PeopleGroup.objects.exists()


def test_patch_and_answers_without_a_body_are_repeated(caller: Caller) -> None:
    change = {"deletion_grace_days": 3}
    for replayed in (False, True):
        answer = caller.request("PATCH", "/v1/account", change, **{"Idempotency-Key": KEY})
        assert (answer.status_code, answer.json()["deletion_grace_days"]) == (200, 3)
        assert answer.has_header(REPLAYED) is replayed
        caller.request("PATCH", "/v1/account", {"deletion_grace_days": 0})
    assert caller.request("GET", "/v1/account").json()["deletion_grace_days"] == 0


@pytest.mark.parametrize("other", ["body", "path", "method", "precondition"])
def test_key_with_another_request_is_refused(caller: Caller, other: str) -> None:
    change, header = {"deletion_grace_days": 3}, {"Idempotency-Key": KEY}
    assert caller.request("PATCH", "/v1/account", change, **header).status_code == 200
    calls: dict[str, Callable[[], Any]] = {
        "body": lambda: caller.request("PATCH", "/v1/account", {"deletion_grace_days": 4}, **header),
        "path": lambda: make_group(caller),
        "method": lambda: post(caller, "/v1/keys", change),
        "precondition": lambda: caller.request("PATCH", "/v1/account", change, **header, **{"If-Match": "*"}),
    }
    assert code(calls[other]()) == (422, "idempotency-key-reused")
    assert caller.request("GET", "/v1/account").json()["deletion_grace_days"] == 3
    assert not PeopleGroup.objects.exists()


def test_repetition_that_is_signed_anew_in_the_query_is_the_same_request(caller: Caller) -> None:
    """No operation that takes a key takes a parameter; the signature is another one every time."""
    change, header = {"deletion_grace_days": 3}, {"Idempotency-Key": KEY}
    for at, replayed in (("1", False), ("2", True)):
        target = f"/v1/account?X-Amz-Date={at}&X-Amz-Signature={at}"
        answer = caller.request("PATCH", target, change, **header)
        assert answer.status_code == 200 and answer.has_header(REPLAYED) is replayed
    assert code(caller.request("PATCH", "/v1/account?x=1", change, **header)) == (400, "invalid-request")


@pytest.mark.parametrize(
    ("target", "same"),
    [
        (b"/v1/a?X-Amz-Date=1&b=2&X-Amz-Signature=3", b"/v1/a?b=2"),
        (b"/v1/a?b=2&c=3", b"/v1/a?b=2&c=3"),
        (b"/v1/a?X-Amz-Date=1", b"/v1/a"),
        (b"/v1/a", b"/v1/a"),
    ],
)
def test_what_is_asked_is_the_target_without_its_signature(target: bytes, same: bytes) -> None:
    assert without_signature(target) == same


def test_same_key_of_another_caller_is_another_key(caller: Caller) -> None:
    second = Caller(caller.account_id, keys.make_key(*_as_operator(caller), keys.KeySpec("second")).key.access_key_id)
    assert make_group(caller).status_code == 201
    assert code(make_group(second))[0] == 409, "the second key of the account was answered with the first one's answer"
    other = make_group(new_caller("other"))
    assert other.status_code == 201 and not other.has_header(REPLAYED)
    assert PeopleGroup.objects.count() == 2


def test_outcome_is_of_its_caller_in_the_row_and_in_the_hash(caller: Caller) -> None:
    """Either alone keeps callers apart."""
    for who in (caller, new_caller("other")):
        make_group(who)
    first, second = IdempotentOutcome.objects.order_by("pk")
    assert bytes(first.key_hash) != bytes(second.key_hash)
    mine = AskedOutcome(first.account_id, first.actor, bytes(first.key_hash), bytes(first.request_hash))
    assert outcomes.outcome_of(mine, clock.now()) == first
    for other in (mine._replace(account_id=second.account_id), mine._replace(actor=second.actor)):
        assert outcomes.outcome_of(other, clock.now()) is None


def _as_operator(caller: Caller) -> tuple[Any, str]:
    from api.audit.actions import OPERATOR

    return OPERATOR, caller.account_id


def test_repetition_needs_the_right_that_the_first_request_needed(caller: Caller) -> None:
    new = keys.make_key(*_as_operator(caller), keys.KeySpec("mine"))
    mine = Caller(caller.account_id, new.key.access_key_id)
    assert make_group(mine).status_code == 201
    keys.set_restricted(*_as_operator(caller), mine.access_key_id, True)
    assert code(make_group(mine)) == (403, "access-denied")


@pytest.mark.parametrize(
    "given",
    [
        "", '""', "plain", '"open', 'open"', '"a"b"', r'"a\b"', r'"a\"', '"a\tb"', '"é"', '"a","a"', '"a";q=1', "1",
        '"' + "k" * (limits.IDEMPOTENCY_KEY_CHARACTERS_MAX + 1) + '"',
    ],
)  # fmt: skip
def test_bad_key_is_refused_by_name_and_nothing_is_stored(caller: Caller, given: str) -> None:
    answer = make_group(caller, key=given)
    assert code(answer) == (400, "invalid-request")
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/Idempotency-Key"]
    assert not PeopleGroup.objects.exists() and not IdempotentOutcome.objects.exists()


@pytest.mark.parametrize("given", [f'"{"k" * limits.IDEMPOTENCY_KEY_CHARACTERS_MAX}"', '"a,b"', r'"\"\\"', ' "a" '])
def test_key_within_its_bounds_is_taken(caller: Caller, given: str) -> None:
    assert [make_group(caller, key=given).status_code for _ in range(2)] == [201, 201]


def test_refusals_are_not_kept(caller: Caller) -> None:
    assert code(make_group(caller, "no/name"))[0] == 400
    assert make_group(caller, "people").status_code == 201, "the key is used up by a request that was refused"
    assert IdempotentOutcome.objects.count() == 1


def test_failure_undoes_the_effect_and_keeps_nothing(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that dies between the effect and the answer: both stand in one transaction."""

    def fails(*_: object) -> None:
        raise RuntimeError("dies")

    with monkeypatch.context() as patched:
        patched.setattr(idempotency, "remember", fails)
        with pytest.raises(RuntimeError):
            make_group(caller)
    assert not PeopleGroup.objects.exists()
    assert not AuditEntry.objects.filter(action="group.create").exists()
    assert make_group(caller).status_code == 201, "the lock of the key is still held"


def test_two_requests_at_once_have_one_effect(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each over a connection of its own. The one that comes while the other works is told to come again."""
    entered, go_on = threading.Event(), threading.Event()
    real = outcomes._keep

    def slow(*args: Any) -> None:
        entered.set()
        assert go_on.wait(20)
        real(*args)

    monkeypatch.setattr(outcomes, "_keep", slow)

    def ask() -> Any:
        try:
            return make_group(caller)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask)
        assert entered.wait(20)
        try:
            second = pool.submit(ask).result(20)
            assert code(second) == (409, "idempotency-request-in-progress")
            assert second["Retry-After"] == str(limits.IDEMPOTENCY_RETRY_AFTER_S)
            assert not PeopleGroup.objects.exists()
        finally:
            go_on.set()
        assert first.result(20).status_code == 201
    assert make_group(caller)[REPLAYED] == "true"
    assert PeopleGroup.objects.count() == 1


def test_many_requests_at_once_have_one_effect(caller: Caller) -> None:
    barrier = threading.Barrier(4)

    def ask() -> Any:
        try:
            barrier.wait(20)
            return post(caller, "/v1/keys", {"name": "one"})
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        answers = [future.result(60) for future in [pool.submit(ask) for _ in range(4)]]
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert AccessKey.objects.filter(account_id=caller.account_id, name="one").count() == 1


def test_outcome_is_forgotten_after_its_time(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    make_group(caller)
    later(monkeypatch, limits.IDEMPOTENCY_KEPT_S - 1)
    assert make_group(caller)[REPLAYED] == "true"
    assert idempotency.forget_old_outcomes() == 0
    later(monkeypatch, 2)
    assert code(make_group(caller))[0] == 409, "carried out again: the group is there"
    assert make_group(caller, "other").status_code == 201, "the row that is over is in the way of the new one"
    later(monkeypatch, limits.IDEMPOTENCY_KEPT_S)
    assert idempotency.forget_old_outcomes() == 1
    assert not IdempotentOutcome.objects.exists()


def test_clean_up_forgets_outcomes(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from workers.lifecycle import reconciling

    make_group(caller)
    later(monkeypatch, limits.IDEMPOTENCY_KEPT_S)
    monkeypatch.setattr(reconciling, "send_hint", lambda *_: True)
    reconciling.resync()
    assert not IdempotentOutcome.objects.exists()


def test_keys_of_an_account_are_bounded(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDEMPOTENCY_KEYS_PER_ACCOUNT_MAX", 2)
    assert make_group(caller, "a", '"a"').status_code == make_group(caller, "b", '"b"').status_code == 201
    refused = make_group(caller, "c", '"c"')
    assert code(refused) == (429, "too-many-idempotency-keys")
    assert refused["Retry-After"] == str(limits.IDEMPOTENCY_FULL_RETRY_AFTER_S)
    assert not PeopleGroup.objects.filter(name="c").exists()
    assert make_group(caller, "a", '"a"')[REPLAYED] == "true"
    assert make_group(new_caller("other"), "a", '"c"').status_code == 201, "the keys of one account count for another"


def test_secret_is_sealed_and_repeated_for_a_while_only(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    first = post(caller, "/v1/keys", {"name": "second"})
    secrets = [first.json()[name].encode() for name in ("secret_access_key", "bearer_token")]
    again = post(caller, "/v1/keys", {"name": "second"})
    assert again.content == first.content and again["Cache-Control"] == "no-store"
    kept = IdempotentOutcome.objects.get()
    assert kept.sealed and not any(secret in bytes(kept.sealed) for secret in secrets)
    later(monkeypatch, limits.IDEMPOTENCY_SECRET_KEPT_S)
    withheld = post(caller, "/v1/keys", {"name": "second"})
    assert code(withheld) == (409, "idempotency-answer-not-kept")
    assert not any(secret in withheld.content for secret in secrets)
    idempotency.forget_old_outcomes()
    assert not IdempotentOutcome.objects.get().sealed
    assert code(post(caller, "/v1/keys", {"name": "second"})) == (409, "idempotency-answer-not-kept")
    assert AccessKey.objects.filter(account_id=caller.account_id, name="second").count() == 1


def test_secret_of_a_webhook_is_repeated_for_a_while_only(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from api.webhooks.actions import put_webhook

    put_webhook(*_as_operator(caller), "orders", "https://hooks.example.com/")
    first = post(caller, "/v1/webhooks/orders/rotation", {})
    assert first.json()["secret"]
    assert post(caller, "/v1/webhooks/orders/rotation", {}).content == first.content
    later(monkeypatch, limits.IDEMPOTENCY_SECRET_KEPT_S)
    assert code(post(caller, "/v1/webhooks/orders/rotation", {})) == (409, "idempotency-answer-not-kept")


def test_other_answers_outlast_those_with_secrets(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_group(caller)
    later(monkeypatch, limits.IDEMPOTENCY_SECRET_KEPT_S)
    idempotency.forget_old_outcomes()
    assert make_group(caller).content == first.content


def test_large_answer_is_not_kept_but_the_request_is_not_carried_out_again(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDEMPOTENCY_ANSWER_BYTES_MAX", 10)
    assert make_group(caller).status_code == 201
    assert code(make_group(caller)) == (409, "idempotency-answer-not-kept")


def test_what_is_stored_opens_for_its_caller_alone(caller: Caller) -> None:
    from api.secrets import keyring
    from frontend.crypto.keyring import KeyringError

    make_group(caller)
    kept = IdempotentOutcome.objects.get()
    key_hash, sealed = bytes(kept.key_hash), bytes(kept.sealed)
    assert keyring().open_answer(kept.account_id, kept.actor, key_hash, sealed)
    strangers = (("0" * 12, kept.actor, key_hash), (kept.account_id, "AKPSX", key_hash))
    for account_id, actor, other_hash in (*strangers, (kept.account_id, kept.actor, bytes(32))):
        with pytest.raises(KeyringError):
            keyring().open_answer(account_id, actor, other_hash, sealed)
    assert KEY.strip('"').encode() not in bytes(kept.key_hash) + bytes(kept.request_hash) + sealed


def test_operations_that_wait_for_storage_are_repeated_too(caller: Caller, storage: ScriptedStorage) -> None:
    first = post(caller, "/v1/queues", {"name": "orders"})
    assert first.status_code == 201 and first.json()["state"] == "active"
    assert caller.request("PATCH", "/v1/queues/orders", {"delay_seconds": 7}).status_code == 200
    again = post(caller, "/v1/queues", {"name": "orders"})
    assert (again.content, again["ETag"], again[REPLAYED]) == (first.content, first["ETag"], "true")
    for replayed in (False, True):
        header = {"Idempotency-Key": '"change"', "If-Match": caller.request("GET", "/v1/queues/orders")["ETag"]}
        if not replayed:
            known = header
        changed = caller.request("PATCH", "/v1/queues/orders", {"delay_seconds": 8}, **known)
        assert (changed.status_code, changed.has_header(REPLAYED)) == (200, replayed)
    assert Queue.objects.count() == 1


def test_reading_posts_take_no_notice_of_a_key(caller: Caller) -> None:
    asked = {"actions": ["sqs:SendMessage"], "resources": ["arn:aws:sqs:us-east-1:1:q"]}
    for _ in range(2):
        answer = post(caller, "/v1/policies/simulate", asked)
        assert answer.status_code == 200 and not answer.has_header(REPLAYED)
    assert not IdempotentOutcome.objects.exists()


def test_put_and_delete_take_no_notice_of_a_key(caller: Caller) -> None:
    make_group(caller, key='"first"')
    assert [
        caller.request("DELETE", "/v1/groups/people", **{"Idempotency-Key": KEY}).status_code for _ in range(2)
    ] == [204, 404]


def test_request_without_a_caller_stores_nothing(caller: Caller) -> None:
    headers = {"Idempotency-Key": KEY}
    answer = Client().post("/v1/groups", b"{}", content_type="application/json", headers=headers)
    assert code(answer) == (401, "authentication-failed")
    assert not IdempotentOutcome.objects.exists()
