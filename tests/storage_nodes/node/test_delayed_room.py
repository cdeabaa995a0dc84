"""Delayed messages beyond what a queue has room for: refused by its replica, without a trace, until there is room."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from storage_nodes.client import StorageClient
from storage_nodes.client.connection import connect
from storage_nodes.machines.queue import machine
from storage_nodes.machines.queue.state import queue_state
from storage_nodes.model import Acks, NodeAddress, PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import Opcode, QueueConfig, SendRequest, encode_message
from storage_nodes.protocol.records import HEADER_DELAY_MS, HEADER_GROUP, encode_body
from tests.storage_nodes.node.test_many_partitions import lone_node

LIVE = 2
ROOM = 3
BURST = 10
DELAY_MS = 600_000


def body(is_fifo: bool, delay_ms: int = DELAY_MS) -> bytes:
    headers = [(HEADER_DELAY_MS, b"%d" % delay_ms)] if delay_ms else []
    return encode_body(b"message", None, [*headers, (HEADER_GROUP, b"g")] if is_fifo else headers)


async def codes_of_burst(address: NodeAddress, partition: int, message: bytes) -> list[ErrorCode]:
    """Of requests in one turn; a client would make one of them."""
    connection = await connect("c", "t", address, 5.0)
    loop = asyncio.get_running_loop()
    answers: list[asyncio.Future[bytes | StorageError]] = [loop.create_future() for _ in range(BURST)]
    payload = encode_message(SendRequest(partition, [message], False, Acks.QUORUM))
    for answer in answers:
        connection.ask(Opcode.SEND, payload, answer.set_result)
    outcomes = await asyncio.gather(*answers)
    connection.close()
    return [one.code if isinstance(one, StorageError) else ErrorCode.OK for one in outcomes]


@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
def test_delayed_message_for_which_there_is_no_room_is_refused_and_taken_once_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fifo: bool
) -> None:
    # Of a standard queue so many stand in `live`, the others beside it; of a FIFO queue all stand there.
    monkeypatch.setattr(queue_state, "DELAYED_LIVE_MAX", LIVE)
    monkeypatch.setattr(machine, "DELAYED_MESSAGES_MAX", ROOM)
    monkeypatch.setattr(machine, "DELAYED_LIVE_MAX", LIVE + ROOM)

    async def scenario() -> None:
        node = await lone_node(tmp_path)
        client = StorageClient("c", node.config.nodes, "t")
        await client.start()
        config = QueueConfig(fifo=is_fifo)
        partition = (await client.create_partition(PartitionKind.QUEUE, "q", config, 1)).partition
        log = node.log.partitions[partition]

        async def refused(*bodies: bytes) -> None:
            end = log.log_end
            with pytest.raises(StorageError, match="no more messages can be delayed here") as error:
                await client.send(partition, list(bodies), plain=False)
            assert error.value.code is ErrorCode.OVER_LIMIT
            assert log.log_end == end, "nothing is stored"

        for _ in range(LIVE):
            await client.send(partition, [body(is_fifo)], plain=False)
        await refused(*[body(is_fifo)] * (ROOM + 1))
        codes = await codes_of_burst(node.config.own_address, partition, body(is_fifo))
        assert codes.count(ErrorCode.OK) == ROOM and codes.count(ErrorCode.OVER_LIMIT) == BURST - ROOM
        await refused(body(is_fifo))
        stats = await client.stats(partition)
        assert (stats.delayed, stats.waiting) == (LIVE + ROOM, 0)
        at_once = await client.send(partition, [body(is_fifo, delay_ms=0)], plain=not is_fifo)
        assert (await client.stats(partition)).waiting == 1, "others are taken all the time"
        held = (await client.browse(partition, 0, BURST)).messages
        last = max(message.offset for message in held if message.offset != at_once.first_offset)
        assert await client.remove(partition, [last]) == [ErrorCode.OK]
        await client.send(partition, [body(is_fifo)], plain=False)
        await refused(body(is_fifo))
        await client.purge(partition)
        await client.send(partition, [body(is_fifo)] * ROOM, plain=False)
        assert (await client.stats(partition)).delayed == ROOM
        await client.close()
        await node.close()

    asyncio.run(scenario())
