"""FIFO queues, deduplication and dead letters on three real nodes, whose leaders are killed in the middle."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict

import msgspec
import pytest

from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.limits import ATTEMPT_BYTES_MAX, DEDUP_ID_BYTES_MAX, GROUP_BYTES_MAX
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import DeadSource, MessageState, QueueConfig, VisibilityMode
from storage_nodes.protocol.records import (
    HEADER_DEAD_SOURCE,
    HEADER_DEDUP,
    HEADER_DELAY_MS,
    HEADER_GROUP,
    decode_body,
    encode_body,
)

FIFO = QueueConfig(fifo=True)


def run(work: object) -> None:
    asyncio.run(asyncio.wait_for(work, 60))  # type: ignore[arg-type]


def keyed(value: bytes, group: bytes = b"g", dedup_id: bytes = b"") -> bytes:
    headers = [(HEADER_GROUP, group)] + ([(HEADER_DEDUP, dedup_id)] if dedup_id else [])
    return encode_body(value, None, headers)


async def create(cluster: StorageCluster, client: StorageClient, tag: str, config: QueueConfig) -> int:
    await cluster.create_partition(client, PartitionKind.QUEUE, "first")  # waits for the cluster
    info = await client.create_partition(PartitionKind.QUEUE, tag, config)
    await client.stats(info.partition)
    return info.partition


def test_order_within_groups_holds_for_two_consumers_while_the_leader_is_killed(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await create(cluster, client, "fifo", FIFO)
        groups, count = [b"a", b"b", b"c", b"d", b"e"], 60
        # As they were delivered. A delete whose answer is lost with the leader is asked for again, and answered when
        # the next message of its group may have been deleted, too: answers tell no order.
        delivered: dict[bytes, list[int]] = defaultdict(list)
        deleted = 0

        async def produce(group: bytes) -> None:
            for number in range(count):
                # The client sends again what it has no answer for; the id makes it one message.
                await client.send(partition, [keyed(b"%d" % number, group, b"%b-%d" % (group, number))], plain=False)

        async def consume() -> None:
            nonlocal deleted
            while deleted < len(groups) * count:
                reply = await client.acquire(partition, 4, 30_000, 200, attempt=os.urandom(16))
                for message in reply.messages:
                    record = decode_body(message.body)
                    group = dict(record.headers)[HEADER_GROUP]
                    assert int(record.value) not in delivered[group], "delivered twice"
                    delivered[group].append(int(record.value))
                for message in reply.messages:
                    assert await client.delete(partition, [(message.offset, message.delivery)]) == [ErrorCode.OK]
                    deleted += 1

        producers = [asyncio.create_task(produce(group)) for group in groups]
        consumers = [asyncio.create_task(consume()) for _ in range(2)]
        while deleted < 40:
            await asyncio.sleep(0.005)
        killed = await leader_of(client, partition)
        cluster.kill(killed)
        await asyncio.gather(*producers, *consumers)
        assert delivered == {group: list(range(count)) for group in groups}
        stats = await client.stats(partition)
        assert (stats.waiting, stats.in_flight) == (0, 0)
        cluster.start(killed)
        await client.close()

    run(scenario())


@pytest.mark.parametrize("config", [QueueConfig(), FIFO], ids=["standard", "fifo"])
def test_message_sent_again_after_a_failover_is_answered_with_the_original(
    cluster: StorageCluster, config: QueueConfig
) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await create(cluster, client, "ids", config)
        first = await client.send(partition, [keyed(b"x", dedup_id=b"id"), keyed(b"y")], plain=False)
        assert first.duplicates == []
        cluster.kill(await leader_of(client, partition))
        sends = [client.send(partition, [keyed(b"z"), keyed(b"x", dedup_id=b"id")], plain=False) for _ in range(3)]
        for again in await asyncio.gather(*sends):
            assert again.duplicates == [(1, first.first_offset)]
        stats = await client.stats(partition)
        assert (stats.waiting, stats.duplicates) == (5, 3)
        await client.close()

    run(scenario())


@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
def test_leader_killed_in_the_middle_of_a_move_every_dead_letter_arrives_once(
    cluster: StorageCluster, is_fifo: bool
) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        target = await create(cluster, client, "dead", QueueConfig(fifo=is_fifo))
        config = QueueConfig(fifo=is_fifo, max_receives=1, dead_letter_partition=target)
        source = await create(cluster, client, "source", config)
        count = 600
        for start in range(0, count, 100):
            bodies = [keyed(b"%d" % number, b"g%d" % (number % 7)) for number in range(start, start + 100)]
            await client.send(source, bodies, plain=False)
        received = 0
        while received < count:
            received += len((await client.acquire(source, 100, 1, 1_000)).messages)
        while (await client.stats(target)).waiting == 0:
            await asyncio.sleep(0.002)
        killed = await leader_of(client, source)
        cluster.kill(killed)
        await wait_until_empty(client, source)
        values: list[int] = []
        while len(values) < count:
            reply = await client.acquire(target, 100, 30_000, 1_000)
            assert reply.messages, f"{count - len(values)} dead letters are nowhere"
            for message in reply.messages:
                record = decode_body(message.body)
                values.append(int(record.value))
                origin = msgspec.msgpack.decode(dict(record.headers)[HEADER_DEAD_SOURCE], type=DeadSource)
                assert (origin.partition, origin.receives) == (source, 1) and origin.sent_ms <= origin.first_received_ms
            await client.delete(target, [(message.offset, message.delivery) for message in reply.messages])
        stats = await client.stats(target)
        assert sorted(values) == list(range(count)) and (stats.waiting, stats.in_flight) == (0, 0)
        if is_fifo:
            for group in range(7):
                assert [value for value in values if value % 7 == group] == list(range(group, count, 7))
        cluster.start(killed)
        await client.close()

    run(scenario())


async def wait_until_empty(client: StorageClient, partition: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        stats = await client.stats(partition)
        if stats.waiting == stats.in_flight == stats.delayed == 0:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"the queue does not become empty: {stats}")


def test_message_stays_receivable_where_its_dead_letter_queue_does_not_exist(shared_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await shared_cluster.client()
        config = QueueConfig(max_receives=1, dead_letter_partition=9_999)
        source = await create(shared_cluster, client, "no dead-letter queue", config)
        await client.send(source, [encode_body(b"x")])
        (first,) = (await client.acquire(source, 1, 1)).messages
        (second,) = (await client.acquire(source, 1, 30_000, 20_000)).messages
        assert (first.delivery, second.delivery, second.body) == (1, 2, first.body)
        assert await client.delete(source, [(second.offset, 2)]) == [ErrorCode.OK]
        await client.close()

    run(scenario())


@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
def test_messages_are_browsed_in_every_state_and_stay_as_they_are(
    shared_cluster: StorageCluster, is_fifo: bool
) -> None:
    async def scenario() -> None:
        client = await shared_cluster.client()
        partition = await create(shared_cluster, client, f"browsed {is_fifo}", QueueConfig(fifo=is_fifo))
        sent = await client.send(partition, [keyed(b"%d" % n, b"g%d" % n) for n in range(40)], plain=False)
        delayed = encode_body(b"later", None, [(HEADER_GROUP, b"x"), (HEADER_DELAY_MS, b"60000")])
        await client.send(partition, [delayed], plain=False)
        leased = (await client.acquire(partition, 10, 30_000)).messages
        await client.delete(partition, [(message.offset, message.delivery) for message in leased[:4]])
        first = await client.browse(partition, 0, 7)
        found, offset = list(first.messages), first.next_offset
        while offset < first.log_end:
            page = await client.browse(partition, offset, 7)
            found += page.messages
            offset = page.next_offset
        by_state = {state: [m for m in found if m.state == state] for state in MessageState}
        in_flight = [(m.offset, m.delivery, m.body) for m in by_state[MessageState.IN_FLIGHT]]
        assert in_flight == [(m.offset, m.delivery, m.body) for m in leased[4:]]
        assert [m.body for m in by_state[MessageState.DELAYED]] == [delayed]
        assert [decode_body(m.body).value for m in by_state[MessageState.WAITING]] == [b"%d" % n for n in range(10, 40)]
        assert {m.sent_ms for m in by_state[MessageState.WAITING]} == {sent.timestamp_ms}
        only = await client.browse(partition, 0, 100, MessageState.DELAYED)
        assert [m.body for m in only.messages] == [delayed]
        stats = await client.stats(partition)
        assert (stats.waiting, stats.in_flight, stats.delayed) == (30, 6, 1)
        for wrong in ((0, 0), (0, 1_001), (-1, 1)):
            with pytest.raises(StorageError) as error:
                await client.browse(partition, *wrong)
            assert error.value.code is ErrorCode.INVALID_REQUEST
        await client.close()

    run(scenario())


def test_late_answer_of_a_receive_that_was_repeated_elsewhere_ends_no_lease(shared_cluster: StorageCluster) -> None:
    """A front end hands back what its caller did not wait for; the caller has asked another front end again."""

    async def scenario() -> None:
        held_up, client = await shared_cluster.client(), await shared_cluster.client()
        partition = await create(shared_cluster, client, "repeated elsewhere", QueueConfig(fifo=True))
        await client.send(partition, [keyed(b"one", b"g"), keyed(b"two", b"g")], plain=False)
        first = await held_up.acquire(partition, 1, 30_000, attempt=b"attempt")
        again = await client.acquire(partition, 1, 30_000, attempt=b"attempt")
        receipts = [[(one.offset, one.delivery) for one in reply.messages] for reply in (first, again)]
        assert receipts[0] == receipts[1] and 0 < first.deadline_ms < again.deadline_ms
        back = [(offset, delivery, 0) for offset, delivery in receipts[0]]
        late = (partition, back, VisibilityMode.UNCOUNTED, first.epoch, first.deadline_ms)
        assert await held_up.change_visibility(*late) == [ErrorCode.RECEIPT_STALE]
        assert (await client.acquire(partition, 1, 30_000)).messages == [], "the group is locked"
        assert await client.delete(partition, receipts[1]) == [ErrorCode.OK]
        assert len((await client.acquire(partition, 1, 30_000)).messages) == 1

    run(scenario())


@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
def test_chosen_messages_are_removed_in_every_state_for_good(shared_cluster: StorageCluster, is_fifo: bool) -> None:
    async def scenario() -> None:
        client = await shared_cluster.client()
        partition = await create(shared_cluster, client, f"desk {is_fifo}", QueueConfig(fifo=is_fifo))
        sent = await client.send(partition, [keyed(b"%d" % n, b"g%d" % n) for n in range(6)], plain=False)
        later = encode_body(b"later", None, [(HEADER_GROUP, b"x"), (HEADER_DELAY_MS, b"60000")])
        delayed = (await client.send(partition, [later], plain=False)).first_offset
        leased = (await client.acquire(partition, 2, 30_000)).messages
        # A lease is delivered before it is committed; this is answered after both.
        await client.change_visibility(partition, [(leased[1].offset, leased[1].delivery, 30_000)])
        (looked,) = (await client.browse(partition, leased[0].offset, 1)).messages
        assert looked.first_received_ms == leased[0].first_received_ms > 0
        chosen = [leased[0].offset, sent.first_offset + 4, delayed]
        # Offset 0 is the record that begins the leader's epoch; far beyond the end there is nothing.
        codes = await client.remove(partition, [*chosen, 0, 10_000])
        assert codes == [ErrorCode.OK] * 3 + [ErrorCode.UNKNOWN_RECORD] * 2
        assert await client.remove(partition, chosen) == [ErrorCode.UNKNOWN_RECORD] * 3
        stats = await client.stats(partition)
        assert (stats.waiting, stats.in_flight, stats.delayed) == (3, 1, 0)
        found = (await client.browse(partition, 0, 100)).messages
        assert [decode_body(message.body).value for message in found] == [b"1", b"2", b"3", b"5"]
        rest = (await client.acquire(partition, 10, 30_000)).messages
        assert [decode_body(message.body).value for message in rest] == [b"2", b"3", b"5"]
        for wrong in ([], [-1], [5, 5], list(range(101))):
            with pytest.raises(StorageError) as error:
                await client.remove(partition, wrong)
            assert error.value.code is ErrorCode.INVALID_REQUEST
        await client.close()

    run(scenario())


def test_sends_and_configurations_that_do_not_fit_the_queue_are_refused(shared_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await shared_cluster.client()
        partition = await create(shared_cluster, client, "refused", FIFO)
        refused = [
            ([encode_body(b"x")], True),
            ([encode_body(b"x")], False),
            ([keyed(b"x", b"")], False),
            ([keyed(b"x", b"g" * (GROUP_BYTES_MAX + 1))], False),
            ([keyed(b"x", dedup_id=b"i" * (DEDUP_ID_BYTES_MAX + 1))], False),
            ([b"\x01\x02"], False),
        ]
        for bodies, plain in refused:
            with pytest.raises(StorageError) as error:
                await client.send(partition, bodies, plain)
            assert error.value.code is ErrorCode.INVALID_REQUEST
        for config in (QueueConfig(), QueueConfig(fifo=True, max_receives=3, dead_letter_partition=partition)):
            with pytest.raises(StorageError) as error:
                await client.configure(partition, config)
            assert error.value.code is ErrorCode.INVALID_REQUEST
        with pytest.raises(StorageError) as error:
            await client.acquire(partition, 1, 1_000, attempt=b"a" * (ATTEMPT_BYTES_MAX + 1))
        assert error.value.code is ErrorCode.INVALID_REQUEST
        assert (await client.send(partition, [keyed(b"x")], plain=False)).duplicates == []
        await client.close()

    run(scenario())
