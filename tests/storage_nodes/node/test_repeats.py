"""Sends that are tried again, in any order and through changes of the leader: each stands in the log once.

A partition of three replicas: real machines that fold a log, and the appends of whoever leads. The tests decide which
attempts arrive when, what of a leader's log is kept when another takes over, and who starts over from a checkpoint.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from storage_nodes.limits import (
    BATCH_BYTES_MAX,
    PRODUCER_CALL_MS_MAX,
    PRODUCER_MEMORY_MS,
    PRODUCER_WINDOW_RECORDS,
    PRODUCERS_PER_PARTITION_MAX,
    UNCOMMITTED_BYTES_MAX,
    WAL_GROUP_BYTES_MAX,
)
from storage_nodes.log.record_batch import (
    CONTROL_EPOCH_START,
    NO_PRODUCER,
    BatchHeader,
    Producer,
    build_batch,
    control_key,
    iterate_bodies,
    read_header,
    records_to_fold,
)
from storage_nodes.machines.producers import ProducerTable
from storage_nodes.machines.queue.effects import Duplicated, Pick
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.stream.machine import StreamMachine
from storage_nodes.model import Acks
from storage_nodes.node.memory.memory_budget import MemoryBudget
from storage_nodes.node.memory.room import NodeRoom
from storage_nodes.node.replicas.appends import Appends
from storage_nodes.node.replicas.deliveries import give_back
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.repeats import Repeats
from storage_nodes.node.replicas.stream_replica import StreamReplica
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import Opcode, QueueConfig, SendReply, SendRequest, encode_message
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_DUE, HEADER_GROUP, decode_body, encode_body

NOW_MS = 1_700_000_000_000
SMALL_BYTES = 150
TINY_BYTES = 70
REPLICAS = 3


class _Caller(SimpleNamespace):
    """A connection: one of its kind."""

    __hash__ = object.__hash__


class Group:
    def __init__(self, kind: str, batch_bytes_max: int = BATCH_BYTES_MAX) -> None:
        self.kind = kind
        self.batch_bytes_max = batch_bytes_max
        self.now_ms = NOW_MS
        self.log: list[tuple[BatchHeader, bytes]] = []
        self.committed = 0  # entries
        self.replicated = 2**62  # no voter is further behind than the commit, unless a test says so
        self.machines: list[Any] = [self._machine() for _ in range(REPLICAS)]
        self.folded = [0] * REPLICAS
        self.checkpoints: list[tuple[int, bytes]] = []
        self.leader = -1
        self.appends = Appends(NodeRoom(MemoryBudget(), lambda: 0.0, lambda: None))
        self.answers: dict[int, SendReply | StorageError] = {}  # by number of the attempt
        self.connection: Any = _Caller(answer=self._answered, refuse=self._refused, parked={})
        self.log_facts = SimpleNamespace(log_end=0)
        self.replica: Any = SimpleNamespace(
            log=self.log_facts,
            append_own=self._append,
            propose_soon=lambda: None,
            host=SimpleNamespace(committer=SimpleNamespace(share_bytes=WAL_GROUP_BYTES_MAX)),
        )
        self.elect(0)

    def _machine(self) -> Any:
        return StreamMachine() if self.kind == "stream" else QueueMachine(QueueConfig(fifo=self.kind == "fifo"))

    def body(self, value: bytes, dedup_id: bytes = b"") -> bytes:
        headers = []
        if self.kind == "fifo":
            headers.append((HEADER_GROUP, b"g" + value[-1:]))
        if dedup_id:
            headers.append((HEADER_DEDUP, dedup_id))
        if self.kind == "scheduled":
            headers.append((HEADER_DUE, b"%d" % (NOW_MS * 2)))
        return encode_body(value, None, headers)

    # --- the leader -------------------------------------------------------------------------------------------

    def send(self, number: int, request: SendRequest) -> None:
        machine = self.machines[self.leader]
        producers = machine.producers if self.kind == "stream" else machine.state.producers
        token = Token(self.connection, number, Opcode.SEND)
        try:
            if self.appends.take(token, encode_message(request), producers, lambda _: self.batch_bytes_max):
                self._progressed()
        except StorageError as error:
            self.answers[number] = error

    def propose(self) -> None:
        self.appends.propose(self.replica, self.now_ms)

    def commit(self, entries: int) -> None:
        self.committed = min(self.committed + entries, len(self.log))
        self._fold(self.leader)
        self._progressed()

    def elect(self, leader: int, kept: int = 0) -> None:
        """Another replica leads: so many uncommitted entries of the former leader are kept, the rest is lost."""
        if self.leader >= 0:
            self.appends.fail(leader)
            self.machines[self.leader].follow()
        self.appends = Appends(NodeRoom(MemoryBudget(), lambda: 0.0, lambda: None))
        del self.log[self.committed + kept :]
        self.log_facts.log_end = self.log[-1][0].end_offset if self.log else 0
        self._append([encode_body(b"", control_key(CONTROL_EPOCH_START))], self.now_ms, control=True)
        self.leader = leader
        self.committed = len(self.log)
        self._fold(leader)
        self.machines[leader].lead(self.now_ms)

    def restart(self, replica: int, chance: random.Random) -> None:
        if replica == self.leader or not self.checkpoints:
            return
        self.folded[replica], blob = chance.choice(self.checkpoints)
        self.machines[replica] = self._machine()
        self.machines[replica].restore(blob)

    def checkpoint(self, replica: int) -> None:
        self.checkpoints.append((self.folded[replica], self.machines[replica].checkpoint()))

    def _append(
        self,
        bodies: list[bytes],
        timestamp_ms: int,
        *,
        plain: bool = False,
        control: bool = False,
        producer: Producer = NO_PRODUCER,
        usage: int = -1,
    ) -> int:
        base = self.log_facts.log_end
        batch = build_batch(base, 1, timestamp_ms, bodies, plain=plain, control=control, producer=producer)
        self.log.append((read_header(batch), batch))
        self.log_facts.log_end = base + len(bodies)
        return int(self.log_facts.log_end)

    def _fold(self, replica: int) -> None:
        machine = self.machines[replica]
        for header, batch in self.log[self.folded[replica] : self.committed]:
            read = iterate_bodies if self.kind == "stream" else records_to_fold
            for effect in machine.apply(header, lambda batch=batch, read=read: read(batch), self.now_ms):
                if type(effect) is Duplicated and replica == self.leader:
                    self.appends.duplicated(effect.pairs)
        self.folded[replica] = self.committed

    def _progressed(self) -> None:
        folded = self.log[self.committed - 1][0].end_offset
        self.appends.progressed(self.log_facts.log_end, folded, min(folded, self.replicated))

    def _answered(self, token: Token, payload: bytes) -> None:
        assert token.request_id not in self.answers, "answered twice"
        self.answers[token.request_id] = msgspec.msgpack.decode(payload, type=SendReply)

    def _refused(self, token: Token, error: StorageError) -> None:
        assert token.request_id not in self.answers, "answered twice"
        self.answers[token.request_id] = error

    # --- what stands there ------------------------------------------------------------------------------------

    def values(self) -> dict[int, bytes]:
        """Of the committed messages, by offset."""
        return {
            offset: bytes(decode_body(body).value)
            for header, batch in self.log[: self.committed]
            if not header.is_control
            for offset, body in iterate_bodies(batch)
        }

    def level(self) -> None:
        for replica in range(REPLICAS):
            self._fold(replica)


class Sender:
    """One client: numbers what it sends, tries it again whenever it likes."""

    def __init__(self, group: Group, producer_id: int, chance: random.Random) -> None:
        self.group = group
        self.producer_id = producer_id
        self.chance = chance
        self.next = 0
        self.requests: list[tuple[SendRequest, list[bytes]]] = []

    def make(self, count: int) -> int:
        values = [b"%d-%d" % (self.producer_id, self.next + at) for at in range(count)]
        kind, chance = self.group.kind, self.chance
        repeats_ids = kind in ("dedup", "fifo")
        ids = [b"%d" % chance.randrange(40) if repeats_ids and chance.random() < 0.5 else b"" for _ in values]
        bodies = [self.group.body(value, dedup_id) for value, dedup_id in zip(values, ids, strict=True)]
        plain = kind in ("plain", "stream")
        acks = chance.choice([Acks.LEADER, Acks.QUORUM, Acks.QUORUM, Acks.ALL])
        self.requests.append((SendRequest(1, bodies, plain, acks, self.producer_id, 0, self.next), values))
        self.next += count
        return len(self.requests) - 1


@pytest.mark.parametrize("kind", ["plain", "dedup", "fifo", "scheduled", "stream"])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_each_send_stands_once_where_its_answers_say(kind: str, seed: int) -> None:
    chance = random.Random(f"{kind}-{seed}")
    group = Group(kind, TINY_BYTES if kind == "scheduled" else BATCH_BYTES_MAX)
    senders = [Sender(group, 10 + at, chance) for at in range(3)]
    attempts: dict[int, tuple[Sender, int]] = {}
    on_the_way: list[int] = []

    def attempt(sender: Sender, which: int) -> int:
        number = len(attempts)
        attempts[number] = (sender, which)
        return number

    for _ in range(400):
        group.now_ms += chance.choice([0, 1, 5, 300])
        match chance.randrange(12):
            case 0 | 1 | 2:
                sender = chance.choice(senders)
                on_the_way.append(attempt(sender, sender.make(chance.randrange(1, 6))))
            case 3 | 4:
                sender = chance.choice(senders)
                if sender.requests:
                    latest = len(sender.requests) - 1
                    on_the_way.append(attempt(sender, chance.randint(max(latest - 8, 0), latest)))
            case 5 | 6 | 7 if on_the_way:
                number = on_the_way.pop(chance.randrange(len(on_the_way)))
                sender, which = attempts[number]
                group.send(number, sender.requests[which][0])
            case 8:
                group.propose()
            case 9:
                group.commit(chance.randrange(1, 4))
            case 10 if chance.random() < 0.3:
                group.elect(chance.randrange(REPLICAS), chance.randrange(0, len(group.log) - group.committed + 1))
            case 11:
                replica = chance.randrange(REPLICAS)
                group.checkpoint(replica)
                group.restart(chance.randrange(REPLICAS), chance)
    # Everybody tries once more until it is answered.
    for sender in senders:
        for which in range(len(sender.requests)):
            group.send(attempt(sender, which), sender.requests[which][0])
    group.propose()
    group.commit(len(group.log))
    group.level()

    values = group.values()
    assert len(set(values.values())) == len(values), "a message stands twice"
    duplicates: dict[bytes, list[int]] = {}
    for number, answer in group.answers.items():
        sender, which = attempts[number]
        if isinstance(answer, StorageError):
            assert answer.code in (ErrorCode.NOT_LEADER, ErrorCode.OUTCOME_UNKNOWN), answer
            continue
        request, sent = sender.requests[which]
        # The leader's own disk may lose what it alone acknowledged.
        if request.acks != Acks.LEADER or not request.plain:
            assert [values[answer.offset_of(at)] for at in range(len(sent))] == sent
            known = duplicates.setdefault(sent[0], answer.duplicates)
            assert known == answer.duplicates, "every attempt hears of the same duplicates"
    final = {attempts[number] for number, answer in group.answers.items() if isinstance(answer, SendReply)}
    assert final == {(sender, which) for sender in senders for which in range(len(sender.requests))}
    checkpoints = {machine.checkpoint() for machine in group.machines}
    assert len(checkpoints) == 1, "replicas differ"
    if kind in ("dedup", "fifo"):
        count = sum(map(len, duplicates.values()))
        assert group.machines[0].state.duplicates == count > 0


# --- one thing at a time ------------------------------------------------------------------------------------


def request(sequence: int, count: int = 1, producer: int = 1, epoch: int = 0, acks: Acks = Acks.QUORUM) -> SendRequest:
    bodies = [encode_body(b"%d" % (sequence + at) + b"-" * 50) for at in range(count)]
    return SendRequest(1, bodies, True, acks, producer, epoch, sequence)


def test_repeat_joins_the_append_that_is_under_way_gathered_or_proposed() -> None:
    group = Group("plain")
    group.send(1, request(0, 3))
    group.send(2, request(0, 3))
    group.propose()
    group.send(3, request(0, 3))
    assert len(group.log) == 2 and not group.answers
    group.commit(1)
    assert [group.answers[number].first_offset for number in (1, 2, 3)] == [1, 1, 1]  # type: ignore[union-attr]
    group.send(4, request(0, 3))
    assert group.answers[4] == group.answers[1] and group.appends.is_idle


def test_repeat_after_a_change_of_leader_is_answered_from_the_log() -> None:
    group = Group("plain")
    group.send(1, request(0, 3))
    group.propose()
    group.elect(1, kept=1)
    assert isinstance(group.answers[1], StorageError)
    group.send(2, request(0, 3))
    assert group.answers[2] == SendReply(1, NOW_MS)


def test_part_that_survived_is_completed_and_the_answer_says_where_all_of_it_stands() -> None:
    group = Group("plain", SMALL_BYTES)
    group.send(1, request(0, 6))
    group.propose()
    assert [header.record_count for header, _ in group.log[1:]] == [2, 2, 2]
    group.elect(2, kept=2)
    group.send(2, request(0, 6))
    group.send(3, request(0, 6))
    group.propose()
    group.commit(9)
    answer = group.answers[2]
    assert isinstance(answer, SendReply) and answer == group.answers[3]
    assert [answer.offset_of(at) for at in range(6)] == [1, 2, 3, 4, 6, 7]
    values = group.values()
    assert [values[answer.offset_of(at)].partition(b"-")[0] for at in range(6)] == [b"%d" % at for at in range(6)]
    assert len(values) == 6
    group.send(4, request(0, 6))
    assert group.answers[4] == answer


def test_who_asked_for_all_voters_waits_for_them_when_it_repeats_too() -> None:
    group = Group("plain")
    for number, sequence in ((1, 0), (2, 1)):
        group.send(number, request(sequence, acks=Acks.ALL))
        group.propose()
    group.replicated = 0
    group.commit(2)
    group.send(3, request(1, acks=Acks.ALL))
    group.replicated = 2
    group.commit(0)
    assert set(group.answers) == {1}
    group.replicated = 3
    group.commit(0)
    assert group.answers[3] == group.answers[2] == SendReply(2, NOW_MS)


def test_answer_of_the_leader_alone_is_given_again_before_the_commit() -> None:
    group = Group("plain")
    group.send(1, request(0, acks=Acks.LEADER))
    group.propose()
    group.appends.progressed(group.log_facts.log_end, 1, 0)
    group.send(2, request(0, acks=Acks.LEADER))
    assert group.answers[1] == group.answers[2] == SendReply(1, NOW_MS)
    group.commit(1)
    assert group.appends.is_idle


def test_batches_hold_one_producer_and_sequences_that_go_on() -> None:
    group = Group("plain")
    for number, (producer, sequence) in enumerate([(1, 0), (2, 0), (1, 1), (2, 5), (1, 2)]):
        group.send(number, request(sequence, producer=producer))
    group.send(9, SendRequest(1, [encode_body(b"nobody's")]))
    group.propose()
    heads = [(h.producer_id, h.producer_epoch, h.base_sequence, h.record_count) for h, _ in group.log[1:]]
    assert heads == [(1, 0, 0, 3), (2, 0, 0, 1), (2, 0, 5, 1), (-1, -1, -1, 1)]


@pytest.mark.parametrize(
    ("repeat", "code"),
    [
        (request(0, 4), ErrorCode.INVALID_REQUEST),
        (request(2, 2), ErrorCode.INVALID_REQUEST),
        (request(0, 3, epoch=4), ErrorCode.FENCED),
        (request(-1, 3), ErrorCode.INVALID_REQUEST),
        (request(3 + PRODUCER_WINDOW_RECORDS + 1, 1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_no_repeat_and_nothing_new_is_refused(repeat: SendRequest, code: ErrorCode) -> None:
    group = Group("plain")
    group.send(1, request(0, 3, epoch=5 if code is ErrorCode.FENCED else 0))
    group.propose()
    group.send(2, repeat)
    refused = group.answers[2]
    assert isinstance(refused, StorageError) and refused.code is code
    group.commit(1)
    if code is ErrorCode.FENCED or repeat.sequence > PRODUCER_WINDOW_RECORDS:
        group.send(3, repeat)
        refused = group.answers[3]
        assert isinstance(refused, StorageError) and refused.code is code, "once it is folded, too"


def test_number_as_far_as_the_window_reaches_is_no_leap() -> None:
    group = Group("plain")
    group.send(1, request(0, 3))
    group.send(2, request(3 + PRODUCER_WINDOW_RECORDS, 1))
    group.propose()
    assert len(group.log) == 3 and not group.answers


def test_newer_epoch_waits_for_what_the_older_has_under_way() -> None:
    group = Group("plain")
    group.send(1, request(0))
    group.propose()
    group.send(2, request(0, epoch=1))
    refused = group.answers[2]
    assert isinstance(refused, StorageError) and refused.code is ErrorCode.OVERLOADED and refused.retry_after_ms
    group.commit(1)
    group.send(3, request(0, epoch=1))
    group.propose()
    group.commit(1)
    assert group.answers[3] == SendReply(2, NOW_MS)


@pytest.mark.parametrize("acks", [Acks.NONE, Acks.LEADER, Acks.QUORUM, Acks.ALL])
def test_sends_are_refused_while_too_much_waits_for_a_majority(acks: Acks) -> None:
    group = Group("plain")
    large = encode_body(bytes(1024 * 1024))
    number = 0
    while number * len(large) <= UNCOMMITTED_BYTES_MAX:
        group.send(number, SendRequest(1, [large], True, acks, 1, 0, number))
        number += 1
        group.propose()
    group.send(number, request(number, acks=acks))
    refused = group.answers[number]
    assert isinstance(refused, StorageError) and refused.code is ErrorCode.OVERLOADED and refused.retry_after_ms
    group.send(number + 1, SendRequest(1, [large], True, acks, 1, 0, 0))
    assert number + 1 not in group.answers or acks in (Acks.NONE, Acks.LEADER), "a repeat brings nothing new"
    group.commit(1)
    group.send(number + 2, request(number, acks=acks))
    assert number + 2 not in group.answers
    group.commit(len(group.log))
    assert group.appends.uncommitted_bytes == 0


def test_newcomer_is_refused_while_as_many_producers_as_are_remembered_are_at_work() -> None:
    group = Group("plain")
    for producer in range(PRODUCERS_PER_PARTITION_MAX):
        group.send(producer, request(0, producer=producer))
    assert not group.answers
    group.send(1_000, request(0, producer=1_000))
    group.propose()
    group.commit(len(group.log))
    group.send(1_001, request(0, producer=1_000))
    for number in (1_000, 1_001):
        refused = group.answers[number]
        assert isinstance(refused, StorageError) and refused.code is ErrorCode.OVERLOADED
    group.send(1_002, request(1, producer=5))
    assert 1_002 not in group.answers, "one that is known goes on"


class Full:
    """A leader's table with as many producers as are remembered, by their ids, heard of one a second."""

    def __init__(self) -> None:
        self.table = ProducerTable()
        self.end = 0
        self.now_ms = NOW_MS
        self.repeats = Repeats(lambda: self.now_ms - PRODUCER_MEMORY_MS)
        for producer in range(PRODUCERS_PER_PARTITION_MAX):
            self.fold(producer)

    def fold(self, producer: int, sequence: int = 0) -> None:
        self.table.fold(BatchHeader(self.end, 100, 1, 0, self.end, self.now_ms, 1, producer, 0, sequence))
        self.end += 1

    def begin(self, producer: int, sequence: int = 0) -> bool:
        """Is its send taken?"""
        asked = request(sequence, producer=producer)
        try:
            assert self.repeats.find(asked, self.table) is None
        except StorageError as error:
            assert error.code is ErrorCode.OVERLOADED
            return False
        waiting: Any = SimpleNamespace(sequence=sequence, count=1)
        self.repeats.begin(asked, self.table).requests[sequence] = waiting
        return True


