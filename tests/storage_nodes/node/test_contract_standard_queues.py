"""The contract of `MessageStorage`, of standard queues: a real node and `MemoryStorage` do the same."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from storage_nodes.limits import (
    ACQUIRE_MESSAGES_MAX,
    ACQUIRE_WAIT_MS_MAX,
    ATTEMPT_BYTES_MAX,
    RECEIPTS_PER_CALL_MAX,
    RECORD_BYTES_MAX,
    RECORDS_PER_SEND_MAX,
    TAG_BYTES_MAX,
    TAGS_PER_ACQUIRE_MAX,
    VISIBILITY_MS_MAX,
)
from storage_nodes.model import Acks
from storage_nodes.protocol.deliveries import receives_of
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import DeadSource, DeathReason, QueueConfig, RetryKind, VisibilityMode
from storage_nodes.protocol.records import HEADER_DEAD_SOURCE, decode_body
from tests.storage_nodes.node.contract_storage import (
    LATE_MS,
    LONG_MS,
    OK,
    SHORT_MS,
    ContractStorage,
    changes,
    counts,
    headers_of,
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


# --- send, receive, delete ------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.QUORUM, Acks.ALL])
async def test_messages_arrive_in_order_with_their_times_and_numbers(storage: ContractStorage, acks: Acks) -> None:
    partition = await storage.create()
    sent = await storage.calls.send(partition, [message(b"a"), message(b"b")], acks=acks)
    assert (sent.duplicates, sent.stretches) == ([], [])
    assert abs(sent.timestamp_ms - storage.now_ms()) < LONG_MS
    reply = await storage.calls.acquire(partition, 10, LONG_MS)
    assert values(reply) == [b"a", b"b"] and reply.deadline_ms == 0 and reply.epoch > 0
    assert receipts(reply.messages) == [(sent.first_offset, 1), (sent.first_offset + 1, 1)]
    assert {one.sent_ms for one in reply.messages} == {sent.timestamp_ms}
    assert all(one.first_received_ms >= one.sent_ms for one in reply.messages)


async def test_message_that_is_leased_comes_again_when_its_lease_ends(storage: ContractStorage) -> None:
    partition = await storage.create()
    await send(storage, partition, message())
    (first,) = await receive(storage, partition, visibility_ms=SHORT_MS)
    assert await receive(storage, partition) == []
    await storage.pass_ms(SHORT_MS)
    (second,) = await receive(storage, partition)
    assert (second.offset, second.delivery, second.body) == (first.offset, 2, first.body)
    assert (second.sent_ms, second.first_received_ms) == (first.sent_ms, first.first_received_ms)


async def test_receive_takes_as_many_as_it_asks_for(storage: ContractStorage) -> None:
    partition = await storage.create()
    await send(storage, partition, *[message(b"%d" % number) for number in range(5)])
    assert values(await receive(storage, partition, 2)) == [b"0", b"1"]
    assert values(await receive(storage, partition, 10)) == [b"2", b"3", b"4"]


async def test_deleted_message_is_gone_whichever_receipt_was_shown(storage: ContractStorage) -> None:
    partition = await storage.create()
    offsets = await send(storage, partition, message(), message())
    await receive(storage, partition, visibility_ms=SHORT_MS)
    await storage.pass_ms(SHORT_MS)
    await receive(storage, partition, visibility_ms=SHORT_MS)
    codes = await storage.calls.delete(partition, [(offsets[0], 1), (offsets[1], 2)])
    assert codes == [OK, OK], "an older receipt of a standard queue deletes, too"
    assert await storage.calls.delete(partition, [(offsets[0], 1)]) == [OK], "deletes may be repeated"
    assert await storage.calls.delete(partition, [(10_000, 1)]) == [ErrorCode.UNKNOWN_RECORD], "no message stood there"
    assert await counts(storage, partition) == (0, 0, 0)


async def test_message_that_was_never_received_is_not_deleted_by_a_receipt(storage: ContractStorage) -> None:
    partition = await storage.create()
    (offset,) = await send(storage, partition, message())
    await storage.calls.delete(partition, [(offset, 0)])
    assert len(await receive(storage, partition)) == 1


# --- visibility -----------------------------------------------------------------------------------------------


async def test_lease_is_set_anew_and_ended(storage: ContractStorage) -> None:
    partition = await storage.create()
    await send(storage, partition, message(b"a"), message(b"b"))
    leased = await receive(storage, partition, visibility_ms=SHORT_MS)
    assert await storage.calls.change_visibility(partition, changes(leased[:1], LONG_MS)) == [OK]
    assert await storage.calls.change_visibility(partition, changes(leased[1:], 0)) == [OK]
    (again,) = await receive(storage, partition, visibility_ms=LONG_MS)
    assert (again.offset, again.delivery) == (leased[1].offset, 2)
    await storage.pass_ms(SHORT_MS)
    assert await receive(storage, partition) == [], "the first one is leased for long"


async def test_change_of_a_message_that_is_gone_or_in_no_lease(storage: ContractStorage) -> None:
    partition = await storage.create()
    (offset,) = await send(storage, partition, message())
    asked = [(offset, 1, LONG_MS), (10_000, 1, LONG_MS)]
    assert await storage.calls.change_visibility(partition, asked) == [ErrorCode.NOT_IN_FLIGHT] * 2
    (leased,) = await receive(storage, partition)
    await storage.calls.delete(partition, receipts([leased]))
    assert await storage.calls.change_visibility(partition, changes([leased], 0)) == [ErrorCode.UNKNOWN_RECORD]


async def test_receipt_of_a_lease_that_is_over_changes_only_where_it_may_be_set(storage: ContractStorage) -> None:
    partition = await storage.create()
    await send(storage, partition, message())
    (first,) = await receive(storage, partition, visibility_ms=SHORT_MS)
    await storage.pass_ms(SHORT_MS)
    held = await storage.calls.change_visibility(partition, changes([first], LONG_MS), VisibilityMode.HELD)
    assert held == [ErrorCode.NOT_IN_FLIGHT]
    (second,) = await receive(storage, partition)
    for mode in (VisibilityMode.HELD, VisibilityMode.NACK, VisibilityMode.UNCOUNTED, VisibilityMode.UNSEEN):
        codes = await storage.calls.change_visibility(partition, changes([first], 0), mode)
        assert codes == [ErrorCode.NOT_IN_FLIGHT], mode
    assert await storage.calls.change_visibility(partition, changes([first], 0)) == [OK]
    (third,) = await receive(storage, partition)
    assert (second.delivery, third.delivery) == (2, 3)


@pytest.mark.parametrize("mode", [VisibilityMode.UNCOUNTED, VisibilityMode.UNSEEN])
async def test_receive_that_does_not_count(storage: ContractStorage, mode: VisibilityMode) -> None:
    partition = await storage.create()
    await send(storage, partition, message())
    (first,) = await receive(storage, partition)
    assert await storage.calls.change_visibility(partition, changes([first], 0), mode) == [OK]
    (second,) = await receive(storage, partition)
    assert second.delivery != first.delivery and receives_of(second.delivery) == 1


async def test_failed_receive_counts_and_is_available_at_once(storage: ContractStorage) -> None:
    partition = await storage.create()
    await send(storage, partition, message())
    first = await receive(storage, partition)
    assert await storage.calls.change_visibility(partition, changes(first, 0), VisibilityMode.NACK) == [OK]
    assert [one.delivery for one in await receive(storage, partition)] == [2]


async def test_failed_receive_waits_as_the_policy_says(storage: ContractStorage) -> None:
    config = QueueConfig(retry_kind=RetryKind.FIXED, retry_delay_ms=SHORT_MS, retry_max_ms=SHORT_MS)
    partition = await storage.create(config)
    await send(storage, partition, message())
    first = await receive(storage, partition)
    await storage.calls.change_visibility(partition, changes(first, 0), VisibilityMode.NACK)
    assert await receive(storage, partition) == []
    await storage.pass_ms(SHORT_MS)
    assert [one.delivery for one in await receive(storage, partition)] == [2]


async def test_leases_that_are_handed_back_by_epoch(storage: ContractStorage) -> None:
    partition = await storage.create()
    await send(storage, partition, message())
    reply = await storage.calls.acquire(partition, 1, LONG_MS)
    back = changes(reply.messages, 0)
    assert await storage.calls.change_visibility(partition, back, VisibilityMode.UNSEEN, reply.epoch) == [OK]
    assert len(await receive(storage, partition)) == 1


# --- waiting --------------------------------------------------------------------------------------------------


async def test_long_poll_is_woken_by_a_message(storage: ContractStorage) -> None:
    partition = await storage.create()
    poll = asyncio.create_task(storage.calls.acquire(partition, 10, LONG_MS, 15_000))
    await asyncio.sleep(0.05)
    assert not poll.done()
    await send(storage, partition, message(b"late"))
    assert values(await asyncio.wait_for(poll, 5)) == [b"late"]


async def test_long_poll_is_woken_by_the_end_of_a_lease(storage: ContractStorage) -> None:
    partition = await storage.create()
    await send(storage, partition, message())
    await receive(storage, partition, visibility_ms=SHORT_MS)
    poll = asyncio.create_task(storage.calls.acquire(partition, 10, LONG_MS, 15_000))
    await asyncio.sleep(0.05)
    await storage.pass_ms(SHORT_MS)
    assert [one.delivery for one in (await asyncio.wait_for(poll, 5)).messages] == [2]


async def test_long_poll_ends_with_nothing(storage: ContractStorage) -> None:
    partition = await storage.create()
    reply = await storage.calls.acquire(partition, 10, LONG_MS, 100)
    assert reply.messages == [] and reply.epoch > 0


async def test_cancelled_poll_takes_nothing(storage: ContractStorage) -> None:
    partition = await storage.create()
    poll = asyncio.create_task(storage.calls.acquire(partition, 10, LONG_MS, 15_000))
    await asyncio.sleep(0.05)
    poll.cancel()
    await asyncio.gather(poll, return_exceptions=True)
    await send(storage, partition, message())
    assert len(await receive(storage, partition)) == 1


async def test_message_of_a_poll_that_was_cancelled_as_it_came_is_there_at_once_and_uncounted(
    storage: ContractStorage,
) -> None:
    partition = await storage.create()
    poll = asyncio.create_task(storage.calls.acquire(partition, 10, LONG_MS, 15_000))
    await asyncio.sleep(0.05)
    await send(storage, partition, message())
    poll.cancel()
    (outcome,) = await asyncio.gather(poll, return_exceptions=True)
    if isinstance(outcome, asyncio.CancelledError):
        (given,) = await receive_later(storage, partition)
        assert receives_of(given.delivery) == 1
    else:
        assert len(outcome.messages) == 1, "it was quicker"


# --- delays and schedules -------------------------------------------------------------------------------------


async def test_delayed_message_is_counted_and_comes_when_its_delay_is_over(storage: ContractStorage) -> None:
    partition = await storage.create()
    await send(storage, partition, message(b"later", delay_ms=SHORT_MS), message(b"now"))
    assert await counts(storage, partition) == (1, 0, 1)
    assert values(await receive(storage, partition)) == [b"now"]
    await storage.pass_ms(SHORT_MS)
    (later,) = await receive_later(storage, partition)
    assert (decode_body(later.body).value, later.delivery) == (b"later", 1)


@pytest.mark.parametrize("is_relative", [False, True])
async def test_scheduled_message_comes_when_it_is_due(storage: ContractStorage, is_relative: bool) -> None:
    partition = await storage.create()
    due = b"+%d" % SHORT_MS if is_relative else b"%d" % (storage.now_ms() + SHORT_MS)
    await send(storage, partition, message(b"later", due=due))
    stats = await storage.calls.stats(partition)
    assert (stats.waiting, stats.delayed, stats.scheduled) == (0, 1, 1)
    assert await receive(storage, partition) == []
    await storage.pass_ms(SHORT_MS)
    (later,) = await receive_later(storage, partition)
    assert (decode_body(later.body).value, later.delivery) == (b"later", 1)
    assert (await storage.calls.scheduled(partition, 10)).messages == []


# --- duplicates -----------------------------------------------------------------------------------------------


async def test_repeated_id_is_dropped_within_its_window(storage: ContractStorage) -> None:
    partition = await storage.create(QueueConfig(dedup_window_ms=SHORT_MS))
    (first,) = await send(storage, partition, message(b"a", dedup_id=b"one"))
    reply = await storage.calls.send(partition, [message(b"x"), message(b"b", dedup_id=b"one")], plain=False)
    assert reply.duplicates == [(1, first)]
    assert values(await receive(storage, partition)) == [b"a", b"x"]
    assert (await storage.calls.stats(partition)).duplicates == 1
    await storage.pass_ms(SHORT_MS)
    reply = await storage.calls.send(partition, [message(b"c", dedup_id=b"one")], plain=False)
    assert reply.duplicates == [] and values(await receive(storage, partition)) == [b"c"]


async def test_id_is_remembered_when_its_message_is_deleted(storage: ContractStorage) -> None:
    partition = await storage.create()
    (first,) = await send(storage, partition, message(dedup_id=b"one"))
    await storage.calls.delete(partition, receipts(await receive(storage, partition)))
    reply = await storage.calls.send(partition, [message(dedup_id=b"one")], plain=False)
    assert reply.duplicates == [(0, first)]


# --- tags -----------------------------------------------------------------------------------------------------


async def test_receive_of_a_tag_leaves_the_others(storage: ContractStorage) -> None:
    partition = await storage.create()
    await send(storage, partition, message(b"a", tag=b"red"), message(b"b"), message(b"c", tag=b"blue"))
    red = await storage.calls.acquire(partition, 10, LONG_MS, tags=[b"red", b"green"])
    assert values(red) == [b"a"]
    assert values(await receive(storage, partition)) == [b"b", b"c"]


# --- dead letters ---------------------------------------------------------------------------------------------


async def test_message_that_was_received_too_often_moves_and_says_where_it_was(storage: ContractStorage) -> None:
    target = await storage.create()
    source = await storage.create(QueueConfig(max_receives=2, dead_letter_partition=target))
    (offset,) = await send(storage, source, message(b"bad", tag=b"red"))
    (first,) = await receive(storage, source)
    await storage.calls.change_visibility(source, changes([first], 0))
    (second,) = await receive(storage, source, visibility_ms=SHORT_MS)
    assert second.delivery == 2
    await storage.pass_ms(SHORT_MS)
    assert await receive(storage, source) == []
    (letter,) = await receive_later(storage, target)
    headers = headers_of(letter.body)
    told = msgspec.msgpack.decode(headers.pop(HEADER_DEAD_SOURCE), type=DeadSource)
    assert (decode_body(letter.body).value, headers, letter.delivery) == (b"bad", headers_of(first.body), 1)
    assert (told.partition, told.offset, told.receives, told.receives_max) == (source, offset, 2, 2)
    assert (told.reason, told.sent_ms, told.first_received_ms) == (
        DeathReason.MAX_RECEIVES, first.sent_ms, first.first_received_ms,
    )  # fmt: skip
    assert told.died_ms >= second.first_received_ms + SHORT_MS
    stats = await until(storage, source, lambda stats: stats.dead_lettered == 1)
    assert (stats.waiting, stats.in_flight) == (0, 0)


async def test_message_that_dies_twice_tells_of_its_last_death(storage: ContractStorage) -> None:
    last = await storage.create()
    middle = await storage.create(QueueConfig(max_receives=1, dead_letter_partition=last))
    first = await storage.create(QueueConfig(max_receives=1, dead_letter_partition=middle))
    await send(storage, first, message(b"bad"))
    for partition in (first, middle):
        (leased,) = await receive_later(storage, partition, visibility_ms=1)
        await storage.pass_ms(1)
    (letter,) = await receive_later(storage, last)
    headers = decode_body(letter.body).headers
    sources = [msgspec.msgpack.decode(raw, type=DeadSource) for name, raw in headers if name == HEADER_DEAD_SOURCE]
    assert [(one.partition, one.place) for one in sources] == [(middle, leased.offset)]


async def test_message_stays_receivable_where_its_dead_letter_queue_is_gone(storage: ContractStorage) -> None:
    source = await storage.create(QueueConfig(max_receives=1, dead_letter_partition=999_999))
    await send(storage, source, message())
    await receive(storage, source, visibility_ms=1)
    poll = asyncio.create_task(storage.calls.acquire(source, 1, LONG_MS, 15_000))
    await storage.pass_ms(LATE_MS)
    assert [one.delivery for one in (await poll).messages] == [2]


async def test_receive_that_does_not_count_brings_no_message_nearer_to_its_death(storage: ContractStorage) -> None:
    target = await storage.create()
    source = await storage.create(QueueConfig(max_receives=1, dead_letter_partition=target))
    await send(storage, source, message())
    for _ in range(3):
        leased = await receive(storage, source)
        await storage.calls.change_visibility(source, changes(leased, 0), VisibilityMode.UNSEEN)
    assert len(await receive(storage, source)) == 1


# --- a partition that hands out nothing -----------------------------------------------------------------------


async def test_paused_partition_takes_messages_and_gives_none(storage: ContractStorage) -> None:
    partition = await storage.create(QueueConfig(paused=True))
    await send(storage, partition, message(b"a"))
    assert await receive(storage, partition) == []
    assert await counts(storage, partition) == (1, 0, 0)
    poll = asyncio.create_task(storage.calls.acquire(partition, 10, LONG_MS, 15_000))
    await asyncio.sleep(0.05)
    assert not poll.done()
    assert await storage.configure(partition, QueueConfig()) == 1
    assert values(await asyncio.wait_for(poll, 5)) == [b"a"]


# --- refusals -------------------------------------------------------------------------------------------------


async def test_calls_out_of_bounds_are_refused(storage: ContractStorage) -> None:
    partition, calls = await storage.create(), storage.calls
    acquires = [
        (0, LONG_MS, 0),
        (ACQUIRE_MESSAGES_MAX + 1, LONG_MS, 0),
        (1, -1, 0),
        (1, VISIBILITY_MS_MAX + 1, 0),
        (1, LONG_MS, -1),
        (1, LONG_MS, ACQUIRE_WAIT_MS_MAX + 1),
    ]
    for asked in acquires:
        assert await refusal(calls.acquire(partition, *asked)) is ErrorCode.INVALID_REQUEST, asked
    tags = [[b"t"] * (TAGS_PER_ACQUIRE_MAX + 1), [b""], [b"t" * (TAG_BYTES_MAX + 1)]]
    many = [(offset, 1) for offset in range(RECEIPTS_PER_CALL_MAX + 1)]
    wrong = [
        *[calls.acquire(partition, 1, LONG_MS, tags=asked) for asked in tags],
        calls.acquire(partition, 1, LONG_MS, attempt=b"a" * (ATTEMPT_BYTES_MAX + 1)),
        calls.delete(partition, []),
        calls.delete(partition, many),
        calls.change_visibility(partition, []),
        calls.change_visibility(partition, [(1, 1, VISIBILITY_MS_MAX + 1)]),
        calls.change_visibility(partition, [(1, 1, -1)]),
        calls.send(partition, []),
        calls.send(partition, [message()] * (RECORDS_PER_SEND_MAX + 1)),
        calls.send(partition, [b"\x01\x02"], plain=False),
        calls.send(partition, [message(tag=b"t" * (TAG_BYTES_MAX + 1))], plain=False),
        calls.send(partition, [message(due=b"soon")], plain=False),
    ]
    for call in wrong:
        assert await refusal(call) is ErrorCode.INVALID_REQUEST
    assert await refusal(calls.send(partition, [message(b"x" * RECORD_BYTES_MAX)])) is ErrorCode.TOO_LARGE
    assert await counts(storage, partition) == (0, 0, 0)


async def test_partition_that_does_not_exist_is_unknown_to_every_call(storage: ContractStorage) -> None:
    calls, unknown = storage.calls, 999_999
    asked = [
        calls.send(unknown, [message()]),
        calls.acquire(unknown, 1, LONG_MS),
        calls.delete(unknown, [(1, 1)]),
        calls.change_visibility(unknown, [(1, 1, 0)]),
        calls.browse(unknown, 0, 1),
        calls.remove(unknown, [1]),
        calls.purge(unknown),
        calls.scheduled(unknown, 1),
        calls.reschedule(unknown, [(1, 0)]),
        calls.parked_groups(unknown, b"", 1),
        calls.unpark(unknown, []),
        calls.stats(unknown),
    ]
    for call in asked:
        assert await refusal(call) is ErrorCode.UNKNOWN_PARTITION


async def test_queue_that_would_be_its_own_dead_letter_queue_is_refused(storage: ContractStorage) -> None:
    partition = await storage.create()
    for wrong in (QueueConfig(max_receives=1, dead_letter_partition=partition), QueueConfig(fifo=True)):
        assert await refusal(storage.configure(partition, wrong)) is ErrorCode.INVALID_REQUEST
