"""Sends on their way into the log: which share a batch, how large it becomes, when they are answered, and with what."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from storage_nodes.limits import (
    ALL_WAITERS_PER_PARTITION_MAX,
    BATCH_BYTES_MAX,
    OVERLOADED_RETRY_MS,
    WAL_GROUP_BYTES_MAX,
)
from storage_nodes.log.record_batch import Producer
from storage_nodes.model import Acks
from storage_nodes.node.memory.memory_budget import Kind, MemoryBudget
from storage_nodes.node.memory.room import NodeRoom
from storage_nodes.node.replicas.all_waiters import SWEEP_MIN
from storage_nodes.node.replicas.appends import Appends
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
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
        self.committer = SimpleNamespace(share_bytes=WAL_GROUP_BYTES_MAX)
        self.replica: Any = SimpleNamespace(
            log=self.log, append_own=self._append, host=SimpleNamespace(committer=self.committer)
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

    def _append(
        self, bodies: list[bytes], timestamp_ms: int, *, plain: bool = False, producer: Producer, usage: int = -1
    ) -> int:
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


# --- shares of a WAL group ----------------------------------------------------------------------------------


def staged_per_group(sizes: list[int], share_bytes: int) -> Iterator[int]:
    """Requests with bodies of these sizes wait; bytes staged in each group until all are."""
    rig = Rig()
    budget = MemoryBudget()
    rig.appends = Appends(NodeRoom(budget, lambda: 0.0, lambda: None))
    asked: list[int] = []
    rig.committer.share_bytes = share_bytes
    rig.replica.propose_soon = lambda: asked.append(1)
    for number, size in enumerate(sizes):
        payload = encode_message(SendRequest(1, [encode_body(b"x" * size)]))
        rig.appends.take(Token(rig.connection, number, Opcode.SEND), payload, None)
    asked.append(1)
    while asked:
        asked.clear()
        before = rig.log.log_end
        rig.batches.clear()
        rig.propose()
        assert rig.log.log_end > before
        yield sum(len(body) for batch in rig.batches for body in batch)
        assert rig.appends.gathered_records == len(sizes) - rig.log.log_end
    assert rig.log.log_end == len(sizes) and budget.used(Kind.SENDS) == 0


@pytest.mark.parametrize("size", [500, 4_000, BATCH_BYTES_MAX // 3])
def test_backlog_of_small_requests_fills_the_share_of_every_group(size: int) -> None:
    """Else a partition among many would leave with a request a group, and never come to the end of its backlog."""
    share_bytes = BATCH_BYTES_MAX
    *full, last = staged_per_group([size] * (3 * share_bytes // size), share_bytes)
    assert len(full) >= 2 and last
    assert max(full) <= share_bytes and min(full) > share_bytes // 2


def test_request_larger_than_the_share_leaves_alone() -> None:
    assert [staged // 1_000 for staged in staged_per_group([5_000, 9_000, 1_000], 4_000)] == [5, 9, 1]


# --- who the producer is ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "numbers", [(-7, -1, -1), (-1, 10**6, -1), (-1, -1, 2**31), (-1, 0, 0), (-(2**63), -1, -1), (-1, -1, -2)]
)
def test_send_without_a_producer_has_no_numbers_of_one(numbers: tuple[int, int, int]) -> None:
    rig = Rig()
    payload = encode_message(SendRequest(1, [BODY], True, Acks.QUORUM, *numbers))
    with pytest.raises(StorageError) as refused:
        rig.appends.take(Token(rig.connection, 1, Opcode.SEND), payload, None)
    assert refused.value.code is ErrorCode.INVALID_REQUEST and rig.appends.is_idle


# --- waiting for all voters ---------------------------------------------------------------------------------


class Caller:
    """A connection; of each request it knows how it ended."""

    def __init__(self) -> None:
        self.parked: dict[int, tuple[int, int]] = {}
        self.ends: dict[int, int | ErrorCode] = {}  # first offset, or why not

    def answer(self, token: Token, payload: bytes) -> None:
        self._ended(token, msgspec.msgpack.decode(payload, type=SendReply).first_offset)

    def refuse(self, token: Token, error: StorageError) -> None:
        self._ended(token, error.code)

    def _ended(self, token: Token, end: int | ErrorCode) -> None:
        assert token.request_id not in self.ends
        self.ends[token.request_id] = end
        self.parked.pop(token.request_id, None)


class AllRig(Rig):
    """Majorities are quick, one voter is away."""

    def __init__(self) -> None:
        super().__init__()
        self.caller: Any = Caller()

    def ask(self, number: int, acks: Acks = Acks.ALL, producer: int = -1, sequence: int = -1) -> None:
        epoch = 0 if producer >= 0 else -1
        payload = encode_message(SendRequest(7, [BODY], True, acks, producer, epoch, sequence))
        self.appends.take(self.token(number), payload, None)

    def token(self, number: int) -> Token:
        return Token(self.caller, number, Opcode.SEND)

    def commit_without_one(self) -> None:
        self.propose()
        self.appends.progressed(self.log.log_end, self.log.log_end, 0)


def test_send_for_all_voters_that_is_given_up_ends_and_the_others_wait_on() -> None:
    rig = AllRig()
    for number in (1, 2, 3):
        rig.ask(number)
    rig.ask(4, Acks.QUORUM)
    assert rig.caller.parked == dict.fromkeys((1, 2, 3), (7, Opcode.SEND))
    assert rig.appends.give_up(rig.token(1)), "before it is in the log"
    rig.commit_without_one()
    assert rig.appends.give_up(rig.token(3))
    assert not rig.appends.give_up(rig.token(3)) and not rig.appends.give_up(rig.token(4))
    unknown = ErrorCode.OUTCOME_UNKNOWN
    assert rig.caller.ends == {1: unknown, 3: unknown, 4: 3} and list(rig.caller.parked) == [2]
    rig.commit(4)
    assert not rig.appends.give_up(rig.token(2)), "it was answered"
    assert rig.caller.ends == {1: unknown, 2: 1, 3: unknown, 4: 3}, "all four are in the log"
    assert rig.appends.is_idle


@pytest.mark.parametrize("first", [1, 2])
def test_repeat_waits_on_when_the_first_attempt_is_given_up_and_the_other_way_round(first: int) -> None:
    rig = AllRig()
    rig.ask(1, producer=5, sequence=0)
    rig.ask(2, producer=5, sequence=0)
    assert rig.appends.give_up(rig.token(first))
    rig.propose()
    rig.commit(1)
    assert rig.caller.ends == {first: ErrorCode.OUTCOME_UNKNOWN, 3 - first: 0}
    assert not rig.caller.parked


def test_repeat_of_a_send_that_all_gave_up_before_it_was_folded_is_answered() -> None:
    rig = AllRig()
    rig.ask(0, producer=5, sequence=0)
    rig.propose()
    rig.appends.give_up(rig.token(0))
    for number in range(1, 2 * SWEEP_MIN + 2):
        rig.ask(number, producer=5, sequence=0)
        rig.appends.give_up(rig.token(number))
    rig.ask(1_000, producer=5, sequence=0)
    rig.commit(1)
    assert rig.caller.ends[1_000] == 0


def test_repeat_of_a_send_that_was_given_up_waits_however_many_others_are_given_up() -> None:
    rig = AllRig()
    rig.ask(0, producer=5, sequence=0)
    rig.propose()
    rig.appends.give_up(rig.token(0))
    rig.ask(1, producer=5, sequence=0)
    for number in range(2, 2 * SWEEP_MIN + 2):
        rig.ask(number)
        rig.commit_without_one()
        rig.appends.give_up(rig.token(number))
    rig.commit(rig.log.log_end)
    assert rig.caller.ends[1] == 0 and rig.appends.is_idle


def test_sends_that_wait_for_all_voters_are_bounded_and_those_given_up_count_no_more() -> None:
    rig = AllRig()
    for number in range(ALL_WAITERS_PER_PARTITION_MAX):
        rig.ask(number)
    for acks, is_refused in ((Acks.ALL, True), (Acks.QUORUM, False)):
        try:
            rig.ask(10**6, acks)
            assert not is_refused
        except StorageError as error:
            assert is_refused and (error.code, error.retry_after_ms) == (ErrorCode.OVERLOADED, OVERLOADED_RETRY_MS)
    rig.commit_without_one()
    rig.appends.give_up(rig.token(17))
    rig.ask(10**6 + 1)
    with pytest.raises(StorageError):
        rig.ask(10**6 + 2)


def test_what_was_given_up_takes_no_memory_for_as_long_as_a_voter_is_away() -> None:
    rig = AllRig()
    rig.ask(0)
    for number in range(1, 10 * SWEEP_MIN):
        rig.ask(number)
        rig.commit_without_one()
        assert rig.appends.give_up(rig.token(number))
    waiters = rig.appends._all
    assert waiters is not None and len(waiters._pending) <= SWEEP_MIN + 2
    rig.commit(10 * SWEEP_MIN)
    assert rig.caller.ends[0] == 0 and rig.appends.is_idle


def test_request_id_that_waits_for_all_voters_is_not_used_again() -> None:
    rig = AllRig()
    rig.ask(1)
    with pytest.raises(StorageError):
        rig.ask(1)


def test_sends_for_all_voters_hear_that_leadership_was_lost_and_those_given_up_do_not() -> None:
    rig = AllRig()
    for number in (1, 2):
        rig.ask(number)
    rig.commit_without_one()
    rig.appends.give_up(rig.token(1))
    rig.ask(3)
    rig.appends.fail(2)
    assert rig.caller.ends == {1: ErrorCode.OUTCOME_UNKNOWN, 2: ErrorCode.OUTCOME_UNKNOWN, 3: ErrorCode.NOT_LEADER}
    assert not rig.caller.parked and not rig.appends.give_up(rig.token(3))
