"""The numbers of sends: each producer counts its frames, a repeat has the number of the first attempt."""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

import msgspec
import pytest

from storage_nodes.client import StorageClient
from storage_nodes.client.sequences import Line, Sequences
from storage_nodes.limits import PRODUCER_PARTITIONS_MAX, PRODUCER_SEQUENCE_MAX, PRODUCER_WINDOW_RECORDS
from storage_nodes.model import Acks
from storage_nodes.protocol.errors import NOBODY_ASKED, ErrorCode, StorageError
from storage_nodes.protocol.messages import SendReply, SendRequest, encode_message
from tests.storage_nodes.client.scripted_node import ScriptedNode, run


def requests_of(node: ScriptedNode) -> list[SendRequest]:
    return [msgspec.msgpack.decode(frame.payload, type=SendRequest) for frame in node.frames]


def test_attempts_of_a_frame_are_the_same_and_frames_are_numbered_one_after_the_other() -> None:
    outcomes: list[bytes | StorageError] = [StorageError(ErrorCode.OUTCOME_UNKNOWN), StorageError(ErrorCode.NOT_LEADER)]

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        await asyncio.gather(client.send(1, [b"a", b"b"]), client.send(1, [b"c"]))
        await client.send(1, [b"d"])
        await client.send(2, [b"e"])
        first, second, third, fourth, other = requests_of(nodes[0])
        assert first == second == third and first.bodies == [b"a", b"b", b"c"] and first.sequence == 0
        assert fourth.sequence == 3 and other.sequence == 0
        assert first.producer_id == fourth.producer_id == other.producer_id >= 0

    run([lambda frame: outcomes.pop(0) if outcomes else encode_message(SendReply(7, 5))], scenario)


def test_send_without_acknowledgement_is_not_numbered() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        await client.send(1, [b"a"], acks=Acks.NONE)
        assert requests_of(nodes[0])[0].producer_id == -1

    run([lambda frame: encode_message(SendReply(7, 5))], scenario)


def test_stretches_and_duplicates_are_shared_out() -> None:
    reply = encode_message(SendReply(7, 5, [(1, 3), (2, 4)], [(1, 100), (3, 200)]))

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        one, other = await asyncio.gather(client.send(1, [b"a", b"b"], False), client.send(1, [b"c", b"d"], False))
        assert [one.offset_of(0), one.offset_of(1)] == [7, 100] and one.duplicates == [(1, 3)]
        assert [other.offset_of(0), other.offset_of(1)] == [101, 200] and other.duplicates == [(0, 4)]

    run([lambda frame: reply], scenario)


