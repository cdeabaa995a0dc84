"""What callers do with messages that they were given: delete (acknowledge), extend, give back.

    way in, authenticate, throttle, authorise, resolve       as in send.py
    read      crypto/receipts.py     each receipt; it is proof that the message was delivered from this queue
    apply     storage_nodes.client   one call per partition; whether a lease still holds is for the partition to say

Each receipt has an outcome of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from frontend.authn.principal import Principal
from frontend.crypto.receipts import Receipt, ReceiptError
from frontend.errors import RequestError, invalid, missing, receipt_is_invalid
from frontend.limits import VISIBILITY_S_MAX
from frontend.messages.admission import admit, admit_at_hand, admit_found
from frontend.messages.storage_errors import error_of_code, explain_storage_error
from frontend.queues.names import Address
from frontend.queues.resolver import ResolvedQueue
from frontend.routing.poll import in_calls
from storage_nodes.limits import RECEIPTS_PER_CALL_MAX
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import VisibilityMode

if TYPE_CHECKING:
    from frontend.services import FrontendServices

# Of a receipt, what storage is told.
_place: Callable[[object], tuple[int, int]] = attrgetter("offset", "delivery")


async def delete_messages(
    services: FrontendServices, caller: Principal, address: Address, handles: Sequence[str | None]
) -> list[RequestError | None]:
    """One outcome per handle. Deleting what is gone is a success without effect."""
    queue = admit_at_hand(services, caller, "DeleteMessage", address, len(handles))
    if queue is None:
        queue = await admit_found(services, caller, "DeleteMessage", address)
    receipts = read_receipts(services, queue, handles)
    outcomes = await apply_receipts(services, queue, receipts, None)
    if any(outcomes):
        outcomes = [None if _is_not_in_flight(outcome) else outcome for outcome in outcomes]
    services.meters.count("messages_deleted", outcomes.count(None))
    return outcomes


async def change_visibility(
    services: FrontendServices,
    caller: Principal,
    address: Address,
    changes: Sequence[tuple[str | None, int | RequestError]],
) -> list[RequestError | None]:
    """(handle, seconds from now) each; a RequestError in the place of the seconds is passed through, unless the handle
    is missing."""
    queue = await admit(services, caller, "ChangeMessageVisibility", address, messages=len(changes))
    receipts = read_receipts(services, queue, [handle for handle, _ in changes])
    seconds: list[int] = []
    for index, (handle, visibility_s) in enumerate(changes):
        if isinstance(visibility_s, RequestError):
            if handle is not None:
                receipts[index] = visibility_s
            seconds.append(0)
        else:
            receipt = receipts[index]
            receipts[index] = _held_too_long(services, receipt, visibility_s) or receipt
            seconds.append(visibility_s)
    if queue.zero_releases and 0 in seconds:
        return await apply_by_mode(services, queue, receipts, seconds)
    return await apply_receipts(services, queue, receipts, [1000 * value for value in seconds])


async def give_back(
    services: FrontendServices,
    caller: Principal,
    address: Address,
    handles: Sequence[str],
    delay_s: int | None,
    counts: bool,
) -> list[RequestError | None]:
    """Without a delay: a receive that counts is followed by the pause of the queue's retry policy."""
    queue = await admit(services, caller, "ChangeMessageVisibility", address, messages=len(handles))
    receipts = read_receipts(services, queue, handles)
    delays_ms = [1000 * (delay_s or 0)] * len(receipts)
    return await apply_receipts(services, queue, receipts, delays_ms, give_back_mode(delay_s, counts))


def give_back_mode(delay_s: int | None, counts: bool) -> VisibilityMode:
    if not counts:
        return VisibilityMode.UNCOUNTED
    return VisibilityMode.NACK if delay_s is None else VisibilityMode.SET


# --- stages ---


def read_receipts(
    services: FrontendServices, queue: ResolvedQueue, handles: Sequence[str | None]
) -> list[Receipt | RequestError]:
    read, owner, partitions = services.receipts.read, queue.owner, queue.partitions
    receipts: list[Receipt | RequestError] = []
    for handle in handles:
        if handle is None:
            receipts.append(missing("ReceiptHandle"))
            continue
        try:
            receipt = read(owner, handle)
            receipts.append(receipt if receipt.partition in partitions else receipt_is_invalid(handle))
        except ReceiptError:
            receipts.append(receipt_is_invalid(handle))
    return receipts


