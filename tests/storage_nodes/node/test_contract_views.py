"""The contract of `MessageStorage`, of what is done beside sending and receiving: browse, remove, purge, schedules."""

from __future__ import annotations

import pytest

from storage_nodes.limits import BROWSE_MESSAGES_MAX, REMOVES_PER_CALL_MAX, SCHEDULE_CHANGES_PER_CALL_MAX
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import BrowsedMessage, MessageState, QueueConfig
from storage_nodes.protocol.records import decode_body
from tests.storage_nodes.node.contract_storage import (
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
    values,
)

__all__ = ["storage"]

pytestmark = pytest.mark.slow

GONE = ErrorCode.UNKNOWN_RECORD
KINDS = pytest.mark.parametrize("config", [QueueConfig(), QueueConfig(fifo=True)], ids=["standard", "fifo"])


async def browsed(storage: ContractStorage, partition: int, page: int = 100, states: int = 7) -> list[BrowsedMessage]:
    """All of them, page by page."""
    found: list[BrowsedMessage] = []
    offset, end = 0, 1
    while offset < end:
        reply = await storage.calls.browse(partition, offset, page, states)
        assert reply.next_offset > offset and len(reply.messages) <= page
        found += reply.messages
        offset, end = reply.next_offset, reply.log_end
    return found


def shown(messages: list[BrowsedMessage]) -> list[bytes]:
    return [decode_body(one.body).value for one in messages]


# --- browse ---------------------------------------------------------------------------------------------------


@KINDS
async def test_messages_are_browsed_in_every_state_and_stay_as_they_are(
    storage: ContractStorage, config: QueueConfig
) -> None:
    partition = await storage.create(config)
    offsets = await send(storage, partition, *[message(b"%d" % number, b"g%d" % number) for number in range(6)])
    await send(storage, partition, message(b"later", b"x", delay_ms=LONG_MS))
    leased = await receive(storage, partition, 3)
    assert await storage.calls.delete(partition, receipts(leased[:1])) == [OK]
    # A lease is delivered before it is committed; this is answered after both.
    assert await storage.calls.change_visibility(partition, changes(leased[1:], LONG_MS)) == [OK, OK]
    found = await browsed(storage, partition, page=2)
    assert shown(found) == [b"1", b"2", b"3", b"4", b"5", b"later"]
    assert [one.offset for one in found[:5]] == offsets[1:]
    states = [MessageState.IN_FLIGHT] * 2 + [MessageState.WAITING] * 3 + [MessageState.DELAYED]
    assert [one.state for one in found] == states
    assert [one.delivery for one in found] == [1, 1, 0, 0, 0, 0]
    assert [one.first_received_ms for one in found[:2]] == [one.first_received_ms for one in leased[1:]]
    assert all((one.deadline_ms > storage.now_ms()) == (one.state != MessageState.WAITING) for one in found)
    assert {one.sent_ms for one in found[:5]} == {leased[0].sent_ms}
    assert shown(await browsed(storage, partition, states=MessageState.WAITING)) == [b"3", b"4", b"5"]
    assert shown(await browsed(storage, partition, states=MessageState.DELAYED)) == [b"later"]
    assert await counts(storage, partition) == (3, 2, 1)


async def test_browse_beyond_the_end_shows_nothing(storage: ContractStorage) -> None:
    partition = await storage.create()
    (offset,) = await send(storage, partition, message())
    reply = await storage.calls.browse(partition, offset + 1_000, 10)
    assert reply.messages == [] and reply.next_offset >= reply.log_end > offset


async def test_browse_out_of_bounds_is_refused(storage: ContractStorage) -> None:
    partition = await storage.create()
    for wrong in ((0, 0), (0, BROWSE_MESSAGES_MAX + 1), (-1, 1)):
        assert await refusal(storage.calls.browse(partition, *wrong)) is ErrorCode.INVALID_REQUEST


# --- remove and purge -----------------------------------------------------------------------------------------


@KINDS
async def test_chosen_messages_are_removed_in_every_state(storage: ContractStorage, config: QueueConfig) -> None:
    partition = await storage.create(config)
    offsets = await send(storage, partition, *[message(b"%d" % number, b"g%d" % number) for number in range(4)])
    (delayed,) = await send(storage, partition, message(b"later", b"x", delay_ms=LONG_MS))
    leased = await receive(storage, partition, 1)
    await storage.calls.change_visibility(partition, changes(leased, LONG_MS))
    chosen = [offsets[0], offsets[2], delayed]
    # Offset 0 is no message: the leader's epoch begins there.
    assert await storage.calls.remove(partition, [*chosen, 0, 10_000]) == [OK, OK, OK, GONE, GONE]
    assert await storage.calls.remove(partition, chosen) == [GONE] * 3
    assert shown(await browsed(storage, partition)) == [b"1", b"3"]
    assert await counts(storage, partition) == (2, 0, 0)
    assert values(await receive(storage, partition)) == [b"1", b"3"]


