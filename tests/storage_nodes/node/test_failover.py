"""Leader changes in words: reasons as operators read them, and one log line for one cause however many partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from benchmarks.storage_cluster import StorageCluster, described
from storage_nodes.limits import DESCRIBE_PARTITIONS_MAX
from storage_nodes.machines.raft.effects import Loss, Role
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.model import PartitionKind
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.replicas.failover import GATHER_MS, LASTS_MS, REMIND_MS, Failover
from storage_nodes.node.transport.peer_history import NO_PROCESS, RESTARTED, PeerHistory
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.storage_nodes.machines.raft.raft_bench import Bench, log_of
from tests.storage_nodes.node.test_cluster_of_nodes import run

WALL_MS = 1_700_000_000_000


class HandClock(NodeClock):
    def __init__(self) -> None:
        self.now_ms = 10_000

    def mono_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms + WALL_MS


class HandLoop:
    """Keeps the one call that is booked."""

    def __init__(self) -> None:
        self.booked: Callable[[], None] | None = None

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Any:
        self.booked = call
        return None


class Group(NamedTuple):
    partition: int
    raft: RaftMachine
    tag: str = "queue:a:0"


class Rig:
    """What node 1 tells of its groups."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.loop = HandLoop()
        self.retiring = False
        self.histories = {2: PeerHistory(), 3: PeerHistory()}
        for history in self.histories.values():
            history.changed(True, 5_000)
        self.preferred = 1
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.failover = Failover(loop, self.clock, 1, self, lambda _partition: self.preferred)

    def history_of(self, peer: int) -> PeerHistory | None:
        return self.histories.get(peer)

    def look(self, after_ms: int) -> list[dict[str, Any]]:
        """What is logged when time has passed and the booked call comes."""
        self.clock.now_ms += after_ms
        booked, self.loop.booked = self.loop.booked, None
        assert booked is not None, "a call is booked while anything is left to tell"
        with capture_logs() as lines:
            booked()
        return cast(list[dict[str, Any]], lines)

    def down(self, node: int, *groups: Group, why: str = "") -> None:
        if why:
            self.histories[node].expect(why)
        self.histories[node].changed(False, self.clock.now_ms)
        for group in groups:
            group.raft.peer_down(node, self.clock.now_ms)
            self.failover.changed(group)


def following(leader: int, partition: int = 7) -> Group:
    return Group(partition, Bench(log_of(1)).follow(leader).machine)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize(
    ("why", "words"),
    [("", "node 2 went silent for 600 ms"), (NO_PROCESS, f"node 2 {NO_PROCESS}"), (RESTARTED, "node 2 was restarted")],
)
def test_leader_lost_with_its_node_says_how_the_node_went_down(rig: Rig, why: str, words: str) -> None:
    group = following(2)
    rig.down(2, group, why=why)
    assert rig.failover.reason(group.raft, 2) == f"{words}; an election is under way, node 2 down"
    assert rig.failover.since_wall_ms(group.raft) == WALL_MS + 10_000


def test_reason_stays_with_the_change_when_the_node_goes_down_in_another_way_later(rig: Rig) -> None:
    group = following(2)
    rig.down(2, group)
    rig.clock.now_ms += 5_000
    rig.histories[2].changed(True, rig.clock.now_ms)
    rig.clock.now_ms += 5_000
    rig.down(2, why=NO_PROCESS)
    assert rig.failover.reason(group.raft, 2).startswith("node 2 went silent")


def test_leader_elected_names_its_voters_and_epoch(rig: Rig) -> None:
    bench = Bench(log_of(1)).follow(2)
    rig.down(2, Group(7, bench.machine))
    bench.machine.campaign(bench.now_ms)
    bench.grant(3, pre_vote=True)
    bench.grant(3)
    assert bench.machine.role is Role.LEADER
    assert rig.failover.reason(bench.machine, 2) == "node 2 went silent for 600 ms; elected by nodes 1, 3 in epoch 2"


def test_group_without_a_majority_says_what_it_needs_and_since_when_that_is_away(rig: Rig) -> None:
    group = following(2)
    rig.down(2, group)
    rig.clock.now_ms += 1_000
    rig.down(3, group)
    rig.clock.now_ms += 4_000
    words = "node 2 went silent for 600 ms; needs 2 of 3 voters; nodes 2, 3 down for 4 s"
    assert rig.failover.reason(group.raft, 2) == words


def test_group_of_nodes_that_nobody_here_knows_says_what_it_needs(rig: Rig) -> None:
    group = following(2)
    rig.down(2, group)
    rig.down(3, group)
    rig.histories.clear()
    assert rig.failover.reason(group.raft, 2).endswith("needs 2 of 3 voters; nodes 2, 3 down")


def handed_over(leader: int, now_ms: int) -> RaftMachine:
    raft = following(2).raft
    raft.loss, raft.lost_leader, raft.lost_ms, raft.leader = Loss.HANDED_OVER, 2, now_ms, leader
    return raft


