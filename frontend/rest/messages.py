"""What the REST data API does: the same engine as SQS, in its own words.

    POST /v1/queues/{name}/messages           {"body", ...} or {"messages": [...]}       send
    POST /v1/queues/{name}/messages/receive   {"max_messages", "wait_seconds", ...}      receive
    POST /v1/queues/{name}/messages/ack       {"receipts": [...]}                        delete
    POST /v1/queues/{name}/messages/extend    {"receipts": [...], "visibility_seconds"}  extend; 0 gives back
    POST /v1/queues/{name}/messages/release   {"receipts": [...], "delay_seconds", "count"}
                                              give back; the receive does not count, unless "count" is true

The queue is one of the caller's account. A call takes and gives up to BULK_MESSAGES_MAX messages and BULK_BYTES_MAX, in
JSON or msgpack. In a batch each message or receipt has its own outcome, with its index where it was refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from frontend.errors import RequestError, invalid, missing
from frontend.limits import BATCH_ENTRIES_MAX, BULK_BYTES_MAX, BULK_MESSAGES_MAX
from frontend.messages.outgoing import OutgoingMessage
from frontend.messages.partition_batches import Sent
from frontend.messages.receive import receive_messages
from frontend.messages.receive_options import (
    ReceiveOptions,
    check_give_back_s,
    check_messages_max,
    check_visibility_s,
    check_wait_s,
)
from frontend.messages.send import send_message, send_messages
from frontend.messages.settle import change_visibility, delete_messages, give_back
from frontend.rest.call import RestCall, Route, error_json, raise_if_none_done
from frontend.rest.message_form import MessageJson, check_message, message_row, read_message


class SendJson(MessageJson):
    messages: list[MessageJson] | None = None


# What counts for all messages of a batch is `acks` alone.
_OF_ONE_MESSAGE = tuple(one.name for one in msgspec.structs.fields(MessageJson) if one.name not in ("body", "acks"))


class ReceiveJson(msgspec.Struct, forbid_unknown_fields=True):
    max_messages: int | None = None
    wait_seconds: int | None = None
    visibility_seconds: int | None = None
    attempt: str | None = None
    tags: list[str] | None = None


class AckJson(msgspec.Struct, forbid_unknown_fields=True):
    receipts: list[str] | None = None


class ExtendJson(AckJson):
    visibility_seconds: int | None = None


class ReleaseJson(AckJson):
    delay_seconds: int | None = None
    count: bool = False


async def _send(call: RestCall, asked: SendJson) -> bytes:
    size_bytes = len(call.request.body)
    if asked.messages is None:
        message = check_message(asked)
        sent = await send_message(call.services, call.caller, call.address, message, read_message, size_bytes)
        return call.encode(sent_json(sent))
    if asked.body is not None:
        raise invalid("Either body or messages may be given, not both.")
    for name in _OF_ONE_MESSAGE:
        if getattr(asked, name) is not None:
            raise invalid(f"{name} is a member of each of the messages, and may not be given beside them.")
    batch = _check_count(asked.messages, "messages")

    def read(given: MessageJson) -> OutgoingMessage:
        return read_message(check_message(given, asked.acks))

    sending = partial(send_messages, call.services, call.caller, call.address, batch, read, size_bytes, BULK_BYTES_MAX)
    if len(batch) > BATCH_ENTRIES_MAX:
        with call.services.bulk_sends.place(call.caller.account_id):
            outcomes = await sending()
    else:
        outcomes = await sending()
    told = [
        {"index": index, **error_json(one)} if isinstance(one, RequestError) else sent_json(one)
        for index, one in enumerate(outcomes)
    ]
    return call.encode({"messages": told})


async def _receive(call: RestCall, asked: ReceiveJson) -> bytes:
    bounds = ReceiveOptions(
        check_messages_max(asked.max_messages, BULK_MESSAGES_MAX),
        check_visibility_s(asked.visibility_seconds),
        check_wait_s(asked.wait_seconds),
        asked.attempt,
        asked.tags,
    )
    messages = await receive_messages(call.services, call.caller, call.address, bounds, call.request.receive)
    return call.encode({"messages": [message_row(message) for message in messages]})


async def _ack(call: RestCall, asked: AckJson) -> bytes:
    receipts = _check_count(asked.receipts, "receipts")
    return _receipts_answer(call, receipts, await delete_messages(call.services, call.caller, call.address, receipts))


async def _extend(call: RestCall, asked: ExtendJson) -> bytes:
    receipts = _check_count(asked.receipts, "receipts")
    seconds = check_visibility_s(asked.visibility_seconds)
    if seconds is None:
        raise missing("visibility_seconds")
    changes = [(receipt, seconds) for receipt in receipts]
    outcomes = await change_visibility(call.services, call.caller, call.address, changes)
    return _receipts_answer(call, receipts, outcomes)


async def _release(call: RestCall, asked: ReleaseJson) -> bytes:
    receipts = _check_count(asked.receipts, "receipts")
    delay_s = check_give_back_s(asked.delay_seconds)
    outcomes = await give_back(call.services, call.caller, call.address, receipts, delay_s, asked.count)
    return _receipts_answer(call, receipts, outcomes)


def _route(action: str, asked: type[msgspec.Struct], run: Callable[[RestCall, Any], Awaitable[bytes]]) -> Route:
    return Route(action, msgspec.json.Decoder(asked).decode, run, decode_msgpack=msgspec.msgpack.Decoder(asked).decode)


ROUTES: dict[bytes | None, Route] = {
    None: _route("send", SendJson, _send),
    b"receive": _route("receive", ReceiveJson, _receive),
    b"ack": _route("ack", AckJson, _ack),
    b"extend": _route("extend", ExtendJson, _extend),
    b"release": _route("release", ReleaseJson, _release),
}


def _check_count(given: list[Any] | None, what: str) -> list[Any]:
    if not given:
        raise RequestError("EmptyBatchRequest", f"The request must contain at least one entry in {what}.")
    if len(given) > BULK_MESSAGES_MAX:
        raise RequestError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {BULK_MESSAGES_MAX}. You have sent {len(given)}.",
        )
    return given


def sent_json(sent: Sent) -> dict[str, object]:
    answer: dict[str, object] = {"id": sent.message_id, "md5": sent.draft.body_md5}
    if sent.sequence_number is not None:
        answer["sequence_number"] = sent.sequence_number
    if sent.schedule_id is not None:
        answer["schedule_id"] = sent.schedule_id
    return answer


def _receipts_answer(call: RestCall, receipts: Sequence[str], outcomes: Sequence[RequestError | None]) -> bytes:
    raise_if_none_done(outcomes)
    failed = [
        {"index": index, "receipt": receipt, **error_json(outcome)}
        for index, (receipt, outcome) in enumerate(zip(receipts, outcomes, strict=True))
        if outcome is not None
    ]
    return call.encode({"done": len(receipts) - len(failed), "failed": failed})
