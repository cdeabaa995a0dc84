"""Every SQS action: its parameters, and what it does with messages. `queue_actions.py` has those about queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from frontend.errors import Refusal, missing
from frontend.receive import ReceiveAsk, Received, change_visibility, delete_messages, receive_messages
from frontend.send import Sent, send_message, send_messages
from frontend.sqs import asks, move_actions, queue_actions
from frontend.sqs.call import EMPTY, Call, encode
from frontend.sqs.queue_url import read_queue_url
from frontend.sqs.received import Wanted, received_json
from frontend.sqs.tags import split_filters
from frontend.sqs.validation import (
    attempt,
    check_batch,
    check_messages_max,
    check_visibility_s,
    check_wait_s,
    read_trace_header,
)

_TRACE_HEADER = b"x-amzn-trace-id"


class Action(NamedTuple):
    """`ask` is the type of the parameters, `decode` reads them from JSON. The answer is JSON, whatever the protocol."""

    name: str
    ask: type[asks.Ask]
    decode: Callable[[bytes], Any]
    run: Callable[[Call, Any], Awaitable[bytes]]


# --- messages ---


async def _send_message(call: Call, ask: asks.SendMessage) -> bytes:
    address = read_queue_url(ask.queue_url, call.caller.account_id)
    _trace(call, (ask,))
    sent = await send_message(call.plane, call.caller, address, ask)
    draft = sent.draft
    if draft.attributes_md5 is None and draft.trace_md5 is None and sent.sequence_number is None:
        return f'{{"MD5OfMessageBody":"{draft.body_md5}","MessageId":"{sent.message_id}"}}'.encode()
    return encode(_sent(sent))


async def _send_message_batch(call: Call, ask: asks.SendMessageBatch) -> bytes:
    address = read_queue_url(ask.queue_url, call.caller.account_id)
    ids = check_batch("SendMessageBatch", ask.entries)
    _trace(call, ask.entries or ())
    outcomes = await send_messages(call.plane, call.caller, address, ask.entries or ())
    successful = [
        {"Id": entry_id, **_sent(outcome)}
        for entry_id, outcome in zip(ids, outcomes, strict=True)
        if not isinstance(outcome, Refusal)
    ]
    return _batch_answer(successful, ids, [one if isinstance(one, Refusal) else None for one in outcomes])


async def _receive_message(call: Call, ask: asks.ReceiveMessage) -> bytes:
    address = read_queue_url(ask.queue_url, call.caller.account_id)
    wanted = Wanted.of(ask)
    bounds = ReceiveAsk(
        check_messages_max(ask.max_number_of_messages),
        check_visibility_s(ask.visibility_timeout),
        check_wait_s(ask.wait_time_seconds),
        ask.receive_request_attempt_id,
        split_filters(ask.message_attribute_names)[1],
    )
    messages: Sequence[Received] = await receive_messages(
        call.plane, call.caller, address, bounds, call.request.receive
    )
    if not messages:
        return EMPTY
    return encode({"Messages": [received_json(message, wanted) for message in messages]})


async def _delete_message(call: Call, ask: asks.DeleteMessage) -> bytes:
    address = read_queue_url(ask.queue_url, call.caller.account_id)
    if not ask.receipt_handle:
        raise missing("ReceiptHandle")
    return _single(await delete_messages(call.plane, call.caller, address, (ask.receipt_handle,)))


async def _delete_message_batch(call: Call, ask: asks.DeleteMessageBatch) -> bytes:
    address = read_queue_url(ask.queue_url, call.caller.account_id)
    ids = check_batch("DeleteMessageBatch", ask.entries)
    handles = [entry.receipt_handle for entry in ask.entries or ()]
    return _receipts_answer(ids, await delete_messages(call.plane, call.caller, address, handles))


async def _change_message_visibility(call: Call, ask: asks.ChangeMessageVisibility) -> bytes:
    address = read_queue_url(ask.queue_url, call.caller.account_id)
    if not ask.receipt_handle:
        raise missing("ReceiptHandle")
    seconds = _visibility_s(ask.visibility_timeout)
    return _single(await change_visibility(call.plane, call.caller, address, ((ask.receipt_handle, seconds),)))


async def _change_message_visibility_batch(call: Call, ask: asks.ChangeMessageVisibilityBatch) -> bytes:
    address = read_queue_url(ask.queue_url, call.caller.account_id)
    ids = check_batch("ChangeMessageVisibilityBatch", ask.entries)
    changes = [(entry.receipt_handle, _attempt_visibility_s(entry)) for entry in ask.entries or ()]
    return _receipts_answer(ids, await change_visibility(call.plane, call.caller, address, changes))


def _trace(call: Call, messages: Sequence[asks.MessageFields]) -> None:
    """A trace that the HTTP request names is that of its messages."""
    header = call.request.headers.get(_TRACE_HEADER)
    if header is not None:
        for fields in messages:
            fields.trace_header = read_trace_header(header)


# --- answers that several actions share ---


def _sent(sent: Sent) -> dict[str, str]:
    draft = sent.draft
    answer = {"MessageId": sent.message_id, "MD5OfMessageBody": draft.body_md5}
    if draft.attributes_md5 is not None:
        answer["MD5OfMessageAttributes"] = draft.attributes_md5
    if draft.trace_md5 is not None:
        answer["MD5OfMessageSystemAttributes"] = draft.trace_md5
    if sent.sequence_number is not None:
        answer["SequenceNumber"] = sent.sequence_number
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
    return encode({"Successful": successful, "Failed": failed} if failed else {"Successful": successful})


def _visibility_s(value: int | None) -> int:
    seconds = check_visibility_s(value)
    if seconds is None:
        raise missing("VisibilityTimeout")
    return seconds


def _attempt_visibility_s(entry: asks.VisibilityEntry) -> int | Refusal:
    return attempt(lambda: _visibility_s(entry.visibility_timeout))


def _action(name: str, ask: type[asks.Ask], run: Callable[[Call, Any], Awaitable[bytes]]) -> Action:
    return Action(name, ask, msgspec.json.Decoder(ask).decode, run)


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
        _action("CreateQueue", asks.CreateQueue, queue_actions.create_queue),
        _action("DeleteQueue", asks.QueueAsk, queue_actions.delete_queue),
        _action("GetQueueUrl", asks.GetQueueUrl, queue_actions.get_queue_url),
        _action("ListQueues", asks.ListQueues, queue_actions.list_queues),
        _action("GetQueueAttributes", asks.GetQueueAttributes, queue_actions.get_queue_attributes),
        _action("SetQueueAttributes", asks.SetQueueAttributes, queue_actions.set_queue_attributes),
        _action("PurgeQueue", asks.QueueAsk, queue_actions.purge_queue),
        _action("TagQueue", asks.TagQueue, queue_actions.tag_queue),
        _action("UntagQueue", asks.UntagQueue, queue_actions.untag_queue),
        _action("ListQueueTags", asks.QueueAsk, queue_actions.list_queue_tags),
        _action("AddPermission", asks.AddPermission, queue_actions.add_permission),
        _action("RemovePermission", asks.RemovePermission, queue_actions.remove_permission),
        _action(
            "ListDeadLetterSourceQueues",
            asks.ListDeadLetterSourceQueues,
            queue_actions.list_dead_letter_source_queues,
        ),
        _action("StartMessageMoveTask", asks.StartMessageMoveTask, move_actions.start_message_move_task),
        _action("ListMessageMoveTasks", asks.ListMessageMoveTasks, move_actions.list_message_move_tasks),
        _action("CancelMessageMoveTask", asks.CancelMessageMoveTask, move_actions.cancel_message_move_task),
    )
}
