"""What certificates and sealing cost on the message path: clusters in each mode, measured in turns, block by block.

    TMPDIR=/dev/shm ./penstock bench inner-tls [ROUNDS]

What else the machine does changes from second to second, so each block is compared with the blocks of the other modes
beside it: the figures are medians of those ratios, over all rounds. A TMPDIR in memory leaves the disk out of it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from statistics import median

import uvloop

from benchmarks.report import Report
from benchmarks.storage import BATCH, BODY_BYTES, measured, send_for
from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.records import encode_body
from storage_nodes.trust.credentials import InnerTlsMode

ROUNDS = 8
BLOCK_S = 1.0
CYCLE_IN_FLIGHT = 32
MODES = (InnerTlsMode.OFF, InnerTlsMode.AUTHENTICATE, InnerTlsMode.ENCRYPT)

Block = Callable[[], Awaitable[tuple[int, float]]]


class MeasuredMode:
    """One cluster and its client."""

    def __init__(self, mode: InnerTlsMode) -> None:
        self.cluster = StorageCluster(mode=mode)
        self._body = encode_body(os.urandom(BODY_BYTES))

    async def start(self) -> None:
        self.cluster.start_all()
        self.client: StorageClient = await self.cluster.client()
        self.partition = await self.cluster.create_partition(self.client, PartitionKind.QUEUE, "bench:send")
        self._cycled = await self.cluster.create_partition(self.client, PartitionKind.QUEUE, "bench:cycle")
        await self.send(64, 1)()

    def blocks(self) -> dict[str, Block]:
        return {
            "send 1 KiB, 1 in flight": self.send(1, 1),
            "send 1 KiB, 32 in flight": self.send(32, 1),
            "send 1 KiB, 256 in flight": self.send(256, 1),
            f"send {BATCH} of 1 KiB, 16 in flight": self.send(16, BATCH),
            "send, receive and delete one": self.cycle,
        }

    def send(self, in_flight: int, count: int) -> Block:
        return lambda: send_for(self.client, self.partition, [self._body] * count, in_flight, BLOCK_S)

    async def cycle(self) -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        done = 0

        async def go_round() -> None:
            nonlocal done
            while loop.time() < began_s + BLOCK_S:
                await self.client.send(self._cycled, [self._body])
                reply = await self.client.acquire(self._cycled, 1, 30_000, 1_000)
                if reply.messages:
                    await self.client.delete(self._cycled, [(one.offset, one.delivery) for one in reply.messages])
                    done += 1

        await asyncio.gather(*(go_round() for _ in range(CYCLE_IN_FLIGHT)))
        return max(done, 1), loop.time() - began_s

    async def stop(self) -> None:
        await self.client.close()
        self.cluster.stop()
        self.cluster.remove()


async def run(report: Report, rounds: int) -> None:
    sides = {mode: MeasuredMode(mode) for mode in MODES}
    try:
        for side in sides.values():
            await side.start()
        for what in sides[InnerTlsMode.OFF].blocks():
            found: dict[InnerTlsMode, list[tuple[float, float]]] = {mode: [] for mode in MODES}
            for number in range(rounds):
                for mode in MODES if number % 2 else reversed(MODES):
                    side = sides[mode]
                    found[mode].append(await measured(side.cluster, side.blocks()[what]))
            tell(report, what, found)
    finally:
        for side in sides.values():
            await side.stop()


def tell(report: Report, what: str, found: dict[InnerTlsMode, list[tuple[float, float]]]) -> None:
    plain = found[InnerTlsMode.OFF]
    report.add(f"{what}, {InnerTlsMode.OFF}", median(rate for rate, _ in plain), "1/s")
    report.add("  CPU, client included", median(cpu for _, cpu in plain), "us")
    for mode in MODES[1:]:
        pairs = list(zip(found[mode], plain, strict=True))
        report.add(f"  {mode}: rate", median(one[0] / other[0] for one, other in pairs), "of off")
        report.add(f"  {mode}: CPU", median(one[1] / other[1] for one, other in pairs), "of off")


def main() -> int:
    report = Report("inner_tls")
    uvloop.run(run(report, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
