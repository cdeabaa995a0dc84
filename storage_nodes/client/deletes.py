"""Deletes: those at one partition that are asked for within one turn of the event loop share a request.

    callers -> gathered -> one call, tried again until its deadline -> each caller gets its own codes

A delete that is repeated does nothing more, so a shared call is tried again as one of a single caller is. It goes on
where a caller has gone away: others may wait for it, and what was asked for is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain

from storage_nodes.limits import RECEIPTS_PER_CALL_MAX
from storage_nodes.protocol.errors import ErrorCode, StorageError

# (offset, delivery) of a message.
Receipt = tuple[int, int]
# What a caller asks for, and where it waits for the codes.
Asked = tuple[Sequence[Receipt], "asyncio.Future[list[ErrorCode]]"]


class Deletes:
    """Of one client; `call` makes one call at a partition."""

    __slots__ = ("_call", "_gathering", "_under_way")

    def __init__(self, call: Callable[[int, list[Receipt]], Awaitable[list[ErrorCode]]]) -> None:
        self._call = call
        self._gathering: dict[int, list[Asked]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    def ask(
        self, loop: asyncio.AbstractEventLoop, partition: int, receipts: Sequence[Receipt]
    ) -> asyncio.Future[list[ErrorCode]]:
        """To be called on the event loop."""
        codes: asyncio.Future[list[ErrorCode]] = loop.create_future()
        gathering = self._gathering.get(partition)
        if gathering is None:
            self._gathering[partition] = [(receipts, codes)]
            loop.call_soon(self._dispatch, loop, partition)
        else:
            gathering.append((receipts, codes))
        return codes

    def close(self) -> None:
        for task in self._under_way:
            task.cancel()

    def _dispatch(self, loop: asyncio.AbstractEventLoop, partition: int) -> None:
        gathered = [one for one in self._gathering.pop(partition) if not one[1].done()]
        while gathered:
            count = _fitting(gathered)
            task = loop.create_task(self._run(partition, gathered[:count]))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            gathered = gathered[count:]

    async def _run(self, partition: int, share: Sequence[Asked]) -> None:
        try:
            codes = await self._call(partition, list(chain.from_iterable(receipts for receipts, _ in share)))
        except StorageError as error:
            for _, waiting in share:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        except BaseException:
            for _, waiting in share:
                waiting.cancel()
            raise
        at = 0
        for receipts, waiting in share:
            end = at + len(receipts)
            if not waiting.done():
                waiting.set_result(codes[at:end])
            at = end


def _fitting(gathered: Sequence[Asked]) -> int:
    """How many callers' receipts fit one call, those of the first one at least."""
    count = 0
    for index, (receipts, _) in enumerate(gathered):
        count += len(receipts)
        if index and count > RECEIPTS_PER_CALL_MAX:
            return index
    return len(gathered)
