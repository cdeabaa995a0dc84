"""Scheduled messages over REST.

    GET  /v1/queues/{name}/scheduled?limit=&cursor=&until_ms=                         by due time, a page of them
    POST /v1/queues/{name}/scheduled/cancel      {"ids": [...]}
    POST /v1/queues/{name}/scheduled/reschedule  {"ids": [...], "deliver_at_ms" or "delay_ms"}

They are sent as other messages are, with `deliver_at_ms` or `delay_ms`; the answer to such a send has `schedule_id`.
"""

from __future__ import annotations

from urllib.parse import parse_qs

import msgspec

from frontend.errors import RequestError, invalid
from frontend.limits import SCHEDULED_CHANGED_MAX, SCHEDULED_LISTED
from frontend.messages.due_time import check_due_ms
from frontend.messages.scheduled import Scheduled, change_scheduled, list_scheduled
from frontend.rest.call import RestCall, Route, encode_answer, error_json, raise_if_none_done
from frontend.rest.message_form import attributes_json

_PARAMETERS = frozenset(("limit", "cursor", "until_ms"))


class CancelJson(msgspec.Struct, forbid_unknown_fields=True):
    ids: list[str] | None = None


class RescheduleJson(CancelJson):
    deliver_at_ms: int | None = None
    delay_ms: int | None = None


class NothingJson(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a GET."""


async def _list(call: RestCall, asked: NothingJson) -> bytes:
    given = _parameters(call.request.query)
    limit = _integer(given, "limit")
    page = await list_scheduled(
        call.services,
        call.caller,
        call.address,
        SCHEDULED_LISTED if limit is None else limit,
        given.get("cursor"),
        _integer(given, "until_ms"),
    )
    return encode_answer(
        {"messages": [_message_json(message) for message in page.messages], "next_cursor": page.cursor}
    )


async def _cancel(call: RestCall, asked: CancelJson) -> bytes:
    return await _change(call, asked.ids, 0)


async def _reschedule(call: RestCall, asked: RescheduleJson) -> bytes:
    due_ms = check_due_ms(asked.deliver_at_ms, asked.delay_ms, call.services.now_s())
    return await _change(call, asked.ids, due_ms)


async def _change(call: RestCall, ids: list[str] | None, due_ms: int) -> bytes:
    if not ids or len(ids) > SCHEDULED_CHANGED_MAX:
        raise invalid(f"The request must name 1 to {SCHEDULED_CHANGED_MAX} ids.")
    outcomes = await change_scheduled(call.services, call.caller, call.address, ids, due_ms)
    raise_if_none_done(outcomes)
    failed = [
        {"id": one, **error_json(outcome)} for one, outcome in zip(ids, outcomes, strict=True) if outcome is not None
    ]
    return encode_answer({"done": len(ids) - len(failed), "failed": failed})


def _message_json(message: Scheduled) -> dict[str, object]:
    answer: dict[str, object] = {
        "schedule_id": message.schedule_id,
        "deliver_at_ms": message.due_ms,
        "id": message.message_id,
    }
    record = message.record
    if record is None:
        return {**answer, "body": None}
    content = record.opened.content
    answer |= {"body": content.body, "sender": record.opened.sender}
    if record.group is not None:
        answer["group"] = record.group
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
        raise RequestError("InvalidParameterValueException", f"{name} must be an integer.")
    return int(text)


SCHEDULED_ROUTES: dict[bytes | None, Route] = {
    None: Route("list_scheduled", msgspec.json.Decoder(NothingJson).decode, _list, "GET"),
    b"cancel": Route("cancel_scheduled", msgspec.json.Decoder(CancelJson).decode, _cancel),
    b"reschedule": Route("reschedule", msgspec.json.Decoder(RescheduleJson).decode, _reschedule),
}
