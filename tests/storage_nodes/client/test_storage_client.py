"""The storage client against scripted nodes: shared frames, leaders that move, answers that never come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from storage_nodes.client import StorageClient, connection, leaders
from storage_nodes.ids import make_node_id
from storage_nodes.model import Acks, NodeAddress
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import Frame
from storage_nodes.protocol.messages import (
    AcquiredMessage,
    AcquireReply,
    Cancel,
    ChangeVisibilityRequest,
    ClusterInfo,
    CodesReply,
    NodeInfo,
    Opcode,
    PartitionInfo,
    SendRequest,
    encode_message,
)
from tests.storage_nodes.client.scripted_node import ScriptedNode, accept, run

Answer = Callable[[Frame], bytes | None]


def test_sends_of_one_turn_share_a_frame_and_each_gets_its_own_offset() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        replies = await asyncio.gather(client.send(3, [b"a", b"b"]), client.send(3, [b"c"]), client.send(3, [b"d"]))
        assert [reply.first_offset for reply in replies] == [100, 102, 103]
        (frame,) = nodes[0].frames
        assert msgspec.msgpack.decode(frame.payload, type=SendRequest).bodies == [b"a", b"b", b"c", b"d"]

    run([accept], scenario)


def test_sends_to_other_partitions_or_with_other_acks_do_not_share() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        await asyncio.gather(client.send(3, [b"a"]), client.send(4, [b"b"]), client.send(3, [b"c"], plain=False))
        assert len(nodes[0].frames) == 3

    run([accept], scenario)


@pytest.mark.parametrize(("acks", "frames"), [(Acks.NONE, 1), (Acks.LEADER, 2)])
def test_send_that_may_have_arrived_is_sent_again_unless_no_acks_were_asked_for(acks: Acks, frames: int) -> None:
    outcomes = [StorageError(ErrorCode.OUTCOME_UNKNOWN), None]

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        send = client.send(3, [b"x"], acks=acks)
        if acks is Acks.NONE:
            with pytest.raises(StorageError):
                await send
        else:
            await send
        assert len(nodes[0].frames) == frames

    run([lambda frame: outcomes.pop(0) or accept(frame)], scenario)


def test_send_without_acks_goes_where_the_leader_is() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        await client.send(2, [b"x"], acks=Acks.NONE)
        assert len(nodes[1].frames) == 1

    redirect = StorageError(ErrorCode.NOT_LEADER, "", leader=2)
    run([accept, accept, lambda frame: redirect], scenario)


def test_not_leader_with_a_hint_is_followed_and_remembered() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        for _ in range(3):
            await client.send(2, [b"x"])
        assert [len(node.frames) for node in nodes] == [0, 3, 1]

    redirect = StorageError(ErrorCode.NOT_LEADER, "", leader=2)
    run([accept, accept, lambda frame: redirect], scenario)


def test_final_error_is_raised_at_once() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        with pytest.raises(StorageError) as refused:
            await client.send(3, [b"x"])
        assert refused.value.code is ErrorCode.TOO_LARGE
        assert len(nodes[0].frames) == 1

    run([lambda frame: StorageError(ErrorCode.TOO_LARGE)], scenario)


def test_retriable_error_is_raised_when_the_deadline_is_over() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        for _ in range(3):
            nodes[0].frames.clear()
            with pytest.raises(StorageError) as refused:
                await client.purge(3)
            assert 3 < len(nodes[0].frames) < 40, "tried again, with pauses that grow"
            # On a machine that stood still at the deadline the last attempt is unanswered, and its outcome unknown.
            if refused.value.code is not ErrorCode.OUTCOME_UNKNOWN:
                break
        assert refused.value.code is ErrorCode.NO_QUORUM

    run([lambda frame: StorageError(ErrorCode.NO_QUORUM)], scenario)


def test_node_that_never_answers_is_given_up_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PING_AFTER_S", 0.1)
    monkeypatch.setattr(connection, "PING_ANSWER_S", 0.1)

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        nodes[0].answers_pings = False
        assert (await client.send(2, [b"x"])).first_offset == 100
        assert [len(node.frames) > 0 for node in nodes] == [True, True]

    run([lambda frame: None, accept], scenario)


def test_cancelled_acquire_tells_the_node() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        poll = asyncio.create_task(client.acquire(1, 10, 1_000, 20_000))
        while not nodes[0].frames:
            await asyncio.sleep(0.01)
        poll.cancel()
        while len(nodes[0].frames) < 2:
            await asyncio.sleep(0.01)
        asked, cancel = nodes[0].frames
        assert cancel.opcode == Opcode.CANCEL
        assert msgspec.msgpack.decode(cancel.payload, type=Cancel).correlation_id == asked.correlation_id

    run([lambda frame: None if frame.opcode == Opcode.ACQUIRE else encode_message(AcquireReply(1, []))], scenario)


def test_messages_that_come_after_the_poll_was_given_up_are_handed_back() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        poll = asyncio.create_task(client.acquire(1, 10, 1_000, 20_000))
        while not nodes[0].frames:
            await asyncio.sleep(0.01)
        poll.cancel()
        while len(nodes[0].frames) < 3:
            await asyncio.sleep(0.01)
        assert poll.cancelled()
        handed_back = nodes[0].frames[2]
        assert handed_back.opcode == Opcode.CHANGE_VISIBILITY
        change = msgspec.msgpack.decode(handed_back.payload, type=ChangeVisibilityRequest)
        assert (change.partition, change.changes, change.epoch) == (1, [(7, 1, 0)], 5)

    answers: dict[int, bytes | None] = {
        Opcode.ACQUIRE: None,
        Opcode.CANCEL: encode_message(AcquireReply(5, [AcquiredMessage(7, 1, 0, 0, b"x")])),
        Opcode.CHANGE_VISIBILITY: encode_message(CodesReply([0])),
    }
    run([lambda frame: answers[frame.opcode]], scenario)


def test_node_of_another_cluster_is_not_spoken_to() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        with pytest.raises(StorageError) as refused:
            await client.send(3, [b"x"])
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert nodes[0].frames == []

    run([accept], scenario, cluster_id="another")


def test_node_that_is_another_one_than_the_list_says_is_not_spoken_to() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        nodes[0].node_id = make_node_id(2, 1)
        with pytest.raises(StorageError, match=r"is node 2\.1, not node 1"):
            await client.send(7, [b"x"])
        assert nodes[0].frames == []

    run([accept], scenario)


def test_node_that_is_not_there_is_passed_over() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        assert nodes[0].server is not None
        nodes[0].server.close()
        await nodes[0].server.wait_closed()
        assert (await client.send(2, [b"x"])).first_offset == 100
        assert nodes[1].frames

    run([accept, accept], scenario)


def test_calls_that_fail_together_turn_the_guess_once() -> None:
    """As many calls as nodes: turned by each of them, the guess would come back to the node that failed, for ever."""

    def refuse(frame: Frame) -> StorageError:
        return StorageError(ErrorCode.NOT_LEADER)

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        replies = await asyncio.gather(*(client.acquire(3, 1, 1_000) for _ in nodes))
        assert [reply.epoch for reply in replies] == [1, 1, 1]
        assert [len(node.frames) for node in nodes] == [3, 3, 0]

    run([refuse, lambda frame: encode_message(AcquireReply(1, [])), refuse], scenario)


# --- nodes that come and go ---------------------------------------------------------------------------------


def describing(nodes: list[NodeAddress], partition: PartitionInfo, manager: int = 1) -> Answer:
    """A node that leads nothing, and knows the cluster."""
    infos = [NodeInfo(*node) for node in nodes]
    described = encode_message(ClusterInfo("c", manager, infos, [partition]))
    return lambda frame: described if frame.opcode == Opcode.DESCRIBE_CLUSTER else None


def with_a_node_it_was_not_given(
    refusal: StorageError, scenario: Callable[[StorageClient, ScriptedNode, ScriptedNode], Awaitable[None]]
) -> None:
    """The client is given node 1, which refuses; node 4 has the partition."""

    async def main() -> None:
        new = ScriptedNode(4, accept)
        there = await new.start()
        old = ScriptedNode(1, lambda frame: refusal)
        here = await old.start()
        describe = describing([here, there], PartitionInfo(3, 1, [4], "t"))
        old.script = lambda frame: describe(frame) or refusal
        client = StorageClient("c", [here], timeout_s=5.0)
        await client.start()
        await scenario(client, old, new)
        await client.close()
        for node in (old, new):
            assert node.server is not None
            node.server.close()

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize(
    "refusal", [StorageError(ErrorCode.NOT_LEADER, "", 4), StorageError(ErrorCode.UNKNOWN_PARTITION)]
)
def test_node_that_joined_later_is_found_and_remembered(refusal: StorageError) -> None:
    async def scenario(client: StorageClient, old: ScriptedNode, new: ScriptedNode) -> None:
        for _ in range(3):
            await client.send(3, [b"x"])
        assert len(new.frames) == 3
        assert [frame.opcode for frame in old.frames].count(Opcode.DESCRIBE_CLUSTER) <= 2

    with_a_node_it_was_not_given(refusal, scenario)


def test_node_that_is_gone_is_asked_no_more_and_an_old_word_removes_nobody() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        links = client._links
        addresses = [links._nodes[node.node_id] for node in nodes]
        partition = PartitionInfo(3, 1, [1], "t")
        nodes[0].script = describing(addresses[:1], partition, manager=0)  # type: ignore[assignment]
        await client.describe()
        assert links._order == [1, 2]
        nodes[0].script = describing(addresses[:1], partition)  # type: ignore[assignment]
        await client.describe()
        assert links._order == [1]

    run([accept, lambda frame: StorageError(ErrorCode.UNREACHABLE)], scenario)


def test_node_that_is_named_again_is_asked_again() -> None:
    """The list had it before the cluster did. When all the others are gone, it is the one to ask."""

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        links = client._links
        addresses = [links._nodes[node.node_id] for node in nodes]
        partition = PartitionInfo(3, 1, [1], "t")
        for named, order in ((addresses[:1], [1]), (addresses, [1, 2]), (addresses[1:], [2])):
            nodes[0].script = describing(named, partition)  # type: ignore[assignment]
            await client.describe()
            assert links._order == order

    run([accept, accept], scenario)


def test_answer_of_a_node_that_knows_nothing_yet_does_not_count() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        addresses = [client._links._nodes[node.node_id] for node in nodes]
        nodes[0].script = describing([], PartitionInfo(3, 1, [1], "t"), manager=0)  # type: ignore[assignment]
        nodes[1].script = describing(addresses, PartitionInfo(3, 1, [2], "t"))  # type: ignore[assignment]
        assert (await client.describe()).partitions[0].replicas == [2]

    run([accept, accept], scenario)


def test_nodes_stay_known_where_the_only_answer_names_none() -> None:
    """A node that has just started may hear who leads before it knows of any node."""

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        order = list(client._links._order)
        nodes[0].script = describing([], PartitionInfo(3, 1, [1], "t"), manager=2)  # type: ignore[assignment]
        nodes[1].script = lambda frame: StorageError(ErrorCode.UNREACHABLE)
        await client.describe()
        assert client._links._order == order

    run([accept, accept], scenario)


def test_answer_of_a_node_that_is_cut_off_counts_where_nobody_else_answers() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        addresses = [client._links._nodes[node.node_id] for node in nodes]
        nodes[0].script = describing(addresses, PartitionInfo(3, 1, [1], "old", leader=1), manager=0)  # type: ignore[assignment]
        nodes[1].script = describing(addresses, PartitionInfo(3, 1, [2], "new", leader=2))  # type: ignore[assignment]
        assert (await client.describe()).partitions[0].tag == "new"
        assert client._links.guess(3) == 2
        nodes[1].script = lambda frame: StorageError(ErrorCode.UNREACHABLE)
        assert (await client.describe()).partitions[0].tag == "old"
        nodes[1].script = describing([], PartitionInfo(3, 1, [2], "blank"), manager=0)  # type: ignore[assignment]
        for _ in nodes:
            assert (await client.describe()).partitions[0].tag == "old"
            nodes[0].script, nodes[1].script = nodes[1].script, nodes[0].script

    run([accept, accept], scenario)


def test_node_nobody_knows_is_unreachable() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        with pytest.raises(StorageError, match="node 9 is not known"):
            await client.describe_node(9)

    run([accept], scenario)


def test_hint_to_a_node_that_is_not_there_is_not_taken() -> None:
    """Node 4 holds no replica and sends to the preferred leader, which is dead; 1 leads. The guess must come round."""

    def send_to_three(frame: Frame) -> StorageError:
        return StorageError(ErrorCode.NOT_LEADER, "held elsewhere", 3)

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        dead = nodes[2].server
        assert dead is not None
        dead.close()
        await dead.wait_closed()
        assert (await client.send(2, [b"x"])).first_offset == 100  # partition 2 of 4 nodes: the first guess is node 3
        assert nodes[3].frames and nodes[0].frames

    run([accept, accept, accept, send_to_three], scenario)


def test_hint_to_a_node_that_just_said_it_knows_no_leader_is_not_taken() -> None:
    """Node 3 is cut off from the leader, 1; 4 holds no replica and sends to the first in line, which is 3."""

    def cut_off(frame: Frame) -> StorageError:
        return StorageError(ErrorCode.NOT_LEADER, "led elsewhere")

    def send_to_three(frame: Frame) -> StorageError:
        return StorageError(ErrorCode.NOT_LEADER, "held elsewhere", 3)

    def asked(nodes: list[ScriptedNode]) -> list[int]:
        return [[frame.opcode for frame in node.frames].count(Opcode.SEND) for node in nodes]

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        assert (await client.send(2, [b"x"])).first_offset == 100  # partition 2 of 4 nodes: the first guess is node 3
        assert asked(nodes) == [1, 0, 1, 1]
        nodes[2].script, nodes[0].script = accept, lambda frame: StorageError(ErrorCode.NOT_LEADER, "it is back", 3)
        client._links._leaderless[2] = (3, 0.0)  # a pause later
        assert (await client.send(2, [b"x"])).first_offset == 100
        assert asked(nodes) == [2, 0, 2, 1]

    run([accept, accept, cut_off, send_to_three], scenario)


def test_leader_that_was_not_there_once_is_found_though_the_others_send_in_a_circle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Node 1, whom the client asks where partitions are, is cut off and knows no leader; 2 says 4, which was down when
    asked last; 3 holds nothing and says 2."""
    monkeypatch.setattr(leaders, "HINT_PAUSE_S", 0.2)

    def not_leader(hint: int) -> Callable[[Frame], bytes | StorageError | None]:
        return lambda frame: StorageError(ErrorCode.NOT_LEADER, "no", hint)

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        addresses = [client._links._nodes[node.node_id] for node in nodes]
        cut_off = describing(addresses, PartitionInfo(3, 0, [1, 2, 4], "t"), manager=0)
        nodes[0].script = lambda frame: (
            cut_off(frame) if frame.opcode == Opcode.DESCRIBE_CLUSTER else not_leader(0)(frame)
        )
        leading = nodes[3].server
        assert leading is not None
        leading.close()
        await leading.wait_closed()
        sending = asyncio.create_task(client.send(3, [b"x"]))  # partition 3 of 4 nodes: the first guess is node 4
        while len(nodes[1].frames) < 2:  # it was asked twice: the circle is closed
            await asyncio.sleep(0.01)
        nodes[3].server = await asyncio.start_server(nodes[3]._serve, "127.0.0.1", addresses[3].port)
        assert (await sending).first_offset == 100

    run([not_leader(0), not_leader(4), not_leader(2), accept], scenario)
