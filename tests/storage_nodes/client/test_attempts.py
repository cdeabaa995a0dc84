"""What the client makes of a node that is slow, bursts, dies or falls silent: nothing is appended twice, no lease lost.

The scripted node counts what it appended by (producer, sequence), as a leader does. Times are scaled down.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import uvloop

from storage_nodes.client import StorageClient, connection
from storage_nodes.client.pauses import RETRY_PAUSE_S_MAX, Pauses
from storage_nodes.model import Acks, NodeAddress
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import FLAG_ANSWER, FLAG_ERROR, Frame, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import (
    AcquiredMessage,
    AcquireReply,
    AcquireRequest,
    ChangeVisibilityRequest,
    CodesReply,
    Empty,
    ErrorReply,
    Hello,
    Opcode,
    PurgeReply,
    PurgeRequest,
    SendReply,
    SendRequest,
    VisibilityMode,
    encode_message,
)
from tests.storage_nodes.client.scripted_node import ScriptedNode, run

MIB = 1024 * 1024
PING_S = 0.15


@pytest.fixture
def quick_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PING_AFTER_S", PING_S)
    monkeypatch.setattr(connection, "PING_ANSWER_S", PING_S)


class Leader(asyncio.Protocol):
    """A node that leads everything: appends what it does not know, answers `commit_s` later. It may die, be silent."""

    def __init__(self) -> None:
        self.appended: list[tuple[int, int]] = []  # (producer, sequence) of every append
        self.attempts = 0
        self.frames: list[tuple[int, bytes]] = []
        self.connections: list[Connection] = []
        self.commit_s = 0.0
        self.is_silent = False
        self.dies_after: int | None = None  # so many sends, once
        self.server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> NodeAddress:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Connection(self), "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]
        return NodeAddress(1, "127.0.0.1", self.port, "z")

    def request(self, link: Connection, frame: Frame) -> None:
        self.frames.append((frame.opcode, frame.payload))
        if frame.opcode != Opcode.SEND:
            return
        self.attempts += 1
        request = msgspec.msgpack.decode(frame.payload, type=SendRequest)
        key = (request.producer_id, request.sequence)
        if key not in self.appended:
            self.appended.append(key)
        asyncio.get_running_loop().call_later(
            self.commit_s, link.answer, frame, SendReply(self.appended.index(key) * 1_000, 5)
        )
        if self.dies_after is not None and self.attempts >= self.dies_after:
            self.die()

    def die(self) -> None:
        self.dies_after = None
        assert self.server is not None
        self.server.close()
        for link in self.connections:
            link.transport.abort()
        loop = asyncio.get_running_loop()
        loop.call_later(0.2, lambda: loop.create_task(self.start()))


class Connection(asyncio.Protocol):
    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._leader.connections.append(self)

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            if frame.opcode == Opcode.HELLO:
                self.answer(frame, Hello("c", "node", 1))
            elif self._leader.is_silent:
                self.transport.pause_reading()
                return
            elif frame.opcode == Opcode.PING:
                self.answer(frame, Empty())
            else:
                self._leader.request(self, frame)

    def answer(self, frame: Frame, reply: msgspec.Struct) -> None:
        if not self.transport.is_closing():
            is_error = isinstance(reply, ErrorReply)
            flags = FLAG_ANSWER | (FLAG_ERROR if is_error else 0)
            self.transport.write(encode_frame(frame.opcode, flags, frame.correlation_id, encode_message(reply)))


def with_leader(scenario: Callable[[StorageClient, Leader], Awaitable[None]], timeout_s: float = 10.0) -> None:
    async def main() -> None:
        leader = Leader()
        client = StorageClient("c", [await leader.start()], timeout_s=timeout_s, chance=random.Random(1))
        await client.start()
        await scenario(client, leader)
        await client.close()
        assert leader.server is not None
        leader.server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 30))


# --- bursts -------------------------------------------------------------------------------------------------


def test_burst_larger_than_any_buffer_goes_through_one_connection() -> None:
    async def scenario(client: StorageClient, leader: Leader) -> None:
        bodies = [bytes(MIB) for _ in range(70)]
        replies = await asyncio.gather(*(client.send(1, [body]) for body in bodies))
        assert len({reply.first_offset for reply in replies}) == 70
        assert len(leader.connections) == 1 and leader.attempts == len(leader.appended) == 70

    with_leader(scenario)


def test_burst_survives_the_death_of_the_node_and_nothing_is_appended_twice() -> None:
    async def scenario(client: StorageClient, leader: Leader) -> None:
        leader.dies_after, leader.commit_s = 20, 0.01
        body = bytes(256 * 1024)
        replies = await asyncio.gather(*(client.send(1 + number % 50, [body]) for number in range(300)))
        assert len(replies) == 300
        assert len(leader.appended) == len(set(leader.appended)) < leader.attempts, "some were tried again"
        assert len(leader.connections) == 2

    with_leader(scenario)


def test_what_the_client_holds_back_is_bounded_by_what_the_system_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transport never holds more than one share and its own mark, whatever was asked for."""
    highest = 0
    flush = connection.ClientConnection._flush

    def watch(self: connection.ClientConnection) -> None:
        nonlocal highest
        flush(self)
        if self._transport is not None:
            highest = max(highest, self._transport.get_write_buffer_size())

    monkeypatch.setattr(connection.ClientConnection, "_flush", watch)

    async def scenario(client: StorageClient, leader: Leader) -> None:
        await asyncio.gather(*(client.send(1, [bytes(MIB // 2)]) for _ in range(40)))

    with_leader(scenario)
    assert 0 < highest < 4 * MIB


# --- slow and silent nodes ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_pings")
def test_node_that_is_there_is_waited_for_however_slow_its_commit_is() -> None:
    async def scenario(client: StorageClient, leader: Leader) -> None:
        leader.commit_s = 6 * PING_S
        await asyncio.gather(client.send(1, [b"x"]), client.send(2, [b"y"], acks=Acks.ALL))
        assert leader.attempts == 2 and len(leader.connections) == 1

    with_leader(scenario)


@pytest.mark.usefixtures("quick_pings")
@pytest.mark.parametrize("answers_pings", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.send(1, [b"x"], acks=Acks.ALL),
        lambda client: client.purge(1),
        lambda client: client.acquire(1, 1, 1_000),
    ],
)
def test_deadline_that_passes_says_of_the_node_only_whether_it_is_there(
    call: Callable[[StorageClient], Awaitable[Any]], answers_pings: bool
) -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        nodes[0].answers_pings = answers_pings
        timeout_s = (4 if answers_pings else 1.5) * PING_S
        client._timeout_s = client._sends._timeout_s = timeout_s
        with pytest.raises(StorageError) as failed:
            await call(client)
        error = failed.value
        assert (error.code, error.asked) == (ErrorCode.OUTCOME_UNKNOWN, 1)
        assert error.node_is_there == answers_pings

    run([lambda frame: None], scenario)


def test_what_a_node_answers_shows_that_it_is_there_and_a_lost_connection_does_not() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        with pytest.raises(StorageError) as refused:
            await client.send(1, [b"x"], acks=Acks.NONE)
        assert refused.value.node_is_there

    run([lambda frame: StorageError(ErrorCode.OUTCOME_UNKNOWN)], scenario)

    async def dying(client: StorageClient, leader: Leader) -> None:
        leader.dies_after = 1
        with pytest.raises(StorageError) as lost:
            await client.send(1, [b"x"], acks=Acks.NONE)
        assert lost.value.code is ErrorCode.OUTCOME_UNKNOWN and not lost.value.node_is_there

    with_leader(dying)


@pytest.mark.usefixtures("quick_pings")
def test_node_that_falls_silent_is_given_up_and_every_call_moves_on() -> None:
    def leads(frame: Frame) -> bytes:
        if frame.opcode == Opcode.ACQUIRE:
            return encode_message(AcquireReply(1, []))
        return encode_message(SendReply(7, 5))

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        nodes[0].answers_pings = False
        started_s = asyncio.get_running_loop().time()
        sent, polled = await asyncio.gather(client.send(2, [b"x"]), client.acquire(2, 1, 1_000, 20_000))
        assert sent.first_offset == 7 and polled.epoch == 1
        assert asyncio.get_running_loop().time() - started_s < 5 * PING_S
        assert nodes[0].pings == 1

    run([lambda frame: None, leads], scenario)


@pytest.mark.usefixtures("quick_pings")
def test_silent_node_with_a_full_pipe_is_given_up_for_lack_of_progress() -> None:
    """The ping itself does not get through: what waits in front of it does not move."""

    async def scenario(client: StorageClient, leader: Leader) -> None:
        await client.send(1, [b"warm"])
        leader.is_silent = True
        sends = [asyncio.create_task(client.send(1, [bytes(MIB)])) for _ in range(40)]
        while len(leader.connections) < 2:
            await asyncio.sleep(0.01)
        leader.is_silent = False
        await asyncio.gather(*sends)
        assert len(leader.appended) == 41

    with_leader(scenario)


@pytest.mark.usefixtures("quick_pings")
def test_idle_connection_is_left_alone() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        await client.send(1, [b"x"])
        await asyncio.sleep(4 * PING_S)
        assert nodes[0].pings == 0

    run([lambda frame: encode_message(SendReply(7, 5))], scenario)


def test_call_that_was_never_written_is_known_not_to_have_arrived() -> None:
    async def scenario(client: StorageClient, leader: Leader) -> None:
        await client.send(1, [b"warm"])
        leader.is_silent = True
        calls = [client.send(1, [bytes(MIB)]) for _ in range(40)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        codes = [outcome.code for outcome in outcomes if isinstance(outcome, StorageError)]
        assert codes[0] is ErrorCode.OUTCOME_UNKNOWN and codes[-1] is ErrorCode.UNREACHABLE

    with_leader(scenario, timeout_s=0.5)


def test_refusal_after_an_attempt_that_may_have_arrived_says_that_nobody_knows() -> None:
    outcomes = [StorageError(ErrorCode.OUTCOME_UNKNOWN), StorageError(ErrorCode.TOO_LARGE)] * 2

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        for call in (client.send(1, [b"x"]), client.purge(1)):
            with pytest.raises(StorageError, match="TOO_LARGE") as refused:
                await call  # type: ignore[misc]
            assert refused.value.code is ErrorCode.OUTCOME_UNKNOWN

    run([lambda frame: outcomes.pop(0)], scenario)


# --- receives, and what else is repeated --------------------------------------------------------------------


def test_leases_of_an_answer_that_comes_after_the_deadline_are_handed_back() -> None:
    async def scenario(client: StorageClient, leader: Leader) -> None:
        loop = asyncio.get_running_loop()
        late = AcquireReply(1, [AcquiredMessage(7, 2, 0, 0, b"x")], 43_200_001)

        def request(link: Connection, frame: Frame) -> None:
            leader.frames.append((frame.opcode, frame.payload))
            if frame.opcode == Opcode.ACQUIRE:
                loop.call_later(0.4, link.answer, frame, late)
            elif frame.opcode == Opcode.CHANGE_VISIBILITY:
                link.answer(frame, CodesReply([0]))

        leader.request = request  # type: ignore[method-assign]
        with pytest.raises(StorageError):
            await client.acquire(1, 10, 43_200_000)
        while leader.frames[-1][0] != Opcode.CHANGE_VISIBILITY:
            await asyncio.sleep(0.01)
        change = msgspec.msgpack.decode(leader.frames[-1][1], type=ChangeVisibilityRequest)
        assert (change.changes, change.mode) == ([(7, 2, 0)], VisibilityMode.UNSEEN)
        assert (change.epoch, change.deadline_ms) == (1, 43_200_001), "that lease, and no later one"

    with_leader(scenario, timeout_s=0.2)


def test_attempts_of_a_receive_or_a_purge_have_one_name_and_calls_have_different_ones() -> None:
    outcomes = [StorageError(ErrorCode.OUTCOME_UNKNOWN), None, None] * 2
    answers = {Opcode.ACQUIRE: AcquireReply(1, []), Opcode.PURGE: PurgeReply(3)}

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        calls = ((lambda: client.acquire(1, 10, 1_000), AcquireRequest), (lambda: client.purge(1), PurgeRequest))
        for call, kind in calls:
            nodes[0].frames.clear()
            await call()
            await call()
            names = [msgspec.msgpack.decode(frame.payload, type=kind).attempt for frame in nodes[0].frames]
            assert names[0] == names[1] != names[2] and all(names)
        await client.acquire(1, 10, 1_000, attempt=b"mine")
        assert msgspec.msgpack.decode(nodes[0].frames[-1].payload, type=AcquireRequest).attempt == b"mine"

    def script(frame: Frame) -> bytes | StorageError:
        return (outcomes.pop(0) if outcomes else None) or encode_message(answers[Opcode(frame.opcode)])

    run([script], scenario)


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("gone", [ErrorCode.NOT_IN_FLIGHT, ErrorCode.RECEIPT_STALE], ids=["standard", "fifo"])
def test_lease_that_an_earlier_attempt_ended_is_ended_as_asked(is_repeated: bool, gone: ErrorCode) -> None:
    outcomes = [StorageError(ErrorCode.OUTCOME_UNKNOWN)] if is_repeated else []
    outcomes_of_all = list(outcomes)

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        codes = await client.change_visibility(1, [(7, 1, 0), (8, 1, 5_000)])
        assert codes == [ErrorCode.OK if is_repeated else gone, gone], "a lease that was to go on is lost all the same"
        sent = [msgspec.msgpack.decode(frame.payload, type=ChangeVisibilityRequest) for frame in nodes[0].frames]
        modes = [VisibilityMode.SET, VisibilityMode.HELD][: len(outcomes_of_all) + 1]
        assert [one.mode for one in sent] == modes, "another consumer may have the message by now"

    run([lambda frame: outcomes.pop() if outcomes else encode_message(CodesReply([gone, gone]))], scenario)


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("mode", [VisibilityMode.NACK, VisibilityMode.UNCOUNTED, VisibilityMode.UNSEEN])
def test_lease_that_an_earlier_attempt_gave_back_is_given_back_as_asked_and_once(
    mode: VisibilityMode, is_repeated: bool
) -> None:
    """Its receipt is over then, so nothing more may come of another attempt in the same mode. What was wrong from the
    start is told all the same."""
    gone = [ErrorCode.NOT_IN_FLIGHT, ErrorCode.RECEIPT_STALE]
    outcomes = [StorageError(ErrorCode.OUTCOME_UNKNOWN)] if is_repeated else []
    attempts = 1 + len(outcomes)

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        changes = [(7, 1, 0), (8, 1, 0), (9, 1, 0), (10, 1, 0)]
        codes = await client.change_visibility(1, changes, mode, epoch=3)
        ended = [ErrorCode.OK, ErrorCode.OK] if is_repeated else gone
        assert codes == [*ended, ErrorCode.OK, ErrorCode.INVALID_REQUEST]
        sent = [msgspec.msgpack.decode(frame.payload, type=ChangeVisibilityRequest) for frame in nodes[0].frames]
        assert [(one.mode, one.changes, one.epoch) for one in sent] == [(mode, changes, 3)] * attempts

    answer = encode_message(CodesReply([*gone, ErrorCode.OK, ErrorCode.INVALID_REQUEST]))
    run([lambda frame: outcomes.pop() if outcomes else answer], scenario)


@pytest.mark.parametrize("attempts", [1, 3])
def test_call_makes_no_more_attempts_than_it_may_and_learns_from_the_last(attempts: int) -> None:
    async def main() -> None:
        nodes = [ScriptedNode(number, lambda frame: StorageError(ErrorCode.NO_QUORUM)) for number in (1, 2)]
        client = StorageClient("c", [await node.start() for node in nodes], attempts_max=attempts)
        await client.start()
        for call in (client.send(2, [b"x"]), client.purge(2)):
            before = sum(len(node.frames) for node in nodes)
            with pytest.raises(StorageError):
                await call  # type: ignore[misc]
            assert sum(len(node.frames) for node in nodes) == before + attempts
        assert nodes[0].frames and nodes[1].frames
        await client.close()
        for node in nodes:
            assert node.server is not None
            node.server.close()

    asyncio.run(asyncio.wait_for(main(), 20))


# --- pauses -------------------------------------------------------------------------------------------------


def test_pauses_grow_and_no_two_calls_keep_step() -> None:
    chance = random.Random(7)
    calls = [Pauses(chance) for _ in range(50)]
    unreachable = StorageError(ErrorCode.UNREACHABLE)
    rounds = [[call.after(unreachable) for call in calls] for _ in range(6)]
    means = [sum(pauses) / len(pauses) for pauses in rounds]
    assert means[:4] == sorted(means[:4]) and max(rounds[-1]) <= RETRY_PAUSE_S_MAX
    assert all(len(set(pauses)) == len(calls) for pauses in rounds)


def test_node_that_is_short_of_room_says_for_how_long() -> None:
    overloaded = StorageError(ErrorCode.OVERLOADED, retry_after_ms=200)
    pauses = [Pauses(random.Random(seed)).after(overloaded) for seed in range(9)]
    assert all(0.2 <= pause <= 0.4 for pause in pauses)


def test_hint_is_followed_at_once() -> None:
    assert Pauses(random.Random(1)).after(StorageError(ErrorCode.NOT_LEADER, leader=2)) < 0.01
