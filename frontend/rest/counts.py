"""Counts of many queues in one call.

POST /v1/message-counts   {"queues": [...]}   ->   {"queues": {name: {"waiting", "in_flight", ...} or {"error"}}}
"""

from __future__ import annotations

import msgspec

from frontend.errors import RequestError, invalid
from frontend.limits import COUNTED_QUEUES_MAX
from frontend.messages.counts import QueueCounts, count_messages
from frontend.queues.names import check_queue_name
from frontend.rest.call import RestCall, Route, encode_answer, error_json

COUNTS_PATH = b"/v1/message-counts"


class CountsJson(msgspec.Struct, forbid_unknown_fields=True):
    queues: list[str]


async def _counts(call: RestCall, asked: CountsJson) -> bytes:
    if not 1 <= len(asked.queues) <= COUNTED_QUEUES_MAX:
        raise invalid(f"queues must name 1 to {COUNTED_QUEUES_MAX} queues.")
    names = [check_queue_name(name) for name in dict.fromkeys(asked.queues)]
    outcomes = await count_messages(call.services, call.caller, names)
    return encode_answer({"queues": {name: _shown(one) for name, one in zip(names, outcomes, strict=True)}})


def _shown(counts: QueueCounts | RequestError) -> dict[str, object]:
    if isinstance(counts, RequestError):
        return error_json(counts)
    return {**counts._asdict(), "oldest_sent_ms": counts.oldest_sent_ms or None}


COUNTS_ROUTE = Route("message_counts", msgspec.json.Decoder(CountsJson).decode, _counts)