def test_dead_producers_give_way_though_nothing_more_is_folded() -> None:
    full = Full()
    assert not full.begin(1_000)
    full.now_ms += PRODUCER_MEMORY_MS
    assert not full.begin(1_000)
    full.now_ms += 1
    assert full.begin(1_000)


@pytest.mark.parametrize("step_ms", [10_000, 86_400_000])
def test_producers_that_were_silent_while_others_sent_give_way_to_a_leader_that_has_just_begun(step_ms: int) -> None:
    full = Full()
    full.repeats = Repeats(lambda: 0)
    for sequence in range(1, 13):
        full.now_ms += step_ms
        full.fold(5, sequence)
        assert not full.begin(1_000), "a few leaders whose time jumped make nobody silent"
    full.now_ms += step_ms
    full.fold(5, 13)
    assert full.begin(1_000)


def test_dead_producers_give_way_where_one_lives_and_sends_rarely() -> None:
    full = Full()
    for sequence in range(1, 3):
        full.now_ms += 2 * PRODUCER_MEMORY_MS
        full.fold(5, sequence)
    for newcomer in range(1_000, 1_000 + PRODUCERS_PER_PARTITION_MAX - 1):
        assert full.begin(newcomer)
    assert not full.begin(2_000), "the one that lives keeps its place"


