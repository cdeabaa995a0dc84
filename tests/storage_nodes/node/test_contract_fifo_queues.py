"""The contract of `MessageStorage`, of FIFO queues: a real node and `MemoryStorage` do the same."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from storage_nodes.limits import DEDUP_ID_BYTES_MAX, GROUP_BYTES_MAX, UNPARK_GROUPS_MAX
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import NOT_TAKEN, QueueConfig, VisibilityMode
from storage_nodes.protocol.spreading import partition_of_group
from tests.storage_nodes.node.contract_storage import (
    FIFO,
    LONG_MS,
    OK,
    SHORT_MS,
    ContractStorage,
    changes,
    counts,
    message,
    receipts,
    receive,
    receive_later,
    refusal,
    send,
    storage,
    until,
    values,
)

__all__ = ["storage"]

pytestmark = pytest.mark.slow

STALE = ErrorCode.RECEIPT_STALE


# --- groups ---------------------------------------------------------------------------------------------------


async def test_group_in_flight_is_locked_until_its_messages_are_deleted(storage: ContractStorage) -> None:
    partition = await storage.create(FIFO)
    await send(storage, partition, message(b"a1", b"a"), message(b"a2", b"a"), message(b"b1", b"b"))
    first = await receive(storage, partition, 1)
    assert values(first) == [b"a1"]
    assert values(await receive(storage, partition)) == [b"b1"], "its group is locked"
    stats = await storage.calls.stats(partition)
    assert (stats.waiting, stats.in_flight, stats.groups, stats.locked_groups) == (1, 2, 2, 2)
    assert await storage.calls.delete(partition, receipts(first)) == [OK]
    assert values(await receive(storage, partition)) == [b"a2"]


async def test_receive_gives_the_messages_of_a_group_in_their_order(storage: ContractStorage) -> None:
    partition = await storage.create(FIFO)
    await send(storage, partition, *[message(b"%d" % number, b"g") for number in range(5)])
    assert values(await receive(storage, partition, 3)) == [b"0", b"1", b"2"]


async def test_message_whose_lease_ended_comes_again_before_what_follows_it(storage: ContractStorage) -> None:
    partition = await storage.create(FIFO)
    await send(storage, partition, message(b"1", b"g"), message(b"2", b"g"))
    reply = await storage.calls.acquire(partition, 1, SHORT_MS)
    assert reply.deadline_ms > reply.messages[0].first_received_ms
    await storage.pass_ms(SHORT_MS)
    again = await receive(storage, partition)
    assert values(again) == [b"1", b"2"] and [one.delivery for one in again] == [2, 1]
    assert again[0].first_received_ms == reply.messages[0].first_received_ms


async def test_delayed_message_holds_up_its_group_alone(storage: ContractStorage) -> None:
    partition = await storage.create(FIFO)
    await send(storage, partition, message(b"a1", b"a", delay_ms=SHORT_MS), message(b"a2", b"a"), message(b"b1", b"b"))
    assert values(await receive(storage, partition)) == [b"b1"]
    await storage.pass_ms(SHORT_MS)
    assert values(await receive_later(storage, partition)) == [b"a1", b"a2"]


async def test_long_poll_is_woken_when_a_group_is_unlocked(storage: ContractStorage) -> None:
    partition = await storage.create(FIFO)
    await send(storage, partition, message(b"1", b"g"), message(b"2", b"g"))
    first = await receive(storage, partition, 1)
    poll = asyncio.create_task(storage.calls.acquire(partition, 10, LONG_MS, 15_000))
    await asyncio.sleep(0.05)
    assert not poll.done()
    await storage.calls.delete(partition, receipts(first))
    assert values(await asyncio.wait_for(poll, 5)) == [b"2"]


# --- receipts -------------------------------------------------------------------------------------------------


async def test_receipt_is_stale_when_its_lease_is_over(storage: ContractStorage) -> None:
    partition = await storage.create(FIFO)
    await send(storage, partition, message(b"1", b"g"))
    first = await receive(storage, partition, visibility_ms=SHORT_MS)
    await storage.pass_ms(SHORT_MS)
    assert await storage.calls.delete(partition, receipts(first)) == [STALE]
    second = await receive(storage, partition)
    assert await storage.calls.delete(partition, receipts(first)) == [STALE]
    for mode in VisibilityMode:
        assert await storage.calls.change_visibility(partition, changes(first, 0), mode) == [STALE]
    assert await storage.calls.delete(partition, receipts(second)) == [OK]
    assert await storage.calls.delete(partition, receipts(second)) == [OK], "deletes may be repeated"


async def test_message_that_is_given_back_unlocks_its_group(storage: ContractStorage) -> None:
    partition = await storage.create(FIFO)
    await send(storage, partition, message(b"1", b"g"), message(b"2", b"g"))
    first = await receive(storage, partition, 1)
    assert await storage.calls.change_visibility(partition, changes(first, 0)) == [OK]
    assert values(await receive(storage, partition)) == [b"1", b"2"]


async def test_leases_that_are_handed_back_by_deadline(storage: ContractStorage) -> None:
    partition = await storage.create(FIFO)
    await send(storage, partition, message(b"1", b"g"))
    reply = await storage.calls.acquire(partition, 1, LONG_MS)
    back = changes(reply.messages, 0)
    unseen = VisibilityMode.UNSEEN
    other = reply.deadline_ms - 1
    assert await storage.calls.change_visibility(partition, back, unseen, reply.epoch, other) == [STALE]
    assert await storage.calls.change_visibility(partition, back, unseen, reply.epoch, reply.deadline_ms) == [OK]
    assert len(await receive(storage, partition)) == 1


# --- attempts -------------------------------------------------------------------------------------------------


async def test_repeated_attempt_gets_the_same_messages_with_a_new_lease(storage: ContractStorage) -> None:
    partition = await storage.create(FIFO)
    await send(storage, partition, message(b"1", b"g"), message(b"2", b"h"))
    first = await storage.calls.acquire(partition, 1, LONG_MS, attempt=b"try")
    again = await storage.calls.acquire(partition, 1, LONG_MS, attempt=b"try")
    assert receipts(again.messages) == receipts(first.messages) and values(again) == [b"1"]
    assert again.deadline_ms > first.deadline_ms
    asked = await storage.calls.acquire(partition, 0, LONG_MS, attempt=b"try")
    assert receipts(asked.messages) == receipts(first.messages)
    assert values(await receive(storage, partition)) == [b"2"]


async def test_attempt_that_is_not_known_takes_nothing_when_only_asked_for(storage: ContractStorage) -> None:
    partition = await storage.create(FIFO)
    await send(storage, partition, message(b"1", b"g"))
    assert (await storage.calls.acquire(partition, 0, LONG_MS, attempt=b"try")).messages == []
    assert values(await receive(storage, partition)) == [b"1"]


async def test_attempt_is_forgotten_when_something_became_of_its_messages(storage: ContractStorage) -> None:
    partition = await storage.create(FIFO)
    await send(storage, partition, message(b"1", b"g"), message(b"2", b"h"), message(b"3", b"i"))
    first = await storage.calls.acquire(partition, 2, LONG_MS, attempt=b"try")
    await storage.calls.delete(partition, receipts(first.messages[:1]))
    assert values(await storage.calls.acquire(partition, 2, LONG_MS, attempt=b"try")) == [b"3"]


# --- duplicates -----------------------------------------------------------------------------------------------


async def test_repeated_id_is_dropped_whatever_its_group(storage: ContractStorage) -> None:
    partition = await storage.create(msgspec.structs.replace(FIFO, dedup_window_ms=SHORT_MS))
    (first,) = await send(storage, partition, message(b"1", b"g", b"one"))
    reply = await storage.calls.send(partition, [message(b"2", b"h", b"one"), message(b"3", b"h", b"two")], False)
    assert reply.duplicates == [(0, first)]
    assert values(await receive(storage, partition)) == [b"1", b"3"]
    await storage.pass_ms(SHORT_MS)
    reply = await storage.calls.send(partition, [message(b"4", b"i", b"one")], False)
    assert reply.duplicates == [] and values(await receive(storage, partition)) == [b"4"]


async def test_closed_partition_takes_nothing_and_says_what_it_took(storage: ContractStorage) -> None:
    partition = await storage.create(FIFO)
    (first,) = await send(storage, partition, message(b"1", b"g", b"one"))
    closed = msgspec.structs.replace(FIFO, closed=True)
    assert await storage.configure(partition, closed) == 1
    again = [message(b"1", b"g", b"one"), message(b"2", b"g", b"two"), message(b"3", b"g")]
    reply = await storage.calls.send(partition, again, False)
    assert reply.duplicates == [(0, first), (1, NOT_TAKEN), (2, NOT_TAKEN)]
    assert await storage.configure(partition, FIFO) == 1, "it stays closed"
    assert (await storage.calls.send(partition, [message(b"2", b"g", b"two")], False)).duplicates == [(0, NOT_TAKEN)]
    leased = await receive(storage, partition)
    assert values(leased) == [b"1"]
    await storage.calls.delete(partition, receipts(leased))
    assert await storage.configure(partition, closed) == 0


# --- dead letters and parked groups ---------------------------------------------------------------------------


async def test_dead_letters_go_to_the_partitions_of_their_groups(storage: ContractStorage) -> None:
    targets = (await storage.create(FIFO), await storage.create(FIFO))
    config = QueueConfig(fifo=True, max_receives=1, dead_letter_partition=targets[0], dead_letter_groups=targets)
    source = await storage.create(config)
    groups = [b"g%d" % number for number in range(6)]
    await send(storage, source, *[message(group, group) for group in groups])
    assert len(await receive(storage, source, visibility_ms=1)) == 6
    await until(storage, source, lambda stats: stats.dead_lettered == 6)
    for target in targets:
        expected = [group for group in groups if partition_of_group(group, targets) == target]
        assert values(await receive(storage, target)) == expected != []


async def test_dead_letter_stays_where_it_is_while_its_target_takes_nothing(storage: ContractStorage) -> None:
    target = await storage.create(FIFO)
    await storage.configure(target, msgspec.structs.replace(FIFO, closed=True))
    source = await storage.create(QueueConfig(fifo=True, max_receives=1, dead_letter_partition=target))
    await send(storage, source, message(b"bad", b"g"), message(b"next", b"g"))
    await receive(storage, source, 1, visibility_ms=1)
    await storage.pass_ms(SHORT_MS)
    assert await receive(storage, source) == [], "its group waits for it"
    assert await counts(storage, source) != (0, 0, 0) and await counts(storage, target) == (0, 0, 0)
    assert (await storage.calls.stats(source)).dead_lettered == 0


async def parked(storage: ContractStorage, *groups: bytes) -> int:
    """A partition in which a message of each group became a dead letter, and another one followed it."""
    target = await storage.create(FIFO)
    config = QueueConfig(fifo=True, max_receives=1, dead_letter_partition=target, park_groups=True)
    source = await storage.create(config)
    await send(storage, source, *[message(group + b"1", group) for group in groups])
    assert len(await receive(storage, source, visibility_ms=1)) == len(groups)
    await until(storage, source, lambda stats: stats.parked_groups == len(groups))
    await send(storage, source, *[message(group + b"2", group) for group in groups])
    return source


async def test_group_of_a_dead_letter_is_held_until_it_is_unparked(storage: ContractStorage) -> None:
    source = await parked(storage, b"a", b"b", b"c")
    assert await receive(storage, source) == []
    reply = await storage.calls.parked_groups(source, b"", 2)
    assert [one.group for one in reply.groups] == [b"a", b"b"] and reply.total == 3
    assert [one.messages for one in reply.groups] == [1, 1]
    assert all(abs(one.since_ms - storage.now_ms()) < LONG_MS for one in reply.groups)
    assert [one.group for one in (await storage.calls.parked_groups(source, b"b", 2)).groups] == [b"c"]
    unpark = storage.calls.unpark
    assert await unpark(source, [b"b", b"unknown"]) == [OK, ErrorCode.UNKNOWN_RECORD]
    assert values(await receive(storage, source)) == [b"b2"]
    assert await unpark(source, []) == [OK, OK]
    assert sorted(values(await receive(storage, source))) == [b"a2", b"c2"]
    assert (await storage.calls.parked_groups(source, b"", 10)).total == 0


async def test_calls_on_parked_groups_out_of_bounds_are_refused(storage: ContractStorage) -> None:
    partition, plain = await storage.create(FIFO), await storage.create()
    calls = storage.calls
    wrong = [
        calls.parked_groups(partition, b"", 0),
        calls.unpark(partition, [b"g"] * (UNPARK_GROUPS_MAX + 1)),
        calls.unpark(partition, [b"g" * (GROUP_BYTES_MAX + 1)]),
        calls.unpark(plain, []),
    ]
    for call in wrong:
        assert await refusal(call) is ErrorCode.INVALID_REQUEST
    assert (await calls.parked_groups(plain, b"", 10)).total == 0


# --- pauses and refusals --------------------------------------------------------------------------------------


async def test_paused_partition_keeps_its_groups(storage: ContractStorage) -> None:
    partition = await storage.create(msgspec.structs.replace(FIFO, paused=True))
    await send(storage, partition, message(b"1", b"g"))
    assert await receive(storage, partition) == []
    assert await counts(storage, partition) == (1, 0, 0)
    await storage.configure(partition, FIFO)
    assert values(await receive(storage, partition)) == [b"1"]


async def test_messages_that_fit_no_fifo_queue_are_refused(storage: ContractStorage) -> None:
    partition, calls = await storage.create(FIFO), storage.calls
    wrong = [
        calls.send(partition, [message()]),
        calls.send(partition, [message()], False),
        calls.send(partition, [message(group=b"g" * (GROUP_BYTES_MAX + 1))], False),
        calls.send(partition, [message(group=b"g", dedup_id=b"i" * (DEDUP_ID_BYTES_MAX + 1))], False),
        calls.acquire(partition, 1, LONG_MS, tags=[b"red"]),
    ]
    for call in wrong:
        assert await refusal(call) is ErrorCode.INVALID_REQUEST
    assert await counts(storage, partition) == (0, 0, 0)
