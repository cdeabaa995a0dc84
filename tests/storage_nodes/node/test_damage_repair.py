"""A node whose files were damaged while it was down comes back by itself and is repaired by the others (F15, F16)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.limits import WAL_FILE_BYTES
from storage_nodes.log.errors import CorruptionError
from storage_nodes.machines.raft.effects import Role
from storage_nodes.model import PartitionKind
from storage_nodes.node.disk_care.damage import DamageControl
from storage_nodes.node.replicas.replica_steps import FoundState
from storage_nodes.protocol.configuration import Configuration, ConfigurationEntry
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.records import decode_body, encode_body
from tests.storage_nodes.node.test_cluster_of_nodes import run
from tests.storage_nodes.node.test_snapshots_between_nodes import all_hold, churn, lease_some


def cut_the_log(node: Path) -> None:
    path = max((node / "wal").glob("0*.wal"))
    used = len(path.read_bytes().rstrip(b"\0"))
    with path.open("r+b") as file:
        file.truncate(used // 2)


def flip_in_the_log(node: Path) -> None:
    path = min((node / "wal").glob("0*.wal"))
    used = len(path.read_bytes().rstrip(b"\0"))
    with path.open("r+b") as file:
        file.seek(used // 2)
        byte = file.read(1)
        file.seek(used // 2)
        file.write(bytes([byte[0] ^ 1]))


def spoil_the_manifests(node: Path) -> None:
    for path in node.glob("manifest-*"):
        path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [cut_the_log, flip_in_the_log, spoil_the_manifests], ids=lambda call: call.__name__)
def test_node_damaged_while_it_was_down_comes_back_by_itself_and_is_repaired(
    cluster: StorageCluster, damage: object
) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        values = [b"value-%d" % number for number in range(300)]
        for value in values[:200]:
            await client.send(partition, [encode_body(value)])
        await all_hold(client, partition)
        leader = await leader_of(client, partition)
        victim = leader % 3 + 1
        cluster.kill(victim)
        damage(cluster.directory / f"node-{victim}")  # type: ignore[operator]
        cluster.start(victim)
        for value in values[200:]:
            await client.send(partition, [encode_body(value)])
        await all_hold(client, partition)
        deadline = time.monotonic() + 20
        while "damage is repaired" not in cluster.log_of(victim):
            assert time.monotonic() < deadline, cluster.log_of(victim)[-2_000:]
            await asyncio.sleep(0.1)
        assert list((cluster.directory / f"node-{victim}" / "trash").glob("damaged-*"))
        # What it holds now is enough to go on without one of the others.
        cluster.kill(leader)
        received: set[bytes] = set()
        while not received >= set(values):
            assert time.monotonic() < deadline + 20, f"{len(received)} of {len(values)}"
            with suppress(StorageError):  # while another leader is elected
                reply = await client.acquire(partition, 100, 30_000, 500)
                received |= {decode_body(message.body).value for message in reply.messages}
        await client.close()

    run(scenario())


def spoil(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        changed = bytes(byte ^ 0xFF for byte in file.read(1))
        file.seek(at)
        file.write(changed)


def test_scrub_finds_damage_that_nobody_reads_and_the_group_repairs_it(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        values = [b"keep-%d" % number for number in range(50)]
        await lease_some(client, partition, values)
        leader = await leader_of(client, partition)
        victim = leader % 3 + 1
        await churn(client, partition, 2 * WAL_FILE_BYTES)
        directory = cluster.directory / f"node-{victim}"
        deadline = time.monotonic() + 20
        pattern = f"{partition:016x}-*.seg"
        # A merge of segments may read the damage first; after it there is nothing to merge.
        for repaired in range(1, 3):
            while not (segments := list((directory / "segments").glob(pattern))):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
            spoil(segments[0], 90)
            assert not (await client.scrub(victim)).running
            await client.scrub(victim, start=True)
            while (state := await client.scrub(victim)).running or state.unrepaired:
                assert time.monotonic() < deadline, state
                await asyncio.sleep(0.1)
            if state.found:
                break
            assert cluster.log_of(victim).count("damage is repaired") == repaired
        assert state.found == 1 and state.ended_ms and not state.waiting
        assert state.files_done == state.files_total > 0
        await all_hold(client, partition)
        assert "damage is repaired" in cluster.log_of(victim)
        await client.scrub(victim, start=True)
        while (state := await client.scrub(victim)).running:
            await asyncio.sleep(0.1)
        assert state.found == 0
        await client.close()

    run(scenario())


class HeldReplicas(dict[int, Any]):
    node_id = 1
    closing = False

    def discard(self, partition: int) -> None:
        self.pop(partition, None)


class HeldReplica:
    """Counts what is asked of it."""

    def __init__(self, raft: Any, log: Any) -> None:
        self.partition = 7
        self.raft = raft
        self.log = log
        self.applied = 0
        self.closed = False
        self.given_up = 0

    def give_up_leading(self) -> None:
        assert not self.closed, "its followers can be told no more"
        self.given_up += 1

    def close(self) -> None:
        self.closed = True


class Bench:
    """A node with one partition, as damage control sees it."""

    def __init__(self, role: Role, peer_match: int, others_up: bool = True, leader: int = 2) -> None:
        peers = [SimpleNamespace(up=True, match=peer_match, learner=False)]
        raft = SimpleNamespace(role=role, leader=leader, commit=10, status=lambda: SimpleNamespace(peers=peers))
        tag = '{"tag":"t","replicas":[1,2,3]}'
        log = SimpleNamespace(partition=7, tag=tag, suspect=False, configurations=())
        self.reset = self.opened = 0
        self.now_ms = 0
        self.first = HeldReplica(raft, log)
        self.others_up = others_up
        self.is_up: Callable[[int], bool] = lambda peer: peer != 1 and self.others_up
        self.replicas: Any = HeldReplicas({7: self.first})
        self.replicas.open, self.replicas.find_state = self._open, lambda log: FoundState()
        self.log: Any = SimpleNamespace(
            partitions={7: log}, note_damage=lambda _: None, plan_reset=self._reset, needs=lambda *_: True
        )
        self.work: Any = SimpleNamespace(
            loop=SimpleNamespace(call_later=lambda *_: None), run_cold=lambda find, found: found(find())
        )
        clock: Any = SimpleNamespace(wall_ms=lambda: 0, mono_ms=lambda: self.now_ms)
        self.control = DamageControl(
            self.log, self.replicas, self.work, clock, lambda peer: self.is_up(peer), lambda: None
        )
        self.error = CorruptionError("/node/segments/0000000000000007-0000000000000001.seg", 0, "rotten")

    @property
    def replica(self) -> Any:
        return self.replicas[7]

    def _reset(self, _partition: int) -> None:
        self.reset += 1

    def _open(self, _log: object, **_: object) -> Any:
        self.opened += 1
        return SimpleNamespace(start=lambda campaign: None)


def test_leader_that_meets_damage_while_no_other_replica_holds_everything_stops_and_keeps_what_it_has() -> None:
    """F17: the same record is damaged everywhere; the others were emptied for it already."""
    bench = Bench(Role.LEADER, peer_match=3)
    assert bench.control.on_read_corruption(bench.error)
    assert bench.first.closed and bench.first.given_up == 1 and not bench.reset and not bench.replicas
    assert bench.control.waiting and bench.control.unrepaired == 1
    bench.now_ms = 60_000
    bench.control.look()
    assert bench.opened == 1 and not bench.reset


def test_replica_that_meets_damage_while_the_others_are_down_stops_until_they_are_up() -> None:
    bench = Bench(Role.FOLLOWER, peer_match=0, others_up=False)
    assert bench.control.on_read_corruption(bench.error)
    bench.now_ms = 60_000
    bench.control.look()
    assert not bench.opened and not bench.reset
    bench.others_up = True
    bench.control.look()
    assert bench.opened == 1


@pytest.mark.parametrize(("closing", "opened"), [(False, 1), (True, 0)])
def test_emptied_replica_is_opened_again_unless_the_node_stops(closing: bool, opened: int) -> None:
    """Nobody would write what it stages (seed 140004716)."""
    bench = Bench(Role.FOLLOWER, peer_match=10)
    steps: list[str] = []
    bench.log.plan_reset = lambda partition: partition
    bench.log.run_install = lambda plan: steps.append("emptied")
    bench.log.install_done = lambda plan: steps.append("done")
    bench.work.run_maintenance = lambda work, done: done(work())
    bench.replicas.closing = closing
    bench.control._reset(bench.log.partitions[7])
    assert steps == ["emptied", "done"] and bench.opened == opened


def test_leader_is_not_emptied_because_a_learner_holds_everything() -> None:
    """A learner cannot lead next: what the voters lack would be nowhere."""
    bench = Bench(Role.LEADER, peer_match=3)
    bench.replica.raft.status().peers.append(SimpleNamespace(up=True, match=10, learner=True))
    assert bench.control.on_read_corruption(bench.error)
    assert bench.first.closed and not bench.reset


def test_replica_is_emptied_only_if_the_present_voters_are_up() -> None:
    """Nodes 2 and 3 were its group when it was made; 3 gave its place to 4, which is down."""
    bench = Bench(Role.FOLLOWER, peer_match=0)
    bench.replica.log.configurations = (ConfigurationEntry(9, Configuration((1, 2, 4))),)
    bench.is_up = lambda peer: peer in (2, 3)
    assert bench.control.on_read_corruption(bench.error)
    assert bench.first.closed and not bench.reset


def test_stopped_replica_that_went_and_came_back_is_not_opened_twice() -> None:
    bench = Bench(Role.LEADER, peer_match=3)
    bench.control.on_read_corruption(bench.error)
    bench.replicas[7] = HeldReplica(None, bench.log.partitions[7])
    bench.log.needs = lambda *_: False  # its files are other ones
    bench.now_ms = 60_000
    bench.control.look()
    assert not bench.opened and not bench.control.waiting


@pytest.mark.parametrize(("role", "match"), [(Role.LEADER, 10), (Role.FOLLOWER, 0)])
def test_replica_whose_group_can_help_is_emptied(role: Role, match: int) -> None:
    bench = Bench(role, match)
    assert bench.control.on_read_corruption(bench.error)
    assert bench.reset == 1 and bench.control.resetting == {7} and not bench.control.waiting


def test_scrubbed_damage_that_the_group_cannot_repair_is_reported_and_the_replica_goes_on() -> None:
    bench = Bench(Role.FOLLOWER, peer_match=0, leader=0)
    bench.control.scrubbed(bench.error)
    assert bench.replicas and not bench.reset and bench.control.unrepaired == 1
    bench.replicas[7].raft.leader = 2
    bench.control.look()
    assert bench.reset == 1 and not bench.control.waiting


def test_damage_to_what_belongs_to_all_partitions_is_not_for_one_replica_to_bear() -> None:
    bench = Bench(Role.FOLLOWER, peer_match=0)
    assert not bench.control.on_read_corruption(CorruptionError("/node/wal/0000000000000001.wal", 0, "rotten"))
    assert bench.replicas


def test_damage_to_the_log_found_by_maintenance_ends_the_process_as_damage() -> None:
    """Of a stopped replica's tail, which is carried forward in the write-ahead log."""
    bench = Bench(Role.FOLLOWER, peer_match=0)
    with pytest.raises(CorruptionError, match="rotten"):
        bench.control.scrubbed(CorruptionError("/node/wal/0000000000000001.wal", 0, "rotten"))
    bench.control.look()
    assert bench.replicas and not bench.control.waiting
