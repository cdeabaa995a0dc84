"""Scheduled messages at the front end: how they are asked for, listed, cancelled and rescheduled."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from frontend.authn.principal import Principal
from frontend.limits import BROWSER_CALLS_MAX, MIB
from frontend.messages import scheduled, scheduled_pages
from frontend.queues.names import Address
from frontend.sqs.message_form import attributes_md5
from storage_nodes.limits import SCHEDULE_MS_MAX
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_DELAY_MS, HEADER_DUE, HEADER_GROUP, decode_body
from tests.support.frontend_plane import ACCOUNT, OTHER_ACCOUNT, QUEUE_URL, Installation, Reply

MESSAGES = "/v1/queues/orders/messages"
SCHEDULED = "/v1/queues/orders/scheduled"
HOUR_MS = 3_600_000


def _number(value: object) -> dict[str, str]:
    return {"DataType": "Number", "StringValue": str(value)}


async def _send(front: Installation, **attributes: dict[str, str]) -> Reply:
    named = {f"Penstock.{name}": value for name, value in attributes.items()}
    return await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "later", "MessageAttributes": named})


def _headers(front: Installation, partition: int = 1, place: int = 0) -> dict[bytes, bytes]:
    return dict(decode_body(front.storage.messages(partition)[place].body).headers)


def _code(reply: Reply) -> str:
    return str(reply.json["__type"].partition("#")[2])


def _now_ms(front: Installation) -> int:
    return int(front.clock.now_s * 1000)


async def test_attribute_schedules_a_message_and_stays_with_it(front: Installation) -> None:
    at_ms = _now_ms(front) + HOUR_MS
    sent = await _send(front, DeliverAt=_number(at_ms))
    assert sent.json["MD5OfMessageAttributes"] == attributes_md5(
        {"Penstock.DeliverAt": ("Number", str(at_ms).encode())}
    )
    assert _headers(front) == {HEADER_DUE: b"%d" % at_ms} and front.storage.plain == [False]
    ask = {"QueueUrl": QUEUE_URL, "MessageAttributeNames": ["All"]}
    assert (await front.sqs("ReceiveMessage", ask)).json == {}
    front.clock.now_s += 3_600
    (message,) = (await front.sqs("ReceiveMessage", ask)).json["Messages"]
    assert message["MessageAttributes"]["Penstock.DeliverAt"]["StringValue"] == str(at_ms)


@pytest.mark.parametrize(
    ("attributes", "due"),
    [
        ({"DelaySeconds": _number(5_400)}, b"+5400000"),
        ({"DelaySeconds": _number("0.25")}, b"+250"),
        ({"DelaySeconds": _number(SCHEDULE_MS_MAX // 1000)}, b"+%d" % SCHEDULE_MS_MAX),
        ({"DeliverAt": {"DataType": "String", "StringValue": "2023-12-01T00:00:00Z"}}, b"1701388800000"),
        ({"DeliverAt": {"DataType": "String", "StringValue": "2023-12-01T01:00:00.5+01:00"}}, b"1701388800500"),
        ({"DeliverAt": {"DataType": "String", "StringValue": "1969-01-01T00:00:00Z"}}, b"0"),
    ],
)
async def test_delivery_times_are_understood(
    front: Installation, attributes: dict[str, dict[str, str]], due: bytes
) -> None:
    front.clock.now_s = 1_700_000_000.0
    assert (await _send(front, **attributes)).status == 200
    assert _headers(front)[HEADER_DUE] == due


@pytest.mark.parametrize(
    "attributes",
    [
        {"DelaySeconds": _number(SCHEDULE_MS_MAX // 1000 + 1)},
        {"DelaySeconds": _number(-1)},
        {"DelaySeconds": _number("1e3")},
        {"DelaySeconds": {"DataType": "String", "StringValue": "5"}},
        {"DeliverAt": _number(2_000_000_000_000)},
        {"DeliverAt": _number("1.5")},
        {"DeliverAt": {"DataType": "String", "StringValue": "2023-12-01T00:00:00"}},
        {"DeliverAt": {"DataType": "String", "StringValue": "tomorrow"}},
        {"DeliverAt": {"DataType": "Binary", "BinaryValue": "AAAA"}},
        {"DeliverAt": _number(1_700_000_100_000), "DelaySeconds": _number(5)},
    ],
)
async def test_senseless_delivery_times_are_refused(front: Installation, attributes: dict[str, dict[str, str]]) -> None:
    front.clock.now_s = 1_700_000_000.0
    reply = await _send(front, **attributes)
    assert (reply.status, _code(reply)) == (400, "InvalidParameterValueException")
    assert front.storage.count() == 0


async def test_own_delay_takes_the_place_of_the_queues_and_excludes_that_of_sqs(front: Installation) -> None:
    front.add_queue("orders", (1,), attributes={"DelaySeconds": "9"})
    await _send(front, DelaySeconds=_number(1_000))
    assert set(_headers(front)) == {HEADER_DUE}
    both = {"Penstock.DelaySeconds": _number(1_000)}
    asked = {"QueueUrl": QUEUE_URL, "MessageBody": "x", "MessageAttributes": both, "DelaySeconds": 5}
    assert _code(await front.sqs("SendMessage", asked)) == "InvalidParameterValueException"
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})
    assert set(_headers(front, place=1)) == {HEADER_DELAY_MS}


async def test_batch_schedules_each_message_for_itself(front: Installation) -> None:
    entries: list[dict[str, Any]] = [
        {"Id": "now", "MessageBody": "1"},
        {"Id": "later", "MessageBody": "2", "MessageAttributes": {"Penstock.DelaySeconds": _number(60)}},
        {"Id": "never", "MessageBody": "3", "MessageAttributes": {"Penstock.DelaySeconds": _number(10**8 - 1)}},
    ]
    reply = await front.sqs("SendMessageBatch", {"QueueUrl": QUEUE_URL, "Entries": entries})
    assert [one["Id"] for one in reply.json["Successful"]] == ["now", "later"]
    assert [one["Id"] for one in reply.json["Failed"]] == ["never"]
    assert [HEADER_DUE in _headers(front, place=at) for at in range(2)] == [False, True]


async def test_message_of_a_fifo_queue_is_scheduled_without_a_sequence_number(front: Installation) -> None:
    front.add_queue("line.fifo", (2,))
    asked = {
        "QueueUrl": QUEUE_URL.replace("orders", "line.fifo"), "MessageBody": "x", "MessageGroupId": "g",
        "MessageDeduplicationId": "d", "MessageAttributes": {"Penstock.DelaySeconds": _number(60)},
    }  # fmt: skip
    sent = (await front.sqs("SendMessage", asked)).json
    assert "SequenceNumber" not in sent
    assert _headers(front, 2) == {HEADER_GROUP: b"g", HEADER_DEDUP: b"d", HEADER_DUE: b"+60000"}
    listed = (await front.rest("/v1/queues/line.fifo/scheduled", method="GET")).json["messages"]
    assert [(one["id"], one["group"], one["deduplication_id"]) for one in listed] == [(sent["MessageId"], "g", "d")]


async def test_rest_send_is_listed_and_cancelled_by_its_id(front: Installation) -> None:
    at_ms = _now_ms(front) + HOUR_MS
    sent = (await front.rest(MESSAGES, {"body": "one", "deliver_at_ms": at_ms, "group": "g"})).json
    listed = (await front.rest(SCHEDULED, method="GET")).json
    assert listed["next_cursor"] is None
    (message,) = listed["messages"]
    assert message == {
        "schedule_id": sent["schedule_id"], "deliver_at_ms": at_ms, "id": sent["id"], "body": "one", "group": "g",
        "sender": front.key.access_key_id,
        "attributes": {"Penstock.DeliverAt": {"type": "Number", "value": str(at_ms)}},
    }  # fmt: skip
    cancelled = await front.rest(SCHEDULED + "/cancel", {"ids": [sent["schedule_id"]]})
    assert cancelled.json == {"done": 1, "failed": []} and front.storage.count() == 0
    again = await front.rest(SCHEDULED + "/cancel", {"ids": [sent["schedule_id"]]})
    assert (again.status, again.json["code"]) == (409, "not-scheduled")
    assert (await front.rest(SCHEDULED, method="GET")).json["messages"] == []


async def test_rest_batch_and_delay_in_milliseconds(front: Installation) -> None:
    batch = [{"body": "a", "delay_ms": 1_500}, {"body": "b"}, {"body": "c", "delay_ms": -1}]
    first, second, third = (await front.rest(MESSAGES, {"messages": batch})).json["messages"]
    assert "schedule_id" in first and "schedule_id" not in second and "error" in third
    assert _headers(front) == {HEADER_DUE: b"+1500"}


async def test_reschedule_moves_a_message_and_keeps_its_id(front: Installation) -> None:
    sent = (await front.rest(MESSAGES, {"body": "one", "delay_ms": HOUR_MS})).json
    reply = await front.rest(SCHEDULED + "/reschedule", {"ids": [sent["schedule_id"], "made up"], "delay_ms": 1_000})
    assert reply.json["done"] == 1
    assert reply.json["failed"][0]["error"]["code"] == "invalid-parameter-value"
    (message,) = (await front.rest(SCHEDULED, method="GET")).json["messages"]
    assert message["deliver_at_ms"] == _now_ms(front) + 1_000 and message["schedule_id"] == sent["schedule_id"]
    front.clock.now_s += 1
    assert len((await front.rest(MESSAGES + "/receive", {})).json["messages"]) == 1


@pytest.mark.parametrize(
    "ask",
    [
        {"ids": ["x"]},
        {"ids": ["x"], "delay_ms": 1, "deliver_at_ms": 1},
        {"ids": ["x"], "delay_ms": -1},
        {"ids": ["x"], "delay_ms": SCHEDULE_MS_MAX + 1},
        {"ids": [], "delay_ms": 1},
        {"ids": ["x"] * 101, "delay_ms": 1},
        {"ids": ["x"], "delay_ms": 1},
    ],
)
async def test_senseless_reschedule_is_refused(front: Installation, ask: dict[str, object]) -> None:
    reply = await front.rest(SCHEDULED + "/reschedule", ask)
    assert (reply.status, reply.json["code"]) == (400, "invalid-parameter-value")
    assert ("reschedule", 1) not in front.storage.calls


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "cursor=1-2", "colour=red", "limit=1&limit=2"])
async def test_senseless_list_is_refused(front: Installation, query: str) -> None:
    reply = await front.rest(f"{SCHEDULED}?{query}", method="GET")
    assert (reply.status, reply.json["code"]) == (400, "invalid-parameter-value")


async def test_other_methods_are_refused(front: Installation) -> None:
    for path, method in ((SCHEDULED, "POST"), (SCHEDULED + "/cancel", "GET"), (SCHEDULED, "DELETE")):
        assert (await front.rest(path, {}, method=method)).status == 405


async def test_schedule_id_of_another_queue_and_a_receipt_are_no_ids_and_no_id_is_a_receipt(
    front: Installation,
) -> None:
    front.add_queue("others", (1,))
    sent = (await front.rest(MESSAGES, {"body": "one", "delay_ms": HOUR_MS})).json
    reply = await front.rest("/v1/queues/others/scheduled/cancel", {"ids": [sent["schedule_id"]]})
    assert reply.status == 400 and front.storage.count() == 1
    await front.rest(MESSAGES, {"body": "two"})
    (message,) = (await front.rest(MESSAGES + "/receive", {})).json["messages"]
    assert (await front.rest(SCHEDULED + "/cancel", {"ids": [message["receipt"]]})).status == 400
    assert (await front.rest(MESSAGES + "/ack", {"receipts": [sent["schedule_id"]]})).status == 400
    assert front.storage.count() == 2


async def test_scheduled_messages_of_another_account_do_not_exist(front: Installation) -> None:
    assert OTHER_ACCOUNT
    for path, method, params in (("scheduled", "GET", {}), ("scheduled/cancel", "POST", {"ids": ["x"]})):
        reply = await front.rest(f"/v1/queues/secret/{path}", params, method=method)
        assert (reply.status, reply.json["code"]) == (404, "queue-does-not-exist")


@pytest.mark.parametrize(
    ("page_max", "held_bytes_max", "scan_s_max"),
    [(1, 10**6, 9), (3, 10**6, 9), (1_000, 10**6, 9), (3, 1, 9), (3, 1, -1)],
)
async def test_pages_over_all_partitions_show_every_message_once_in_order(
    page_max: int, held_bytes_max: int, scan_s_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing fits in memory beside what is taken, and where each page ends as soon as it may."""
    monkeypatch.setattr(scheduled_pages, "_HELD_BYTES_MAX", held_bytes_max)
    monkeypatch.setattr(scheduled_pages, "BROWSER_SCAN_S_MAX", scan_s_max)
    front = Installation(partitions=(1, 2, 3))
    front.storage.page_max = page_max
    for number in range(40):
        # Several are due at the same time, in one partition and in others.
        await front.rest(MESSAGES, {"body": str(number), "delay_ms": 1_000 * (1 + number * 7 % 11)})
    seen: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = (await front.rest(f"{SCHEDULED}?limit=7{cursor}", method="GET")).json
        assert len(page["messages"]) <= 7
        seen += page["messages"]
        if page["next_cursor"] is None:
            break
        cursor = "&cursor=" + page["next_cursor"]
    assert sorted(int(one["body"]) for one in seen) == list(range(40))
    assert [one["deliver_at_ms"] for one in seen] == sorted(one["deliver_at_ms"] for one in seen)
    until = (await front.rest(f"{SCHEDULED}?until_ms={_now_ms(front) + 1_000}", method="GET")).json["messages"]
    assert {one["deliver_at_ms"] for one in until} == {_now_ms(front) + 1_000}


