"""Deletes of one turn share a call, and each caller hears its own codes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from storage_nodes.client import StorageClient
from storage_nodes.limits import RECEIPTS_PER_CALL_MAX
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import Frame
from storage_nodes.protocol.messages import CodesReply, DeleteRequest, Opcode, encode_message
from tests.storage_nodes.client.scripted_node import ScriptedNode, run

GONE = 7


def asked(frame: Frame) -> DeleteRequest:
    return msgspec.msgpack.decode(frame.payload, type=DeleteRequest)


def delete(frame: Frame) -> bytes:
    """Says NOT_IN_FLIGHT of the message at GONE."""
    codes = [ErrorCode.NOT_IN_FLIGHT if offset == GONE else ErrorCode.OK for offset, _ in asked(frame).receipts]
    return encode_message(CodesReply(list(map(int, codes))))


def receipts_of(nodes: list[ScriptedNode]) -> list[int]:
    return [len(asked(frame).receipts) for frame in nodes[0].frames]


def test_deletes_of_one_turn_share_a_call_and_each_gets_its_own_codes() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        calls = (client.delete(3, [(1, 1), (GONE, 1)]), client.delete(3, [(2, 1)]), client.delete(3, [(GONE, 2)]))
        codes = await asyncio.gather(*calls)
        assert codes == [[ErrorCode.OK, ErrorCode.NOT_IN_FLIGHT], [ErrorCode.OK], [ErrorCode.NOT_IN_FLIGHT]]
        assert receipts_of(nodes) == [4]
        await client.delete(3, [(4, 1)])
        assert receipts_of(nodes) == [4, 1]

    run([delete], scenario)


def test_deletes_at_other_partitions_do_not_share() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        await asyncio.gather(client.delete(3, [(1, 1)]), client.delete(4, [(1, 1)]))
        assert sorted(asked(frame).partition for frame in nodes[0].frames) == [3, 4]

    run([delete], scenario)


def test_call_carries_no_more_receipts_than_a_node_takes() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        many = [(100 + number, 1) for number in range(RECEIPTS_PER_CALL_MAX - 1)]
        codes = await asyncio.gather(client.delete(3, many), client.delete(3, [(1, 1)]), client.delete(3, [(GONE, 1)]))
        assert [len(one) for one in codes] == [len(many), 1, 1]
        assert codes[2] == [ErrorCode.NOT_IN_FLIGHT]
        assert sorted(receipts_of(nodes)) == [1, RECEIPTS_PER_CALL_MAX]

    run([delete], scenario)


def test_error_is_told_to_all_who_share_the_call() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        calls = (client.delete(3, [(1, 1)]), client.delete(3, [(2, 1)]))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [one.code for one in outcomes if isinstance(one, StorageError)] == [ErrorCode.INVALID_REQUEST] * 2

    run([lambda frame: StorageError(ErrorCode.INVALID_REQUEST)], scenario)


def test_shared_call_is_tried_again_as_one() -> None:
    outcomes: list[StorageError | None] = [StorageError(ErrorCode.OVERLOADED), None]

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        codes = await asyncio.gather(client.delete(3, [(1, 1)]), client.delete(3, [(GONE, 1)]))
        assert codes == [[ErrorCode.OK], [ErrorCode.NOT_IN_FLIGHT]]
        assert receipts_of(nodes) == [2, 2]

    run([lambda frame: outcomes.pop(0) or delete(frame)], scenario)


@pytest.mark.parametrize("after_turns", [0, 1, 5])
def test_caller_that_goes_away_takes_no_other_along(after_turns: int) -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        leaving = asyncio.create_task(client.delete(3, [(1, 1)]))
        staying = asyncio.create_task(client.delete(3, [(GONE, 1)]))
        for _ in range(after_turns):
            await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == [ErrorCode.NOT_IN_FLIGHT]
        with pytest.raises(asyncio.CancelledError):
            await leaving

    run([delete], scenario)


def test_delete_that_nobody_waits_for_before_it_is_sent_is_not_sent() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        leaving = asyncio.create_task(client.delete(3, [(1, 1)]))
        await asyncio.sleep(0)  # it waits among those that are gathered
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await client.delete(4, [(1, 1)])
        assert [asked(frame).partition for frame in nodes[0].frames] == [4]

    run([delete], scenario)


def test_client_that_is_closed_leaves_nobody_waiting() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        waiting = asyncio.create_task(client.delete(3, [(1, 1)]))
        while not nodes[0].frames:
            await asyncio.sleep(0.001)
        await client.close()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, 1)

    silent: Callable[[Frame], None] = lambda frame: None  # noqa: E731
    run([silent], scenario)


def test_opcode_is_that_of_a_delete() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        await client.delete(3, [(1, 1)])
        assert [frame.opcode for frame in nodes[0].frames] == [Opcode.DELETE]

    run([delete], scenario)
