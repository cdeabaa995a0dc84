"""Feature levels on a node: greetings that are refused, the manager's raise, what is beyond the level spoken."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from storage_nodes.config import NodeConfig
from storage_nodes.log.record_batch import CONTROL_CLUSTER, control_key
from storage_nodes.machines.cluster.commands import (
    RegisterNode,
    SetFeatureLevel,
    SetNodeLevels,
    SetNodeState,
    encode_command,
)
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.machines.queue.commands import LeveledCommand
from storage_nodes.machines.queue.commands import encode_command as encode_queue_command
from storage_nodes.model import CLUSTER_PARTITION, NodeState
from storage_nodes.node.membership.feature_levels import FeatureLevels
from storage_nodes.node.node import StorageNode
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.frames import FLAG_ERROR, FrameDecoder, encode_frame
from storage_nodes.protocol.levels import FEATURE_LEVEL, Speaks, spoken
from storage_nodes.protocol.messages import ErrorReply, Hello, Opcode, encode_message
from storage_nodes.protocol.peer_messages import PeerHello, PeerRefusal
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.test_many_partitions import Asker, ask_for, until
from tests.storage_nodes.node.visited_node import NodeVisit
from tests.support.strangers import in_time

OLD, NEW, HELD = Speaks(1, 1, 1), Speaks(1, 2, 2), Speaks(1, 2, 1)


class Links:
    """What the other nodes said; those of `away` are down, or about to stop."""

    def __init__(self, told: dict[int, Speaks | None], *away: int) -> None:
        self.told = told
        self.away = away
        self.retiring = False

    def speaks_of(self, peer: int) -> Speaks | None:
        return self.told[peer]

    def stays(self, peer: int) -> bool:
        return peer not in self.away


def cluster_of(*known: Speaks) -> ClusterMachine:
    machine = ClusterMachine()
    for node_id, speaks in enumerate(known, 1):
        machine.apply(encode_command(RegisterNode(node_id, "h", node_id, "z")))
        machine.apply(encode_command(SetNodeLevels(node_id, *speaks)))
    return machine


def commands(machine: ClusterMachine, links: Links, own: Speaks = NEW) -> list[Any]:
    return FeatureLevels(1, own, links, lambda why: None).commands(machine)


# --- the manager ----------------------------------------------------------------------------------------------


def test_manager_logs_what_has_changed_and_raises_the_level_once_all_speak_it() -> None:
    links = Links({2: NEW, 3: NEW})
    assert commands(cluster_of(OLD, NEW, NEW), links) == [SetNodeLevels(1, 1, 2, 2), SetFeatureLevel(2)]
    assert commands(cluster_of(NEW, NEW, NEW), links) == [SetFeatureLevel(2)]
    raised = cluster_of(NEW, NEW, NEW)
    raised.level = 2
    assert commands(raised, links) == [], "only on change"


@pytest.mark.parametrize(
    "links", [Links({2: NEW, 3: OLD}), Links({2: NEW, 3: HELD}), Links({2: NEW, 3: NEW}, 3), Links({2: NEW, 3: None})]
)
def test_node_that_is_older_held_away_or_has_not_greeted_holds_the_level(links: Links) -> None:
    assert not any(isinstance(one, SetFeatureLevel) for one in commands(cluster_of(NEW, NEW, NEW), links))


def test_hold_of_the_managers_own_operator_counts_and_so_does_its_stop() -> None:
    links = Links({2: NEW, 3: NEW})
    assert commands(cluster_of(HELD, NEW, NEW), links, HELD) == []
    links.retiring = True
    assert commands(cluster_of(NEW, NEW, NEW), links) == []


def test_decommissioned_node_holds_nothing() -> None:
    machine = cluster_of(NEW, NEW, OLD)
    for state in (NodeState.LEAVING, NodeState.GONE):
        machine.apply(encode_command(SetNodeState(3, state)))
    assert commands(machine, Links({2: NEW})) == [SetFeatureLevel(2)]


# --- greetings ------------------------------------------------------------------------------------------------


async def node_that(directory: Path, speaks: Speaks, feature_level_max: int = 0) -> StorageNode:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    listen = f"127.0.0.1:{port}"
    config = NodeConfig("c", 1, str(directory), listen, f"1={listen}@a", feature_level_max=feature_level_max)
    node = StorageNode(config, None, speaks)
    await node.start()
    return node


async def say(node: StorageNode, frame: bytes) -> tuple[list[Any], float]:
    """What a stranger is answered, and after how many seconds it was hung up on."""
    host, port = node.config.node_listen.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    began_s = time.monotonic()
    writer.write(frame)
    data = b""
    async with asyncio.timeout(5):
        while piece := await reader.read(65_536):
            data += piece
    writer.close()
    return FrameDecoder().feed(data), time.monotonic() - began_s


async def frames_of(reader: asyncio.StreamReader, count: int) -> list[Any]:
    decoder, frames = FrameDecoder(), []
    while len(frames) < count:
        frames += decoder.feed(await reader.read(65_536))
    return frames


def frame_of_protocol_2() -> bytes:
    return struct.pack(">BBBBIII", 0xA7, 2, Opcode.HELLO, 0, 1, 0, 0)


def test_frames_of_a_later_level_are_closed_within_a_second_and_logged_with_who_and_why(tmp_path: Path) -> None:
    """And nobody else notices, and no memory is taken. With certificates: `test_strangers_at_the_port.py`."""

    async def scenario() -> None:
        node = await node_that(tmp_path, spoken())
        await until(lambda: node.cluster.serving)
        ask_for(node, 1, Asker())
        await until(lambda: len(node.cluster.machine.partitions) == 1)
        node.admit(node.config.own_address._replace(node_id=2, port=9))
        host, port = node.config.node_listen.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello("c", "bystander", 0, (1, 2)))))
        (greeted,) = await frames_of(reader, 1)
        assert greeted.opcode == Opcode.HELLO

        async def pinged() -> None:
            writer.write(encode_frame(Opcode.PING, 0, 2, b"\x90"))
            async with asyncio.timeout(5):
                (answer,) = await frames_of(reader, 1)
            assert answer.opcode == Opcode.PING and not answer.flags & FLAG_ERROR

        async def visit(frame: bytes) -> NodeVisit:
            watching = NodeVisit(node, pinged, [])
            async with watching.watched():
                answers, seconds = await say(node, frame)
            watching.closed_s = seconds
            assert all(answer.flags & FLAG_ERROR for answer in answers)
            return watching

        with capture_logs() as logs:
            for frame in (
                frame_of_protocol_2(),
                encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello("c", "later front end", 0, (3, 4)))),
                encode_frame(Opcode.PEER_HELLO, 0, 0, encode_message(PeerHello("c", 2, 9, levels=(3, 4, 4)))),
            ):
                await in_time(partial(visit, frame))
        malformed = told(logs, "closing a connection after a malformed frame")[-1]
        client = told(logs, "refusing a connection")[-1]
        (peer,) = told(logs, "not letting a node in: feature levels")
        turned = told(logs, "not letting a node in")[-1]
        assert (
            malformed["error"] == "protocol version 2 is not spoken here, 1 is" and "127.0.0.1" in malformed["source"]
        )
        assert client["reason"] == "level" and "later front end" in client["text"] and "127.0.0.1" in client["source"]
        assert "speaks feature levels 3 to 4" in client["text"]
        assert peer["peer"] == 2 and "speaks feature levels 3 to 4, this process 1 to 2" in peer["reason"]
        assert turned["peer"] == 2 and "127.0.0.1" in turned["source"]
        assert all(replica.serving for replica in node.replicas.values())
        writer.close()
        await node.close()

    asyncio.run(scenario())


def told(logs: Sequence[MutableMapping[str, Any]], event: str) -> list[MutableMapping[str, Any]]:
    return [line for line in logs if line["event"] == event]


def test_node_below_the_level_of_the_cluster_is_told_so_and_the_log_knows_who_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await node_that(tmp_path, spoken())
        await until(lambda: node.cluster.machine.level == FEATURE_LEVEL)
        node.cluster.manage([encode_command(RegisterNode(3, "127.0.0.1", 9, "b"))])  # no node registers others
        for unreadable in (b"\x95\x01\x03\xa1\xff\x09\xa1b", b"\x91" * 100_000 + b"\x01"):  # no UTF-8; too deep
            with pytest.raises(msgspec.DecodeError):
                node.cluster.manage([unreadable])
        node.cluster.carry_out([RegisterNode(2, "127.0.0.1", 9, "b")])
        await until(lambda: 2 in node.cluster.machine.nodes)
        assert 3 not in node.cluster.machine.nodes
        frame = encode_frame(Opcode.PEER_HELLO, 0, 0, encode_message(PeerHello("c", 2, 9)))
        (answer,), _ = await say(node, frame)
        refusal = msgspec.msgpack.decode(answer.payload, type=PeerRefusal)
        assert "node 2 speaks 1 at most: start a release there that speaks level 2" in refusal.message
        await node.close()

    asyncio.run(scenario())


# --- raise, hold, roll back -----------------------------------------------------------------------------------


def test_hold_of_an_operator_keeps_the_level_until_it_is_let_go(tmp_path: Path) -> None:
    async def held() -> None:
        node = await node_that(tmp_path, spoken(1))
        await until(lambda: node.cluster.serving and 1 in node.cluster.machine.levels)
        await asyncio.sleep(0.2)
        info = node.describe(None)
        assert info.level == 1 and info.nodes[0].levels == (1, FEATURE_LEVEL, 1)
        await node.close()

    async def let_go() -> None:
        node = await node_that(tmp_path, spoken())
        await until(lambda: node.cluster.machine.level == FEATURE_LEVEL)
        assert node.describe(None).level == FEATURE_LEVEL and node.feature_level == FEATURE_LEVEL
        await node.close()

    async def rolled_back_before() -> None:
        node = await node_that(tmp_path, OLD)
        await until(lambda: node.cluster.serving and node.cluster.machine.levels_of(1) == OLD)
        assert not node.levels.refusing
        await node.close()

    asyncio.run(held())
    asyncio.run(rolled_back_before())
    asyncio.run(let_go())


def test_older_release_refuses_to_serve_once_the_level_rose_and_says_what_to_do(tmp_path: Path) -> None:
    async def raised() -> None:
        node = await node_that(tmp_path, spoken())
        await until(lambda: node.cluster.machine.level == FEATURE_LEVEL)
        await node.close()

    async def rolled_back() -> None:
        with capture_logs() as logs:
            node = await node_that(tmp_path, OLD)
            await until(lambda: bool(node.levels.refusing))
        (told,) = [line for line in logs if line["event"].startswith("this node serves nobody")]
        assert told["log_level"] == "critical" and "docs/upgrades.md" in told["reason"]
        frame = encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello("c", "front end")))
        (answer,), _ = await say(node, frame)
        reply = msgspec.msgpack.decode(answer.payload, type=ErrorReply)
        assert reply.code == ErrorCode.SHUTTING_DOWN
        assert "the cluster is at feature level 2, and node 1 speaks 1 at most: start a release" in reply.message
        assert [one.kind for one in node.stopped.told(9)] == ["unknown-entry"]
        await node.close()

    asyncio.run(raised())
    asyncio.run(rolled_back())


def propose(node: StorageNode, replica: Replica, body: bytes) -> None:
    replica.append_own([body], replica.now_ms(), control=True)
    replica.perform(replica.raft.proposed(replica.log.log_end, node.clock.mono_ms()))
    node.committer.wake()


def test_entry_above_the_level_that_is_spoken_stops_its_replica_alone_and_names_both_levels(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await node_that(tmp_path, OLD)
        await until(lambda: node.cluster.serving and bool(node.cluster.machine.nodes))
        ask_for(node, 2, Asker())
        await until(lambda: len(node.cluster.machine.partitions) == 2)
        first, second = node.cluster.machine.partitions
        await until(lambda: node.replicas[first].serving and node.replicas[second].serving)
        replica: Any = node.replicas[first]
        replica.machine.follow()  # the entry is another leader's
        propose(node, replica, encode_queue_command(LeveledCommand(1, 1, replica.now_ms(), 2)))
        await until(lambda: first in node.stopped)
        (told,) = node.stopped.told(9)
        assert told.kind == "unknown-entry" and "is at feature level 2, this release speaks 1 at most" in told.reason
        assert node.replicas[second].serving and node.cluster.serving and not node.levels.refusing
        await node.close()

    asyncio.run(scenario())


def test_level_of_the_cluster_above_what_is_spoken_never_ends_the_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await node_that(tmp_path, OLD)
        await until(lambda: node.cluster.serving and bool(node.cluster.machine.nodes))
        cluster = node.cluster
        cluster.machine.levels[1] = NEW  # as if it had been said
        propose(node, cluster, encode_body(encode_command(SetFeatureLevel(2)), control_key(CONTROL_CLUSTER)))
        await until(lambda: CLUSTER_PARTITION in node.stopped)
        assert "the cluster is at feature level 2" in node.stopped.told(1)[0].reason
        assert "start a release there that speaks level 2" in node.levels.refusing
        await node.close()

    asyncio.run(scenario())
