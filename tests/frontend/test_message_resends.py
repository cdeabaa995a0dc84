"""Messages that are sent again from the message browser: what is kept and checked of them, and that none is lost."""

from __future__ import annotations

import httpx2
import msgspec
import pytest

from frontend.message_browser.filters import MessageFilter
from frontend.metadata.records import PartitionRecord
from storage_nodes.limits import SCHEDULE_MS_MAX
from storage_nodes.protocol.errors import ErrorCode
from tests.frontend.test_partitions import spread
from tests.frontend.test_rest import problem
from tests.support.frontend_plane import QUEUE_URL, Installation
from tests.support.message_browser import MESSAGES, act, peek, send, storage_fails


async def test_resend_replaces_the_message_and_remembers_what_it_was(front: Installation) -> None:
    old_id = await send(front, "x=1", attributes={"a": {"value": "1"}}, group="g")
    await front.rest(MESSAGES + "/receive", {"visibility_seconds": 0})
    sent_ms = int(front.clock.now_s * 1000)
    front.clock.now_s += 9
    (message,) = await peek(front)
    reply = await act(front, "resend", message, body="x=2")
    assert reply.json["removed"] == old_id != reply.json["id"]
    (new,) = await peek(front)
    assert (new["id"], new["body"], new["group"], new["receive_count"]) == (reply.json["id"], "x=2", "g", 0)
    assert new["attributes"] == {"a": {"type": "String", "value": "1"}}
    history = {"id": old_id, "queue": "orders", "sent_ms": sent_ms, "receive_count": 1, "moves": 1, "task": None}
    assert new["history"] == history
    (received,) = (await front.rest(MESSAGES + "/receive", {})).json["messages"]
    assert received["history"] == history and received["id"] == reply.json["id"]
    changed = await act(front, "resend", new, attributes={}, group="h")
    (newest,) = await peek(front)
    assert changed.status == 200 and "attributes" not in newest and newest["group"] == "h"
    assert (newest["history"]["id"], newest["history"]["moves"]) == (old_id, 2)
    assert [entry["action"] for entry in front.audit] == ["message.resend"] * 2
    assert not {"body", "attributes"} & front.audit[0].keys()


async def test_sqs_clients_get_the_history_when_they_name_it(front: Installation) -> None:
    old_id = await send(front, "x", attributes={"a": {"value": "1"}})
    sent_ms = int(front.clock.now_s * 1000)
    (message,) = await peek(front)
    await act(front, "resend", message, body="y")
    ours = {
        "Penstock.OriginalMessageId": old_id, "Penstock.OriginalQueue": "orders",
        "Penstock.OriginalSentTimestamp": str(sent_ms), "Penstock.OriginalReceiveCount": "0",
    }  # fmt: skip
    for names, expected in (
        (["All"], {"a": "1"}),
        (["Penstock.OriginalQueue"], {"Penstock.OriginalQueue": "orders"}),
        (["a", "Penstock.*"], {"a": "1", **ours}),
        ([], {}),
    ):
        ask = {"QueueUrl": QUEUE_URL, "MessageAttributeNames": names, "VisibilityTimeout": 0}
        (received,) = (await front.sqs("ReceiveMessage", ask)).json["Messages"]
        found = received.get("MessageAttributes", {})
        assert {name: value["StringValue"] for name, value in found.items()} == expected


async def test_old_message_stays_until_the_new_one_is_acknowledged(front: Installation) -> None:
    await send(front, "x")
    (message,) = await peek(front)

    def control(request: httpx2.Request) -> httpx2.Response:
        front.storage.fail_with = ErrorCode.NO_QUORUM
        return front._control(request)

    front.control_answer = control
    assert (await act(front, "resend", message, body="y")).status == 503
    front.storage.fail_with = None
    assert [one["body"] for one in await peek(front)] == ["x"]
    assert [entry["action"] for entry in front.audit] == ["message.resend", "message.resend.failed"]