def test_hand_over_says_whether_the_old_leader_stops_or_the_new_one_is_home(rig: Rig) -> None:
    raft = handed_over(3, rig.clock.now_ms)
    assert rig.failover.reason(raft, 1).startswith("node 2 handed over; node 3 leads")
    assert rig.failover.reason(raft, 3).startswith("node 2 handed over (home again);")
    rig.histories[2].retiring(rig.clock.now_ms - 100)
    assert rig.failover.reason(raft, 3).startswith("node 2 handed over (it is stopping);")


@pytest.mark.parametrize(("preferred", "home"), [(3, True), (1, False)])
def test_hand_over_is_home_where_the_cluster_log_says_so_not_the_order_of_the_voters(
    rig: Rig, preferred: int, home: bool
) -> None:
    """A move puts its target in the place of the preferred replica, at the end of the group's voters."""
    group = Group(7, handed_over(1, rig.clock.now_ms))
    assert group.raft.voters[0] == 1
    group.raft.leader, rig.preferred = 3, preferred
    rig.failover.changed(group)
    (line,) = rig.look(GATHER_MS)
    assert ("home again" in line["reason"]) is home


def test_hand_over_that_nobody_took_up_yet_leads_nobody_home(rig: Rig) -> None:
    groups = [Group(number, handed_over(0, rig.clock.now_ms)) for number in range(1, 10)]
    for group in groups:
        rig.failover.changed(group)
    rig.look(GATHER_MS)
    (line,) = rig.look(LASTS_MS)
    assert "9 of 9 partitions have no leader" in line["reason"] and "home" not in line["reason"]


def test_learner_that_waits_to_be_added_is_not_without_a_leader(rig: Rig) -> None:
    waiting = Group(7, Bench(log_of(), boot=Configuration((2, 3), (1,))).machine)
    rig.failover.changed(waiting)
    assert rig.loop.booked is None
    waiting.raft.leader = 2
    rig.failover.changed(waiting)
    (line,) = rig.look(GATHER_MS)
    assert (line["log_level"], line["event"]) == ("info", "leader changed")


def test_node_lost_with_thousands_of_leaders_is_one_line(rig: Rig) -> None:
    groups = [following(2, partition) for partition in range(1, 3_001)]
    rig.down(2, *groups)
    for group in groups:
        group.raft.leader = 3 if group.partition % 3 else 1
        rig.failover.changed(group)
    lines = rig.look(GATHER_MS)
    assert [line["log_level"] for line in lines] == ["warning"]
    assert lines[0]["reason"] == (
        "node 2 went silent for 600 ms: 3,000 partitions have a leader again after 0.0 s: "
        "node 1 leads 1,000, node 3 leads 2,000"
    )
    assert rig.loop.booked is None


def test_single_partition_is_told_with_its_name(rig: Rig) -> None:
    group = following(2)
    rig.down(2, group)
    group.raft.leader = 3
    rig.failover.changed(group)
    (line,) = rig.look(GATHER_MS)
    assert (line["partition"], line["tag"], line["leader"]) == (7, "queue:a:0", 3)


def test_partitions_left_without_a_leader_are_told_again_until_they_have_one(rig: Rig) -> None:
    groups = [following(2, partition) for partition in range(1, 11)]
    rig.down(2, *groups)
    assert rig.look(GATHER_MS) == []
    (line,) = rig.look(LASTS_MS)
    assert line["reason"] == "node 2 went silent for 600 ms: 10 of 10 partitions have no leader after 2.0 s"
    assert rig.look(1_000) == []
    assert len(rig.look(REMIND_MS)) == 1
    for group in groups[:9]:
        group.raft.leader = 3
        rig.failover.changed(group)
    rig.failover.forget(groups[9].partition)
    (line,) = rig.look(1_000)
    assert "9 partitions have a leader again" in line["reason"]


def test_serving_is_counted_by_its_cause_with_the_time_without_a_leader(rig: Rig) -> None:
    def sample(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"penstock_node_{name}", labels) or 0.0

    before = sample("leader_changes_total", reason="node_down"), sample("leaderless_seconds_sum")
    group = following(2)
    rig.down(2, group)
    rig.clock.now_ms += 900
    rig.failover.serves(group.raft)
    after = sample("leader_changes_total", reason="node_down"), sample("leaderless_seconds_sum")
    assert (after[0] - before[0], round(after[1] - before[1], 3)) == (1.0, 0.9)


def test_leader_killed_cluster_says_who_was_lost_and_who_leads_since_when(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        before = await described(client, partition)
        cluster.kill(before.leader)
        await client.stats(partition)
        view = await client.describe([partition])
        after = view.partitions[0]
        assert f"node {before.leader} " in after.leader_reason and str(after.epoch) in after.leader_reason
        assert NO_PROCESS in after.leader_reason or "went silent" in after.leader_reason
        assert before.leader_since_ms < after.leader_since_ms
        lost = next(node for node in view.nodes if node.node_id == before.leader)
        assert not lost.alive and lost.why and lost.since_ms > before.leader_since_ms
        own = [node for node in view.nodes if node.disk_free_bytes]
        assert len(own) == 1 and own[0].alive
        with pytest.raises(StorageError) as refused:
            await client.describe(list(range(DESCRIBE_PARTITIONS_MAX + 1)))
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        await client.close()

    run(scenario())