def _held_too_long(
    services: FrontendServices, receipt: Receipt | RequestError, visibility_s: int
) -> RequestError | None:
    """One delivery lasts VISIBILITY_S_MAX, however often it is made longer."""
    if isinstance(receipt, RequestError) or not receipt.received_s or not visibility_s:
        return None
    if int(services.now_s()) - receipt.received_s + visibility_s <= VISIBILITY_S_MAX:
        return None
    return invalid(
        f"Value {visibility_s} for parameter VisibilityTimeout is invalid. "
        f"Reason: Total VisibilityTimeout for the message is beyond the limit [{VISIBILITY_S_MAX} seconds]."
    )


async def apply_by_mode(
    services: FrontendServices, queue: ResolvedQueue, receipts: Sequence[Receipt | RequestError], seconds: Sequence[int]
) -> list[RequestError | None]:
    """Where the queue takes a visibility of 0 for a release that does not count."""
    outcomes: list[RequestError | None] = [None] * len(receipts)
    for mode in (VisibilityMode.SET, VisibilityMode.UNCOUNTED):
        indexes = [at for at, value in enumerate(seconds) if (value == 0) == (mode == VisibilityMode.UNCOUNTED)]
        chosen = [receipts[at] for at in indexes]
        found = await apply_receipts(services, queue, chosen, [1000 * seconds[at] for at in indexes], mode)
        for at, outcome in zip(indexes, found, strict=True):
            outcomes[at] = outcome
    return outcomes


async def apply_receipts(
    services: FrontendServices,
    queue: ResolvedQueue,
    receipts: Sequence[Receipt | RequestError],
    visibility_ms: Sequence[int] | None,
    mode: VisibilityMode = VisibilityMode.SET,
) -> list[RequestError | None]:
    """Delete (visibility_ms None) or change visibility; one outcome per receipt. One call per partition, or as many as
    a node takes."""
    outcomes: list[RequestError | None] = [None] * len(receipts)
    indexes: dict[int, list[int]] = {}
    for index, found in enumerate(receipts):
        if not isinstance(found, Receipt):
            outcomes[index] = found
        elif found.partition in indexes:
            indexes[found.partition].append(index)
        else:
            indexes[found.partition] = [index]
    if len(indexes) == 1 and len(receipts) <= RECEIPTS_PER_CALL_MAX:
        ((partition, where),) = indexes.items()
        await _apply_at(services, queue, partition, where, receipts, visibility_ms, outcomes, mode)
        return outcomes
    await asyncio.gather(
        *(
            _apply_at(services, queue, partition, some, receipts, visibility_ms, outcomes, mode)
            for partition, where in indexes.items()
            for some in in_calls(where)
        )
    )
    return outcomes


async def _apply_at(
    services: FrontendServices,
    queue: ResolvedQueue,
    partition: int,
    indexes: Sequence[int],
    receipts: Sequence[Receipt | RequestError],
    visibility_ms: Sequence[int] | None,
    outcomes: list[RequestError | None],
    mode: VisibilityMode,
) -> None:
    places = list(map(_place, map(receipts.__getitem__, indexes)))
    services.storage_calls.enter()
    try:
        if visibility_ms is None:
            codes = await services.storage.delete(partition, places)
        else:
            changes = [(*place, visibility_ms[index]) for place, index in zip(places, indexes, strict=True)]
            codes = await services.storage.change_visibility(partition, changes, mode)
            # Of FIFO queues storage tells a lease that ran out from none; SQS does so for deletes only.
            if ErrorCode.RECEIPT_STALE in codes:
                codes = [ErrorCode.NOT_IN_FLIGHT if code == ErrorCode.RECEIPT_STALE else code for code in codes]
    except StorageError as error:
        meant = await explain_storage_error(services, queue, error)
        for index in indexes:
            outcomes[index] = meant
        return
    finally:
        services.storage_calls.calls -= 1
    if not any(codes) and len(codes) == len(indexes):
        return
    for index, code in zip(indexes, codes, strict=True):
        if code != ErrorCode.OK:
            outcomes[index] = error_of_code(code, queue.record.name, _handle_of(services, queue, receipts[index]))


def _handle_of(services: FrontendServices, queue: ResolvedQueue, found: Receipt | RequestError) -> str:
    """The text of a receipt that was read, made again."""
    return "" if isinstance(found, RequestError) else services.receipts.make_again(queue.owner, found)


def _is_not_in_flight(outcome: RequestError | None) -> bool:
    return outcome is not None and outcome.code == "MessageNotInflight"
