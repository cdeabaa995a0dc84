"""The message desk on REST: messages seen without being received, and what may be done to one of them.

    POST /v1/queues/{name}/messages/peek         {"limit", "states", "cursor", "body_chars"}       look
    POST /v1/queues/{name}/messages/find         {"filter": {...}, "limit", "cursor", ...}         search
    POST /v1/queues/{name}/messages/delete       {"message", "reason"}                             delete one
    POST /v1/queues/{name}/messages/dead-letter  {"message", "reason"}                             to the DLQ
    POST /v1/queues/{name}/messages/resend       {"message", "body", "attributes", ...}            edit, send, remove

`message` is the place that peek and find show with each message. How to use it: docs/message_desk.md.
"""

from __future__ import annotations

import msgspec

from frontend.crypto.places import Place
from frontend.desk.acting import Desk, dead_letter_one, delete_one, resend_one
from frontend.desk.filters import STATE_WORDS, Filter, attribute_text, check_filter
from frontend.desk.looking import Found, Search, look
from frontend.desk.seeing import Seen
from frontend.errors import invalid, missing
from frontend.limits import DESK_MESSAGES_SHOWN_DEFAULT, DESK_MESSAGES_SHOWN_MAX, MESSAGE_BYTES_MAX
from frontend.rest.deaths import death_json
from frontend.rest.messages import MessageJson, RestCall, Route, history_json, message_fields
from frontend.routing.queues import QueueView
from storage_nodes.protocol.messages import MessageState

_encode = msgspec.json.Encoder().encode
_WORD_OF = {state: word for word, state in STATE_WORDS.items()}


class PeekJson(msgspec.Struct):
    limit: int = DESK_MESSAGES_SHOWN_DEFAULT
    states: tuple[str, ...] | None = None
    cursor: str = ""
    # Longer bodies are cut, and say so.
    body_chars: int = MESSAGE_BYTES_MAX


class FindJson(msgspec.Struct):
    filter: Filter | None = None
    limit: int = DESK_MESSAGES_SHOWN_DEFAULT
    cursor: str = ""
    body_chars: int = MESSAGE_BYTES_MAX


class ActJson(msgspec.Struct):
    message: str = ""
    reason: str = ""


class ResendJson(MessageJson):
    message: str = ""
    destination: str | None = None


async def _peek(call: RestCall, ask: PeekJson) -> bytes:
    return await _look(call, Filter(states=ask.states), ask.limit, ask.cursor, ask.body_chars)


async def _find(call: RestCall, ask: FindJson) -> bytes:
    if ask.filter is None:
        raise missing("filter")
    return await _look(call, ask.filter, ask.limit, ask.cursor, ask.body_chars)


async def _look(call: RestCall, asked: Filter, limit: int, cursor: str, body_chars: int) -> bytes:
    if not 1 <= limit <= DESK_MESSAGES_SHOWN_MAX:
        raise invalid(f"limit must be between 1 and {DESK_MESSAGES_SHOWN_MAX}.")
    if not 0 <= body_chars <= MESSAGE_BYTES_MAX:
        raise invalid(f"body_chars must be between 0 and {MESSAGE_BYTES_MAX}.")
    search = Search(check_filter(asked), limit, cursor)
    queue, found = await look(call.plane, call.caller, call.address, search)
    return _encode(_found_json(call, queue, found, body_chars))


async def _delete(call: RestCall, ask: ActJson) -> bytes:
    seen = await delete_one(_desk(call), _word(ask.message), ask.reason)
    return _encode({"id": seen.message_id, "state": _WORD_OF[seen.state]})


async def _dead_letter(call: RestCall, ask: ActJson) -> bytes:
    seen, target = await dead_letter_one(_desk(call), _word(ask.message), ask.reason)
    return _encode({"id": seen.message_id, "state": _WORD_OF[seen.state], "destination": target})


async def _resend(call: RestCall, ask: ResendJson) -> bytes:
    seen, sent = await resend_one(_desk(call), _word(ask.message), message_fields(ask), ask.destination)
    answer: dict[str, object] = {"id": sent.message_id, "md5": sent.draft.body_md5, "removed": seen.message_id}
    if sent.sequence_number is not None:
        answer["sequence_number"] = sent.sequence_number
    return _encode(answer)


DESK_ROUTES: dict[bytes | None, Route] = {
    b"peek": Route("peek", msgspec.json.Decoder(PeekJson).decode, _peek),
    b"find": Route("find", msgspec.json.Decoder(FindJson).decode, _find),
    b"delete": Route("desk_delete", msgspec.json.Decoder(ActJson).decode, _delete),
    b"dead-letter": Route("desk_dead_letter", msgspec.json.Decoder(ActJson).decode, _dead_letter),
    b"resend": Route("desk_resend", msgspec.json.Decoder(ResendJson).decode, _resend),
}


def _desk(call: RestCall) -> Desk:
    return Desk(call.plane, call.caller, call.address, call.request.request_id)


def _word(word: str) -> str:
    if not word:
        raise missing("message")
    return word


def _found_json(call: RestCall, queue: QueueView, found: Found, body_chars: int) -> dict[str, object]:
    return {
        "messages": [_seen_json(call, queue, seen, body_chars) for seen in found.messages],
        "scanned": found.scanned,
        "cursor": found.cursor,
    }


def _seen_json(call: RestCall, queue: QueueView, seen: Seen, body_chars: int) -> dict[str, object]:
    answer: dict[str, object] = {
        "message": call.plane.places.place(queue.owner, Place(seen.partition, seen.offset)),
        "state": _WORD_OF[seen.state],
        "receive_count": seen.receives,
        "sent_ms": seen.sent_ms,
        "first_received_ms": seen.first_received_ms or None,
        "visible_at_ms": None if seen.state is MessageState.WAITING else seen.visible_ms,
    }
    if seen.letter is None or seen.content is None:
        return {**answer, "unreadable": True}
    content = seen.content
    answer |= {"id": seen.message_id, "sender": seen.letter.opened.sender, "body": content.body[:body_chars]}
    if len(content.body) > body_chars:
        answer["body_cut_from_chars"] = len(content.body)
    optional = {
        "group": seen.group,
        "sequence_number": seen.sequence_number,
        "deduplication_id": content.dedup_id or None,
        "trace_header": content.trace_header or None,
        "tag": seen.tag,
        "history": None if content.history is None else history_json(content.history),
    }
    answer |= {name: value for name, value in optional.items() if value is not None}
    if content.attributes:
        answer["attributes"] = {
            name: {"type": data_type, "value": attribute_text(data_type, value)}
            for name, (data_type, value) in content.attributes.items()
        }
    if seen.death is not None:
        answer["dead_letter"] = {"source": seen.source, **(death_json(seen.death) if seen.death.reason else {})}
    return answer
