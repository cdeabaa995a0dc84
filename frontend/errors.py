"""Refusals: every way in which this plane says no, with its name and status on both wires.

A refusal is an operating error that is told to the caller; our own bugs are assertions, and end as InternalFailure with
nothing said. The names are those of the SQS JSON protocol; `query_code` is what older SDKs know them by.
"""

from __future__ import annotations

from typing import NamedTuple

from frontend.limits import REFUSED_CHARS_SHOWN_MAX, RETRY_AFTER_S


class RefusalKind(NamedTuple):
    """How one refusal looks: SQS query code and status, REST status, and the namespace of its JSON type."""

    query_code: str
    status: int
    rest_status: int
    namespace: str = "com.amazonaws.sqs"


_CORAL = "com.amazon.coral.service"
_SIMPLE = "AWS.SimpleQueueService."

KINDS: dict[str, RefusalKind] = {
    # what is named does not exist, or does already
    "QueueDoesNotExist": RefusalKind(_SIMPLE + "NonExistentQueue", 400, 404),
    "QueueNameExists": RefusalKind("QueueAlreadyExists", 400, 409),
    "MessageDoesNotExist": RefusalKind("MessageDoesNotExist", 404, 404),
    "QueueDeletedRecently": RefusalKind(_SIMPLE + "QueueDeletedRecently", 400, 409),
    "ResourceNotFoundException": RefusalKind("ResourceNotFoundException", 404, 404),
    # batches
    "BatchEntryIdsNotDistinct": RefusalKind(_SIMPLE + "BatchEntryIdsNotDistinct", 400, 400),
    "BatchRequestTooLong": RefusalKind(_SIMPLE + "BatchRequestTooLong", 400, 413),
    "EmptyBatchRequest": RefusalKind(_SIMPLE + "EmptyBatchRequest", 400, 400),
    "InvalidBatchEntryId": RefusalKind(_SIMPLE + "InvalidBatchEntryId", 400, 400),
    "TooManyEntriesInBatchRequest": RefusalKind(_SIMPLE + "TooManyEntriesInBatchRequest", 400, 400),
    # messages and receipts
    "MessageNotInflight": RefusalKind(_SIMPLE + "MessageNotInflight", 400, 409),
    "ReceiptHandleIsInvalid": RefusalKind("ReceiptHandleIsInvalid", 400, 400),
    "InvalidIdFormat": RefusalKind("InvalidIdFormat", 400, 400),
    "InvalidMessageContents": RefusalKind("InvalidMessageContents", 400, 400),
    "OverLimit": RefusalKind("OverLimit", 403, 429),
    "NotScheduled": RefusalKind("NotScheduled", 400, 409),
    "ScheduleFull": RefusalKind("OverLimit", 403, 429),
    "PurgeQueueInProgress": RefusalKind(_SIMPLE + "PurgeQueueInProgress", 403, 409),
    # parameters
    "InvalidAttributeName": RefusalKind("InvalidAttributeName", 400, 400),
    "InvalidAttributeValue": RefusalKind("InvalidAttributeValue", 400, 400),
    "InvalidParameterValueException": RefusalKind("InvalidParameterValue", 400, 400),
    "MissingRequiredParameterException": RefusalKind("MissingParameter", 400, 400),
    "InvalidAddress": RefusalKind("InvalidAddress", 400, 400),
    "UnsupportedOperation": RefusalKind(_SIMPLE + "UnsupportedOperation", 400, 400),
    "UnknownOperationException": RefusalKind("InvalidAction", 400, 404, _CORAL),
    "UnknownOperation": RefusalKind("UnknownOperationException", 404, 404, _CORAL),
    "MissingAction": RefusalKind("MissingAction", 400, 400, _CORAL),
    "NoSuchVersion": RefusalKind("NoSuchVersion", 400, 400, _CORAL),
    "SerializationException": RefusalKind("MalformedInput", 400, 400, _CORAL),
    "RequestTooLarge": RefusalKind("InvalidParameterValue", 413, 413, _CORAL),
    "HeadersTooLarge": RefusalKind("InvalidParameterValue", 431, 431, _CORAL),
    "UnsupportedMediaType": RefusalKind("InvalidParameterValue", 415, 415, _CORAL),
    "MethodNotAllowed": RefusalKind("InvalidAction", 405, 405, _CORAL),
    "NotFound": RefusalKind("InvalidAction", 404, 404, _CORAL),
    # who asks
    "MissingAuthenticationToken": RefusalKind("MissingAuthenticationToken", 403, 401),
    "InvalidClientTokenId": RefusalKind("InvalidClientTokenId", 403, 401),
    "SignatureDoesNotMatch": RefusalKind("SignatureDoesNotMatch", 403, 401),
    "IncompleteSignature": RefusalKind("IncompleteSignature", 400, 401),
    "RequestExpired": RefusalKind("RequestExpired", 400, 401),
    "InvalidSecurity": RefusalKind("InvalidSecurity", 400, 401),
    "AccessDeniedException": RefusalKind("AccessDenied", 403, 403),
    # load and failure
    "RequestThrottled": RefusalKind("RequestThrottled", 400, 429),
    "ServiceUnavailable": RefusalKind("ServiceUnavailable", 503, 503),
    "InternalFailure": RefusalKind("InternalFailure", 500, 500),
}


class Refusal(Exception):
    """A no with its reason. `retry_after_s` is sent as Retry-After where it is not None."""

    __slots__ = ("code", "message", "retry_after_s")

    def __init__(self, code: str, message: str, retry_after_s: int | None = None) -> None:
        assert code in KINDS, code
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def kind(self) -> RefusalKind:
        return KINDS[self.code]


def unavailable(message: str, retry_after_s: int = RETRY_AFTER_S) -> Refusal:
    return Refusal("ServiceUnavailable", message, retry_after_s)


def retry_after_s(retry_after_ms: int) -> int:
    """Retry-After is in whole seconds, and never earlier than what was said."""
    return max(1, -(-retry_after_ms // 1000))


def invalid(message: str) -> Refusal:
    return Refusal("InvalidParameterValueException", message)


def missing(parameter: str) -> Refusal:
    return Refusal("MissingRequiredParameterException", f"The request must contain the parameter {parameter}.")


def queue_does_not_exist() -> Refusal:
    return Refusal("QueueDoesNotExist", "The specified queue does not exist.")


def receipt_is_invalid(handle: str) -> Refusal:
    shown = handle if len(handle) <= REFUSED_CHARS_SHOWN_MAX else handle[:REFUSED_CHARS_SHOWN_MAX] + "..."
    return Refusal("ReceiptHandleIsInvalid", f'The input receipt handle "{shown}" is not a valid receipt handle.')