@pytest.mark.parametrize("newcomer_first", [True, False])
def test_producer_that_comes_back_counts_as_in_use_from_its_request_on(newcomer_first: bool) -> None:
    full = Full()
    full.now_ms += PRODUCER_MEMORY_MS + 1
    for producer in range(1, PRODUCERS_PER_PARTITION_MAX):
        full.fold(producer, 1)
    first, second = (1_000, 0) if newcomer_first else (0, 1_000)
    assert full.begin(first, 7) and not full.begin(second, 7) and full.begin(1, 7), "there is one place for two"
    full.fold(first, 7)
    assert all(producer in full.table for producer in range(1, PRODUCERS_PER_PARTITION_MAX))


def test_time_before_a_leadership_makes_no_producer_dead() -> None:
    replica: Any = StreamReplica.__new__(StreamReplica)
    replica.machine = SimpleNamespace(ahead_ms=0)
    mono_ms = 5_000 + PRODUCER_CALL_MS_MAX
    replica.host = SimpleNamespace(clock=SimpleNamespace(mono_ms=lambda: mono_ms))
    replica.raft = SimpleNamespace(leader_since_ms=5_000)
    replica.time = SimpleNamespace(now_ms=lambda: NOW_MS, ahead_ms=0)
    assert replica.used_since_ms() == 0
    mono_ms += 1
    assert replica.used_since_ms() == NOW_MS - PRODUCER_CALL_MS_MAX - 1, "since it began nobody else was heard of"
    mono_ms += PRODUCER_MEMORY_MS
    assert replica.used_since_ms() == NOW_MS - PRODUCER_MEMORY_MS
    replica.time = None
    assert replica.used_since_ms() == 0


