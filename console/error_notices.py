"""What a page says when something is refused: what happened, and what to do next."""

from __future__ import annotations

from typing import NamedTuple

from api.accounts.actions import AccountError
from api.alarms.actions import AlarmError
from api.billing.errors import BillingError
from api.cluster.actions import ClusterProblem
from api.encryption.actions import EncryptionKeyProblem
from api.iam.errors import AccessDenied, IamError
from api.idempotency.errors import IdempotencyRefusal
from api.outage import DATABASE_AWAY, outage_text
from api.people.errors import PeopleError
from api.queues.attributes import QueueProblem
from api.quotas.errors import QuotaProblem
from api.webhooks.actions import WebhookError
from console.data_plane import DataPlaneError

REFUSED = (
    PeopleError,
    QueueProblem,
    AccountError,
    AlarmError,
    BillingError,
    ClusterProblem,
    DataPlaneError,
    AccessDenied,
    IamError,
    EncryptionKeyProblem,
    IdempotencyRefusal,
    QuotaProblem,
    WebhookError,
    *DATABASE_AWAY,
)


class ErrorNotice(NamedTuple):
    status: int
    text: str
    step: str = ""


# By code, in the form of REST.
_STEPS = {
    "queue-does-not-exist": "It may have been deleted. Check the list of queues.",
    "resource-not-found": "It may have ended or been deleted. Load the page again.",
    "message-does-not-exist": "It was received and deleted, or moved, after you loaded the page. Load the page again.",
    "message-left": "Look for it in the dead-letter queue, and delete the one of the two that is not wanted.",
    "deduplication-id-in-use": "Choose another deduplication id, or leave it out.",
    "queue-name-exists": "Choose another name, or open the queue that has it.",
    "queue-deleted-recently": "Wait a minute and send the form again, or choose another name.",
    "precondition-failed": "Another person or program changed it. Load the page again, then repeat your change.",
    "over-limit": "Remove what is not used any more, then try again.",
    "purge-queue-in-progress": "The last purge was less than a minute ago. Wait, then try again.",
    "request-throttled": "Wait a few seconds, then try again.",
    "too-many-attempts": "Wait, then try again.",
    "service-unavailable": "Nothing is lost. Try again in a few seconds.",
    "service-busy": "Try again in a few seconds.",
    "access-denied": "Ask an owner or admin of the account.",
    "account-not-active": "Ask an owner of the account, or the operator of this installation.",
    "sign-in-refused": "Check them and try again. You can also ask for a new password.",
    "passkey-refused": "Try once more, or choose another way.",
    "passkeys-not-possible": "Browsers give passkeys to pages that are visited by https and by a name.",
    "passkey-name-taken": "Choose another name.",
    "passkey-known": "It is of another person here. Use another device, or remove it there first.",
    "invalid-token": "Tokens work once and for a limited time. Ask for another mail, or make another link.",
    "last-owner": "Make another member an owner first.",
    "not-found": "It may have been deleted. Load the page again.",
    "already-exists": "Choose another name.",
    "webhook-in-use": "Change these alarms, then delete the webhook.",
    "policy-attached": "Detach it from all that are listed, then delete it.",
    "encryption-key-exists": "Choose another name.",
    "encryption-key-state": "Another person may have changed the key. Load the page again.",
    "form-without-id": "Load the page again, and repeat what you did.",
    "form-in-progress": "Wait a few seconds, then load the page again: it shows what was created.",
    "too-many-forms": "Try again in some hours.",
    "quota-request-open": "Wait for the answer of the operator.",
    "quota-request-decided": "Another operator may have answered. Load the page again.",
}
_STATUS = {
    "queue-does-not-exist": 404,
    "resource-not-found": 404,
    "queue-name-exists": 409,
    "queue-deleted-recently": 409,
    "precondition-failed": 412,
    "access-denied": 403,
    "over-limit": 403,
    "service-unavailable": 503,
}


def notice_of(error: Exception) -> ErrorNotice:
    """Of one of REFUSED."""
    if isinstance(error, DataPlaneError | PeopleError):
        step = _STEPS.get(error.code, "")
        if error.retry_after_s:
            step = f"Try again in {error.retry_after_s} s."
        return ErrorNotice(error.status, error.detail, step)
    if isinstance(error, ClusterProblem):
        return ErrorNotice(error.status, error.detail, _STEPS["service-unavailable"] if error.status == 503 else "")
    if isinstance(error, WebhookError | AlarmError):
        return ErrorNotice(error.status, error.detail, _STEPS.get(error.code, ""))
    if isinstance(error, BillingError):
        text = error.detail
        return ErrorNotice(error.status, f"{text[:1].upper()}{text[1:].rstrip('.')}.", _STEPS.get(error.code, ""))
    if isinstance(error, QueueProblem):
        code = _hyphenated(error.code)
        return ErrorNotice(_STATUS.get(code, 400), error.message, _STEPS.get(code, ""))
    if isinstance(error, AccessDenied):
        return ErrorNotice(403, f"{error}.", _STEPS["access-denied"])
    if isinstance(error, IamError):
        return ErrorNotice(error.status, error.text, _STEPS.get(error.code, ""))
    if isinstance(error, EncryptionKeyProblem | IdempotencyRefusal | QuotaProblem):
        return ErrorNotice(error.status_code, str(error.detail), _STEPS.get(str(error.default_code), ""))
    if isinstance(error, AccountError):
        text = str(error)
        return ErrorNotice(400, text[:1].upper() + text[1:] + ".")
    return ErrorNotice(503, outage_text(error), _STEPS["service-unavailable"])


def _hyphenated(code: str) -> str:
    text = code.removesuffix("Exception")
    return "".join(f"-{char.lower()}" if char.isupper() else char for char in text).lstrip("-")
