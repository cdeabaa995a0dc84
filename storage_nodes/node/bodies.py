"""Reads record bodies by offset for delivery. Keeps the last few parsed batches, since picks come in order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from storage_nodes.limits import BATCH_BYTES_MAX
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.log.record_batch import iterate_bodies, read_header

# Parsed batches kept per partition that is being read; their bytes are shared with nothing.
PARSED_BATCHES_MAX = 4
PARSED_BYTES_MAX = 2 * BATCH_BYTES_MAX

T = TypeVar("T")


class RunCold(Protocol):
    """Runs blocking reads in a thread, then `done` on the event loop."""

    def __call__(self, work: Callable[[], T], done: Callable[[T], None]) -> None: ...


class BodyReader:
    """Offsets to bodies. An offset asked for must hold a message that was committed."""

    __slots__ = ("_log", "_parsed", "_parsed_bytes", "_run_cold")

    def __init__(self, log: PartitionLog, run_cold: RunCold) -> None:
        self._log = log
        self._run_cold = run_cold
        # base offset -> (end offset, bodies by position, bytes)
        self._parsed: OrderedDict[int, tuple[int, list[bytes], int]] = OrderedDict()
        self._parsed_bytes = 0

    def clear(self) -> None:
        self._parsed.clear()
        self._parsed_bytes = 0

    def read(self, offsets: list[int]) -> dict[int, bytes] | None:
        """Bodies of `offsets`, or None when some are not in memory."""
        found: dict[int, bytes] = {}
        base, end, bodies = 0, 0, _NO_BODIES
        for offset in offsets:
            if not base <= offset < end:
                entry = self._find(offset)
                if entry is None:
                    batches = self._log.read_hot(offset, 1)
                    if batches is None:
                        return None
                    entry = self._keep(batches[0])
                base, end, bodies = entry
            found[offset] = bodies[offset - base]
        return found

    def read_later(self, offsets: list[int], done: Callable[[dict[int, bytes]], None]) -> None:
        """The same from disk; `done` is called on the event loop."""
        log = self._log

        def work() -> dict[int, bytes]:
            found: dict[int, bytes] = {}
            for offset in offsets:
                if offset not in found:
                    for batch in log.read_cold(offset, 1):
                        found.update(iterate_bodies(batch))
            return found

        self._run_cold(work, done)

    def _find(self, offset: int) -> tuple[int, int, list[bytes]] | None:
        for base, (end, bodies, _) in reversed(self._parsed.items()):
            if base <= offset < end:
                return base, end, bodies
        return None

    def _keep(self, batch: bytes) -> tuple[int, int, list[bytes]]:
        header = read_header(batch)
        bodies = [body for _, body in iterate_bodies(batch)]
        self._parsed[header.base_offset] = (header.end_offset, bodies, len(batch))
        self._parsed_bytes += len(batch)
        while len(self._parsed) > 1 and (
            len(self._parsed) > PARSED_BATCHES_MAX or self._parsed_bytes > PARSED_BYTES_MAX
        ):
            _, (_, _, size) = self._parsed.popitem(last=False)
            self._parsed_bytes -= size
        return header.base_offset, header.end_offset, bodies


_NO_BODIES: list[bytes] = []
