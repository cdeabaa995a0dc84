"""The message browser on REST: messages seen without being received, and what may be done to one of them.

    POST /v1/queues/{name}/messages/peek         {"limit", "states", "cursor", "body_chars"}       look
    POST /v1/queues/{name}/messages/find         {"filter": {...}, "limit", "cursor", ...}         search
    POST /v1/queues/{name}/messages/delete       {"message", "reason"}                             delete one
    POST /v1/queues/{name}/messages/dead-letter  {"message", "reason"}                             to the DLQ
    POST /v1/queues/{name}/messages/resend       {"message", "body", "attributes", ...}            edit, send, remove
    POST /v1/queues/{name}/messages/purge        {}                                                delete all

`message` is the token that peek and find show with each message. How to use it: docs/message_browser.md.
"""

from __future__ import annotations

from functools import partial

import msgspec

from frontend.crypto.envelope import Attributes
from frontend.crypto.message_tokens import MessageToken
from frontend.errors import invalid, missing
from frontend.limits import BROWSER_MESSAGES_SHOWN_DEFAULT, BROWSER_MESSAGES_SHOWN_MAX, MESSAGE_BYTES_MAX
from frontend.message_browser.actions import BrowserRequest, dead_letter_one, delete_one, purge, resend_one
from frontend.message_browser.filters import STATE_WORDS, MessageFilter, check_filter
from frontend.message_browser.search import Search, SearchResult, look
from frontend.message_browser.view import BrowsedView
from frontend.messages.due_time import DELAY_SECONDS, DELIVER_AT
from frontend.messages.opening import death_json
from frontend.messages.outgoing import MessageOptions, OutgoingMessage, check_options, outgoing_message
from frontend.queues.resolver import ResolvedQueue
from frontend.rest.call import RestCall, Route, encode_answer
from frontend.rest.message_form import MessageJson, attributes_json, history_json, read_json_attribute, refuse_empty
from storage_nodes.protocol.messages import MessageState

_WORD_OF = {state: word for word, state in STATE_WORDS.items()}


class PeekJson(msgspec.Struct, forbid_unknown_fields=True):
    limit: int = BROWSER_MESSAGES_SHOWN_DEFAULT
    states: tuple[str, ...] | None = None
    cursor: str = ""
    # Longer bodies are cut, and say so.
    body_chars: int = MESSAGE_BYTES_MAX


class FindJson(msgspec.Struct, forbid_unknown_fields=True):
    filter: MessageFilter | None = None
    limit: int = BROWSER_MESSAGES_SHOWN_DEFAULT
    cursor: str = ""
    body_chars: int = MESSAGE_BYTES_MAX


class ActJson(msgspec.Struct, forbid_unknown_fields=True):
    message: str = ""
    reason: str = ""


class PurgeJson(msgspec.Struct, forbid_unknown_fields=True):
    pass


class ResendJson(MessageJson):
    message: str = ""
    destination: str | None = None


async def _peek(call: RestCall, asked: PeekJson) -> bytes:
    return await _look(call, MessageFilter(states=asked.states), asked.limit, asked.cursor, asked.body_chars)


async def _find(call: RestCall, asked: FindJson) -> bytes:
    if asked.filter is None:
        raise missing("filter")
    return await _look(call, asked.filter, asked.limit, asked.cursor, asked.body_chars)


async def _look(call: RestCall, asked: MessageFilter, limit: int, cursor: str, body_chars: int) -> bytes:
    if not 1 <= limit <= BROWSER_MESSAGES_SHOWN_MAX:
        raise invalid(f"limit must be between 1 and {BROWSER_MESSAGES_SHOWN_MAX}.")
    if not 0 <= body_chars <= MESSAGE_BYTES_MAX:
        raise invalid(f"body_chars must be between 0 and {MESSAGE_BYTES_MAX}.")
    search = Search(check_filter(asked), limit, cursor)
    queue, found = await look(call.services, call.caller, call.address, search)
    return encode_answer(_found_json(call, queue, found, body_chars))


async def _delete(call: RestCall, asked: ActJson) -> bytes:
    seen = await delete_one(_browser_request(call), _token(asked.message), asked.reason)
    return encode_answer({"id": seen.message_id, "state": _WORD_OF[seen.state]})


async def _dead_letter(call: RestCall, asked: ActJson) -> bytes:
    seen, target = await dead_letter_one(_browser_request(call), _token(asked.message), asked.reason)
    return encode_answer({"id": seen.message_id, "state": _WORD_OF[seen.state], "destination": target})


