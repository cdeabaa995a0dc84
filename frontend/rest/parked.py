"""Parked groups of a FIFO queue over REST: which are held, and handing them out again (`Penstock.ParkGroups`).

    GET  /v1/queues/{name}/parked-groups?after=...&limit=...   by name, behind `after`
    POST /v1/queues/{name}/parked-groups/release               {"groups": [...]} or {"all": true}

The leader of the queue answers; a release once it is committed, and only after the audit trail has it.
"""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

import msgspec

from frontend.errors import RequestError, invalid
from frontend.limits import BATCH_ENTRIES_MAX, PARKED_GROUPS_PER_PAGE_DEFAULT, PARKED_GROUPS_PER_PAGE_MAX
from frontend.message_browser.audit import note, note_failure
from frontend.messages.admission import admit
from frontend.messages.storage_errors import explain_storage_error
from frontend.queues.fifo import check_group
from frontend.queues.resolver import ResolvedQueue
from frontend.rest.call import RestCall, Route, encode_answer
from storage_nodes.protocol.errors import ErrorCode, StorageError


class _Nothing(msgspec.Struct, forbid_unknown_fields=True):
    pass


class ReleaseGroupsJson(msgspec.Struct, forbid_unknown_fields=True):
    groups: list[str] | None = None
    all: bool = False


async def _list(call: RestCall, asked: _Nothing) -> bytes:
    queue = await _queue(call, "parked-groups")
    after, limit = _page_asked(call.request.query)
    with call.services.storage_calls:
        try:
            calls = [call.services.storage.parked_groups(partition, after, limit) for partition in queue.partitions]
            replies = await asyncio.gather(*calls)
        except StorageError as error:
            raise await explain_storage_error(call.services, queue, error) from None
    # Each partition has listed its first ones: of all of them together the first ones are the page.
    pages = zip(queue.partitions, replies, strict=True)
    found = [(one.group, partition, one) for partition, reply in pages for one in reply.groups]
    groups = [
        {
            "group": one.group.decode(errors="replace"),
            "since_ms": one.since_ms,
            "dead_letter_id": call.services.message_ids.of(partition, one.offset),
            "messages": one.messages,
        }
        for _, partition, one in sorted(found, key=lambda item: item[:2])[:limit]
    ]
    total = sum(reply.total for reply in replies)
    next_after = groups[-1]["group"] if len(groups) == limit else None
    return encode_answer({"groups": groups, "total": total, "next_after": next_after})


async def _release(call: RestCall, asked: ReleaseGroupsJson) -> bytes:
    names = asked.groups or []
    if asked.all == bool(names):
        raise invalid("Either groups must be named, or all be true.")
    if len(names) > BATCH_ENTRIES_MAX:
        raise invalid(f"At most {BATCH_ENTRIES_MAX} groups may be named.")
    groups = [check_group(name) for name in names]
    queue = await _queue(call, "release-groups")
    services, caller, request_id = call.services, call.caller, call.request.request_id
    entry: dict[str, object] = {"action": "parked_groups.release", "queue": queue.record.name, "groups": names}
    await note(services, caller, request_id, entry)
    with services.storage_calls:
        try:
            codes = await asyncio.gather(*(services.storage.unpark(one, groups) for one in queue.partitions))
        except StorageError as error:
            meant = await explain_storage_error(services, queue, error)
            raise await note_failure(services, caller, request_id, entry, meant) from None
    released = sum(of_one.count(ErrorCode.OK) for of_one in codes)
    known = {index for of_one in codes for index, code in enumerate(of_one) if code == ErrorCode.OK}
    missed = [name for index, name in enumerate(names) if index not in known]
    return encode_answer({"released": released, "not_parked": missed})


PARKED_ROUTES: dict[bytes | None, Route] = {
    None: Route("parked-groups", msgspec.json.Decoder(_Nothing).decode, _list, "GET"),
    b"release": Route("release-groups", msgspec.json.Decoder(ReleaseGroupsJson).decode, _release),
}


async def _queue(call: RestCall, operation: str) -> ResolvedQueue:
    queue = await admit(call.services, call.caller, operation, call.address)
    if queue.fifo is None:
        raise RequestError("UnsupportedOperation", "Only FIFO queues have message groups to park.")
    return queue


def _page_asked(query: bytes) -> tuple[bytes, int]:
    try:
        given = parse_qs(query.decode("ascii"), strict_parsing=True, max_num_fields=2) if query else {}
    except (UnicodeDecodeError, ValueError):
        raise invalid("The query of the request does not parse.") from None
    if set(given) - {"after", "limit"} or any(len(values) > 1 for values in given.values()):
        raise invalid("The query may hold after and limit.")
    after = check_group(given["after"][0]) if "after" in given else b""
    text = given.get("limit", [str(PARKED_GROUPS_PER_PAGE_DEFAULT)])[0]
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    if not 1 <= limit <= PARKED_GROUPS_PER_PAGE_MAX:
        raise invalid(f"limit must be between 1 and {PARKED_GROUPS_PER_PAGE_MAX}.")
    return after, limit
