"""The table in `transitions.py`, walked in both directions: nothing else happens, and everything named does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage_nodes.machines.raft.effects import Role, SafetyViolation
from storage_nodes.machines.raft.membership import AddLearner
from storage_nodes.machines.raft.transitions import ILLEGAL, TRANSITIONS, Input
from storage_nodes.protocol.peer_messages import (
    AppendEntries,
    AppendReply,
    SnapshotChunk,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from tests.storage_nodes.machines.raft.raft_bench import PARTITION, Bench, log_of
from tests.storage_nodes.machines.raft.raft_disk import make_entry

Act = Callable[[Bench], object]


def refusal(ahead: int, pre_vote: bool) -> Act:
    return lambda b: b.step(2, VoteReply(PARTITION, b.machine.epoch + ahead, False, pre_vote))


def append(ahead: int, sender: int = 3) -> Act:
    return lambda b: b.append(sender, b.machine.epoch + ahead, (b.log.last_epoch, b.log.log_end))


def append_reply(ahead: int, ok: bool) -> Act:
    return lambda b: b.step(3, AppendReply(PARTITION, b.machine.epoch + ahead, ok, 0))


def snapshot(ahead: int, sender: int = 3) -> Act:
    def act(b: Bench) -> object:
        entry = make_entry(0, 50, b.machine.epoch, "snapshot")
        epoch = b.machine.epoch
        return b.step(sender, SnapshotChunk(PARTITION, epoch + ahead, 50, epoch, 0, b"", [entry], True))

    return act


def install(b: Bench) -> None:
    b.machine.installing()
    b.log.install([make_entry(0, 50, b.machine.epoch, "snapshot")])
    b.machine.installed(50, b.now_ms)


def ask(ahead: int, pre_vote: bool = False, last: tuple[int, int] = (99, 99)) -> Act:
    return lambda b: b.ask(3, b.machine.epoch + ahead, last, pre_vote)


def install_without_me(b: Bench) -> None:
    b.machine.installing()
    b.log.install([make_entry(0, 50, b.machine.epoch, "voters=2,3/")])
    b.machine.installed(50, b.now_ms)


def configure(name: str) -> Act:
    def act(b: Bench) -> None:
        b.log.append(make_entry(b.log.log_end, b.log.log_end + 1, b.machine.epoch, name))
        # Committed: whoever is removed by an entry that may yet be cut off goes on.
        b.machine.commit = b.log.log_end
        b.machine.configured(b.now_ms)

    return act


def no_quorum(b: Bench) -> None:
    b.machine.peer_down(2, b.now_ms)
    b.machine.peer_down(3, b.now_ms)
    b.tick_at(b.now_ms + 60_000)


# Different ways to give the same input; together they must reach every role that the table names.
WAYS: dict[Input, list[Act]] = {
    Input.PROPOSED: [lambda b: b.propose()],
    Input.DURABLE: [lambda b: b.machine.durable(b.log.log_end, b.now_ms)],
    Input.SENT: [lambda b: b.machine.sent(2, b.log.log_end, 0)],
    Input.CAMPAIGN: [lambda b: b.machine.campaign(b.now_ms)],
    Input.TICK: [lambda b: b.machine.tick(b.now_ms), lambda b: b.tick(), no_quorum],
    Input.PEER_UP: [lambda b: (b.machine.peer_down(2, b.now_ms), b.machine.peer_up(2, b.now_ms))],
    Input.PEER_DOWN: [lambda b: b.machine.peer_down(2, b.now_ms), lambda b: b.machine.peer_down(3, b.now_ms)],
    Input.APPEND_STALE: [append(-1)],
    Input.APPEND_CURRENT: [append(0)],
    Input.APPEND_NEWER: [append(1), append(5, sender=2)],
    Input.APPEND_REPLY_STALE: [append_reply(-1, True), append_reply(-1, False)],
    Input.APPEND_REPLY_CURRENT: [append_reply(0, True), append_reply(0, False)],
    Input.APPEND_REPLY_NEWER: [
        append_reply(1, True),
        append_reply(1, False),
        lambda b: b.step(9, AppendReply(PARTITION, b.machine.epoch + 1, False, 0)),
    ],
    Input.PRE_VOTE_REQUEST: [ask(-1, True), ask(0, True), ask(1, True), ask(1, True, (0, 0))],
    Input.VOTE_REQUEST_STALE: [ask(-1)],
    Input.VOTE_REQUEST_CURRENT: [ask(0), ask(0, last=(0, 0))],
    Input.VOTE_REQUEST_NEWER: [
        ask(1),
        ask(3, last=(0, 0)),
        lambda b: b.step(3, VoteRequest(PARTITION, b.machine.epoch + 1, 99, 99, False, True)),
    ],
    Input.PRE_VOTE_GRANTED: [
        lambda b: b.grant(2, True),
        lambda b: b.step(2, VoteReply(PARTITION, b.machine.epoch + 9, True, True)),
    ],
    Input.VOTE_GRANTED: [
        lambda b: b.grant(2),
        lambda b: b.step(2, VoteReply(PARTITION, b.machine.epoch - 1, True)),
    ],
    Input.REFUSED: [refusal(0, False), refusal(-1, False), refusal(0, True)],
    Input.REFUSED_NEWER: [
        refusal(1, False),
        refusal(2, True),
        lambda b: b.step(9, VoteReply(PARTITION, b.machine.epoch + 1, False)),
    ],
    Input.SNAPSHOT_ENDED: [lambda b: b.machine.snapshot_ended(2, b.now_ms)],
    Input.STOOD_STILL: [lambda b: b.machine.on_stall(b.now_ms)],
    Input.INSTALLED: [install, install_without_me],
    Input.SNAPSHOT_STALE: [snapshot(-1)],
    Input.SNAPSHOT_CURRENT: [snapshot(0)],
    Input.SNAPSHOT_NEWER: [snapshot(1), snapshot(5, sender=2)],
    Input.CHANGE_CONFIGURATION: [
        lambda b: (b.sync(), b.answer(2, b.log.log_end), b.machine.change_configuration(AddLearner(4), b.now_ms))
    ],
    Input.CONFIGURED: [configure("voters=1,2,3/4"), configure("voters=2,3/")],
    Input.PROMISED: [lambda b: b.machine.promised(2, b.now_ms + 100, b.now_ms)],
    Input.CONFIRM: [lambda b: b.machine.confirm(b.now_ms)],
    Input.BECAME_SUSPECT: [lambda b: b.machine.became_suspect(b.now_ms)],
    Input.TRANSFER: [lambda b: b.machine.transfer(2, b.now_ms)],
    Input.TIMEOUT_NOW: [
        lambda b: b.step(2, TimeoutNow(PARTITION, b.machine.epoch)),
        lambda b: b.step(2, TimeoutNow(PARTITION, b.machine.epoch - 1)),
    ],
}


def bench_in(role: Role, size: int = 3) -> Bench:
    return Bench(log_of(1, 1, 2), size).become(role)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("row", Input)
def test_machine_given_any_input_in_any_role_goes_where_the_table_says(row: Input, role: Role) -> None:
    allowed = TRANSITIONS[row][role]
    reached = set()
    for way in WAYS[row]:
        bench = bench_in(role)
        if allowed == ILLEGAL:
            with pytest.raises((AssertionError, SafetyViolation)):
                way(bench)
            assert bench.machine.role is role
            continue
        way(bench)
        reached.add(bench.machine.role)
    if row in (Input.CAMPAIGN, Input.TICK) and role is Role.FOLLOWER:
        single = Bench(size=1)  # its first tick has made it leader
        reached.add(single.machine.role)
        following = bench_in(role).follow(2)
        following.machine.campaign(following.now_ms)
        reached.add(following.machine.role)
    if row is Input.TICK and role is Role.LEADER:
        left_alone = Bench(log_of(1)).lead()
        left_alone.perform(left_alone.machine.transfer(2, left_alone.now_ms))
        left_alone.tick_at(left_alone.now_ms + 60_000)
        reached.add(left_alone.machine.role)
    if row is Input.STOOD_STILL and role is Role.LEADER:
        alone = Bench(size=1)
        assert alone.machine.on_stall(alone.now_ms) == []
        reached.add(alone.machine.role)
    if row is Input.BECAME_SUSPECT and role is Role.LEADER:
        alone = Bench(size=1)
        alone.perform(alone.machine.became_suspect(alone.now_ms))
        reached.add(alone.machine.role)
    if row is Input.TIMEOUT_NOW and role is Role.FOLLOWER:
        following = bench_in(role).follow(2)
        following.step(2, TimeoutNow(PARTITION, following.machine.epoch))
        reached.add(following.machine.role)
        heir = bench_in(role).follow(2)
        configure("voters=1/")(heir)
        heir.step(2, TimeoutNow(PARTITION, heir.machine.epoch))
        reached.add(heir.machine.role)
    if row is Input.VOTE_GRANTED and role is Role.CANDIDATE:
        five = bench_in(role, 5)
        five.grant(4)
        reached.add(five.machine.role)
    if row is Input.PRE_VOTE_GRANTED and role is Role.PRE_CANDIDATE:
        five = bench_in(role, 5)
        five.grant(4, True)
        reached.add(five.machine.role)
    assert reached == allowed


def test_append_from_a_second_leader_of_the_epoch_raises_in_leader_and_follower() -> None:
    """R14: one leader per epoch; a second one means that somebody voted twice."""
    leader = bench_in(Role.LEADER)
    message = AppendEntries(PARTITION, leader.machine.epoch, 2, 3, 0, [])
    with pytest.raises(SafetyViolation, match="both lead epoch"):
        leader.machine.step(3, message, leader.now_ms)
    follower = Bench(log_of(1)).follow(2)
    with pytest.raises(SafetyViolation, match="nodes 2 and 3 both lead epoch 1"):
        follower.append(3, 1, (1, 1))
