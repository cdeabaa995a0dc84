"""Replicas that stop in real nodes and clusters, while their node and all others go on."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.log.node_log import NodeLog
from storage_nodes.log.record_batch import BatchHeader, control_key
from storage_nodes.machines.queue.effects import DeadLetter
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.raft.effects import SafetyViolation, SendSnapshot, SteppedDown, Truncate
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.model import CLUSTER_PARTITION, Acks, PartitionKind
from storage_nodes.node.node import StorageNode
from storage_nodes.node.replicas import stopped_replicas
from storage_nodes.node.replicas.bodies import BodyReader
from storage_nodes.node.replicas.dead_letters import DeadLetters
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import SendRequest, encode_message
from storage_nodes.protocol.peer_messages import AppendReply
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.node_programs import POISON, poisoned_node
from tests.storage_nodes.node.test_cluster_of_nodes import run
from tests.storage_nodes.node.test_many_partitions import Asker, ask_for, lone_node, until

# --- in a node ------------------------------------------------------------------------------------------------


class Sender:
    """Stands for a connection: keeps what each request was answered."""

    def __init__(self) -> None:
        self.answers: dict[int, bytes | StorageError] = {}

    def answer(self, token: Any, payload: bytes) -> None:
        self.answers[token.request_id] = payload

    def refuse(self, token: Any, error: StorageError) -> None:
        self.answers[token.request_id] = error


def send(node: StorageNode, sender: Sender, partition: int, body: bytes) -> None:
    token: Any = SimpleNamespace(connection=sender, request_id=partition)
    payload = encode_message(SendRequest(partition, [encode_body(body)], acks=Acks.QUORUM))
    cast(QueueReplica, node.replicas[partition]).send(token, payload)


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    real = QueueReplica.fold

    def fold(self: QueueReplica, header: BatchHeader, batch: bytes) -> None:
        if POISON in batch:
            raise ValueError("no such color")
        real(self, header, batch)

    monkeypatch.setattr(QueueReplica, "fold", fold)


def test_poisoned_entry_in_one_of_a_thousand_queues_stops_that_one_and_is_told_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = 1_000
    poison(monkeypatch)
    said: list[dict[str, object]] = []
    log = SimpleNamespace(critical=lambda event, **fields: said.append(fields), warning=lambda *_, **fields: None)
    monkeypatch.setattr(stopped_replicas, "_log", log)

    async def scenario() -> None:
        node = await lone_node(tmp_path)
        asker = Asker()
        for first in range(0, queues, 100):
            for number in range(first, first + 100):
                ask_for_one(node, number, asker)
            await until(lambda first=first: asker.answers == first + 100)  # type: ignore[misc]
        partitions = list(node.cluster.machine.partitions)
        await until(lambda: all(node.replicas[partition].serving for partition in partitions))
        replicas = {partition: node.replicas[partition] for partition in partitions}
        sender = Sender()
        bad = partitions[queues // 2]
        began = time.monotonic()
        send(node, sender, bad, POISON)
        await until(lambda: bool(node.describe([]).nodes[0].stopped))
        assert time.monotonic() - began < 1
        assert [(fields["partition"], fields["kind"], fields["offset"]) for fields in said] == [(bad, "entry", 1)]
        info = node.describe([]).nodes[0]
        assert [(stopped.partition, stopped.kind, stopped.reason) for stopped in info.stopped] == [
            (bad, "entry", "ValueError: no such color")
        ]
        assert info.quarantined == [bad]
        refused = sender.answers.pop(bad)
        assert isinstance(refused, StorageError) and refused.traits.outcome_unknown, "it is committed"
        for partition in partitions:
            if partition != bad:
                send(node, sender, partition, b"fine")
        await until(lambda: len(sender.answers) == queues - 1)
        assert not any(isinstance(answer, StorageError) for answer in sender.answers.values())
        assert all(node.replicas[partition] is replicas[partition] for partition in partitions if partition != bad)
        assert sum(node.replicas[partition].serving for partition in partitions if partition != bad) == queues - 1
        await node.close()

    asyncio.run(scenario())


def ask_for_one(node: StorageNode, number: int, asker: Asker) -> None:
    """As `ask_for`, by a tag of its own."""
    from storage_nodes.protocol.messages import CreatePartitionRequest, QueueConfig

    request = CreatePartitionRequest(PartitionKind.QUEUE, f"queue:{number}", QueueConfig(), 1)
    node.cluster.create(cast(Any, asker), encode_message(request))


async def node_with_queue(directory: Path) -> tuple[StorageNode, int]:
    node = await lone_node(directory)
    ask_for(node, 1, Asker())
    await until(lambda: len(node.cluster.machine.partitions) == 1)
    partition = next(iter(node.cluster.machine.partitions))
    await until(lambda: node.replicas[partition].serving)
    return node, partition


def test_node_starts_with_a_replica_that_was_stopped_and_goes_on_with_it_once_its_entry_can_be_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No crash loop: a start is an attempt like any other. A new version is another start."""

    async def stopped_there() -> None:
        node, partition = await node_with_queue(tmp_path)
        send(node, Sender(), partition, POISON)
        await until(lambda: partition in node.stopped)
        await node.close()

    async def stopped_again() -> None:
        node = await lone_node(tmp_path)
        await until(lambda: len(list(node.stopped)) == 1)
        assert node.stopped.told(1)[0].kind == "entry"
        await node.close()

    async def goes_on() -> None:
        node = await lone_node(tmp_path)
        await until(lambda: all(replica.serving for replica in node.replicas.values()))
        queue = next(replica for replica in node.replicas.values() if isinstance(replica, QueueReplica))
        assert queue.machine.stats(0).waiting == 1 and not list(node.stopped)
        await node.close()

    with monkeypatch.context() as poisoned:
        poison(poisoned)
        asyncio.run(stopped_there())
        asyncio.run(stopped_again())
    asyncio.run(goes_on())


