"""A request with an idempotency key is carried out once: its outcome is kept, and answers the requests that repeat it.

Where the operation is one transaction, the outcome is part of it: after a crash there are both, or neither. Where the
operation waits for storage after its commit, the outcome is written behind it, and after a crash between the two the
operation runs again; it then finds what it made (docs/decisions/0038).

Every answer is sealed, whatever it holds. One that shows a secret is kept for IDEMPOTENCY_SECRET_KEPT_S only.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
from django.db import transaction
from django.http import HttpResponse
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from api import clock, limits
from api.idempotency import actions, errors
from api.idempotency.asked import AskedOutcome
from api.idempotency.models import IdempotentOutcome
from api.secrets import keyring

REPLAYED_HEADER = "Idempotent-Replayed"
# Members of answers that are shown once.
SECRET_MEMBERS = frozenset(("bearer_token", "secret", "secret_access_key"))


class _KeptAnswer(msgspec.Struct):
    headers: dict[str, str]
    body: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_KeptAnswer).decode


def answer_once(asked: AskedOutcome, is_one_transaction: bool, run: Callable[[], Response]) -> HttpResponse:
    """`run` answers refusals with their problems; what it raises undoes the transaction. Only what succeeded is kept: a
    refusal changed nothing, and its repetition is judged anew. Raises IdempotencyRefusal."""
    with actions.held_lock(asked.lock_number) as is_held:
        if not is_held:
            raise errors.in_progress()
        now = clock.now()
        found = outcome_of(asked, now)
        if found is not None:
            return _repeated(found, asked)
        if not has_room(asked, now):
            raise errors.too_many_keys()
        if not is_one_transaction:
            response = run()
            _keep(asked, response)
            return response
        with transaction.atomic():
            response = run()
            if response.status_code >= 500:
                transaction.set_rollback(True)
            else:
                _keep(asked, response)
        return response


def outcome_of(asked: AskedOutcome, now: datetime) -> IdempotentOutcome | None:
    """Of one caller. None where there was no such request within the time that outcomes are kept."""
    rows = IdempotentOutcome.objects.filter(account_id=asked.account_id, actor=asked.actor, key_hash=asked.key_hash)
    return rows.filter(at__gt=_kept_since(now)).first()


def has_room(asked: AskedOutcome, now: datetime) -> bool:
    """Of the account; of the person where there is no account. Requests at the same moment may all see the last room:
    as many as a front end passes on at once (CONTROL_CALLS_IN_FLIGHT_MAX)."""
    rows = IdempotentOutcome.objects.filter(account_id=asked.account_id, at__gt=_kept_since(now))
    if not asked.account_id:
        rows = rows.filter(actor=asked.actor)
    last = limits.IDEMPOTENCY_KEYS_PER_ACCOUNT_MAX
    return rows[:last].count() < last


def _kept_since(now: datetime) -> datetime:
    return now - timedelta(seconds=limits.IDEMPOTENCY_KEPT_S)


def _keep(asked: AskedOutcome, response: Response) -> None:
    if not 200 <= response.status_code < 300:
        return
    body = b"" if response.data is None else JSONRenderer().render(response.data)
    holds_secret = isinstance(response.data, dict) and any(map(response.data.get, SECRET_MEMBERS))
    sealed = b""
    if len(body) <= limits.IDEMPOTENCY_ANSWER_BYTES_MAX:
        headers = {name: value for name, value in response.items() if name != "Content-Type"}  # set when it is rendered
        answer = _encode(_KeptAnswer(headers, body))
        sealed = keyring().seal_answer(asked.account_id, asked.actor, asked.key_hash, answer)
    actions.remember(asked, response.status_code, sealed, holds_secret)


def _repeated(found: IdempotentOutcome, asked: AskedOutcome) -> HttpResponse:
    if not hmac.compare_digest(bytes(found.request_hash), asked.request_hash):
        raise errors.key_reused()
    is_over = found.holds_secret and found.at <= actions.secrets_kept_since(clock.now())
    if is_over or not found.sealed:
        raise errors.answer_not_kept(found.status, found.at, found.holds_secret)
    plain = keyring().open_answer(asked.account_id, asked.actor, asked.key_hash, bytes(found.sealed))
    answer = _decode(plain)
    response = HttpResponse(answer.body, status=found.status, content_type="application/json")
    if not answer.body:
        del response["Content-Type"]
    for name, value in answer.headers.items():
        response[name] = value
    response[REPLAYED_HEADER] = "true"
    return response
