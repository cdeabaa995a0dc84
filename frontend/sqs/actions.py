"""What each SQS action does: from its parameters to the bytes of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from frontend.authn.principal import Principal
from frontend.errors import Refusal, invalid, missing, queue_does_not_exist
from frontend.http import Request
from frontend.limits import LIST_RESULTS_MAX
from frontend.receive import ReceiveAsk, Received, change_visibility, delete_messages, receive_messages
from frontend.routing.queues import Address, QueueView
from frontend.send import Sent, authorise, send_message, send_messages, storage_refusal, throttle
from frontend.sqs import asks
from frontend.sqs.queue_attributes import (
    check_asked,
    check_queue_name,
    check_settable,
    check_tags,
    queue_attributes,
    wants_counts,
)
from frontend.sqs.queue_url import make_queue_url, read_queue_url
from frontend.sqs.received import Wanted, received_json
from frontend.sqs.validation import attempt, check_batch, check_messages_max, check_visibility_s, check_wait_s
from storage_nodes.protocol.errors import StorageError

if TYPE_CHECKING:
    from frontend.plane import Plane

EMPTY = b"{}"
_encode = msgspec.json.Encoder().encode


class Call(NamedTuple):
    """One authenticated request of the SQS wire."""

    plane: Plane
    request: Request
    caller: Principal


class Action(NamedTuple):
    name: str
    decode: Callable[[bytes], Any]
    run: Callable[[Call, Any], Awaitable[bytes]]


# --- messages ---


async def _send_message(call: Call, ask: asks.SendMessage) -> bytes:
    sent = await send_message(call.plane, call.caller, read_queue_url(ask.queue_url), ask)
    draft = sent.draft
    if draft.attributes_md5 is None and draft.trace_md5 is None:
        return f'{{"MD5OfMessageBody":"{draft.body_md5}","MessageId":"{sent.message_id}"}}'.encode()
    return _encode(_sent(sent))


async def _send_message_batch(call: Call, ask: asks.SendMessageBatch) -> bytes:
    address = read_queue_url(ask.queue_url)
    ids = check_batch(ask.entries)
    outcomes = await send_messages(call.plane, call.caller, address, ask.entries or ())
    successful = [
        {"Id": entry_id, **_sent(outcome)}
        for entry_id, outcome in zip(ids, outcomes, strict=True)
        if not isinstance(outcome, Refusal)
    ]
    return _batch_answer(successful, ids, [one if isinstance(one, Refusal) else None for one in outcomes])


async def _receive_message(call: Call, ask: asks.ReceiveMessage) -> bytes:
    address = read_queue_url(ask.queue_url)
    if ask.receive_request_attempt_id is not None:
        raise invalid("The request includes a parameter that is not valid for this queue type: ReceiveRequestAttemptId")
    wanted = Wanted.of(ask)
    bounds = ReceiveAsk(
        check_messages_max(ask.max_number_of_messages),
        check_visibility_s(ask.visibility_timeout),
        check_wait_s(ask.wait_time_seconds),
    )
    messages: Sequence[Received] = await receive_messages(
        call.plane, call.caller, address, bounds, call.request.receive
    )
    if not messages:
        return EMPTY
    return _encode({"Messages": [received_json(message, wanted) for message in messages]})


async def _delete_message(call: Call, ask: asks.DeleteMessage) -> bytes:
    address = read_queue_url(ask.queue_url)
    if not ask.receipt_handle:
        raise missing("ReceiptHandle")
    return _single(await delete_messages(call.plane, call.caller, address, (ask.receipt_handle,)))


async def _delete_message_batch(call: Call, ask: asks.DeleteMessageBatch) -> bytes:
    address = read_queue_url(ask.queue_url)
    ids = check_batch(ask.entries)
    handles = [entry.receipt_handle for entry in ask.entries or ()]
    return _receipts_answer(ids, await delete_messages(call.plane, call.caller, address, handles))


async def _change_message_visibility(call: Call, ask: asks.ChangeMessageVisibility) -> bytes:
    address = read_queue_url(ask.queue_url)
    if not ask.receipt_handle:
        raise missing("ReceiptHandle")
    seconds = _visibility_s(ask.visibility_timeout)
    return _single(await change_visibility(call.plane, call.caller, address, ((ask.receipt_handle, seconds),)))


async def _change_message_visibility_batch(call: Call, ask: asks.ChangeMessageVisibilityBatch) -> bytes:
    address = read_queue_url(ask.queue_url)
    ids = check_batch(ask.entries)
    changes = [(entry.receipt_handle, _attempt_visibility_s(entry)) for entry in ask.entries or ()]
    return _receipts_answer(ids, await change_visibility(call.plane, call.caller, address, changes))


# --- queues ---


async def _get_queue_url(call: Call, ask: asks.GetQueueUrl) -> bytes:
    if not ask.queue_name:
        raise missing("QueueName")
    account_id = ask.queue_owner_account_id or call.caller.account_id
    queue = await _find(call, "GetQueueUrl", Address(account_id, ask.queue_name))
    return _encode({"QueueUrl": make_queue_url(call.request.base_url, queue.address)})


async def _get_queue_attributes(call: Call, ask: asks.GetQueueAttributes) -> bytes:
    address = read_queue_url(ask.queue_url)
    asked = check_asked(ask.attribute_names)
    queue = await _find(call, "GetQueueAttributes", address)
    if not asked:
        return EMPTY
    stats = []
    if wants_counts(asked):
        calls = [call.plane.storage.stats(partition) for partition in queue.partitions]
        stats = await _ask_storage(call, queue, calls)
    return _encode({"Attributes": queue_attributes(queue.record, call.plane.region, stats, asked)})


async def _set_queue_attributes(call: Call, ask: asks.SetQueueAttributes) -> bytes:
    address = read_queue_url(ask.queue_url)
    if not ask.attributes:
        raise missing("Attributes")
    queue = await _find(call, "SetQueueAttributes", address)
    check_settable(ask.attributes)
    await _control(call, "SetQueueAttributes", {"QueueName": address.name, "Attributes": ask.attributes})
    await call.plane.queues.refresh(queue.address)
    return EMPTY


async def _purge_queue(call: Call, ask: asks.QueueAsk) -> bytes:
    queue = await _find(call, "PurgeQueue", read_queue_url(ask.queue_url))
    await _ask_storage(call, queue, [call.plane.storage.purge(partition) for partition in queue.partitions])
    return EMPTY


async def _create_queue(call: Call, ask: asks.CreateQueue) -> bytes:
    name = check_queue_name(ask.queue_name)
    attributes = ask.attributes or {}
    check_settable(attributes)
    check_tags(ask.tags)
    params: dict[str, object] = {"QueueName": name, "Attributes": attributes}
    if ask.tags:
        params["tags"] = ask.tags
    result = await _control(call, "CreateQueue", params)
    address = Address(call.caller.account_id, str(result.get("name", name)))
    # Whoever made a queue may use it in the next instant: do not wait for the change feed.
    await call.plane.metadata.refresh_queue(address.account_id, address.name)
    return _encode({"QueueUrl": make_queue_url(call.request.base_url, address)})


async def _delete_queue(call: Call, ask: asks.QueueAsk) -> bytes:
    address = read_queue_url(ask.queue_url)
    if address.account_id != call.caller.account_id:
        raise queue_does_not_exist()
    await _control(call, "DeleteQueue", {"QueueName": address.name})
    await call.plane.metadata.refresh_queue(address.account_id, address.name)
    return EMPTY


async def _list_queues(call: Call, ask: asks.ListQueues) -> bytes:
    if ask.max_results is not None and not 1 <= ask.max_results <= LIST_RESULTS_MAX:
        raise invalid(
            f"Value {ask.max_results} for parameter MaxResults is invalid. "
            f"Reason: Must be between 1 and {LIST_RESULTS_MAX}."
        )
    params: dict[str, object] = {
        name: value
        for name, value in (
            ("QueueNamePrefix", ask.queue_name_prefix),
            ("MaxResults", ask.max_results),
            ("NextToken", ask.next_token),
        )
        if value is not None
    }
    result = await _control(call, "ListQueues", params)
    base_url, account_id = call.request.base_url, call.caller.account_id
    answer: dict[str, object] = {}
    if result.get("names"):
        answer["QueueUrls"] = [make_queue_url(base_url, Address(account_id, name)) for name in result["names"]]
    if result.get("NextToken"):
        answer["NextToken"] = result["NextToken"]
    return _encode(answer)


# --- what several actions share ---


async def _find(call: Call, action: str, address: Address) -> QueueView:
    queue = authorise(call.plane, call.caller, action, address) or await call.plane.queues.find(address)
    throttle(call.plane, call.caller, queue)
    return queue


async def _control(call: Call, action: str, params: dict[str, object]) -> dict[str, Any]:
    return await call.plane.control.sqs(action, call.caller, call.request.request_id, params)


async def _ask_storage(call: Call, queue: QueueView, calls: Sequence[Awaitable[Any]]) -> list[Any]:
    with call.plane.storage_calls:
        try:
            return await asyncio.gather(*calls)
        except StorageError as error:
            raise await storage_refusal(call.plane, queue, error) from None


def _sent(sent: Sent) -> dict[str, str]:
    draft = sent.draft
    answer = {"MessageId": sent.message_id, "MD5OfMessageBody": draft.body_md5}
    if draft.attributes_md5 is not None:
        answer["MD5OfMessageAttributes"] = draft.attributes_md5
    if draft.trace_md5 is not None:
        answer["MD5OfMessageSystemAttributes"] = draft.trace_md5
    return answer


def _single(outcomes: Sequence[Refusal | None]) -> bytes:
    if outcomes[0] is not None:
        raise outcomes[0]
    return EMPTY


def _receipts_answer(ids: Sequence[str], outcomes: Sequence[Refusal | None]) -> bytes:
    successful = [{"Id": entry_id} for entry_id, outcome in zip(ids, outcomes, strict=True) if outcome is None]
    return _batch_answer(successful, ids, outcomes)


def _batch_answer(
    successful: Sequence[dict[str, str]], ids: Sequence[str], outcomes: Sequence[Refusal | None]
) -> bytes:
    failed = []
    for entry_id, refusal in zip(ids, outcomes, strict=True):
        if refusal is None:
            continue
        if refusal.kind.status >= 500:
            raise refusal  # SDKs repeat a whole request by themselves, but never the entries of one
        failed.append(
            {"Id": entry_id, "SenderFault": True, "Code": refusal.kind.query_code, "Message": refusal.message}
        )
    return _encode({"Successful": successful, "Failed": failed} if failed else {"Successful": successful})


def _visibility_s(value: int | None) -> int:
    seconds = check_visibility_s(value)
    if seconds is None:
        raise missing("VisibilityTimeout")
    return seconds


def _attempt_visibility_s(entry: asks.VisibilityEntry) -> int | Refusal:
    return attempt(lambda: _visibility_s(entry.visibility_timeout))


def _action(name: str, ask: type[asks.Ask], run: Callable[[Call, Any], Awaitable[bytes]]) -> Action:
    return Action(name, msgspec.json.Decoder(ask).decode, run)


ACTIONS: dict[bytes, Action] = {
    b"AmazonSQS." + action.name.encode(): action
    for action in (
        _action("SendMessage", asks.SendMessage, _send_message),
        _action("SendMessageBatch", asks.SendMessageBatch, _send_message_batch),
        _action("ReceiveMessage", asks.ReceiveMessage, _receive_message),
        _action("DeleteMessage", asks.DeleteMessage, _delete_message),
        _action("DeleteMessageBatch", asks.DeleteMessageBatch, _delete_message_batch),
        _action("ChangeMessageVisibility", asks.ChangeMessageVisibility, _change_message_visibility),
        _action("ChangeMessageVisibilityBatch", asks.ChangeMessageVisibilityBatch, _change_message_visibility_batch),
        _action("CreateQueue", asks.CreateQueue, _create_queue),
        _action("DeleteQueue", asks.QueueAsk, _delete_queue),
        _action("GetQueueUrl", asks.GetQueueUrl, _get_queue_url),
        _action("ListQueues", asks.ListQueues, _list_queues),
        _action("GetQueueAttributes", asks.GetQueueAttributes, _get_queue_attributes),
        _action("SetQueueAttributes", asks.SetQueueAttributes, _set_queue_attributes),
        _action("PurgeQueue", asks.QueueAsk, _purge_queue),
    )
}