async def _purge(call: RestCall, asked: PurgeJson) -> bytes:
    await purge(_browser_request(call))
    return encode_answer({})


async def _resend(call: RestCall, asked: ResendJson) -> bytes:
    options = MessageOptions(asked.deliver_at_ms, asked.delay_ms, asked.tag, asked.priority)
    options = check_options(options, asked.attributes)
    request = _browser_request(call)
    edit = partial(_edited, asked, options)
    seen, sent = await resend_one(request, _token(asked.message), edit, asked.destination)
    answer: dict[str, object] = {"id": sent.message_id, "md5": sent.draft.body_md5, "removed": seen.message_id}
    if sent.sequence_number is not None:
        answer["sequence_number"] = sent.sequence_number
    return encode_answer(answer)


BROWSER_ROUTES: dict[bytes | None, Route] = {
    b"peek": Route("peek", msgspec.json.Decoder(PeekJson).decode, _peek),
    b"find": Route("find", msgspec.json.Decoder(FindJson).decode, _find),
    b"delete": Route("browser_delete", msgspec.json.Decoder(ActJson).decode, _delete),
    b"dead-letter": Route("browser_dead_letter", msgspec.json.Decoder(ActJson).decode, _dead_letter),
    b"purge": Route("browser_purge", msgspec.json.Decoder(PurgeJson).decode, _purge),
    b"resend": Route("browser_resend", msgspec.json.Decoder(ResendJson).decode, _resend),
}


def _browser_request(call: RestCall) -> BrowserRequest:
    return BrowserRequest(call.services, call.caller, call.address, call.request.request_id)


def _token(text: str) -> str:
    if not text:
        raise missing("message")
    return text


def _edited(asked: ResendJson, options: MessageOptions, seen: BrowsedView) -> OutgoingMessage:
    """The message with its changes. Attributes that are given take the place of all; tag, priority and delivery time
    are laid over the others. Raises RequestError."""
    content = seen.content
    assert content is not None
    refuse_empty(asked.body)
    body = content.body if asked.body is None else asked.body
    if asked.attributes is None:
        message = outgoing_message(body, _kept(content.attributes, options), _unchanged, options)
    else:
        message = outgoing_message(body, asked.attributes, read_json_attribute, options)
    message.trace_header = content.trace_header
    message.delay_s = asked.delay_seconds
    message.group = seen.group if asked.group is None else asked.group
    message.dedup_id = asked.deduplication_id
    return message


def _kept(attributes: Attributes, options: MessageOptions) -> Attributes:
    """A delivery time takes the place of the one that the message had, in whichever form."""
    if options.deliver_at_ms is None and options.delay_ms is None:
        return attributes
    return {name: one for name, one in attributes.items() if name not in (DELIVER_AT, DELAY_SECONDS)}


def _unchanged(_: str, attribute: tuple[str, bytes]) -> tuple[str, bytes]:
    return attribute


def _found_json(call: RestCall, queue: ResolvedQueue, found: SearchResult, body_chars: int) -> dict[str, object]:
    return {
        "messages": [_seen_json(call, queue, seen, body_chars) for seen in found.messages],
        "scanned": found.scanned,
        "cursor": found.cursor,
    }


def _seen_json(call: RestCall, queue: ResolvedQueue, seen: BrowsedView, body_chars: int) -> dict[str, object]:
    answer: dict[str, object] = {
        "message": call.services.message_tokens.make(queue.owner, MessageToken(seen.partition, seen.offset)),
        "state": _WORD_OF[seen.state],
        "receive_count": seen.receives,
        "sent_ms": seen.sent_ms,
        "first_received_ms": seen.first_received_ms or None,
        "visible_at_ms": None if seen.state is MessageState.WAITING else seen.visible_ms,
    }
    if seen.record is None or seen.content is None:
        return {**answer, "unreadable": True}
    content = seen.content
    answer |= {"id": seen.message_id, "sender": seen.record.opened.sender, "body": content.body[:body_chars]}
    if len(content.body) > body_chars:
        answer["body_cut_from_chars"] = len(content.body)
    optional = {
        "group": seen.group,
        "sequence_number": seen.sequence_number,
        "deduplication_id": seen.dedup_id or None,
        "trace_header": content.trace_header or None,
        "tag": seen.tag,
        "history": None if content.history is None else history_json(content.history),
    }
    answer |= {name: value for name, value in optional.items() if value is not None}
    if content.attributes:
        answer["attributes"] = attributes_json(content.attributes)
    if seen.death is not None:
        answer["dead_letter"] = {"source": seen.source, **(death_json(seen.death) if seen.death.reason else {})}
    return answer
