"""Queues of several partitions at the front end: where messages go, who is asked, what a change costs nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from frontend.crypto.envelope import Content, seal
from frontend.metadata.records import PartitionRecord
from frontend.queues.resolver import ResolvedQueue
from frontend.routing.partitioner import PriorityLevel, Routes, routes_of
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.records import encode_body
from storage_nodes.protocol.spreading import partition_of_group
from tests.support.frontend_plane import ACCOUNT, HOST, QUEUE_URL, Installation
from tests.support.settling import settle

FIFO_URL = f"http://{HOST}/{ACCOUNT}/line.fifo"
FIFO = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
FOUR = [PartitionRecord(partition, per_group=True) for partition in (2, 3, 4, 5)]
LEVELS = [PartitionRecord(1), PartitionRecord(2), PartitionRecord(3, 1), PartitionRecord(4, 1), PartitionRecord(5, 2)]


def spread(front: Installation, layout: list[PartitionRecord], **attributes: str) -> Installation:
    partitions = tuple(one.partition for one in layout)
    front.add_queue("orders", partitions, layout=layout, attributes=attributes)
    return front


def fifo(front: Installation, layout: list[PartitionRecord], **attributes: str) -> Installation:
    partitions = tuple(one.partition for one in layout)
    before = front.metadata.queues.get((ACCOUNT, "line.fifo"))
    front.add_queue("line.fifo", partitions, layout=layout, attributes={**FIFO, **attributes})
    if before is not None:
        after = front.metadata.queues[(ACCOUNT, "line.fifo")]
        keys = {"data_keys": before.data_keys, "account_key_wrapped": before.account_key_wrapped}
        front.metadata.queues[(ACCOUNT, "line.fifo")] = msgspec.structs.replace(after, **keys)
    for one in layout:
        front.storage.set_config(one.partition, closed=one.closed)
    return front


async def send(front: Installation, group: str, dedup_id: str, body: str = "x") -> dict[str, Any]:
    params = {"MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": dedup_id}
    reply = await front.sqs("SendMessage", {"QueueUrl": FIFO_URL, **params})
    assert reply.status == 200, reply
    return reply.json


async def send_level(front: Installation, body: str, level: str | None = None) -> Any:
    attributes = {} if level is None else {"Penstock.Priority": {"DataType": "Number", "StringValue": level}}
    return await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": body, "MessageAttributes": attributes})


async def receive(front: Installation, url: str = FIFO_URL, **more: Any) -> list[dict[str, Any]]:
    asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"], **more}
    reply = await front.sqs("ReceiveMessage", asked)
    assert reply.status == 200, reply
    messages: list[dict[str, Any]] = reply.json.get("Messages", [])
    return messages


async def delete(front: Installation, url: str, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        reply = await front.sqs("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]})
        assert reply.status == 200


def calls(front: Installation) -> list[tuple[str, int]]:
    made, front.storage.calls = front.storage.calls, []
    return made


def group_at(partition: int, partitions: tuple[int, ...] = (2, 3, 4, 5)) -> str:
    return next(f"g{n}" for n in range(1_000) if partition_of_group(f"g{n}".encode(), partitions) == partition)


# --- one partition: no step more ---


async def test_queue_of_one_partition_has_nothing_to_decide(front: Installation) -> None:
    assert routes_of((7,), []) is None
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})
    assert len(await receive(front, QUEUE_URL)) == 1 and await receive(front, QUEUE_URL) == []
    assert calls(front) == [("send", 1), ("acquire", 1), ("acquire", 1)]


# --- standard ---


def test_level_polls_another_partition_first_every_time_and_backs_off_from_empty_ones() -> None:
    level = PriorityLevel((4, 5, 6))
    assert {level.next_for_send() for _ in range(3)} == {4, 5, 6}
    assert {level.next_to_poll() for _ in range(3)} == {4, 5, 6}
    for partition in (4, 6):
        level.record_poll(partition, empty=True)
    assert {level.next_to_poll() for _ in range(7)} == {5}
    assert {level.next_to_poll() for _ in range(3)} == {4, 5, 6}, "nothing is left out for ever"


async def test_sparse_queue_costs_one_step_when_it_is_known_where_messages_are(front: Installation) -> None:
    spread(front, [PartitionRecord(partition) for partition in range(1, 9)])
    for number in range(24):
        await front.storage.send(5, [front_body(front, number)])
    calls(front)
    await receive(front, QUEUE_URL, MaxNumberOfMessages=1)
    first = calls(front)
    assert [call for call, _ in first if call == "acquire"] == ["acquire"] * 2, "a miss, and where something is"
    for _ in range(6):
        assert len(await receive(front, QUEUE_URL, MaxNumberOfMessages=1)) == 1
        assert calls(front) == [("acquire", 5)]


def front_body(front: Installation, number: int) -> bytes:
    view = ResolvedQueue(front.metadata.queues[(ACCOUNT, "orders")], front.keyring)
    return encode_body(
        seal(view.sealing_key(front.clock.now_s), b"sender", Content(str(number), {}, "", ""))[1], None, ()
    )


async def test_receive_leases_from_one_partition_and_hands_nothing_back(front: Installation) -> None:
    spread(front, [PartitionRecord(partition) for partition in (1, 2, 3)])
    for number in range(9):
        await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": str(number)})
    found: set[str] = set()
    for _ in range(3):
        messages = await receive(front, QUEUE_URL)
        assert len(messages) == 3
        found |= {message["Body"] for message in messages}
        assert all(message["Attributes"]["ApproximateReceiveCount"] == "1" for message in messages)
    assert found == {str(number) for number in range(9)}
    assert not any(call == "change_visibility" for call, _ in calls(front))


async def test_parked_receive_takes_from_several_what_fits_and_gives_the_rest_back(front: Installation) -> None:
    spread(front, [PartitionRecord(partition) for partition in (1, 2, 3)])
    for most, given in ((10, 3), (2, 2), (1, 1)):
        poll = asyncio.create_task(receive(front, QUEUE_URL, WaitTimeSeconds=20, MaxNumberOfMessages=most))
        await settle(lambda: front.storage.polls == 3)
        for partition in (1, 2, 3):
            await front.storage.send(partition, [front_body(front, partition)])
        messages = await poll
        assert len(messages) == given
        await delete(front, QUEUE_URL, messages)
        left = [message for _ in range(4) for message in await receive(front, QUEUE_URL)]
        assert len(left) == 3 - given, "what was given back is there at once"
        await delete(front, QUEUE_URL, left)


async def test_partition_that_does_not_answer_stops_nobody(front: Installation) -> None:
    spread(front, [PartitionRecord(partition) for partition in (1, 2, 3)])

    def gone(call: str, partition: int) -> None:
        if partition == 2:
            raise StorageError(ErrorCode.NO_QUORUM)

    for _ in range(3):
        await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})
    front.storage.before = gone
    assert [len(await receive(front, QUEUE_URL)) for _ in range(2)] == [1, 1]
    assert (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})).status == 503, "nobody knows what is there"
    poll = asyncio.create_task(receive(front, QUEUE_URL, WaitTimeSeconds=20))
    await settle(lambda: front.storage.polls == 2)
    await front.storage.send(3, [front_body(front, 1)])
    assert len(await poll) == 1


async def test_counts_and_purge_are_of_all_partitions(front: Installation) -> None:
    spread(front, [PartitionRecord(partition) for partition in (1, 2, 3)], **{"Penstock.Partitions": "3"})
    for _ in range(6):
        await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})
    await receive(front, QUEUE_URL)
    asked = {"QueueUrl": QUEUE_URL, "AttributeNames": ["All"]}
    shown = (await front.sqs("GetQueueAttributes", asked)).json["Attributes"]
    assert (shown["ApproximateNumberOfMessages"], shown["ApproximateNumberOfMessagesNotVisible"]) == ("4", "2")
    assert not {"Penstock.PartitionsOpen", "Penstock.PartitionsDraining"} & set(shown), "they are of no SQS"
    asked["AttributeNames"] = ["All", "Penstock.PartitionsOpen", "Penstock.PartitionsDraining"]
    shown = (await front.sqs("GetQueueAttributes", asked)).json["Attributes"]
    assert (shown["Penstock.PartitionsOpen"], shown["Penstock.PartitionsDraining"]) == ("3", "0")
    assert (await front.sqs("PurgeQueue", {"QueueUrl": QUEUE_URL})).status == 200
    assert front.storage.count() == 0


# --- priority ---


async def test_highest_level_comes_first_and_a_parked_receive_wakes_for_any(front: Installation) -> None:
    spread(front, LEVELS, **{"Penstock.PriorityLevels": "3"})
    for body, level in (("low", None), ("middle", "1"), ("high", "2"), ("zero", "0")):
        assert (await send_level(front, body, level)).status == 200
    found = [message["Body"] for _ in range(4) for message in await receive(front, QUEUE_URL, MaxNumberOfMessages=1)]
    assert found[:2] == ["high", "middle"] and set(found[2:]) == {"low", "zero"}
    for level in ("0", "1", "2"):
        poll = asyncio.create_task(receive(front, QUEUE_URL, WaitTimeSeconds=20))
        await settle(lambda: front.storage.polls == 5)
        await send_level(front, level, level)
        assert [message["Body"] for message in await poll] == [level]
        assert front.storage.polls == 0


@pytest.mark.parametrize("level", ["3", "-1", "1.5", "x1"])
async def test_level_that_is_none_is_refused(front: Installation, level: str) -> None:
    spread(front, LEVELS, **{"Penstock.PriorityLevels": "3"})
    reply = await send_level(front, "x", level)
    assert reply.status == 400 and (level == "x1" or "0 to 2" in reply.json["message"])
    assert front.storage.count() == 0


async def test_batch_goes_to_several_levels_and_a_bad_entry_fails_alone(front: Installation) -> None:
    spread(front, LEVELS, **{"Penstock.PriorityLevels": "3"})
    entries = [
        {
            "Id": f"e{level}",
            "MessageBody": str(level),
            "MessageAttributes": {"Penstock.Priority": {"DataType": "Number", "StringValue": str(level)}},
        }
        for level in range(4)
    ]
    answer = (await front.sqs("SendMessageBatch", {"QueueUrl": QUEUE_URL, "Entries": entries})).json
    assert [one["Id"] for one in answer["Successful"]] == ["e0", "e1", "e2"]
    assert [one["Id"] for one in answer["Failed"]] == ["e3"]
    assert [(await receive(front, QUEUE_URL))[0]["Body"] for _ in range(3)] == ["2", "1", "0"]


async def test_level_that_is_not_there_yet_is_the_highest_there_is(front: Installation) -> None:
    spread(front, [PartitionRecord(1), PartitionRecord(3, 1)], **{"Penstock.PriorityLevels": "10"})
    assert (await send_level(front, "x", "9")).status == 200
    assert len(front.storage.messages(3)) == 1


async def test_rest_names_the_level_by_a_field(front: Installation) -> None:
    spread(front, LEVELS, **{"Penstock.PriorityLevels": "3"})
    path = "/v1/queues/orders/messages"
    assert (await front.rest(path, {"messages": [{"body": "low"}, {"body": "high", "priority": 2}]})).status == 200
    (message,) = (await front.rest(f"{path}/receive", {})).json["messages"]
    assert message["body"] == "high"
    assert message["attributes"]["Penstock.Priority"] == {"type": "Number", "value": "2"}
    assert (await front.rest(path, {"body": "x", "priority": 10})).status == 400
    both = {"body": "x", "priority": 1, "attributes": {"Penstock.Priority": {"value": "1", "type": "Number"}}}
    assert (await front.rest(path, both)).status == 400


async def test_level_on_a_queue_without_levels_is_an_attribute_like_any_other(front: Installation) -> None:
    assert (await send_level(front, "x", "77")).status == 200


# --- FIFO ---


async def test_groups_are_spread_and_stay_where_they_are(front: Installation) -> None:
    fifo(front, FOUR)
    for number in range(40):
        await send(front, f"g{number % 20}", str(number))
    assert all(len(front.storage.messages(partition)) >= 2 for partition in (2, 3, 4, 5))
    found: dict[str, list[int]] = {}
    while messages := await receive(front):
        for message in messages:
            group = message["Attributes"]["MessageGroupId"]
            found.setdefault(group, []).append(int(message["Attributes"]["MessageDeduplicationId"]))
        await delete(front, FIFO_URL, messages)
    assert found == {f"g{n}": [n, n + 20] for n in range(20)}


async def test_batch_of_many_groups_keeps_its_order_and_its_duplicates(front: Installation) -> None:
    fifo(front, FOUR)
    entries = [
        {"Id": f"e{n}", "MessageBody": "x", "MessageGroupId": f"g{n % 5}", "MessageDeduplicationId": str(n)}
        for n in range(10)
    ]
    first = (await front.sqs("SendMessageBatch", {"QueueUrl": FIFO_URL, "Entries": entries})).json
    again = (await front.sqs("SendMessageBatch", {"QueueUrl": FIFO_URL, "Entries": entries})).json
    assert first == again and len({one["MessageId"] for one in first["Successful"]}) == 10
    numbers = {one["Id"]: int(one["SequenceNumber"]) for one in first["Successful"]}
    assert all(numbers[f"e{n}"] < numbers[f"e{n + 5}"] for n in range(5))


async def test_attempt_gets_the_same_messages_wherever_they_came_from(front: Installation) -> None:
    fifo(front, FOUR)
    await send(front, group_at(4), "1")
    (first,) = await receive(front, ReceiveRequestAttemptId="try")
    for partition in (2, 3, 5):
        await send(front, group_at(partition), f"later {partition}".replace(" ", "-"))
    for _ in range(4):
        (again,) = await receive(front, ReceiveRequestAttemptId="try")
        assert again["ReceiptHandle"] == first["ReceiptHandle"]
    (other,) = await receive(front, ReceiveRequestAttemptId="another")
    assert other["MessageId"] != first["MessageId"]


# --- FIFO: other partitions take over ---

LATER = [PartitionRecord(one.partition, generation=1, per_group=True) for one in FOUR[1:]]


def replaced(front: Installation, drained: bool = False) -> None:
    fifo(front, [PartitionRecord(2, closed=True, drained=drained), *LATER])


async def test_message_before_the_change_goes_first_and_numbers_rise_across_it(front: Installation) -> None:
    front.add_queue("line.fifo", (2,))
    group = group_at(4, (3, 4, 5))
    old = await send(front, group, "1")
    replaced(front)
    new = await send(front, group, "2")
    assert int(new["SequenceNumber"]) > int(old["SequenceNumber"]) and len(new["SequenceNumber"]) == 20
    (first,) = await receive(front)
    assert first["MessageId"] == old["MessageId"]
    assert await receive(front) == [], "the group is in flight, and so is the change"
    await delete(front, FIFO_URL, [first])
    assert await receive(front) == [], "until it is noted that the old partition is empty"
    replaced(front, drained=True)
    (second,) = await receive(front)
    assert (second["MessageId"], second["Attributes"]["SequenceNumber"]) == (new["MessageId"], new["SequenceNumber"])


async def test_message_sent_before_the_change_and_again_after_it_is_one(front: Installation) -> None:
    """The scope was the queue, and is the group: what was sent before is known by its id of then."""
    front.add_queue("line.fifo", (2,))
    old = await send(front, "g", "1")
    replaced(front)
    assert await send(front, "g", "1") == old
    assert front.storage.count() == 1
    await send(front, "g", "2")
    assert await send(front, "g", "2") != old
    assert front.storage.count() == 2


async def test_front_end_that_has_not_heard_of_the_change_asks_and_sends_again(front: Installation) -> None:
    front.add_queue("line.fifo", (2,))
    old = await send(front, "g", "1")
    stale = front.metadata.queues[(ACCOUNT, "line.fifo")]
    replaced(front)
    fresh = front.metadata.queues[(ACCOUNT, "line.fifo")]
    # Its cache has the old record until it asks.
    cached = [stale]
    front.metadata.cached_queue = lambda *_: cached[-1]  # type: ignore[method-assign]
    refresh = front.metadata.refresh_queue

    async def refreshed(account_id: str, name: str) -> Any:
        cached.append(fresh)
        return await refresh(account_id, name)

    front.metadata.refresh_queue = refreshed  # type: ignore[method-assign]
    new = await send(front, "g", "2")
    assert int(new["SequenceNumber"]) > int(old["SequenceNumber"])
    assert len(front.storage.messages(2)) == 1, "the closed partition took no second one"
    assert sum(len(front.storage.messages(one)) for one in (3, 4, 5)) == 1


async def test_change_that_is_not_noted_yet_is_answered_try_again(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontend.messages.send.ROUTE_PAUSE_MS", 1)
    front.add_queue("line.fifo", (2,))
    front.storage.set_config(2, closed=True)
    params = {"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    reply = await front.sqs("SendMessage", {"QueueUrl": FIFO_URL, **params})
    assert reply.status == 503 and front.storage.count() == 0


def test_layout_of_a_change_under_way_is_read_right() -> None:
    older = [PartitionRecord(1, generation=0, closed=True, drained=True)]
    routes = Routes([*older, PartitionRecord(2, generation=1, closed=True), PartitionRecord(3, generation=2)])
    assert routes.receivable_partitions() == [2]
    assert [former.partitions for former in routes.former] == [(2,), (1,)]
    assert routes.sequence_base(3) == 2 * 10**16 and routes.sequence_base(1) == 0


# --- scheduled messages ---


async def test_scheduled_messages_of_a_batch_are_named_by_their_partitions(front: Installation) -> None:
    fifo(front, FOUR)
    delay = {"Penstock.DelaySeconds": {"type": "Number", "value": "60"}}
    batch = [
        {"body": f"{partition}", "group": group_at(partition), "deduplication_id": f"{partition}", "attributes": delay}
        for partition in (2, 3, 4, 5)
    ]
    batch.append({"body": "now", "group": "g", "deduplication_id": "now"})
    url = "/v1/queues/line.fifo"
    sent = (await front.rest(f"{url}/messages", {"messages": batch})).json["messages"]
    assert ["sequence_number" in one for one in sent] == [False] * 4 + [True], "its place is not known before"
    assert ["schedule_id" in one for one in sent] == [True] * 4 + [False]
    again = (await front.rest(f"{url}/messages", {"messages": batch})).json["messages"]
    assert again == sent, "a repeat is named as its original"
    front.storage.calls.clear()
    cancelled = await front.rest(f"{url}/scheduled/cancel", {"ids": [sent[2]["schedule_id"]]})
    assert cancelled.json == {"done": 1, "failed": []} and calls(front) == [("reschedule", 4)]
    listed = (await front.rest(f"{url}/scheduled", method="GET")).json["messages"]
    assert [one["schedule_id"] for one in listed] == [sent[n]["schedule_id"] for n in (0, 1, 3)]


async def test_scheduled_message_that_is_repeated_after_a_change_is_its_original(front: Installation) -> None:
    fifo(front, [PartitionRecord(1)])
    ask = {"body": "x", "group": "g", "deduplication_id": "1", "delay_ms": 60_000}
    sent = (await front.rest("/v1/queues/line.fifo/messages", ask)).json
    former = PartitionRecord(1, generation=0, closed=True)
    fifo(front, [former, *(PartitionRecord(one, generation=1, per_group=True) for one in (2, 3))])
    again = (await front.rest("/v1/queues/line.fifo/messages", ask)).json
    assert again == sent and "sequence_number" not in again
    assert not front.storage.messages(2) and not front.storage.messages(3)


async def test_scheduled_messages_of_a_standard_queue_are_named_by_their_partitions(front: Installation) -> None:
    spread(front, [PartitionRecord(1), PartitionRecord(2)])
    url = "/v1/queues/orders"
    batches = [(await front.rest(f"{url}/messages", {"body": "x", "delay_ms": 60_000})).json for _ in range(2)]
    front.storage.calls.clear()
    ids = [one["schedule_id"] for one in batches]
    assert (await front.rest(f"{url}/scheduled/cancel", {"ids": ids})).json["done"] == 2
    assert sorted(calls(front)) == [("reschedule", 1), ("reschedule", 2)]


@pytest.mark.parametrize("layout", [FOUR, LEVELS], ids=["one level", "several levels"])
@pytest.mark.parametrize("wait_s", [0, 1])
async def test_filter_by_tag_holds_in_every_partition(
    front: Installation, layout: list[PartitionRecord], wait_s: int
) -> None:
    spread(front, layout, **{"Penstock.PriorityLevels": "3"} if layout is LEVELS else {})
    tags = ("blue", "red", "blue", "blue", "red", "blue")
    for number, tag in enumerate(tags):
        attributes = {"Penstock.Tag": {"DataType": "String", "StringValue": tag}}
        params = {"QueueUrl": QUEUE_URL, "MessageBody": f"{tag} {number}", "MessageAttributes": attributes}
        assert (await front.sqs("SendMessage", params)).status == 200
    found: list[str] = []
    for _ in range(len(tags)):
        asked = {"MessageAttributeNames": ["Penstock.Tag=red"], "WaitTimeSeconds": wait_s if len(found) < 2 else 0}
        found += [one["Body"] for one in await receive(front, QUEUE_URL, **asked)]
    assert sorted(found) == ["red 1", "red 4"]
