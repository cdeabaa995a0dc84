"""Sends on their way into the log: which share a batch, how large it becomes, when they are answered, and with what."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from storage_nodes.limits import BATCH_BYTES_MAX, WAL_GROUP_BYTES_MAX
from storage_nodes.log.record_batch import Producer
from storage_nodes.node.appends import Appends
from storage_nodes.node.connections import Token
from storage_nodes.node.memory_budget import MemoryBudget
from storage_nodes.node.room import NodeRoom
from storage_nodes.protocol.messages import Opcode, SendReply, SendRequest, encode_message
from storage_nodes.protocol.records import encode_body

BODY = encode_body(b"x" * 100)
SMALL_BYTES = 5 * len(BODY)


class Rig:
    """A leader's appends: batches are lists of bodies, committed when the test says so."""

    def __init__(self) -> None:
        self.appends = Appends(NodeRoom(MemoryBudget(), lambda: 0.0, lambda: None))
        self.batches: list[list[bytes]] = []
        self.answers: dict[int, SendReply] = {}
        self.log = SimpleNamespace(log_end=0)
        self.replica: Any = SimpleNamespace(
            log=self.log, append_own=self._append, group_share_bytes=lambda: WAL_GROUP_BYTES_MAX
        )
        self.connection: Any = SimpleNamespace(answer=self._answered)

    def send(self, number: int, count: int, batch_bytes_max: int = BATCH_BYTES_MAX, plain: bool = False) -> None:
        payload = encode_message(SendRequest(1, [BODY] * count, plain))
        self.appends.take(Token(self.connection, number, Opcode.SEND), payload, None, lambda _: batch_bytes_max)

    def propose(self) -> list[int]:
        """Records of each batch."""
        self.appends.propose(self.replica, 1_000)
        return [len(batch) for batch in self.batches]

    def commit(self, end: int) -> None:
        self.appends.progressed(end, end, end)

    def _append(self, bodies: list[bytes], timestamp_ms: int, *, plain: bool = False, producer: Producer) -> int:
        self.batches.append(bodies)
        self.log.log_end += len(bodies)
        return int(self.log.log_end)

    def _answered(self, token: Token, payload: bytes) -> None:
        assert token.request_id not in self.answers
        self.answers[token.request_id] = msgspec.msgpack.decode(payload, type=SendReply)


def test_requests_that_gathered_share_a_batch() -> None:
    rig = Rig()
    rig.send(1, 3)
    rig.send(2, 4)
    assert rig.propose() == [7]
    rig.commit(7)
    assert [rig.answers[number].first_offset for number in (1, 2)] == [0, 3]


def test_request_larger_than_its_batches_may_be_is_cut_and_answered_with_its_last_batch() -> None:
    rig = Rig()
    rig.send(1, 12, SMALL_BYTES)
    assert rig.propose() == [5, 5, 2]
    rig.commit(10)
    assert not rig.answers, "not before all of it is committed"
    rig.commit(12)
    assert rig.answers[1].first_offset == 0


def test_requests_before_and_behind_one_that_is_cut_are_answered_with_their_own_places() -> None:
    rig = Rig()
    for number, count in enumerate((2, 7, 3), 1):
        rig.send(number, count, SMALL_BYTES)
    assert max(rig.propose()) <= 5
    rig.commit(12)
    assert {number: reply.first_offset for number, reply in rig.answers.items()} == {1: 0, 2: 2, 3: 9}


def test_record_larger_than_a_batch_may_be_stands_alone() -> None:
    rig = Rig()
    rig.send(1, 3, len(BODY) - 1)
    assert rig.propose() == [1, 1, 1]
    rig.commit(3)
    assert rig.answers[1].first_offset == 0


def test_small_batches_are_for_those_who_want_them() -> None:
    rig = Rig()
    rig.send(1, 20)
    rig.send(2, 20, SMALL_BYTES)
    rig.send(3, 20)
    rig.send(4, 20, plain=True)
    assert rig.propose() == [40, 5, 5, 5, 5, 20]


@pytest.mark.parametrize("repeated", [1, 6, 11])
def test_request_that_was_cut_is_told_which_of_its_messages_repeat_an_id(repeated: int) -> None:
    rig = Rig()
    rig.send(1, 12, SMALL_BYTES)
    rig.propose()
    rig.appends.duplicated([(repeated, 0)])
    rig.commit(12)
    assert rig.answers[1].duplicates == [(repeated, 0)]