async def test_resend_that_is_repeated_is_one_message(front: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(front, "x")
    (message,) = await peek(front)
    monkeypatch.setattr(front.storage, "remove", storage_fails)
    assert (await act(front, "resend", message, body="y")).status == 503
    assert (await act(front, "resend", message, body="y")).status == 503
    assert sorted(one["body"] for one in await peek(front)) == ["x", "y"]
    monkeypatch.undo()
    reply = await act(front, "resend", message, body="y")
    (only,) = await peek(front)
    assert (only["body"], only["id"]) == ("y", reply.json["id"])


async def test_another_change_after_a_failed_one_is_another_message(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(front, "x")
    (message,) = await peek(front)
    monkeypatch.setattr(front.storage, "remove", storage_fails)
    assert (await act(front, "resend", message, body="y")).status == 503
    monkeypatch.undo()
    assert (await act(front, "resend", message, body="z")).status == 200
    assert sorted(one["body"] for one in await peek(front)) == ["y", "z"], "nothing that was acknowledged is dropped"


async def test_resend_goes_to_another_queue_and_into_fifo_queues(front: Installation) -> None:
    front.add_queue("repair.fifo", (7,))
    old_id = await send(front, "x")
    (message,) = await peek(front)
    refused = await act(front, "resend", message, destination="repair.fifo")
    assert refused.status == 400 and len(await peek(front)) == 1, "a FIFO queue wants a group"
    assert (await act(front, "resend", message, destination="secret")).status == 404
    reply = await act(front, "resend", message, destination="repair.fifo", group="g")
    assert reply.status == 200 and int(reply.json["sequence_number"]) == front.storage.messages(7)[0].offset
    assert await peek(front) == []
    (moved,) = await peek(front, "repair.fifo")
    assert (moved["body"], moved["group"], moved["history"]["id"]) == ("x", "g", old_id)
    assert moved["id"] == reply.json["id"] and moved["deduplication_id"].startswith("resend-")


async def test_changed_message_is_checked_like_any(front: Installation) -> None:
    await send(front, "x")
    (message,) = await peek(front)
    for change in ({"body": "\x00"}, {"body": ""}, {"attributes": {"AWS.x": {"value": "1"}}}, {"delay_seconds": 901}):
        reply = await act(front, "resend", message, **change)
        assert reply.status == 400, change
    assert len(await peek(front)) == 1 and not front.audit


async def test_deduplication_id_of_another_message_takes_nothing_away(front: Installation) -> None:
    """The target would drop the copy, and the message would be nowhere."""
    front.add_queue("line.fifo", (7,))
    first = await send(front, "one", "line.fifo", group="g", deduplication_id="a")
    await send(front, "two", "line.fifo", group="h", deduplication_id="b")
    _, two = await peek(front, "line.fifo")
    refused = await act(front, "resend", two, "line.fifo", deduplication_id="a")
    assert (refused.status, problem(refused)) == (409, "deduplication-id-in-use")
    assert [one["body"] for one in await peek(front, "line.fifo")] == ["one", "two"]
    assert [entry["action"] for entry in front.audit] == ["message.resend", "message.resend.failed"]
    (one, _) = (await front.rest("/v1/queues/line.fifo/messages/receive", {"max_messages": 2})).json["messages"]
    assert one["id"] == first
    assert (await front.rest("/v1/queues/line.fifo/messages/ack", {"receipts": [one["receipt"]]})).json["done"] == 1
    gone = await act(front, "resend", two, "line.fifo", deduplication_id="a")
    assert problem(gone) == "deduplication-id-in-use", "whose it was cannot be seen any more"
    assert (await act(front, "resend", two, "line.fifo", deduplication_id="c")).status == 200


async def test_resend_under_a_named_deduplication_id_is_repeated_as_one(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    front.add_queue("line.fifo", (7,))
    await send(front, "x", "line.fifo", group="g", deduplication_id="a")
    (message,) = await peek(front, "line.fifo")
    monkeypatch.setattr(front.storage, "remove", storage_fails)
    assert (await act(front, "resend", message, "line.fifo", deduplication_id="b")).status == 503
    monkeypatch.undo()
    reply = await act(front, "resend", message, "line.fifo", deduplication_id="b")
    (only,) = await peek(front, "line.fifo")
    assert (reply.status, only["id"]) == (200, reply.json["id"])


async def test_options_are_laid_over_the_attributes_that_the_message_has(front: Installation) -> None:
    kept = {"a": {"type": "String", "value": "1"}, "b": {"type": "Number", "value": "2"}}
    await send(front, "x", attributes=kept, tag="red", delay_ms=1_000)
    front.clock.now_s += 2
    now_ms = int(front.clock.now_s * 1000)
    for change, name, value in (
        ({"tag": "blue"}, "Penstock.Tag", "blue"),
        ({"priority": 2}, "Penstock.Priority", "2"),
        ({"deliver_at_ms": now_ms + 100}, "Penstock.DeliverAt", str(now_ms + 100)),
        ({"delay_ms": 100}, "Penstock.DelaySeconds", "0.100"),
    ):
        (message,) = await peek(front)
        reply = await act(front, "resend", message, **change)
        assert reply.status == 200, reply.body
        front.clock.now_s += 2
        (new,) = await peek(front)
        assert kept.items() <= new["attributes"].items(), change
        assert new["attributes"][name]["value"] == value
        assert len({"Penstock.DeliverAt", "Penstock.DelaySeconds"} & new["attributes"].keys()) == 1, change
    assert new["tag"] == "blue"
    await act(front, "resend", new, attributes={"c": {"value": "3"}}, tag="green")
    (new,) = await peek(front)
    assert new["attributes"].keys() == {"c", "Penstock.Tag"}, "given ones take the place of all"


async def test_changed_priority_says_the_partition(front: Installation) -> None:
    spread(front, [PartitionRecord(1), PartitionRecord(2, 1)], **{"Penstock.PriorityLevels": "2"})
    await send(front, "x", priority=0)
    (message,) = await peek(front)
    assert front.storage.messages(1)
    assert (await act(front, "resend", message, priority=2)).status == 400
    assert (await act(front, "resend", message, priority=1)).status == 200
    assert front.storage.messages(2) and not front.storage.messages(1)


async def test_resend_takes_no_time_that_a_send_does_not_take(front: Installation) -> None:
    await send(front, "x")
    (message,) = await peek(front)
    now_ms = int(front.clock.now_s * 1000)
    for far in ({"deliver_at_ms": now_ms + SCHEDULE_MS_MAX + 1_000}, {"delay_ms": SCHEDULE_MS_MAX + 1}):
        assert (await front.rest(MESSAGES, {"body": "x", **far})).status == 400
        reply = await act(front, "resend", message, **far)
        assert reply.status == 400 and "at most" in reply.json["detail"]
    assert len(await peek(front)) == 1 and not front.audit


HUGE = (10**20, -(10**20), 2**63)
_MESSAGE = ("delay_seconds", "priority", "deliver_at_ms", "delay_ms")
_INTEGERS: dict[str, tuple[str, ...]] = {
    "": _MESSAGE,
    "/resend": _MESSAGE,
    "/receive": ("max_messages", "wait_seconds", "visibility_seconds"),
    "/extend": ("visibility_seconds",),
    "/release": ("delay_seconds",),
    "/peek": ("limit", "body_chars"),
    "/find": ("limit", "body_chars"),
}
_FILTER = tuple(one.name for one in msgspec.structs.fields(MessageFilter) if one.type == int | None)


@pytest.mark.parametrize("number", HUGE)
async def test_integer_that_no_member_may_have_is_refused(front: Installation, number: int) -> None:
    await send(front, "x")
    (seen,) = await peek(front)
    (held,) = (await front.rest(MESSAGES + "/receive", {})).json["messages"]
    receipts = {"receipts": [held["receipt"]]}
    given: dict[str, dict[str, object]] = {"/extend": receipts, "/release": receipts, "": {"body": "y"}}
    given |= {"/resend": {"message": seen["message"]}, "/find": {"filter": {}}}
    for path, members in _INTEGERS.items():
        for member in members:
            reply = await front.rest(MESSAGES + path, {**given.get(path, {}), member: number})
            assert reply.status == 400 and problem(reply) != "internal-failure", (path, member, reply.body)
    batch = [{"body": "y", member: number} for member in _MESSAGE]
    reply = await front.rest(MESSAGES, {"messages": batch})
    assert reply.status == 400 or not any("id" in one for one in reply.json["messages"])
    for member in _FILTER:
        reply = await front.rest(MESSAGES + "/find", {"filter": {member: number}})
        assert reply.status in (200, 400), (member, reply.body)
    for member in ("deliver_at_ms", "delay_ms"):
        ask = {"ids": ["x"], member: number}
        assert (await front.rest("/v1/queues/orders/scheduled/reschedule", ask)).status == 400
    for member in ("limit", "until_ms"):
        reply = await front.rest(f"/v1/queues/orders/scheduled?{member}={number}", method="GET")
        assert reply.status in (200, 400), (member, reply.body)
    assert len(await peek(front)) == 1
