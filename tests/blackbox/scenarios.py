"""What can be run, by name: a cluster, a fault, what it needs of the machine; and the run itself."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from storage_nodes.log.errors import CorruptionError
from storage_nodes.protocol.errors import StorageError
from tests.blackbox import mixes, nemeses
from tests.blackbox.bench import Bench, BenchError
from tests.blackbox.checkers import APPEND, Verdict, availability, check_queue, check_stream, failover_times_s
from tests.blackbox.clusters import EverythingCluster, ImageCluster, LargeImageCluster, NetworkCluster, NodeCluster
from tests.blackbox.faults import disks, network
from tests.blackbox.history import Event, Recorder
from tests.blackbox.membership import NODES_TO_MOVE

BODY_BYTES = 120
# Fills write-ahead log files fast enough for a disk to become full within a cycle.
LARGE_BODY_BYTES = 12_000
RUN_OVERTIME_S = 240.0
# Between two sends of one writer. A run of an hour keeps its whole history in memory: a third of the load will do.
SEND_PAUSE_S = 0.01
SOAK_SEND_PAUSE_S = 0.03
PROGRESS_S = 60.0


class Scenario(NamedTuple):
    cycle: Callable[[Bench], Awaitable[None]]
    cluster: Callable[[], NodeCluster] = NodeCluster
    missing: Callable[[], str] = lambda: ""
    body_bytes: int = BODY_BYTES
    pause_s: float = SEND_PAUSE_S


def _room_to_move() -> NodeCluster:
    return NodeCluster(NODES_TO_MOVE)


def _everything() -> NodeCluster:
    return EverythingCluster(NODES_TO_MOVE)


def _everything_missing() -> str:
    return network.missing() or disks.missing()


SCENARIOS: dict[str, Scenario] = {
    "quiet": Scenario(nemeses.quiet),
    "kill-leader": Scenario(nemeses.kill_leader),
    "kill-follower": Scenario(nemeses.kill_follower),
    "kill-all": Scenario(nemeses.kill_all),
    "pause-leader": Scenario(nemeses.pause_leader),
    "pause-train": Scenario(nemeses.pause_train),
    "restart-storm": Scenario(nemeses.restart_storm),
    "moves": Scenario(mixes.moves, _room_to_move),
    "mix": Scenario(mixes.mix, _room_to_move),
    "isolate-leader": Scenario(nemeses.isolate_leader, NetworkCluster, network.missing),
    "leader-not-heard": Scenario(nemeses.leader_not_heard, NetworkCluster, network.missing),
    "leader-deaf": Scenario(nemeses.leader_deaf, NetworkCluster, network.missing),
    "bridge": Scenario(nemeses.bridge, NetworkCluster, network.missing),
    "power-one": Scenario(nemeses.power_one, ImageCluster, disks.missing),
    "power-all": Scenario(nemeses.power_all, ImageCluster, disks.missing),
    "disk-full": Scenario(nemeses.disk_full, LargeImageCluster, disks.missing, LARGE_BODY_BYTES),
    "flip-bits": Scenario(nemeses.flip_bits),
    "truncate-files": Scenario(nemeses.truncate_files),
    "soak": Scenario(mixes.soak, _everything, _everything_missing, pause_s=SOAK_SEND_PAUSE_S),
}


class Outcome(NamedTuple):
    """What a run found. `failure` is why it ended early; `verdicts` are by kind of partition."""

    name: str
    seed: int
    seconds: float
    cycles: int
    verdicts: dict[str, Verdict]
    failovers_s: list[float]
    windows: int
    windows_served: int
    findings: list[str]
    notes: dict[str, int]
    failure: str

    @property
    def passed(self) -> bool:
        complete = bool(self.verdicts) and all(verdict.valid for verdict in self.verdicts.values())
        return complete and not self.findings and not self.failure


def run_scenario(
    name: str, seconds: float, seed: int, history_path: Path | None = None, cycles_max: int | None = None
) -> Outcome:
    """Run cycles until the time is over (at least one), then judge. Cleans up whatever happens."""
    scenario = SCENARIOS[name]
    recorder = Recorder(history_path)
    cluster = scenario.cluster()
    started_s = time.monotonic()
    failure = ""
    bench = Bench(cluster, recorder, random.Random(seed), scenario.body_bytes, scenario.pause_s)
    try:
        work = _run(bench, scenario, seconds, cycles_max)
        asyncio.run(asyncio.wait_for(work, seconds + RUN_OVERTIME_S))
    except (BenchError, StorageError, TimeoutError, CorruptionError) as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        cluster.stop()
        if not failure:
            cluster.remove()
        else:
            failure += f" (node logs are kept in {cluster.directory})"
            _release(cluster)
        recorder.close()
    return judge(name, seed, time.monotonic() - started_s, bench, failure)


async def _run(bench: Bench, scenario: Scenario, seconds: float, cycles_max: int | None) -> None:
    await bench.start()
    await bench.recovered()
    now = started = time.monotonic()
    told = 0
    while not bench.cycles or (now < started + seconds and bench.cycles != cycles_max):
        await scenario.cycle(bench)
        bench.cycles += 1
        # What is kept of the history stays: collecting garbage among it would stop the clients for longer and longer.
        gc.freeze()
        now = time.monotonic()
        if now - started >= (told + 1) * PROGRESS_S:
            told = int((now - started) / PROGRESS_S)
            text = (
                f"{told * PROGRESS_S:.0f} of {seconds:.0f} s, {bench.cycles} cycles, {len(bench.findings)} findings\n"
            )
            sys.stderr.write(text)
    await bench.finish()


def _release(cluster: NodeCluster) -> None:
    """Give the machine back what it lent, and keep the logs."""
    if isinstance(cluster, NetworkCluster):
        cluster.network.remove()
    if isinstance(cluster, ImageCluster):
        for image in cluster.images.values():
            image.unmount()
            image.image.unlink(missing_ok=True)


def judge(name: str, seed: int, seconds: float, bench: Bench, failure: str) -> Outcome:
    events: list[Event] = bench.recorder.events
    if not hasattr(bench, "load"):
        return Outcome(name, seed, seconds, 0, {}, [], 0, 0, bench.findings, dict(bench.notes), failure)
    queue, stream = bench.load.queue, bench.load.stream
    failovers = failover_times_s(events, queue) + failover_times_s(events, stream, APPEND)
    windows = [availability(events, queue), availability(events, stream, APPEND)]
    return Outcome(
        name,
        seed,
        seconds,
        bench.cycles,
        {"queue": check_queue(events, queue), "stream": check_stream(events, stream)},
        failovers,
        sum(window.windows for window in windows),
        sum(window.served for window in windows),
        bench.findings,
        dict(bench.notes),
        failure,
    )
