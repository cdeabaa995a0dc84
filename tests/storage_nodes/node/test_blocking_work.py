"""Reads that a caller waits for, and work that takes long, are done by threads of their own."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable

import pytest

from storage_nodes.log.errors import CorruptionError, UnreadableError
from storage_nodes.node.disk import blocking_work
from storage_nodes.node.disk.blocking_work import MAINTENANCE_THREADS, BlockingWork


def test_read_does_not_wait_for_an_install_a_flush_and_a_scrub() -> None:
    async def scenario() -> None:
        work = BlockingWork(asyncio.get_running_loop())
        go_on = threading.Event()
        ended: list[bool] = []
        for _ in range(2 * MAINTENANCE_THREADS):
            work.run_maintenance(lambda: go_on.wait(10), ended.append)
        scrub = asyncio.ensure_future(work.run_blocking(lambda: go_on.wait(10)))
        flush = asyncio.get_running_loop().run_in_executor(work.maintenance, go_on.wait, 10)
        read: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        work.run_cold(lambda: "entries", read.set_result)
        async with asyncio.timeout(5):
            assert await read == "entries"
        assert not ended and not scrub.done() and not flush.done()
        go_on.set()
        assert await scrub and await flush
        work.stop()

    asyncio.run(scenario())


def test_failed_write_of_maintenance_ends_the_process_and_damage_that_a_read_meets_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R21: EIO on a write or sync stays fatal; on a read it is damage (D12)."""

    class Ended(BaseException):
        pass

    failed: list[BaseException] = []

    def disk_failed(error: BaseException) -> None:
        failed.append(error)
        raise Ended

    monkeypatch.setattr(blocking_work, "disk_failed", disk_failed)
    error = OSError(errno.EIO, "Input/output error")
    damaged: list[CorruptionError] = []

    def fail(with_error: Exception) -> Callable[[], None]:
        def work() -> None:
            raise with_error

        return work

    def on_corruption(damage: CorruptionError) -> bool:
        damaged.append(damage)
        return True

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        work = BlockingWork(loop)
        work.on_corruption = on_corruption
        told = asyncio.Event()
        work.run_cold(fail(UnreadableError("/7.seg", 0, error)), lambda _: None, told.set)
        async with asyncio.timeout(5):
            await told.wait()
        assert len(damaged) == 1 and not failed
        finished = loop.create_future()
        finished.set_exception(error)
        with pytest.raises(Ended):
            work._maintained(finished, lambda _: None)
        assert failed == [error]
        work.stop()

    asyncio.run(scenario())
