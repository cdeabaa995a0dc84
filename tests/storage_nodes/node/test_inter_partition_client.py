"""What a node asks other partitions: the one that asked hears the end, whatever it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

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