def test_send_beyond_the_window_waits_for_the_lowest_that_is_outstanding() -> None:
    line, begun = Line(5, random.Random(5)), []
    for _ in range(3):
        line.number(PRODUCER_WINDOW_RECORDS // 2, begun.append)
    line.number(1, begun.append)
    half = PRODUCER_WINDOW_RECORDS // 2
    assert begun == [0, half], "the last one would fit, and keeps its place"
    line.done(half)
    assert begun == [0, half]
    line.done(0)
    assert begun == [0, half, 2 * half, 3 * half]


def test_client_that_gave_up_a_whole_window_goes_on_as_another_producer() -> None:
    line, begun = Line(5, random.Random(5)), []
    step = PRODUCER_WINDOW_RECORDS // 4
    producers = []

    def go(first: int) -> None:
        producers.append(line.producer_id)
        begun.append(first)

    for stored in (step, 0, 0, 0, 0, 0, step, 0):
        line.number(step, go)
        line.done(begun[-1], stored)
    assert begun == [step * turn for turn in range(8)], "the numbers go on where they are"
    assert producers[:5] == [5] * 5, "a window beyond the end of what is stored is within reach"
    assert len(set(producers[5:])) == 1 and producers[5] != 5
    line.number(step, go)
    assert producers[-1] == producers[5], "the new producer reaches as far beyond what it stored"


def test_any_number_of_waiting_sends_may_be_over_in_the_moment_of_their_turn() -> None:
    line, over = Line(5, random.Random(5)), []
    line.number(PRODUCER_WINDOW_RECORDS, over.append)

    def end(first: int) -> None:
        over.append(first)
        line.done(first)

    waiting = 2 * sys.getrecursionlimit()
    for _ in range(waiting):
        line.number(10, end)
    line.done(0)
    assert over == [0, *range(PRODUCER_WINDOW_RECORDS, PRODUCER_WINDOW_RECORDS + 10 * waiting, 10)]


def test_send_that_leaves_takes_no_number_and_lets_those_behind_it_pass() -> None:
    line, begun = Line(5, random.Random(5)), []
    line.number(PRODUCER_WINDOW_RECORDS - 1, begun.append)
    large = line.number(2, begun.append)
    line.number(1, begun.append)
    assert begun == [0], "the last one would fit, and keeps its place"
    line.leave(large)
    assert begun == [0, PRODUCER_WINDOW_RECORDS - 1]


def test_sends_that_are_given_up_while_they_wait_for_a_number_are_answered_and_take_none() -> None:
    """At their deadline, or because their caller goes away; it blames nobody that they never left."""

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        sends: Any = client._sends
        line = sends._sequences.line(1)
        line.number(PRODUCER_WINDOW_RECORDS, lambda first: None)
        waiting = asyncio.create_task(client.send(1, [b"x"]))
        await asyncio.sleep(0.01)
        assert len(line._waiting) == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not line._waiting
        sends._timeout_s = 0.05
        with pytest.raises(StorageError, match="in time") as failed:
            await client.send(1, [b"y"])
        assert (failed.value.code, failed.value.asked) == (ErrorCode.UNREACHABLE, NOBODY_ASKED)
        assert not line._waiting and line.next == PRODUCER_WINDOW_RECORDS
        assert not nodes[0].frames

    run([lambda frame: None], scenario)


def test_callers_are_answered_before_the_frames_behind_get_their_turn() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        sends: Any = client._sends
        sends._timeout_s = 0.1
        send = asyncio.create_task(client.send(1, [b"x"]))
        while not nodes[0].frames:
            await asyncio.sleep(0.001)
        line = sends._sequences.line(1)

        def fail(first: int) -> None:
            raise RuntimeError("a bug of a frame behind")

        line.number(PRODUCER_WINDOW_RECORDS, fail)
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        with pytest.raises(StorageError):
            await asyncio.wait_for(send, 5)

    run([lambda frame: None], scenario)


def test_sends_that_wait_for_every_replica_hold_up_no_others() -> None:
    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        sends: Any = client._sends
        sends._sequences.line(1, True).number(PRODUCER_WINDOW_RECORDS, lambda first: None)
        slow = asyncio.create_task(client.send(1, [b"x"], acks=Acks.ALL))
        await client.send(1, [b"y"])
        assert not slow.done() and len(nodes[0].frames) == 1
        slow.cancel()

    run([lambda frame: encode_message(SendReply(7, 5))], scenario)


def test_line_of_sends_that_wait_for_every_replica_is_another_producer() -> None:
    sequences = Sequences(random.Random(3))
    assert sequences.line(1, True) is sequences.line(1, True) is not sequences.line(1)
    assert sequences.line(1, True).producer_id == sequences.line(2, True).producer_id != sequences.line(1).producer_id


def test_who_runs_out_of_numbers_or_of_partitions_is_another_producer() -> None:
    sequences = Sequences(random.Random(3))
    line = sequences.line(1)
    line.next = PRODUCER_SEQUENCE_MAX - 2 * PRODUCER_WINDOW_RECORDS + 1
    fresh = sequences.line(1)
    assert fresh.next == 0 and fresh.producer_id != line.producer_id == sequences.line(2).producer_id
    for partition in range(PRODUCER_PARTITIONS_MAX):
        sequences.line(partition)
    assert sequences.line(PRODUCER_PARTITIONS_MAX).producer_id not in (line.producer_id, fresh.producer_id)
