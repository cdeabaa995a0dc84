"""Clock trials: one node's clock, or all of them asleep, under load; nothing is lost, nothing ends early or late (F19).

    clock-boot    a node starts with a clock that is a day off, the leader is killed beside it, the clock is mended
    clock-jump    the clock of the leader jumps by a day and back
    clock-drift   one clock runs fast or slow until it is seconds off
    clock-nap     the leader stands still, and its clock is eight hours further when it goes on; then it is mended
    clock-sleep   all nodes stand still and the world, the checkers too, is eight hours older when they go on
    clock         all of these, drawn anew every cycle
    clock-1970    one node starts for the first time in its life with a clock that says so; or 2100 (clock-2100): it
                  starts, says that its clock is off, harms nobody, and is as good as any other once that is mended

A mended clock is noticed without a restart: at the end every node leads or follows as any other, and holds the same.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from storage_nodes.log.errors import CorruptionError
from tests.blackbox.bench import Bench, BenchError
from tests.blackbox.checkers import check_queue, check_stream
from tests.blackbox.clock_load import LONG_RETENTION_S, ClockLoad
from tests.blackbox.clusters import NodeCluster
from tests.blackbox.faults.harm import Harm
from tests.blackbox.history import Recorder
from tests.blackbox.timing import Terms, check_times
from tests.blackbox.trials import Ask, Result, Trial
from tests.blackbox.workload import VISIBILITY_MS

SLACK_S = 2.0
DAY_S = 86_400.0
SLEEP_S = 8 * 3600.0
# Eight-hour sleeps use up the long retention: no more of them than leave some.
SLEEPS_MAX = 10
HARM_S = 8.0
WRONG_LEADER_S = 3.0
DRIFT = 0.2
DRIFT_S = 15.0
NAP_S = 3.0
STANDSTILL_S = 0.5
MENDED_S = 4.0
LONG_DELAY_S = 3600.0
LONG_DELAYED = 5
FIRST_WRONG = 1
YEAR_2100_S = 4_102_444_800.0
# A log line that says that a clock is off names the clock, and how far off it is or that it is off.
WORD, ABOUT = "clock", "off"
BODY_BYTES = 120
SEND_PAUSE_S = 0.05
# Empty answers a run must have for its silence to mean something.
ANSWERS_MIN = 20


class World:
    """The checkers' clock: monotonic, and older by every sleep that all machines slept."""

    def __init__(self) -> None:
        self.slept_s = 0.0
        self.sleeps = 0

    def now_s(self) -> float:
        return time.monotonic() + self.slept_s

    def wall_s(self) -> float:
        return time.time() + self.slept_s


class ClockBench(NamedTuple):
    bench: Bench
    load: ClockLoad
    harm: Harm
    world: World

    def wrong_by(self, node: int, offset_s: float, drift: float = 0.0) -> None:
        self.harm.nodes[node].wall(self.world.slept_s + offset_s, drift)

    async def mended(self, node: int, name: str) -> None:
        self.wrong_by(node, 0.0)
        await asyncio.sleep(MENDED_S)
        await self.bench.recovered()
        await self.bench.caught_up()
        self.bench.healed(name)


Cycle = Callable[[ClockBench], Awaitable[None]]


async def boot(clocks: ClockBench) -> None:
    bench = clocks.bench
    leader = await bench.leader(bench.load.queue)
    victim = bench.rng.choice([node for node in bench.cluster.running() if node != leader])
    off_s = bench.rng.choice((DAY_S, -DAY_S))
    bench.fault("clock off at start", [bench.load.queue, bench.load.stream], f"node {victim} by {off_s:.0f} s")
    bench.cluster.kill(victim)
    clocks.wrong_by(victim, off_s)
    bench.cluster.start(victim)
    await bench.recovered()
    await bench.caught_up()
    bench.cluster.kill(leader)
    await asyncio.sleep(WRONG_LEADER_S)
    bench.cluster.start(leader)
    await asyncio.sleep(HARM_S)
    await clocks.mended(victim, "clock off at start")


