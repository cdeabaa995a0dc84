"""Request errors: every way in which this plane says no, with its name and status on both wires.

A request error is an operating error that is told to the caller; our own bugs are assertions, and end as
InternalFailure with nothing said. The names are those of the SQS JSON protocol; older SDKs know them by `query_code`.

Surface: other planes may import this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from frontend.limits import REFUSED_CHARS_SHOWN_MAX, RETRY_AFTER_S


class ErrorKind(NamedTuple):
    """How one error looks: SQS query code and status, REST status, and the namespace of its JSON type."""

    query_code: str
    status: int
    rest_status: int
    namespace: str = "com.amazonaws.sqs"


_CORAL = "com.amazon.coral.service"
_SIMPLE = "AWS.SimpleQueueService."

KINDS: dict[str, ErrorKind] = {
    # what is named does not exist, or does already
    "QueueDoesNotExist": ErrorKind(_SIMPLE + "NonExistentQueue", 400, 404),
    "QueueNameExists": ErrorKind("QueueAlreadyExists", 400, 409),
    "MessageDoesNotExist": ErrorKind("MessageDoesNotExist", 404, 404),
    "MessageLeft": ErrorKind("MessageLeft", 400, 409),
    "DeduplicationIdInUse": ErrorKind("DeduplicationIdInUse", 400, 409),
    "QueueDeletedRecently": ErrorKind(_SIMPLE + "QueueDeletedRecently", 400, 409),
    "ResourceNotFoundException": ErrorKind("ResourceNotFoundException", 404, 404),
    # batches
    "BatchEntryIdsNotDistinct": ErrorKind(_SIMPLE + "BatchEntryIdsNotDistinct", 400, 400),
    "BatchRequestTooLong": ErrorKind(_SIMPLE + "BatchRequestTooLong", 400, 413),
    "EmptyBatchRequest": ErrorKind(_SIMPLE + "EmptyBatchRequest", 400, 400),
    "InvalidBatchEntryId": ErrorKind(_SIMPLE + "InvalidBatchEntryId", 400, 400),
    "TooManyEntriesInBatchRequest": ErrorKind(_SIMPLE + "TooManyEntriesInBatchRequest", 400, 400),
    # messages and receipts
    "MessageNotInflight": ErrorKind(_SIMPLE + "MessageNotInflight", 400, 409),
    "ReceiptHandleIsInvalid": ErrorKind("ReceiptHandleIsInvalid", 400, 400),
    "InvalidIdFormat": ErrorKind("InvalidIdFormat", 400, 400),
    "InvalidMessageContents": ErrorKind("InvalidMessageContents", 400, 400),
    "OverLimit": ErrorKind("OverLimit", 403, 429),
    "NotScheduled": ErrorKind("NotScheduled", 400, 409),
    "ScheduleFull": ErrorKind("OverLimit", 403, 429),
    "PurgeQueueInProgress": ErrorKind(_SIMPLE + "PurgeQueueInProgress", 403, 409),
    # parameters
    "InvalidAttributeName": ErrorKind("InvalidAttributeName", 400, 400),
    "InvalidAttributeValue": ErrorKind("InvalidAttributeValue", 400, 400),
    "InvalidParameterValueException": ErrorKind("InvalidParameterValue", 400, 400),
    "MissingRequiredParameterException": ErrorKind("MissingParameter", 400, 400),
    "InvalidAddress": ErrorKind("InvalidAddress", 400, 400),
    "UnsupportedOperation": ErrorKind(_SIMPLE + "UnsupportedOperation", 400, 400),
    "UnknownOperationException": ErrorKind("InvalidAction", 400, 404, _CORAL),
    "UnknownOperation": ErrorKind("UnknownOperationException", 404, 404, _CORAL),
    "MissingAction": ErrorKind("MissingAction", 400, 400, _CORAL),
    "NoSuchVersion": ErrorKind("NoSuchVersion", 400, 400, _CORAL),
    "SerializationException": ErrorKind("MalformedInput", 400, 400, _CORAL),
    "RequestTooLarge": ErrorKind("InvalidParameterValue", 413, 413, _CORAL),
    "TargetTooLong": ErrorKind("InvalidParameterValue", 414, 414, _CORAL),
    "HeadersTooLarge": ErrorKind("InvalidParameterValue", 431, 431, _CORAL),
    "UnsupportedMediaType": ErrorKind("InvalidParameterValue", 415, 415, _CORAL),
    "MethodNotAllowed": ErrorKind("InvalidAction", 405, 405, _CORAL),
    "NotFound": ErrorKind("InvalidAction", 404, 404, _CORAL),
    # who asks
    "MissingAuthenticationToken": ErrorKind("MissingAuthenticationToken", 403, 401),
    "InvalidClientTokenId": ErrorKind("InvalidClientTokenId", 403, 401),
    "SignatureDoesNotMatch": ErrorKind("SignatureDoesNotMatch", 403, 401),
    "IncompleteSignature": ErrorKind("IncompleteSignature", 400, 401),
    "RequestExpired": ErrorKind("RequestExpired", 400, 401),
    "InvalidSecurity": ErrorKind("InvalidSecurity", 400, 401),
    "AccessDeniedException": ErrorKind("AccessDenied", 403, 403, _CORAL),
    # encryption keys of customers
    "KmsAccessDenied": ErrorKind("KMS.AccessDeniedException", 400, 403),
    "KmsDisabled": ErrorKind("KMS.DisabledException", 400, 409),
    "KmsInvalidState": ErrorKind("KMS.InvalidStateException", 400, 409),
    "KmsNotFound": ErrorKind("KMS.NotFoundException", 400, 409),
    # load and failure
    "RequestThrottled": ErrorKind("RequestThrottled", 400, 429),
    "SendingStopped": ErrorKind("OverLimit", 403, 403),
    "ServiceUnavailable": ErrorKind("ServiceUnavailable", 503, 503),
    "InternalFailure": ErrorKind("InternalFailure", 500, 500),
}

# What SQS says of credentials, and of a bearer token: REST has other words for these (rest/problems.py).
NOT_SIGNED = "Request is missing Authentication Token"
OTHER_SIGNATURE = "The request must be signed with Signature Version 4."
UNKNOWN_KEY = "The security token included in the request is invalid."
BAD_BEARER_TOKEN = "The bearer token is not valid."


class RequestError(Exception):
    """A no with its reason. `retry_after_s` is sent as Retry-After where it is not None."""

    __slots__ = ("code", "message", "retry_after_s")

    def __init__(self, code: str, message: str, retry_after_s: int | None = None) -> None:
        assert code in KINDS, code
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def kind(self) -> ErrorKind:
        return KINDS[self.code]


class MethodNotAllowed(RequestError):
    """Of a path that takes other methods; `allowed` is sent as Allow."""

    __slots__ = ("allowed",)

    def __init__(self, allowed: str) -> None:
        super().__init__("MethodNotAllowed", f"The methods here are: {allowed}.")
        self.allowed = allowed


class WrongRegion(RequestError):
    """Told to everybody, whether the key exists or not: regions are no secret. SQS does not name those that are
    `served`, REST does."""

    __slots__ = ("served",)

    def __init__(self, served: Sequence[str]) -> None:
        super().__init__("SignatureDoesNotMatch", "Credential should be scoped to a valid region.")
        self.served = served


class Throttled(RequestError):
    """Over a quota; REST tells which, what it is per second, and when to come back. `reason`: why it is so low."""

    __slots__ = ("limit_per_s", "quota")

    def __init__(self, quota: str, limit_per_s: float, wait_s: float, reason: str = "") -> None:
        text = f"The rate of requests is over the limit: {quota} is {limit_per_s:.12g}."
        super().__init__("RequestThrottled", f"{text} {reason}".strip(), throttled_for_s(wait_s))
        self.quota = quota
        self.limit_per_s = limit_per_s


def throttled(wait_s: float, reason: str = "") -> RequestError:
    text = f"The rate of requests is over the limit: {reason}." if reason else "The rate of requests is over the limit."
    return RequestError("RequestThrottled", text, throttled_for_s(wait_s))


def throttled_for_s(wait_s: float) -> int:
    """Retry-After is in whole seconds: one at least, and not before the wait is over."""
    return max(1, round(wait_s + 0.5))


def unavailable(message: str, retry_after_s: int = RETRY_AFTER_S) -> RequestError:
    return RequestError("ServiceUnavailable", message, retry_after_s)


def retry_after_s(retry_after_ms: int) -> int:
    """Retry-After is in whole seconds, and never earlier than what was said."""
    return max(1, -(-retry_after_ms // 1000))


def title_of(code: str) -> str:
    """The title of a problem over REST, for both planes: `access-denied` -> Access denied."""
    return code.replace("-", " ").capitalize()


def invalid(message: str) -> RequestError:
    return RequestError("InvalidParameterValueException", message)


def missing(parameter: str) -> RequestError:
    return RequestError("MissingRequiredParameterException", f"The request must contain the parameter {parameter}.")


NO_SUCH_QUEUE = "The specified queue does not exist."


def queue_does_not_exist() -> RequestError:
    return RequestError("QueueDoesNotExist", NO_SUCH_QUEUE)


def receipt_is_invalid(handle: str) -> RequestError:
    shown = handle if len(handle) <= REFUSED_CHARS_SHOWN_MAX else handle[:REFUSED_CHARS_SHOWN_MAX] + "..."
    return RequestError("ReceiptHandleIsInvalid", f'The input receipt handle "{shown}" is not a valid receipt handle.')
