"""Parts of the simulated world by themselves: transports, true times, clocks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation import true_times
from tests.simulation.clocks import WALL_START_MS, SimClock
from tests.simulation.clockwork import Scheduler, SimLoop
from tests.simulation.faults import draw_faults, draw_times, draw_transport
from tests.simulation.network import LinkFaults, Network
from tests.simulation.process import NodeLoop
from tests.simulation.referee import Lease, slew_us
from tests.simulation.transport import HIGH_BYTES_DEFAULT, SimTransport
from tests.simulation.true_times import StreamTimes, TrueTimes
from tests.simulation.world import World, run_seed

SOCKET_BYTES = 1_000


class Process:
    """An end that does what is posted at once, or when it goes on."""

    is_up = True

    def __init__(self, number: int) -> None:
        self.process_id = number
        self.stands_still = False
        self._posted: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        self._posted.append((callback, args))
        if not self.stands_still:
            self.go_on()

    def go_on(self) -> None:
        self.stands_still = False
        posted, self._posted = self._posted, []
        for callback, args in posted:
            callback(*args)


class Reader:
    def __init__(self) -> None:
        self.read: list[bytes] = []
        self.paused: list[bool] = []

    def connection_made(self, transport: SimTransport) -> None:
        pass

    def connection_lost(self, error: Exception | None) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        self.read.append(data)

    def pause_writing(self) -> None:
        self.paused.append(True)

    def resume_writing(self) -> None:
        self.paused.append(False)


class Idle:
    """The owner of a loop of which nothing is wanted."""

    def unhandled(self, error: BaseException) -> None:
        raise error

    def entered(self) -> None:
        pass

    def turned(self) -> None:
        pass


def connect(faults: LinkFaults) -> tuple[Scheduler, SimTransport, Process]:
    """A connection; the writing end, and the process at the other one."""
    scheduler = Scheduler("transport")
    network = Network(scheduler, "transport", faults)
    here, there = Process(1), Process(2)
    network.servers[2] = (there, Reader)
    made: list[SimTransport] = []
    network.dial(here, 2, Reader, lambda error: error is None, made.append)
    run(scheduler)
    return scheduler, made[0], there


def run(scheduler: Scheduler) -> None:
    while scheduler._heap:
        scheduler.step()


def test_writer_is_paused_while_the_other_end_stands_still_and_goes_on_when_it_has_read() -> None:
    scheduler, here, other = connect(LinkFaults(socket_bytes=SOCKET_BYTES, piece_bytes=1 << 20))
    other.stands_still = True
    here.write(b"a" * (SOCKET_BYTES + HIGH_BYTES_DEFAULT))
    assert here.protocol.paused == []
    here.write(b"b")
    run(scheduler)
    assert here.protocol.paused == [True]
    assert here.get_write_buffer_size() == HIGH_BYTES_DEFAULT + 1
    other.go_on()
    assert here.protocol.paused == [True, False]
    assert here.get_write_buffer_size() == 0


def test_reading_that_is_paused_holds_back_what_arrives_in_its_order() -> None:
    scheduler, here, _ = connect(LinkFaults())
    here.peer.pause_reading()
    here.write(b"one")
    here.write(b"two")
    run(scheduler)
    assert here.peer.protocol.read == []
    assert here.unread_bytes == 6
    here.peer.resume_reading()
    assert here.peer.protocol.read == [b"one", b"two"]
    assert here.unread_bytes == 0


def test_what_one_process_does_in_its_turn_gives_another_one_a_turn_after_it() -> None:
    """Seed 1000982: whoever reads makes room in the buffer of the writer, who goes on."""
    scheduler = Scheduler("turns")
    reader, writer = SimLoop(scheduler, Idle()), SimLoop(scheduler, Idle())
    running: list[object] = []

    def read() -> None:
        writer.post(lambda: running.append(asyncio.get_running_loop()))
        running.append(asyncio.get_running_loop())

    reader.post(read)
    run(scheduler)
    assert running == [reader, writer]


def test_job_that_a_stop_has_finished_is_not_done_again() -> None:
    """Seed 2000628: the stop failed after that, and its process ended a moment later."""
    process = World(1).processes[1]
    process.loop = NodeLoop(process)  # type: ignore[abstract]
    done: list[str] = []
    process.disk_job(lambda: done.append("work"), lambda result, error: done.append("told"))
    process.finish_jobs(wait=True)
    run(process.world.scheduler)
    assert done == ["work"]


def test_large_write_arrives_in_pieces_and_in_order() -> None:
    scheduler, here, _ = connect(LinkFaults(piece_bytes=100))
    data = bytes(random.Random(1).randbytes(950))
    here.write(data)
    here.write(b"end")
    run(scheduler)
    assert b"".join(here.peer.protocol.read) == data + b"end"
    assert len(here.peer.protocol.read) == 11


def test_narrow_link_takes_its_time() -> None:
    scheduler, here, _ = connect(LinkFaults(bytes_per_s=1_000))
    began_us = scheduler.now_us
    for _ in range(5):
        here.write(b"x" * 100)
    run(scheduler)
    assert 500_000 <= scheduler.now_us - began_us < 510_000


def test_what_is_lost_on_a_cut_link_does_not_stand_in_the_buffer() -> None:
    scheduler, here, _ = connect(LinkFaults(cut=set()))
    here._network.faults.cut.add((1, 2))
    here.write(b"lost")
    run(scheduler)
    assert (here.unread_bytes, here.peer.protocol.read) == (0, [])
    assert here.read_us < 0, "nobody read it"


def test_limits_of_a_write_buffer_are_those_of_asyncio() -> None:
    _, here, _ = connect(LinkFaults(socket_bytes=SOCKET_BYTES))
    here.set_write_buffer_limits(8_000)
    assert here.get_write_buffer_limits() == (2_000, 8_000)
    here.set_write_buffer_limits(low=3_000)
    assert here.get_write_buffer_limits() == (3_000, 12_000)


TOLERATED_US = true_times.TOLERANCE_US


@pytest.mark.parametrize(("early_us", "rules"), [(0, []), (2_000, ["EXPIRED by true time"])])
def test_message_that_expires_too_early_is_noticed(early_us: int, rules: list[str]) -> None:
    times = TrueTimes()
    times.retention_ms = 60_000
    times.sent(7)
    times.now_us = 60_000_000 - TOLERATED_US - early_us
    times.expires(7)
    assert [rule for rule, _ in times.wrong] == rules


def test_message_of_a_leader_that_could_not_know_the_time_is_not_judged() -> None:
    times = TrueTimes()
    times.retention_ms, times.trusted = 60_000, False
    times.sent(7)
    times.expires(7)
    assert times.wrong == []


@pytest.mark.parametrize(("early_us", "rules"), [(0, []), (2_000, ["LEASE by true time"])])
def test_lease_that_ends_too_early_is_noticed(early_us: int, rules: list[str]) -> None:
    times = TrueTimes()
    times.sent(7)
    times.leased(7, 30_000)
    times.leased(7, 30_000, is_renewal=True)
    times.now_us = 30_000_000 - TOLERATED_US - early_us
    times.leased(7, 30_000)
    assert [rule for rule, _ in times.wrong] == rules


@pytest.mark.parametrize(("slewed_ms", "allowed_ms"), [(0, 0), (-40, 0), (40, 40), (50, 50), (400, 50)])
def test_lease_may_be_shorter_by_what_leader_time_was_slewed_and_no_more_than_it_may_be(
    slewed_ms: int, allowed_ms: int
) -> None:
    lease = Lease(since_us=5_000_000, until_us=6_500_000, delivery=1, lead_ms=70)
    assert slew_us(lease, 6_000_000, 70 + slewed_ms) == allowed_ms * 1_000


def test_release_before_it_is_due_is_noticed() -> None:
    times = TrueTimes()
    times.scheduled(7, WALL_START_MS + 60_000, True)
    times.scheduled(8, 60_000, False)
    times.sent(9, delay_ms=60_000)
    for origin in (7, 8, 9):
        times.released(origin, origin + 10, is_delayed=origin == 9)
    assert [rule for rule, _ in times.wrong] == ["DUE by true time"] * 3


def test_delayed_message_that_is_released_is_as_old_as_it_was() -> None:
    times = TrueTimes()
    times.retention_ms = 60_000
    times.sent(7, delay_ms=50_000)
    times.now_us = 50_000_000
    times.sent(8)
    times.released(7, 8, is_delayed=True)
    times.now_us = 60_000_000
    times.expires(8)
    assert not times.wrong


def test_both_ends_of_a_deduplication_window_are_judged() -> None:
    times = TrueTimes()
    times.window_ms = 20_000
    times.sent(7)
    times.repeats(7)
    times.forgets(7)
    assert [rule for rule, _ in times.wrong] == ["WINDOW by true time"]
    times.now_us = 20_000_000 + TOLERATED_US + 1
    times.forgets(7)
    assert len(times.wrong) == 1
    times.repeats(7)
    assert len(times.wrong) == 2


def test_stream_that_is_trimmed_too_early_is_noticed() -> None:
    times = StreamTimes()
    times.retention_ms = 60_000
    times.appended(10)
    times.now_us = 60_000_000
    times.appended(20)
    times.trimmed(10)
    assert times.wrong == []
    times.trimmed(20)
    assert [rule for rule, _ in times.wrong] == ["TRIMMED by true time"]


def test_stream_batch_of_a_leader_that_could_not_know_the_time_may_go_at_once() -> None:
    times = StreamTimes()
    times.retention_ms, times.now_us, times.trusted = 60_000, 1_000_000, False
    times.appended(10)
    times.trimmed(10)
    assert times.wrong == []


def test_clocks_jump_in_a_third_of_the_seeds_and_only_those_of_a_minority_are_ever_wrong() -> None:
    worlds = [World(seed) for seed in range(400)]
    jumping = [world for world in worlds if world.clock_faults.liars]
    assert len(jumping) >= len(worlds) / 3
    for world in worlds:
        faults = world.clock_faults
        assert len(faults.liars) <= (len(world.node_ids) - 1) // 2
        for process in world.processes.values():
            for _ in range(20):
                faults.starting(process)
                assert process.process_id in faults.liars or not faults.is_wrong(process.process_id)


def test_node_sees_its_wall_clock_as_it_was_set() -> None:
    world = World(1)
    machine = world.processes[1].clock
    clock = SimClock(machine)
    before_ms, mono_ms = clock.wall_ms(), clock.mono_ms()
    machine.offset_ms += 86_400_000
    assert clock.wall_ms() == before_ms + 86_400_000
    world.scheduler.sleep(8 * 3_600_000_000)
    assert clock.mono_ms() - mono_ms == pytest.approx(8 * 3_600_000, rel=0.002)


def test_some_seeds_have_front_ends_large_messages_narrow_links_and_short_retentions() -> None:
    drawn = []
    for seed in range(300):
        faults = draw_faults(random.Random(f"{seed}-swarm"))
        draw_times(faults, random.Random(f"{seed}-times"))
        draw_transport(faults, random.Random(f"{seed}-transport"))
        drawn.append(faults)
    for has in (
        lambda faults: faults.front_ends, lambda faults: faults.large_bytes, lambda faults: faults.links.bytes_per_s,
        lambda faults: faults.retention_ms <= 60_000, lambda faults: faults.dedup_ms <= 60_000,
        lambda faults: faults.sleep_rate, lambda faults: faults.slow_readers, lambda faults: faults.tight,
    ):  # fmt: skip
        assert sum(bool(has(faults)) for faults in drawn) >= 8


def test_front_ends_get_through_and_are_the_same_twice() -> None:
    seed = next(seed for seed in range(100) if World(seed).faults.front_ends)
    first, again = run_seed(seed), run_seed(seed)
    assert first == again
    assert first.calls_acked > 0
