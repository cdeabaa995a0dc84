"""Sends that are tried again, in any order and through changes of the leader: each stands in the log once."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.limits import BATCH_BYTES_MAX, PRODUCER_WINDOW_RECORDS, UNCOMMITTED_BYTES_MAX
from storage_nodes.machines.queue.effects import Pick
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.model import Acks
from storage_nodes.node.replicas.deliveries import give_back
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import SendReply, SendRequest
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.repeating_group import NOW_MS, REPLICAS, Group, request

SMALL_BYTES = 150
TINY_BYTES = 70


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


def test_leases_that_nobody_gets_are_proposed_back_at_once() -> None:
    """They come to light when a read ends: no timer is booked for what the machine staged then."""
    done: list[str] = []
    machine = SimpleNamespace(release=lambda picks, now_ms, deadline_ms, was_told: [f"{picks} until {deadline_ms}"])
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