def test_checkpoint_that_cannot_be_loaded_stops_its_replica_and_not_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def make_checkpoint() -> None:
        node, partition = await node_with_queue(tmp_path)
        send(node, Sender(), partition, b"fine")
        await until(lambda: node.replicas[partition].applied == 2)

        def is_flushed() -> bool:
            node.log.roll()
            node.committer.wake()
            return node.log.partitions[partition].checkpoint_offset == 2

        await until(is_flushed)
        await node.close()

    def adopt(self: QueueMachine, state: object) -> None:
        raise ValueError("checkpoint of version 99")

    async def start() -> None:
        node = await lone_node(tmp_path)
        assert [(told.kind, told.reason) for told in node.stopped.told(9)] == [
            ("checkpoint", "ValueError: checkpoint of version 99")
        ]
        await node.close()

    asyncio.run(make_checkpoint())
    monkeypatch.setattr(QueueMachine, "adopt", adopt)
    asyncio.run(start())


@pytest.mark.parametrize("asked_by", ["flush", "snapshot"])
def test_checkpoint_that_cannot_be_made_stops_its_replica_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_by: str
) -> None:
    async def scenario() -> None:
        node, partition = await node_with_queue(tmp_path)
        send(node, Sender(), partition, b"fine")
        await until(lambda: node.replicas[partition].applied == 2)
        replica = cast(QueueReplica, node.replicas[partition])

        def cannot(self: QueueReplica) -> NoReturn:
            raise OverflowError("a number is too large")

        monkeypatch.setattr(QueueReplica, "checkpoint_pieces", cannot)
        if asked_by == "snapshot":
            node.snapshots.send(replica, SendSnapshot(2, replica.raft.epoch, False))

        def is_stopped() -> bool:
            if asked_by == "flush":
                node.log.roll()
                node.committer.wake()
            return partition in node.stopped

        await until(is_stopped)
        assert [(told.kind, told.reason) for told in node.stopped.told(9)] == [
            ("checkpoint", "OverflowError: a number is too large")
        ]
        await until(lambda: not node._flushing.under_way)
        assert node.cluster.serving and not node.cluster.closed
        await node.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("checkpoint", "2 sent, 1 here, 0 gone"), ("leading", "1 messages stand in ranges, 2 are counted")],
)
def test_bug_that_a_machine_finds_in_its_counts_stops_its_replica_alone(tmp_path: Path, kind: str, reason: str) -> None:
    async def scenario() -> None:
        node, partition = await node_with_queue(tmp_path)
        send(node, Sender(), partition, b"fine")
        await until(lambda: node.replicas[partition].applied == 2)
        replica = cast(QueueReplica, node.replicas[partition])
        leader = replica.machine.leader_state()

        def is_stopped() -> bool:
            if kind == "checkpoint":
                node.log.roll()
                node.committer.wake()
            return partition in node.stopped

        if kind == "checkpoint":
            replica.machine.state.sent += 1
        else:
            leader.delivery.window.count += 1
            leader._retention_check_ms = 1
            replica.tick()
        await until(is_stopped)
        assert [(told.kind, told.reason) for told in node.stopped.told(9)] == [(kind, f"AssertionError: {reason}")]
        await until(lambda: not node._flushing.under_way)
        assert node.cluster.serving and not node.cluster.closed
        await node.close()

    asyncio.run(scenario())