def test_leases_that_nobody_gets_are_proposed_back_at_once() -> None:
    """They come to light when a read ends: no timer is booked for what the machine staged then."""
    done: list[str] = []
    machine = SimpleNamespace(release=lambda picks, now_ms, deadline_ms: [f"{picks} until {deadline_ms}"])
    replica: Any = SimpleNamespace(
        _do=done.extend,
        machine=machine,
        now_ms=lambda: NOW_MS,
        propose_soon=lambda: done.append("proposed"),
        handing_over=False,
    )
    replica.staged = lambda effects: QueueReplica.staged(replica, effects)
    give_back(replica, [Pick(7, 1, NOW_MS, NOW_MS)], NOW_MS + 5)
    assert done == [f"[(7, 1)] until {NOW_MS + 5}", "proposed"]


def test_leases_that_nobody_gets_while_leadership_is_handed_over_go_back_by_way_of_the_next_leader() -> None:
    """Nothing is proposed any more; and a lease that is not folded is none to the next leader."""
    given: list[tuple[int, list[tuple[int, int]], int]] = []
    machine = QueueMachine()
    machine.state.live = {7: (NOW_MS, 1, NOW_MS, NOW_MS), 8: (NOW_MS, 2, NOW_MS, NOW_MS)}
    replica: Any = SimpleNamespace(
        partition=5,
        handing_over=True,
        serving=True,
        machine=machine,
        host=SimpleNamespace(other_partitions=SimpleNamespace(give_back=lambda *call: given.append(call))),
    )
    give_back(replica, [Pick(offset, 1, NOW_MS, NOW_MS) for offset in (7, 8, 9)], NOW_MS + 5)
    assert given == [(5, [(7, 1)], NOW_MS + 5)]