async def test_page_over_many_partitions_holds_few_bytes_and_pays_for_what_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partitions = tuple(range(1, 25))
    front = Installation(partitions=partitions)
    for number in range(len(partitions)):
        sent = await front.rest(MESSAGES, {"body": f"{number:02}" + "x" * 900_000, "delay_ms": HOUR_MS + number})
        assert sent.status == 200
    assert all(len(front.storage.messages(partition)) == 1 for partition in partitions)
    paid: list[tuple[int, int]] = []
    monkeypatch.setattr(scheduled, "pay_later", lambda *given: paid.append(given[-2:]))
    principal = Principal(ACCOUNT, front.key.access_key_id)
    tracemalloc.start()
    try:
        page = await scheduled.list_scheduled(front.plane, principal, Address(ACCOUNT, "orders"), 500, None, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [one.record.opened.content.body[:2] for one in page.messages if one.record] == ["00", "01", "02"]
    assert page.cursor is not None and peak < 16 * MIB
    ((read, read_bytes),) = paid
    assert read >= len(partitions) and read_bytes > read * 900_000


async def test_list_takes_a_place_of_the_message_browser(front: Installation) -> None:
    places = [front.plane.browser_calls.place(ACCOUNT) for _ in range(BROWSER_CALLS_MAX // 2)]
    for place in places:
        place.__enter__()
    refused = await front.rest(SCHEDULED, method="GET")
    assert (refused.status, refused.json["code"]) == (429, "request-throttled")
    for place in places:
        place.__exit__(None, None, None)
    assert (await front.rest(SCHEDULED, method="GET")).status == 200 and not front.plane.browser_calls.calls


async def test_full_schedule_is_said_so(front: Installation) -> None:
    front.storage.fail_with = ErrorCode.SCHEDULE_FULL
    reply = await front.rest(MESSAGES, {"body": "one", "delay_ms": HOUR_MS})
    assert (reply.status, reply.json["code"]) == (429, "schedule-full")
    assert json.loads(reply.body)["detail"].startswith("orders holds")


async def test_cursor_of_scheduled_messages_is_of_one_queue_and_one_listing(front: Installation) -> None:
    """A token that was changed, of another queue, or of another `until_ms` is refused, and names itself."""
    front.add_queue("others")
    for queue in ("orders", "others"):
        for hours in (1, 2):
            at_ms = _now_ms(front) + hours * HOUR_MS
            sent = await front.rest(f"/v1/queues/{queue}/messages", {"body": "x", "deliver_at_ms": at_ms})
            assert sent.status == 200
    until = f"until_ms={_now_ms(front) + 9 * HOUR_MS}"

    async def page(queue: str, query: str) -> Reply:
        return await front.rest(f"/v1/queues/{queue}/scheduled?limit=1{query}", method="GET")

    first = (await page("orders", "")).json["next_cursor"]
    of_others, filtered = (await page("others", "")).json["next_cursor"], (await page("orders", f"&{until}")).json
    rest = await page("orders", f"&cursor={first}")
    assert rest.status == 200 and rest.json["next_cursor"] != first and len(rest.json["messages"]) == 1
    assert (await page("orders", f"&{until}&cursor={filtered['next_cursor']}")).status == 200
    search = (await front.rest("/v1/queues/orders/messages/peek", {"limit": 1})).json["cursor"]
    assert search
    changed = ("A" if first[20] != "A" else "B").join((first[:20], first[21:]))
    wrong = [f"cursor={one}" for one in (changed, first[:-4], first + "AAAA", "1-1-1", "", of_others, search)]
    for query in (*wrong, f"cursor={filtered['next_cursor']}", f"{until}&cursor={first}"):
        answer = await page("orders", f"&{query}")
        assert (answer.status, answer.json["code"]) == (400, "invalid-parameter-value"), query
        assert "cursor" in answer.json["detail"]


def test_listings_of_the_data_plane_with_cursors_are_these() -> None:
    """Another one needs a test as that above, or as those of the message browser."""
    described = json.loads((Path(__file__).parents[2] / "api" / "data_paths.json").read_text())
    schemas = described["schemas"]

    def takes_cursor(call: dict[str, Any]) -> bool:
        content = call.get("requestBody", {}).get("content", {}).get("application/json", {})
        name = content.get("schema", {}).get("$ref", "").split("/")[-1]
        named = {one["name"] for one in call.get("parameters", ())} | set(schemas.get(name, {}).get("properties", ()))
        return "cursor" in named

    found = {path for path, calls in described["paths"].items() for call in calls.values() if takes_cursor(call)}
    assert found == {
        "/v1/queues/{name}/messages/find",
        "/v1/queues/{name}/messages/peek",
        "/v1/queues/{name}/scheduled",
    }