def test_dead_letter_that_cannot_be_copied_stops_its_replica_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        node, partition = await node_with_queue(tmp_path)
        await until(lambda: node.replicas[partition].serving)
        replica = cast(QueueReplica, node.replicas[partition])

        def cannot(self: DeadLetters, effect: DeadLetter, reader: BodyReader) -> NoReturn:
            raise ValueError("no copy")

        monkeypatch.setattr(DeadLetters, "move", cannot)
        replica._dead_letters_due(DeadLetter(7, [], 0, 0, 0))
        await until(lambda: partition in node.stopped)
        assert [told.kind for told in node.stopped.told(9)] == ["leading"] and node.cluster.serving
        await node.close()

    asyncio.run(scenario())


def test_machine_that_raises_as_its_leader_steps_down_stops_its_replica_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        node, partition = await node_with_queue(tmp_path)
        await until(lambda: node.replicas[partition].serving)
        replica = cast(QueueReplica, node.replicas[partition])

        def cannot(self: QueueReplica) -> NoReturn:
            raise ValueError("who waits here?")

        monkeypatch.setattr(QueueReplica, "on_follow", cannot)
        replica.perform([SteppedDown(0, "another one leads")])
        assert replica.closed and [told.kind for told in node.stopped.told(9)] == ["leading"]
        assert node.cluster.serving
        await node.close()

    asyncio.run(scenario())


