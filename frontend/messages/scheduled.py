"""Scheduled messages of a queue: which there are, cancelling them, giving them another time.

    way in, authenticate, authorise, route, throttle         as in send.py
    list      a place among the calls of the message browser; a page (scheduled_pages.py), paid for by what was read;
              bodies opened
    change    one call per partition; each message has an outcome of its own

A message is named by an opaque id: the partition and the offset where it lies, MACed for its queue as receipts are, but
never to be taken for one. It stays the same when the message is rescheduled. A change that is answered with success is
committed: what was cancelled is never delivered. "Not scheduled" says that the message is due already, or gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import structlog

from frontend.authn.principal import Principal
from frontend.crypto.envelope import EnvelopeError
from frontend.crypto.message_tokens import InvalidToken, ScheduleCursor
from frontend.crypto.receipts import Receipt, ReceiptError, make_schedule_id, read_schedule_id
from frontend.errors import RequestError, invalid
from frontend.limits import SCHEDULED_LISTED_MAX
from frontend.messages.admission import admit, pay_later
from frontend.messages.opening import OpenedRecord, message_id_of, open_record
from frontend.messages.scheduled_pages import Position, ScheduledPage
from frontend.messages.storage_errors import error_of_code, explain_storage_error
from frontend.queues.names import Address
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import ScheduledMessage
from storage_nodes.protocol.records import RecordError

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_OFFSET_MAX = 2**63 - 1

_log = structlog.get_logger("frontend.messages.scheduled")


class Scheduled(NamedTuple):
    """`record` is None where the message does not open."""

    schedule_id: str
    message_id: str
    due_ms: int
    record: OpenedRecord | None


class Page(NamedTuple):
    messages: list[Scheduled]
    cursor: str | None  # None: there are no more


async def list_scheduled(
    services: FrontendServices,
    caller: Principal,
    address: Address,
    count_max: int,
    cursor: str | None,
    until_ms: int | None,
) -> Page:
    """By due time. Raises RequestError."""
    queue = await admit(services, caller, "list_scheduled", address)
    if not 1 <= count_max <= SCHEDULED_LISTED_MAX:
        raise invalid(f"A page has 1 to {SCHEDULED_LISTED_MAX} messages.")
    listing = b"" if until_ms is None else b"%d" % until_ms
    after = _read_cursor(services, queue, cursor, listing)
    until = _OFFSET_MAX if until_ms is None else max(0, min(until_ms, _OFFSET_MAX))
    page = ScheduledPage(services, queue.partitions, count_max, after, until)
    searches_max = services.quotas.limits(caller.account_id, caller.name).browser_searches
    with services.browser_calls.place(caller.account_id, searches_max):
        try:
            await page.run()
        except StorageError as error:
            raise await explain_storage_error(services, queue, error) from None
        finally:
            pay_later(services, caller, address, page.read, page.read_bytes)
    messages = [_opened(services, queue, partition, message) for partition, message in page.found]
    end = page.end
    if end is None:
        return Page(messages, None)
    due_ms, partition, offset = end
    last = ScheduleCursor(partition, offset, due_ms)
    return Page(messages, services.message_tokens.schedule_cursor(queue.owner, last, listing))


async def change_scheduled(
    services: FrontendServices, caller: Principal, address: Address, ids: Sequence[str], due_ms: int
) -> list[RequestError | None]:
    """Give messages the time due_ms; 0 cancels them. One outcome per id."""
    operation = "reschedule" if due_ms else "cancel_scheduled"
    queue = await admit(services, caller, operation, address, messages=len(ids))
    outcomes: list[RequestError | None] = [None] * len(ids)
    by_partition: dict[int, list[tuple[int, int]]] = {}
    for index, one in enumerate(ids):
        receipt = _read_id(services, queue, one)
        if receipt is None:
            outcomes[index] = invalid("The schedule id is not one of this queue.")
        else:
            by_partition.setdefault(receipt.partition, []).append((index, receipt.offset))
    calls = [
        _change_at(services, queue, partition, where, due_ms, outcomes) for partition, where in by_partition.items()
    ]
    await asyncio.gather(*calls)
    return outcomes


async def _change_at(
    services: FrontendServices,
    queue: ResolvedQueue,
    partition: int,
    where: list[tuple[int, int]],
    due_ms: int,
    outcomes: list[RequestError | None],
) -> None:
    with services.storage_calls:
        try:
            codes = await services.storage.reschedule(partition, [(offset, due_ms) for _, offset in where])
        except StorageError as error:
            meant = await explain_storage_error(services, queue, error)
            for index, _ in where:
                outcomes[index] = meant
            return
    for (index, _), code in zip(where, codes, strict=True):
        if code != ErrorCode.OK:
            outcomes[index] = error_of_code(code, queue.record.name)


def _read_cursor(
    services: FrontendServices, queue: ResolvedQueue, cursor: str | None, listing: bytes
) -> Position | None:
    if cursor is None:
        return None
    try:
        partition, offset, due_ms = services.message_tokens.read_schedule_cursor(queue.owner, cursor, listing)
    except InvalidToken:
        raise invalid("The cursor is not one that a page of this queue and `until_ms` ended with.") from None
    return due_ms, partition, offset


def _read_id(services: FrontendServices, queue: ResolvedQueue, text: str) -> Receipt | None:
    try:
        receipt = read_schedule_id(services.receipts, queue.owner, text)
    except ReceiptError:
        return None
    return receipt if receipt.partition in queue.partitions else None


def _opened(services: FrontendServices, queue: ResolvedQueue, partition: int, message: ScheduledMessage) -> Scheduled:
    name = make_schedule_id(services.receipts, queue.owner, partition, message.offset)
    try:
        record = open_record(queue, message.body)
    except (EnvelopeError, RecordError) as error:
        services.meters.count("envelopes_unopened")
        _log.error("envelope_unopened", partition=partition, offset=message.offset, reason=str(error))
        return Scheduled(name, "", message.due_ms, None)
    message_id = message_id_of(services.message_ids, queue, partition, message.offset, record)
    return Scheduled(name, message_id, message.due_ms, record)