async def jump(clocks: ClockBench) -> None:
    bench = clocks.bench
    victim = await bench.leader(bench.load.queue)
    off_s = bench.rng.choice((DAY_S, -DAY_S, 3600.0, -3600.0))
    bench.fault("clock jump", await bench.led_by(victim), f"node {victim} by {off_s:.0f} s")
    clocks.wrong_by(victim, off_s)
    await asyncio.sleep(HARM_S)
    await clocks.mended(victim, "clock jump")


async def drift(clocks: ClockBench) -> None:
    bench = clocks.bench
    victim = bench.rng.choice(bench.cluster.running())
    rate = bench.rng.choice((DRIFT, -DRIFT))
    bench.fault("clock drift", [], f"node {victim} by {rate} s a second")
    clocks.wrong_by(victim, 0.0, rate)
    await asyncio.sleep(DRIFT_S)
    await clocks.mended(victim, "clock drift")


async def nap(clocks: ClockBench) -> None:
    bench = clocks.bench
    victim = await bench.leader(bench.load.queue)
    bench.fault("clock after a nap", await bench.led_by(victim), f"node {victim}")
    bench.cluster.pause(victim)
    await asyncio.sleep(NAP_S)
    clocks.wrong_by(victim, SLEEP_S)
    bench.cluster.resume(victim)
    await asyncio.sleep(HARM_S)
    await clocks.mended(victim, "clock after a nap")


async def sleep(clocks: ClockBench) -> None:
    """What has a delay of an hour is due when all wake up; what was leased is there again."""
    bench, world = clocks.bench, clocks.world
    if world.sleeps >= SLEEPS_MAX:
        return await jump(clocks)
    await clocks.load.send_delayed(LONG_DELAY_S, LONG_DELAYED)
    bench.fault("all asleep", [bench.load.queue, bench.load.stream])
    for node in bench.cluster.running():
        bench.cluster.pause(node)
    await asyncio.sleep(STANDSTILL_S)
    world.slept_s += SLEEP_S
    world.sleeps += 1
    for node in clocks.harm.nodes.values():
        node.wall(world.slept_s)
        node.slept(node.slept_s + SLEEP_S)
    for node_id in list(bench.cluster.paused):
        bench.cluster.resume(node_id)
    await asyncio.sleep(HARM_S)
    await bench.recovered()
    await bench.caught_up()
    bench.healed("all asleep")
    return None


async def born_wrong(clocks: ClockBench) -> None:
    """The node was wrong since its first start: it must have said so. It starts once more while it is wrong, then it is
    mended, starts again, and is not locked out by what it was before."""
    bench = clocks.bench
    victim = FIRST_WRONG
    name = "clock wrong at first start"
    await asyncio.sleep(HARM_S)
    if not any(WORD in line and ABOUT in line for line in bench.cluster.log_of(victim).lower().splitlines()):
        bench.findings.append(f"node {victim} does not say in its log that its clock is off")
    await _restarted(bench, victim)
    leader = await bench.leader(bench.load.queue)
    if leader != victim:
        await _restarted(bench, leader)
    await clocks.mended(victim, name)
    await _restarted(bench, victim)
    await bench.caught_up()


async def _restarted(bench: Bench, node: int) -> None:
    bench.fault("restart", [], f"node {node}")
    bench.cluster.kill(node)
    bench.cluster.start(node)
    await bench.recovered()
    bench.healed("restart")


async def any_of_them(clocks: ClockBench) -> None:
    cycle = clocks.bench.rng.choice((boot, boot, jump, drift, nap, sleep))
    clocks.bench.notes[cycle.__name__] += 1
    await cycle(clocks)


