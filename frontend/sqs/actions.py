"""Every SQS action: its parameters, and what it does with messages. `queue_actions.py` has those about queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from frontend.errors import RequestError, missing
from frontend.messages.outgoing import OutgoingMessage
from frontend.messages.partition_batches import Sent
from frontend.messages.receive import Received, receive_messages
from frontend.messages.receive_options import ReceiveOptions, check_messages_max, check_visibility_s, check_wait_s
from frontend.messages.send import send_message, send_messages
from frontend.messages.settle import change_visibility, delete_messages
from frontend.sqs import move_actions, queue_actions, requests
from frontend.sqs.batches import attempt, batch_answer, check_batch, receipts_answer, single_answer
from frontend.sqs.call import EMPTY, SqsCall, encode
from frontend.sqs.message_form import attributes_md5, read_message, read_trace_header, trace_md5
from frontend.sqs.queue_url import read_queue_url
from frontend.sqs.received import RequestedAttributes, received_json, split_filters

_TRACE_HEADER = b"x-amzn-trace-id"


class SqsAction(NamedTuple):
    """`parameters` is the type of the request, `decode` reads it from JSON. The answer is JSON in both protocols."""

    name: str
    parameters: type[requests.SqsRequest]
    decode: Callable[[bytes], Any]
    run: Callable[[SqsCall, Any], Awaitable[bytes]]


# --- messages ---


async def _send_message(call: SqsCall, request: requests.SendMessage) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    trace = call.request.headers.get(_TRACE_HEADER)
    read = read_message if trace is None else _message_reader(trace)
    sent = await send_message(call.services, call.caller, address, request, read, len(call.request.body))
    return f"{{{_told(sent, request)}}}".encode()


async def _send_message_batch(call: SqsCall, request: requests.SendMessageBatch) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    ids = check_batch("SendMessageBatch", request.entries)
    entries = request.entries or ()
    trace = call.request.headers.get(_TRACE_HEADER)
    read = read_message if trace is None else _message_reader(trace)
    outcomes = await send_messages(call.services, call.caller, address, entries, read, len(call.request.body))
    successful = [
        f'{{"Id":"{entry_id}",{_told(outcome, entry)}}}'
        for entry_id, entry, outcome in zip(ids, entries, outcomes, strict=True)
        if not isinstance(outcome, RequestError)
    ]
    return batch_answer(successful, ids, [one if isinstance(one, RequestError) else None for one in outcomes])


async def _receive_message(call: SqsCall, request: requests.ReceiveMessage) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    wanted = RequestedAttributes.of(request)
    bounds = ReceiveOptions(
        check_messages_max(request.max_number_of_messages),
        check_visibility_s(request.visibility_timeout),
        check_wait_s(request.wait_time_seconds),
        request.receive_request_attempt_id,
        split_filters(request.message_attribute_names)[1] if request.message_attribute_names else (),
    )
    messages: Sequence[Received] = await receive_messages(
        call.services, call.caller, address, bounds, call.request.receive
    )
    if not messages:
        return EMPTY
    return encode({"Messages": [received_json(message, wanted) for message in messages]})


async def _delete_message(call: SqsCall, request: requests.DeleteMessage) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    if not request.receipt_handle:
        raise missing("ReceiptHandle")
    return single_answer(await delete_messages(call.services, call.caller, address, (request.receipt_handle,)))


async def _delete_message_batch(call: SqsCall, request: requests.DeleteMessageBatch) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    ids = check_batch("DeleteMessageBatch", request.entries)
    handles = [entry.receipt_handle for entry in request.entries or ()]
    return receipts_answer(ids, await delete_messages(call.services, call.caller, address, handles))


async def _change_message_visibility(call: SqsCall, request: requests.ChangeMessageVisibility) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    if not request.receipt_handle:
        raise missing("ReceiptHandle")
    seconds = _visibility_s(request.visibility_timeout)
    return single_answer(
        await change_visibility(call.services, call.caller, address, ((request.receipt_handle, seconds),))
    )


async def _change_message_visibility_batch(call: SqsCall, request: requests.ChangeMessageVisibilityBatch) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    ids = check_batch("ChangeMessageVisibilityBatch", request.entries)
    changes = [(entry.receipt_handle, _attempt_visibility_s(entry)) for entry in request.entries or ()]
    return receipts_answer(ids, await change_visibility(call.services, call.caller, address, changes))


def _message_reader(trace: bytes) -> Callable[[requests.MessageFields], OutgoingMessage]:
    """A trace that the HTTP request names is that of its messages."""
    return partial(read_message, trace_header=read_trace_header(trace))


# --- answers that several actions share ---


def _told(sent: Sent, fields: requests.MessageFields) -> str:
    """The members of the answer about a message, as JSON: digests, ids and numbers have nothing to escape."""
    draft = sent.draft
    attributes = draft.content.attributes
    told = f'"MD5OfMessageBody":"{draft.body_md5}","MessageId":"{sent.message_id}"'
    if attributes:
        told += f',"MD5OfMessageAttributes":"{attributes_md5(attributes)}"'
    if fields.message_system_attributes:
        told += f',"MD5OfMessageSystemAttributes":"{trace_md5(draft.content.trace_header)}"'
    if sent.sequence_number is not None:
        told += f',"SequenceNumber":"{sent.sequence_number}"'
    return told


def _visibility_s(value: int | None) -> int:
    seconds = check_visibility_s(value)
    if seconds is None:
        raise missing("VisibilityTimeout")
    return seconds


def _attempt_visibility_s(entry: requests.VisibilityEntry) -> int | RequestError:
    return attempt(lambda: _visibility_s(entry.visibility_timeout))


def _action(
    name: str, parameters: type[requests.SqsRequest], run: Callable[[SqsCall, Any], Awaitable[bytes]]
) -> SqsAction:
    return SqsAction(name, parameters, msgspec.json.Decoder(parameters).decode, run)


ACTIONS: dict[bytes, SqsAction] = {
    b"AmazonSQS." + action.name.encode(): action
    for action in (
        _action("SendMessage", requests.SendMessage, _send_message),
        _action("SendMessageBatch", requests.SendMessageBatch, _send_message_batch),
        _action("ReceiveMessage", requests.ReceiveMessage, _receive_message),
        _action("DeleteMessage", requests.DeleteMessage, _delete_message),
        _action("DeleteMessageBatch", requests.DeleteMessageBatch, _delete_message_batch),
        _action("ChangeMessageVisibility", requests.ChangeMessageVisibility, _change_message_visibility),
        _action(
            "ChangeMessageVisibilityBatch", requests.ChangeMessageVisibilityBatch, _change_message_visibility_batch
        ),
        _action("CreateQueue", requests.CreateQueue, queue_actions.create_queue),
        _action("DeleteQueue", requests.QueueRequest, queue_actions.delete_queue),
        _action("GetQueueUrl", requests.GetQueueUrl, queue_actions.get_queue_url),
        _action("ListQueues", requests.ListQueues, queue_actions.list_queues),
        _action("GetQueueAttributes", requests.GetQueueAttributes, queue_actions.get_queue_attributes),
        _action("SetQueueAttributes", requests.SetQueueAttributes, queue_actions.set_queue_attributes),
        _action("PurgeQueue", requests.QueueRequest, queue_actions.purge_queue),
        _action("TagQueue", requests.TagQueueRequest, queue_actions.tag_queue),
        _action("UntagQueue", requests.UntagQueue, queue_actions.untag_queue),
        _action("ListQueueTags", requests.QueueRequest, queue_actions.list_queue_tags),
        _action("AddPermission", requests.AddPermission, queue_actions.add_permission),
        _action("RemovePermission", requests.RemovePermission, queue_actions.remove_permission),
        _action(
            "ListDeadLetterSourceQueues",
            requests.ListDeadLetterSourceQueues,
            queue_actions.list_dead_letter_source_queues,
        ),
        _action("StartMessageMoveTask", requests.StartMessageMoveTask, move_actions.start_message_move_task),
        _action("ListMessageMoveTasks", requests.ListMessageMoveTasks, move_actions.list_message_move_tasks),
        _action("CancelMessageMoveTask", requests.CancelMessageMoveTask, move_actions.cancel_message_move_task),
    )
}
