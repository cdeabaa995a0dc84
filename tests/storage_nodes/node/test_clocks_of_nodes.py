"""A node whose clock is wrong: what its peers learn, whom it lets lead, and that it costs no message."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.config import NodeConfig
from storage_nodes.limits import (
    CLOCK_BACK_MS_MIN,
    CLOCK_SAMPLES_MAX,
    CLOCK_WAIT_MS_MAX,
    ELECTION_JITTER_MS,
    HEARTBEAT_INTERVAL_MS,
    PEER_TIMEOUT_MS,
    RETENTION_MS_MIN,
    TURNS_PASSED_MAX,
)
from storage_nodes.machines.raft.effects import Role
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.machines.raft.timing import ELECTION_TIMEOUT_MS
from storage_nodes.model import NodeAddress, PartitionKind, format_node_list
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.disk_care.maintenance import DiskMaintenance
from storage_nodes.node.node import StorageNode
from storage_nodes.node.replicas.leader_time import LeaderTime
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.timers import Timers
from storage_nodes.node.transport.peers import PeerLinks
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import NodeInfo, QueueConfig
from storage_nodes.protocol.peer_messages import AppendEntries, Heartbeat, PeerHello, VoteRequest
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.machines.raft.raft_bench import PARTITION, START_MS, Bench, log_of, sends
from tests.storage_nodes.node.test_cluster_of_nodes import run
from tests.storage_nodes.node.test_hand_over import PLAIN, Led, Links, moves_of

TRUE_MS = 1_700_000_000_000
DAY_MS = 86_400_000
YEAR_2100_MS = 4_102_444_800_000
OWN = NodeAddress(1, "127.0.0.1", 9, "a")
PEERS = [NodeAddress(2, "127.0.0.1", 1, "b"), NodeAddress(3, "127.0.0.1", 2, "c")]
# A node whose wall clock is wrong by the milliseconds in a file.
WRONG_CLOCK = """
import os, runpy, time
real, path = time.time_ns, os.path.join({directory!r}, "wrong-" + os.environ["PENSTOCK_NODE_ID"])
time.time_ns = lambda: real() + int(open(path).read()) * 1_000_000 if os.path.exists(path) else real()
runpy.run_module("storage_nodes", run_name="__main__")
"""


# --- heartbeats ---------------------------------------------------------------------------------------------


class HandClock(NodeClock):
    def __init__(self) -> None:
        self.now_ms = 10_000
        self.wrong_ms = 0

    def mono_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return TRUE_MS + self.now_ms + self.wrong_ms


class Wire:
    def write(self, data: bytes) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None


class Rig:
    """Node 1 of three; the two others are up and their clocks are right."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.clock = HandClock()
        self.links = PeerLinks(loop, self.clock, "c", OWN, 7, PEERS, lambda peer, up: None)
        for link in self.links._links.values():
            link.connection_made(cast(Any, Wire()))
            assert self.links.greeted(PeerHello("c", link.node_id, 3)) == ""

    def hear(self, peer: int, wrong_ms: int = 0, delay_ms: int = 0, clock_off: bool = False) -> None:
        now_ms = self.clock.now_ms
        wall_ms = TRUE_MS + now_ms - delay_ms + wrong_ms
        self.links.heard(Heartbeat(peer, 3, now_ms, now_ms - delay_ms, 7, wall_ms=wall_ms, clock_off=clock_off))

    def rounds(self, count: int, delay_ms: int = 0) -> None:
        for _ in range(count):
            self.clock.now_ms += HEARTBEAT_INTERVAL_MS
            for peer in (2, 3):
                self.hear(peer, delay_ms=delay_ms)
            self.links.beat_all()


@pytest.fixture
def rig() -> Iterator[Rig]:
    loop = asyncio.new_event_loop()
    yield Rig(loop)
    loop.close()