def test_cluster_log_that_cannot_be_folded_stops_the_manager_and_no_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        node, partition = await node_with_queue(tmp_path)
        monkeypatch.setattr(node.cluster.machine, "apply", lambda value: 1 // 0)
        ask_for_one(node, 99, Asker())
        await until(lambda: CLUSTER_PARTITION in node.stopped)
        facts = node._flush_facts(CLUSTER_PARTITION)
        assert facts is not None and facts.applied < 0, "its state may be half an entry's"
        with pytest.raises(StorageError) as refused:
            node.cluster.require_leader()
        assert refused.value.code is ErrorCode.QUARANTINED
        sender = Sender()
        send(node, sender, partition, b"fine")
        await until(lambda: partition in sender.answers)
        assert isinstance(sender.answers[partition], bytes)
        assert [told.partition for told in node.describe([]).nodes[0].stopped] == [CLUSTER_PARTITION]
        node.stopped._stopped = {0: node.stopped._stopped[0]._replace(retry_ms=0)}
        node.stopped.look()
        await until(lambda: node.cluster.serving and not node.cluster.refolding)
        assert partition in node.cluster.machine.partitions and node.replicas[partition].serving
        await node.close()

    asyncio.run(scenario())


def test_replica_whose_group_broke_a_promise_is_suspect_over_a_restart_and_trusted_once_it_holds_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def break_promise() -> None:
        node, partition = await node_with_queue(tmp_path)
        replica = node.replicas[partition]
        with monkeypatch.context() as broken:
            broken.setattr(RaftMachine, "step", lambda *_: raise_violation())
            replica.receive(2, AppendReply(partition, replica.raft.epoch, True, 1))
        assert replica.closed and partition not in node.replicas
        assert [(told.kind, told.reason) for told in node.stopped.told(9)] == [("raft", "SafetyViolation: two leaders")]
        assert node.damage.quarantined() == [partition] and node.log.partitions[partition].suspect
        await node.close()

    async def start_again() -> None:
        node = await lone_node(tmp_path)
        partition = next(iter(node.cluster.machine.partitions))
        await until(lambda: not node.log.partitions[partition].suspect)  # it is all of its group
        await until(lambda: node.replicas[partition].serving)
        await node.close()

    asyncio.run(break_promise())
    log = NodeLog.open(str(tmp_path))
    assert [part.suspect for part in log.partitions.values() if part.partition != CLUSTER_PARTITION] == [True]
    log.close()
    asyncio.run(start_again())


def test_messages_for_a_stopped_replica_are_dropped_and_push_out_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader goes on asking for as long as it is stopped."""
    poison(monkeypatch)

    async def scenario() -> None:
        node, partition = await node_with_queue(tmp_path)
        send(node, Sender(), partition, POISON)
        await until(lambda: partition in node.stopped)
        node._raft_message(2, AppendReply(partition, 1, True, 1))
        assert not node._early.take(partition)
        node._raft_message(2, AppendReply(partition + 1, 1, True, 1))
        assert len(node._early.take(partition + 1)) == 1
        await node.close()

    asyncio.run(scenario())


def test_cut_below_what_was_flushed_is_a_broken_promise_and_cuts_nothing(tmp_path: Path) -> None:
    """After a restart the Raft machine knows of no commit beyond its checkpoint, and would cut."""

    async def scenario() -> None:
        node, partition = await node_with_queue(tmp_path)
        replica = node.replicas[partition]
        replica.log.flushed_end = replica.log.log_end
        replica.perform([Truncate(0)])
        assert [told.kind for told in node.stopped.told(9)] == ["raft"] and replica.log.suspect
        assert replica.log.log_end == 1
        await node.close()

    asyncio.run(scenario())


def raise_violation() -> NoReturn:
    raise SafetyViolation("two leaders")


@pytest.mark.parametrize("kind", [PartitionKind.QUEUE, PartitionKind.CLUSTER])
def test_control_record_of_a_later_version_stops_its_replica(tmp_path: Path, kind: PartitionKind) -> None:
    """It is not passed over: the state would be another one than where the record is known."""

    async def scenario() -> None:
        node, partition = await node_with_queue(tmp_path)
        replica = node.replicas[partition if kind is PartitionKind.QUEUE else CLUSTER_PARTITION]
        replica.append_own([encode_body(b"", control_key(77))], replica.now_ms(), control=True)
        replica.perform(replica.raft.proposed(replica.log.log_end, node.clock.mono_ms()))
        node.committer.wake()
        await until(lambda: replica.partition in node.stopped)
        assert node.stopped.told(1)[0].kind == "unknown-entry"
        await node.close()

    asyncio.run(scenario())


# --- in a cluster ---------------------------------------------------------------------------------------------


def test_entry_that_poisons_all_replicas_leaves_its_partition_without_a_leader_until_it_can_be_folded(
    poisoned_cluster: StorageCluster,
) -> None:
    cluster = poisoned_cluster

    async def scenario() -> None:
        others = await cluster.client()
        client = StorageClient(cluster.cluster_id, cluster.addresses, "bench", timeout_s=2)
        await client.start()
        bad = await cluster.create_partition(client, PartitionKind.QUEUE, "queue:bad:0")
        good = await cluster.create_partition(client, PartitionKind.QUEUE, "queue:good:0")
        with pytest.raises(StorageError):
            await client.send(bad, [encode_body(POISON)])
        deadline = time.monotonic() + 20
        while True:
            nodes = [await client.describe_node(node_id, [bad]) for node_id in (1, 2, 3)]
            own = [next(node for node in info.nodes if node.node_id == index + 1) for index, info in enumerate(nodes)]
            # Two that led it, one after the other. The third cannot lead alone, and never hears what is committed.
            if sum([stopped.partition for stopped in node.stopped] == [bad] for node in own) >= 2:
                break
            assert time.monotonic() < deadline, own
            await asyncio.sleep(0.05)
        assert {stopped.reason for node in own for stopped in node.stopped} == {"ValueError: no such color"}
        refusals: list[StorageError] = []
        # Of several attempts a call raises what the last one was told, by the third node perhaps.
        one_attempt = StorageClient(cluster.cluster_id, cluster.addresses, "bench", timeout_s=2, attempts_max=1)
        await one_attempt.start()
        while not any(refusal.code is ErrorCode.QUARANTINED for refusal in refusals):
            with pytest.raises(StorageError) as refused:
                await one_attempt.stats(bad)
            assert refused.value.traits.retriable and time.monotonic() < deadline
            refusals.append(refused.value)
        assert "no such color" in refusals[-1].message
        await others.send(good, [encode_body(b"fine")])
        (cluster.directory / "healed").touch()
        waiting = 0
        while not waiting:
            assert time.monotonic() < deadline + 20
            with suppress(StorageError):
                waiting = (await client.stats(bad)).waiting
        for each in (client, one_attempt, others):
            await each.close()

    before = {node_id: process.pid for node_id, process in cluster.processes.items()}
    run(scenario())
    assert all(process.poll() is None and process.pid == before[n] for n, process in cluster.processes.items())


def test_partition_without_a_leader_is_deleted_by_the_cluster_log(poisoned_cluster: StorageCluster) -> None:
    """Its own group cannot decide anything; no file of it is kept, nobody goes on telling of it."""
    cluster = poisoned_cluster

    async def scenario() -> None:
        client = StorageClient(cluster.cluster_id, cluster.addresses, "bench", timeout_s=2)
        await client.start()
        bad = await cluster.create_partition(client, PartitionKind.QUEUE, "queue:bad:0")
        assert not await client.is_quarantined(bad)
        with pytest.raises(StorageError):
            await client.send(bad, [encode_body(POISON)])
        deadline = time.monotonic() + 20
        while not await client.is_quarantined(bad):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        with pytest.raises(StorageError):
            await client.retire_partition(bad, "queue:bad:0")
        await client.delete_partition(bad, "queue:bad:0")
        assert await client.retire_partition(bad, "queue:bad:0"), "it is gone"
        for node_id in (1, 2, 3):
            while True:
                info = await client.describe_node(node_id, [bad])
                own = next(node for node in info.nodes if node.node_id == node_id)
                if not info.partitions and not own.stopped and not own.quarantined:
                    break
                assert time.monotonic() < deadline + 20, (info.partitions, own)
                await asyncio.sleep(0.05)
        assert not await client.is_quarantined(bad)
        good = await cluster.create_partition(client, PartitionKind.QUEUE, "queue:good:0")
        await client.send(good, [encode_body(b"fine")])
        await client.close()

    run(scenario())


@pytest.fixture
def poisoned_cluster(incubator: Any) -> Any:
    from tests.storage_nodes.node.conftest import cluster_of

    yield from cluster_of(3, incubator, poisoned_node())
