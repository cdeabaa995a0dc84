"""What the errors of storage mean to a caller. The storage client has retried by then.

Surface: other planes may import this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frontend.errors import RequestError, invalid, retry_after_s, unavailable
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import NOT_TAKEN, SendReply

if TYPE_CHECKING:
    from frontend.services import FrontendServices


async def explain_storage_error(services: FrontendServices, queue: ResolvedQueue, error: StorageError) -> RequestError:
    """The error that the caller is answered with, to be raised."""
    if error.code == ErrorCode.UNKNOWN_PARTITION:
        # Either the queue is gone and the cache had not heard, or a node is behind: the database knows.
        try:
            await services.queues.refresh(queue.address)
        except RequestError as gone:
            return gone
    services.meters.count("storage_errors")
    meant = error_of_code(error.code, queue.record.name)
    if error.code == ErrorCode.OVER_LIMIT and error.message:
        return RequestError(meant.code, f"A limit of the queue is reached: {error.message}.")
    if error.retry_after_ms and meant.code == "ServiceUnavailable":
        return unavailable(meant.message, retry_after_s(error.retry_after_ms))
    return meant


def check_taken(reply: SendReply) -> None:
    """Of a copy that is made again later. Raises StorageError where the partition was closed."""
    if any(original == NOT_TAKEN for _, original in reply.duplicates):
        raise StorageError(ErrorCode.UNAVAILABLE, "the partitions of the queue change at the moment")


def error_of_code(code: ErrorCode, queue_name: str, handle: str = "") -> RequestError:
    if code == ErrorCode.NOT_IN_FLIGHT:
        return RequestError("MessageNotInflight", "The message referred to is not in flight.")
    if code == ErrorCode.RECEIPT_STALE:
        return invalid(
            f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
        )
    if code == ErrorCode.UNKNOWN_RECORD:
        return invalid(
            f"Value {handle} for parameter ReceiptHandle is invalid. "
            "Reason: Message does not exist or is not available for visibility timeout change."
        )
    if code == ErrorCode.OVER_LIMIT:
        return RequestError("OverLimit", "The maximum number of in flight messages is reached.")
    if code == ErrorCode.NOT_SCHEDULED:
        return RequestError("NotScheduled", "The message is not scheduled: it is due, was cancelled, or never was.")
    if code == ErrorCode.SCHEDULE_FULL:
        return RequestError("ScheduleFull", f"{queue_name} holds as many scheduled messages as it can.")
    if code == ErrorCode.PURGE_IN_PROGRESS:
        return RequestError(
            "PurgeQueueInProgress", f"Only one PurgeQueue operation on {queue_name} is allowed every 60 seconds."
        )
    if code == ErrorCode.TOO_LARGE:
        return invalid("One or more parameters are invalid. Reason: Message is too long.")
    if code == ErrorCode.OVERLOADED:
        return unavailable("The message store has more to do than it can take at the moment. Try again later.")
    if code == ErrorCode.READ_ONLY:
        return unavailable("The disks of the message store are nearly full: it takes no messages until there is room.")
    return unavailable("The message store cannot do this at the moment. Try again.")