def test_node_that_was_just_started_is_given_no_leadership_before_it_knows_the_time(rig: Rig) -> None:
    """A stopping node would hand it what it leads, and it would go by its own clock."""
    assert rig.links.clocks.is_unknown
    rig.rounds(1)
    assert not rig.links.clocks.is_unknown and rig.links.may_lead(2)
    now_ms = rig.clock.now_ms
    rig.links.heard(Heartbeat(2, 3, now_ms, now_ms, 7, wall_ms=TRUE_MS + now_ms, clock_unknown=True))
    assert not rig.links.may_lead(2) and rig.links.may_follow(2) and not rig.links.is_clock_off(2)
    rig.hear(2)
    assert rig.links.may_lead(2)


def test_node_that_hears_too_few_clocks_leads_after_a_while(rig: Rig) -> None:
    rig.links.beat_all()
    rig.clock.now_ms += CLOCK_WAIT_MS_MAX - 1
    assert rig.links.clocks.is_unknown
    rig.clock.now_ms += 1
    assert not rig.links.clocks.is_unknown


def test_node_whose_clock_is_wrong_says_so_with_what_to_do_once_and_when_it_is_right_again(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.rounds(CLOCK_SAMPLES_MAX)
    assert not rig.links.clocks.is_off
    rig.clock.wrong_ms = -DAY_MS
    rig.rounds(10)
    assert rig.links.clocks.is_off
    said = capsys.readouterr().out
    assert said.count("the clock of this machine is wrong") == 1 and "-86400.0" in said and "NTP" in said
    rig.clock.wrong_ms = 0
    rig.rounds(CLOCK_BACK_MS_MIN // HEARTBEAT_INTERVAL_MS + 2)
    assert not rig.links.clocks.is_off and "right again" in capsys.readouterr().out


def test_beats_that_were_under_way_for_too_long_say_nothing_of_a_clock(rig: Rig) -> None:
    rig.rounds(CLOCK_SAMPLES_MAX, delay_ms=PEER_TIMEOUT_MS)
    assert rig.links.clocks.agreement.base_ms is None
    rig.rounds(CLOCK_SAMPLES_MAX, delay_ms=PEER_TIMEOUT_MS - 1)
    assert rig.links.clocks.agreement.base_ms is not None and not rig.links.clocks.is_off


def test_clocks_are_compared_with_the_beat_that_makes_a_majority_known(rig: Rig) -> None:
    rig.clock.wrong_ms = 5 * DAY_MS
    rig.links.beat_all()
    assert rig.links.clocks.agreement.base_ms is None and not rig.links.clocks.is_fit
    rig.hear(2)
    time = LeaderTime(rig.clock, rig.links.clocks.agreement, 0)
    assert time.now_ms() == TRUE_MS + rig.clock.now_ms
    rig.hear(3)
    assert rig.links.clocks.is_off and not rig.links.clocks.is_fit


def test_node_that_hears_of_no_clocks_waits_for_them_for_a_bounded_time(rig: Rig) -> None:
    rig.clock.now_ms += DAY_MS
    rig.links.beat_all()
    rig.clock.now_ms += CLOCK_WAIT_MS_MAX - 1
    rig.links.beat_all()
    assert not rig.links.clocks.is_fit
    rig.clock.now_ms += 1
    assert rig.links.clocks.is_fit
    rig.hear(2)
    assert rig.links.clocks.is_fit


def test_peer_whose_clock_is_off_gets_no_leadership(rig: Rig) -> None:
    rig.hear(2)
    assert rig.links.may_lead(2)
    rig.hear(2, clock_off=True)
    assert not rig.links.may_lead(2) and rig.links.may_follow(2) and rig.links.is_clock_off(2)


# --- leadership ---------------------------------------------------------------------------------------------


def test_node_whose_clock_is_off_hands_over_what_it_leads() -> None:
    for is_off, target in ((False, 0), (True, PLAIN)):
        links: Any = Links()
        links.read_only, links.clocks = False, SimpleNamespace(is_off=is_off)
        replica: Any = Led(PLAIN)
        may_lead = moves_of({7: replica}).may_lead
        node: Any = SimpleNamespace(links=links, replicas={7: replica}, may_lead=may_lead)
        scrub: Any = None
        DiskMaintenance(node, scrub, 0)._hand_over_if_unfit()
        assert replica.target == target


def test_replica_of_an_unfit_node_asks_for_no_votes_until_nobody_else_was_elected_for_a_while() -> None:
    bench = Bench(log_of(1))
    started_ms = bench.now_ms
    for _ in range(TURNS_PASSED_MAX):
        bench.now_ms = bench.machine.next_tick_ms()
        assert bench.machine.tick(bench.now_ms, is_fit=False) == []
        assert bench.machine.role is Role.FOLLOWER and bench.machine.next_tick_ms() > bench.now_ms
    assert bench.now_ms - started_ms > ELECTION_TIMEOUT_MS
    bench.now_ms = bench.machine.next_tick_ms()
    assert bench.now_ms - started_ms <= (TURNS_PASSED_MAX + 1) * (ELECTION_TIMEOUT_MS + ELECTION_JITTER_MS)
    assert len(sends(bench.machine.tick(bench.now_ms, is_fit=False), VoteRequest)) == 2, "perhaps nobody else can win"


def test_turns_that_were_passed_without_a_majority_are_passed_again_when_one_is_up() -> None:
    bench = Bench(log_of(1))
    for peer in bench.machine.voters[1:]:
        bench.machine.peer_down(peer, bench.now_ms)
    for _ in range(TURNS_PASSED_MAX):
        bench.now_ms = bench.machine.next_tick_ms()
        assert bench.machine.tick(bench.now_ms, is_fit=False) == []
    bench.machine.peer_up(bench.machine.voters[1], bench.now_ms)
    for _ in range(TURNS_PASSED_MAX):
        bench.now_ms = bench.machine.next_tick_ms()
        assert bench.machine.tick(bench.now_ms, is_fit=False) == []
    bench.now_ms = bench.machine.next_tick_ms()
    assert sends(bench.machine.tick(bench.now_ms, is_fit=False), VoteRequest)


def test_turns_are_passed_again_after_a_leader_was_heard_and_lost() -> None:
    bench = Bench(log_of(1))
    for _ in range(TURNS_PASSED_MAX):
        bench.now_ms = bench.machine.next_tick_ms()
        assert bench.machine.tick(bench.now_ms, is_fit=False) == []
    bench.step(2, AppendEntries(PARTITION, 2, 1, 1, 0, [], 0))
    assert bench.machine.leader == 2
    bench.machine.peer_down(2, bench.now_ms)
    for _ in range(TURNS_PASSED_MAX):
        bench.now_ms = bench.machine.next_tick_ms()
        assert bench.machine.tick(bench.now_ms, is_fit=False) == []


def test_single_voter_leads_whatever_its_clock_says() -> None:
    machine = RaftMachine(PARTITION, 1, Configuration((1,)), log_of(), 0, 0, 0, lambda bound: bound // 2)
    machine.tick(START_MS, is_fit=False)
    assert machine.role is Role.LEADER


def test_timers_that_became_due_while_the_machine_was_suspended_ring_when_it_is_noticed() -> None:
    loop = asyncio.new_event_loop()
    clock, rung = HandClock(), []
    timers = Timers(loop, clock.mono_ms, rung.append)
    timers.wake(7, clock.now_ms + 20_000)
    clock.now_ms += DAY_MS  # the loop's own clock stood still
    timers.look()
    loop.run_until_complete(asyncio.sleep(0.05))
    assert rung == [7]
    loop.close()


# --- nodes --------------------------------------------------------------------------------------------------


@pytest.fixture
def wrong_clocks() -> Iterator[StorageCluster]:
    cluster = StorageCluster()
    script = WRONG_CLOCK.format(directory=str(cluster.directory))
    cluster.command = [sys.executable, "-c", script]
    yield cluster
    cluster.stop()
    cluster.remove()


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await is_so():
            await asyncio.sleep(0.1)


def test_leader_whose_clock_jumps_ahead_hands_over_and_no_message_expires_and_a_node_from_1970_joins_in(
    wrong_clocks: StorageCluster,
) -> None:
    cluster = wrong_clocks

    def set_wrong(node: int, wrong_ms: int) -> None:
        path = cluster.directory / f"wrong-{node}"
        path.with_suffix(".new").write_text(str(wrong_ms))
        shutil.move(path.with_suffix(".new"), path)

    async def scenario() -> None:
        set_wrong(1, 5_000 - int(time.time() * 1_000))  # its first start is in 1970
        cluster.start_all()
        client = await cluster.client()
        await cluster.create_partition(client, PartitionKind.QUEUE, "first")
        config = QueueConfig(retention_ms=RETENTION_MS_MIN)
        partitions = [(await client.create_partition(PartitionKind.QUEUE, f"q{n}", config)).partition for n in range(3)]

        async def look() -> tuple[dict[int, int], dict[int, NodeInfo]]:
            info = await client.describe(partitions)
            leaders = {row.partition: row.leader for row in info.partitions}
            return leaders, {node.node_id: node for node in info.nodes}

        async def off_and_led_elsewhere(node: int) -> bool:
            leaders, nodes = await look()
            return nodes[node].clock_off and all(leaders.values()) and node not in leaders.values()

        await until(lambda: off_and_led_elsewhere(1))
        _, nodes = await look()
        assert nodes[1].alive and (nodes[1].clock_offset_ms or 0) < -50 * 365 * DAY_MS
        assert "set the clock" in cluster.log_of(1)
        set_wrong(1, 0)

        async def nobody_off() -> bool:
            return not any(node.clock_off for node in (await look())[1].values())

        await until(nobody_off)
        leaders, _ = await look()
        ahead = leaders[partitions[0]]
        for partition in partitions:
            await client.send(partition, [encode_body(b"%d" % number) for number in range(10)])
        set_wrong(ahead, 5 * DAY_MS)
        await until(lambda: off_and_led_elsewhere(ahead))
        for partition in partitions:
            await client.send(partition, [encode_body(b"%d" % number) for number in range(10, 20)])
            reply = await client.acquire(partition, 100, 30_000, 0)
            assert len(reply.messages) == 20
            assert all(abs(message.sent_ms - time.time() * 1_000) < 30_000 for message in reply.messages)
        await client.close()

    run(scenario())


def test_partition_goes_on_after_its_last_stamp_when_its_node_is_started_again_with_an_earlier_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock()
    monkeypatch.setattr("time.time_ns", lambda: (int(time.time() * 1_000) + clock.wrong_ms) * 1_000_000)
    address = StorageCluster(1, str(tmp_path)).addresses[0]
    config = NodeConfig("c", 1, str(tmp_path / "1"), f"{address.host}:{address.port}", format_node_list([address]))

    async def scenario() -> None:
        stamps_ms: list[int] = []
        partition = 0
        for clock.wrong_ms in (DAY_MS, 0):
            node = StorageNode(config)
            await node.start()
            client = StorageClient("c", [address], "test")
            await client.start()
            while not partition:
                try:
                    partition = (await client.create_partition(PartitionKind.QUEUE, "q")).partition
                except StorageError:
                    await asyncio.sleep(0.05)
            await client.send(partition, [encode_body(b"m")])
            stamps_ms += [message.sent_ms for message in (await client.acquire(partition, 10, 1_000, 0)).messages]
            await client.close()
            await node.close()
        assert len(stamps_ms) >= 2 and stamps_ms == sorted(stamps_ms)
        assert stamps_ms[-1] - time.time() * 1_000 > DAY_MS - 60_000

    run(scenario())


def test_ticks_of_a_node_that_is_not_fit_say_so() -> None:
    """Whatever its log holds: the first stamps of an empty one bind all later leaders (seed 8205007)."""
    asked: list[tuple[int, bool]] = []
    for is_fit, end in ((False, 9), (True, 9), (False, 0), (True, 0)):
        replica: Any = Replica.__new__(Replica)
        replica.closed, replica.serving, replica._leader_told, replica.partition = False, False, 0, 7
        replica.raft = SimpleNamespace(
            tick=lambda *tick: asked.append(tick) or [], leader=0, timer_ms=0, next_tick_ms=lambda: 0
        )
        clock = SimpleNamespace(mono_ms=lambda: 5)
        replica.log, replica.applied = SimpleNamespace(last_stamp_ms=0), end
        replica.host = SimpleNamespace(clock=clock, clocks=SimpleNamespace(is_off=False, is_fit=is_fit))
        replica.tick()
    assert asked == [(5, False), (5, True), (5, False), (5, True)]