async def run_cycles(cycle: Cycle, ask: Ask, result: Result, born_s: float | None = None) -> None:
    """`born_s`: what one node's clock says at its first start, since the epoch."""
    world = World()
    recorder = Recorder(ask.history, world.now_s)
    cluster = NodeCluster()
    harm = Harm(cluster.directory, cluster.node_ids)
    cluster.settings.update(harm.settings())
    rng = random.Random(ask.seed)
    bench = Bench(cluster, recorder, rng, BODY_BYTES, SEND_PAUSE_S)
    load = ClockLoad(recorder, rng, world.wall_s)
    try:
        if born_s is not None:
            harm.nodes[FIRST_WRONG].wall(born_s - world.wall_s())
        await bench.start()
        await load.start(bench.patient, await bench.one_attempt("timed"))
        await bench.recovered()
        clocks = ClockBench(bench, load, harm, world)
        end = time.monotonic() + ask.seconds
        while not bench.cycles or (time.monotonic() < end and born_s is None):
            await cycle(clocks)
            bench.cycles += 1
            gc.freeze()  # what is kept of the history stays, as in scenarios.py
        await load.stop()
        await bench.finish()
    except (BenchError, CorruptionError) as error:
        result.failure = f"{type(error).__name__}: {error} (node logs are kept in {cluster.directory})"
    finally:
        cluster.stop()
        if not result.failure:
            cluster.remove()
        recorder.close()
    if hasattr(bench, "load") and load.waves:
        judge(bench, load, result)


def judge(bench: Bench, load: ClockLoad, result: Result) -> None:
    events = bench.recorder.events
    main_terms = Terms(LONG_RETENTION_S, VISIBILITY_MS / 1000)
    timed = {"main": (bench.load.queue, main_terms)}
    timed |= {queue.name: (queue.partition, queue.terms) for queue in load.queues()}
    answers = never = messages = 0
    violations: dict[str, list[str]] = {}
    for name, (partition, terms) in timed.items():
        judged = check_times(events, partition, terms, SLACK_S)
        messages, answers = messages + judged.messages, answers + judged.answers
        for kind, found in judged.violations.items():
            late = kind == "expired-early" and name in load.still_held
            violations.setdefault("absent" if late else kind, []).extend(f"{name} {text}" for text in found)
        if name in load.still_held:
            violations.setdefault("still held", []).append(load.still_held[name])
            continue
        if terms.retention_s < LONG_RETENTION_S:
            # Given to nobody, and no empty answer before their retention was over: what became of them is not known.
            never += judged.never_delivered
            continue
        verdict = check_queue(events, partition)
        for kind, found in verdict.violations.items():
            if verdict.complete or not kind.startswith("lost-"):
                violations.setdefault(kind, []).extend(f"{name} {text}" for text in found)
            elif found:
                result.notes.append(f"{name}: {len(found)} undelivered when the run broke off")
        if not verdict.complete and not result.failure:
            result.failure = f"{name} was not drained"
    for kind, found in check_stream(events, bench.load.stream).violations.items():
        violations.setdefault(f"stream {kind}", []).extend(found)
    violations["finding"] = bench.findings
    result.violations = violations
    short_lost = len(violations["expired-early"])
    result.counts = {
        "cycles": bench.cycles,
        "acked": messages,
        "empty answers": answers,
        "not judged": max(0, never - short_lost),
    }
    result.notes += [f"{name}: {count}" for name, count in bench.notes.items()]
    if answers < ANSWERS_MIN and not result.failure:
        result.failure = f"only {answers} empty answers: too few to prove anything"


def _trial(cycle: Cycle, born_s: float | None = None) -> Trial:
    async def run(ask: Ask, result: Result) -> None:
        await run_cycles(cycle, ask, result, born_s)

    return Trial(run, seconds=60.0)


TRIALS: dict[str, Trial] = {
    "clock-boot": _trial(boot),
    "clock-jump": _trial(jump),
    "clock-drift": _trial(drift),
    "clock-nap": _trial(nap),
    "clock-sleep": _trial(sleep),
    "clock": _trial(any_of_them),
    "clock-1970": _trial(born_wrong, 86_400.0),
    "clock-2100": _trial(born_wrong, YEAR_2100_S),
}
