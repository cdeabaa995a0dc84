"""Why a request with an idempotency key is not carried out."""

from __future__ import annotations

from datetime import datetime

from rest_framework.exceptions import APIException

from api import limits


class IdempotencyRefusal(APIException):
    """In the form that `api/problems.py` writes; `wait` becomes Retry-After."""

    def __init__(self, status: int, code: str, detail: str, wait_s: int | None = None) -> None:
        super().__init__(detail)
        self.status_code = status
        self.default_code = code
        self.wait = wait_s


def key_reused() -> IdempotencyRefusal:
    text = "This Idempotency-Key was given with another request: a new request needs a new key."
    return IdempotencyRefusal(422, "idempotency-key-reused", text)


def in_progress() -> IdempotencyRefusal:
    text = "A request with this Idempotency-Key is being carried out: repeat this one later."
    return IdempotencyRefusal(409, "idempotency-request-in-progress", text, limits.IDEMPOTENCY_RETRY_AFTER_S)


def form_without_id() -> IdempotencyRefusal:
    return IdempotencyRefusal(400, "form-without-id", "The form was not sent from its page, or it is too old.")


def form_in_progress() -> IdempotencyRefusal:
    text = "This form was sent twice, and the first one is being carried out."
    return IdempotencyRefusal(409, "form-in-progress", text, limits.IDEMPOTENCY_RETRY_AFTER_S)


def too_many_forms() -> IdempotencyRefusal:
    hours = limits.IDEMPOTENCY_KEPT_S // 3600
    text = f"You have sent {limits.IDEMPOTENCY_KEYS_PER_ACCOUNT_MAX} forms of this kind in {hours} h."
    return IdempotencyRefusal(429, "too-many-forms", text, limits.IDEMPOTENCY_FULL_RETRY_AFTER_S)


def answer_not_kept(status: int, at: datetime, holds_secret: bool) -> IdempotencyRefusal:
    why = "It showed a secret" if holds_secret else "It was too large"
    text = (
        f"The request with this Idempotency-Key was carried out at {at:%Y-%m-%dT%H:%M:%SZ} with status {status}, and "
        f"is not carried out again. {why}, so its answer is not kept any longer."
    )
    return IdempotencyRefusal(409, "idempotency-answer-not-kept", text)


def too_many_keys() -> IdempotencyRefusal:
    hours = limits.IDEMPOTENCY_KEPT_S // 3600
    count = limits.IDEMPOTENCY_KEYS_PER_ACCOUNT_MAX
    text = f"An account has at most {count} idempotency keys in {hours} h. The request was not carried out."
    return IdempotencyRefusal(429, "too-many-idempotency-keys", text, limits.IDEMPOTENCY_FULL_RETRY_AFTER_S)