async def test_message_that_is_removed_because_it_was_moved_is_counted_as_a_dead_letter(
    storage: ContractStorage,
) -> None:
    partition = await storage.create()
    offsets = await send(storage, partition, message(), message())
    assert await storage.calls.remove(partition, offsets[:1]) == [OK]
    assert (await storage.calls.stats(partition)).dead_lettered == 0
    assert await storage.calls.remove(partition, offsets[1:], moved=True) == [OK]
    assert (await storage.calls.stats(partition)).dead_lettered == 1


async def test_remove_out_of_bounds_is_refused(storage: ContractStorage) -> None:
    partition = await storage.create()
    for wrong in ([], [-1], [5, 5], list(range(REMOVES_PER_CALL_MAX + 1))):
        assert await refusal(storage.calls.remove(partition, wrong)) is ErrorCode.INVALID_REQUEST


@KINDS
async def test_purge_removes_everything_once_a_minute(storage: ContractStorage, config: QueueConfig) -> None:
    partition = await storage.create(config)
    await send(storage, partition, *[message(b"%d" % number, b"g%d" % number) for number in range(4)])
    await send(storage, partition, message(b"later", b"x", delay_ms=LONG_MS))
    await send(storage, partition, message(b"due", b"x", due=b"+%d" % LONG_MS))
    await receive(storage, partition, 2)
    assert await storage.calls.purge(partition) == 6
    assert await counts(storage, partition) == (0, 0, 0) and await browsed(storage, partition) == []
    await send(storage, partition, message(b"after", b"g"))
    assert await refusal(storage.calls.purge(partition)) is ErrorCode.PURGE_IN_PROGRESS
    assert values(await receive(storage, partition)) == [b"after"]


# --- schedules ------------------------------------------------------------------------------------------------


async def test_schedule_is_shown_in_the_order_in_which_messages_are_due(storage: ContractStorage) -> None:
    partition = await storage.create()
    base_ms = storage.now_ms() + LONG_MS
    times = [base_ms + 200, base_ms + 100, base_ms + 300]
    bodies = [message(b"%d" % number, due=b"%d" % at_ms) for number, at_ms in enumerate(times)]
    offsets = await send(storage, partition, *bodies)
    await send(storage, partition, message(b"delayed", delay_ms=LONG_MS))
    page = await storage.calls.scheduled(partition, 2)
    assert [(one.offset, one.due_ms) for one in page.messages] == [(offsets[1], times[1]), (offsets[0], times[0])]
    assert page.more and (page.last_due_ms, page.last_offset) == (times[0], offsets[0])
    rest = await storage.calls.scheduled(partition, 2, (page.last_due_ms, page.last_offset))
    assert ([one.offset for one in rest.messages], rest.more) == ([offsets[2]], False)
    assert decode_body(rest.messages[0].body).value == b"2"
    early = await storage.calls.scheduled(partition, 10, until_ms=times[0])
    assert [one.offset for one in early.messages] == [offsets[1], offsets[0]] and not early.more


async def test_scheduled_messages_are_moved_and_cancelled(storage: ContractStorage) -> None:
    partition = await storage.create()
    due = b"+%d" % LONG_MS
    first, second, third = await send(
        storage, partition, message(b"1", due=due), message(b"2", due=due), message(b"3", due=due)
    )
    (plain,) = await send(storage, partition, message(b"plain"))
    later_ms = storage.now_ms() + 2 * LONG_MS
    asked = [(first, 0), (second, storage.now_ms() + SHORT_MS), (third, later_ms), (plain, later_ms), (10_000, 0)]
    not_scheduled = ErrorCode.NOT_SCHEDULED
    assert await storage.calls.reschedule(partition, asked) == [OK, OK, OK, not_scheduled, not_scheduled]
    assert [one.offset for one in (await storage.calls.scheduled(partition, 10)).messages] == [second, third]
    assert values(await receive(storage, partition)) == [b"plain"]
    await storage.pass_ms(SHORT_MS)
    assert values(await receive_later(storage, partition)) == [b"2"]
    assert await storage.calls.reschedule(partition, [(second, 0)]) == [not_scheduled], "it is due"
    assert await counts(storage, partition) == (0, 2, 1)


async def test_calls_on_schedules_out_of_bounds_are_refused(storage: ContractStorage) -> None:
    partition, calls = await storage.create(), storage.calls
    wrong = [
        calls.scheduled(partition, 0),
        calls.reschedule(partition, []),
        calls.reschedule(partition, [(offset, 0) for offset in range(SCHEDULE_CHANGES_PER_CALL_MAX + 1)]),
        calls.reschedule(partition, [(1, -1)]),
        calls.reschedule(partition, [(1, 2**62)]),
    ]
    for call in wrong:
        assert await refusal(call) is ErrorCode.INVALID_REQUEST


# --- counts ---------------------------------------------------------------------------------------------------


async def test_stats_name_the_oldest_message_that_waits(storage: ContractStorage) -> None:
    partition = await storage.create()
    assert (await storage.calls.stats(partition)).oldest_sent_ms == 0
    sent = await storage.calls.send(partition, [message()])
    await storage.pass_ms(SHORT_MS)
    await storage.calls.send(partition, [message()])
    assert (await storage.calls.stats(partition)).oldest_sent_ms == sent.timestamp_ms
