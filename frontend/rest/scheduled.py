"""Scheduled messages over REST.

    GET  /v1/queues/{name}/scheduled?limit=&cursor=&until_ms=                         by due time, a page of them
    POST /v1/queues/{name}/scheduled/cancel      {"ids": [...]}
    POST /v1/queues/{name}/scheduled/reschedule  {"ids": [...], "deliver_at_ms" or "delay_ms"}

They are sent as other messages are, with `deliver_at_ms` or `delay_ms`; the answer to such a send has `schedule_id`.
"""

from __future__ import annotations

from urllib.parse import parse_qs

import msgspec

from frontend.errors import Refusal, invalid
from frontend.limits import SCHEDULED_CHANGED_MAX, SCHEDULED_LISTED
from frontend.rest.messages import RestCall, Route, attributes_json, error_json
from frontend.scheduled import Scheduled, change_scheduled, list_scheduled
from frontend.sqs.scheduling import check_due_ms

_encode = msgspec.json.Encoder().encode
_PARAMETERS = frozenset(("limit", "cursor", "until_ms"))


class CancelJson(msgspec.Struct):
    ids: list[str] | None = None


class RescheduleJson(CancelJson):
    deliver_at_ms: int | None = None
    delay_ms: int | None = None


class NothingJson(msgspec.Struct):
    """The body of a GET."""


async def _list(call: RestCall, ask: NothingJson) -> bytes:
    given = _parameters(call.request.query)
    limit = _integer(given, "limit")
    page = await list_scheduled(
        call.plane,
        call.caller,
        call.address,
        SCHEDULED_LISTED if limit is None else limit,
        given.get("cursor"),
        _integer(given, "until_ms"),
    )
    return _encode({"messages": [_message_json(message) for message in page.messages], "next_cursor": page.cursor})


async def _cancel(call: RestCall, ask: CancelJson) -> bytes:
    return await _change(call, ask.ids, 0)


async def _reschedule(call: RestCall, ask: RescheduleJson) -> bytes:
    due_ms = check_due_ms(ask.deliver_at_ms, ask.delay_ms, call.plane.now_s())
    return await _change(call, ask.ids, due_ms)


async def _change(call: RestCall, ids: list[str] | None, due_ms: int) -> bytes:
    if not ids or len(ids) > SCHEDULED_CHANGED_MAX:
        raise invalid(f"The request must name 1 to {SCHEDULED_CHANGED_MAX} ids.")
    outcomes = await change_scheduled(call.plane, call.caller, call.address, ids, due_ms)
    for outcome in outcomes:
        if outcome is not None and (outcome.kind.status >= 500 or len(ids) == 1):
            raise outcome
    failed = [
        {"id": one, **error_json(outcome)} for one, outcome in zip(ids, outcomes, strict=True) if outcome is not None
    ]
    return _encode({"done": len(ids) - len(failed), "failed": failed})


def _message_json(message: Scheduled) -> dict[str, object]:
    answer: dict[str, object] = {
        "schedule_id": message.schedule_id,
        "deliver_at_ms": message.due_ms,
        "id": message.message_id,
    }
    letter = message.letter
    if letter is None:
        return {**answer, "body": None}
    content = letter.opened.content
    answer |= {"body": content.body, "sender": letter.opened.sender}
    if letter.group is not None:
        answer["group"] = letter.group
    if content.dedup_id:
        answer["deduplication_id"] = content.dedup_id
    if content.attributes:
        answer["attributes"] = attributes_json(content.attributes)
    return answer


def _parameters(query: bytes) -> dict[str, str]:
    try:
        given = parse_qs(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query), max_num_fields=8)
    except (UnicodeDecodeError, ValueError):
        raise invalid("The query of the request does not parse.") from None
    if not _PARAMETERS.issuperset(given) or any(len(values) > 1 for values in given.values()):
        raise invalid("The parameters are limit, cursor and until_ms, each once.")
    return {name: values[0] for name, values in given.items()}


def _integer(given: dict[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise Refusal("InvalidParameterValueException", f"{name} must be an integer.")
    return int(text)


SCHEDULED_ROUTES: dict[tuple[str, bytes | None], Route] = {
    ("GET", None): Route("list_scheduled", msgspec.json.Decoder(NothingJson).decode, _list, "GET"),
    ("POST", b"cancel"): Route("cancel_scheduled", msgspec.json.Decoder(CancelJson).decode, _cancel),
    ("POST", b"reschedule"): Route("reschedule", msgspec.json.Decoder(RescheduleJson).decode, _reschedule),
}
