"""What a node asks other partitions: the one that asked hears the end, whatever it is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.limits import USAGE_RECORDS_PER_APPEND_MAX
from storage_nodes.node.transport.inter_partition_client import InterPartitionClient
from storage_nodes.protocol.errors import ErrorCode, StorageError


class Client:
    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    async def start(self) -> None:
        raise self.failure

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("failure", "code"),
    [(StorageError(ErrorCode.UNREACHABLE, "away"), ErrorCode.UNREACHABLE), (KeyError("a bug"), ErrorCode.INTERNAL)],
)
async def test_failure_of_any_kind_is_told_to_the_one_that_asked(failure: Exception, code: ErrorCode) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    others = InterPartitionClient(loop, "c", (), "node-1")
    others._make_client = lambda: Client(failure)  # type: ignore[assignment,method-assign,return-value]
    told: list[Any] = []
    others.append_usage([b"window"], told.append)
    for _ in range(5):
        await asyncio.sleep(0)
    assert [error.code for error in told] == [code]


class Stream:
    """A client whose appends end when the test says so."""

    def __init__(self) -> None:
        self.appends: list[tuple[list[bytes], asyncio.Future[None]]] = []

    async def start(self) -> None: ...

    async def create_partition(self, *_: Any) -> Any:
        return SimpleNamespace(partition=7)

    async def stream_append(self, partition: int, bodies: list[bytes]) -> None:
        assert partition == 7
        ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.appends.append((bodies, ends))
        await ends

    async def append_no(self, number: int) -> tuple[list[bytes], asyncio.Future[None]]:
        async with asyncio.timeout(5):
            while len(self.appends) <= number:
                await asyncio.sleep(0)
        return self.appends[number]


async def test_windows_that_come_while_an_append_is_under_way_go_together_with_the_next() -> None:
    loop = asyncio.get_running_loop()
    others, stream = InterPartitionClient(loop, "c", (), "node-1"), Stream()
    others._make_client = lambda: stream  # type: ignore[assignment,method-assign,return-value]
    told: list[tuple[int, Any]] = []
    others.append_usage([b"0"], lambda error: told.append((0, error)))
    first, first_ends = await stream.append_no(0)
    for number in range(1, USAGE_RECORDS_PER_APPEND_MAX):
        others.append_usage([b"%d" % number, b"x"], lambda error, number=number: told.append((number, error)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert first == [b"0"] and len(stream.appends) == 1 and not told, "one at a time"
    first_ends.set_result(None)
    second, second_ends = await stream.append_no(1)
    assert told == [(0, None)] and len(second) == USAGE_RECORDS_PER_APPEND_MAX
    second_ends.set_exception(StorageError(ErrorCode.UNAVAILABLE, "no majority"))
    third, third_ends = await stream.append_no(2)
    half = USAGE_RECORDS_PER_APPEND_MAX // 2
    assert [number for number, _ in told[1:]] == list(range(1, half + 1))
    assert {error.code for _, error in told[1:]} == {ErrorCode.UNAVAILABLE}
    third_ends.set_result(None)
    async with asyncio.timeout(5):
        while len(told) < USAGE_RECORDS_PER_APPEND_MAX:
            await asyncio.sleep(0)
    assert told[half + 1 :] == [(number, None) for number in range(half + 1, USAGE_RECORDS_PER_APPEND_MAX)]
    assert second + third == [
        body for number in range(1, USAGE_RECORDS_PER_APPEND_MAX) for body in (b"%d" % number, b"x")
    ]
    others.append_usage([b"last"], lambda error: told.append((-1, error)))
    last, last_ends = await stream.append_no(3)
    last_ends.set_result(None)
    assert last == [b"last"], "and it begins again when there was nothing for a while"


async def test_node_that_ends_begins_no_append() -> None:
    loop = asyncio.get_running_loop()
    others, stream = InterPartitionClient(loop, "c", (), "node-1"), Stream()
    others._make_client = lambda: stream  # type: ignore[assignment,method-assign,return-value]
    others.append_usage([b"1"], lambda error: None)
    await others.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not stream.appends and not others._under_way


async def test_partition_that_fails_at_its_answer_keeps_it_from_no_other() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    others, stream = InterPartitionClient(loop, "c", (), "node-1"), Stream()
    others._make_client = lambda: stream  # type: ignore[assignment,method-assign,return-value]
    told: list[Any] = []

    def poisoned(_: Any) -> None:
        raise KeyError("a bug")

    others.append_usage([b"1"], poisoned)
    others.append_usage([b"2"], told.append)
    bodies, ends = await stream.append_no(0)
    ends.set_result(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert bodies == [b"1", b"2"] and told == [None]
