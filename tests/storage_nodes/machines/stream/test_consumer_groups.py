"""Consumer groups at their coordinator: who is a member, who owns what; their limits and their end (R31)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_nodes.limits import (
    CONSUMER_COMMANDS_PER_BATCH_MAX,
    CONSUMER_FENCE_PAUSE_MS,
    CONSUMER_GROUPS_MAX,
    CONSUMER_MEMBERS_MAX,
    CONSUMER_NAME_BYTES_MAX,
    CONSUMER_SESSION_MS_MIN,
    RETENTION_MS_MAX,
    STREAM_COMMANDS_LEFT_MAX,
)
from storage_nodes.machines.stream.assignment import assign
from storage_nodes.machines.stream.machine import StreamMachine
from storage_nodes.protocol import messages as m
from storage_nodes.protocol.errors import ErrorCode
from tests.storage_nodes.machines.stream.topic import GROUP, SESSION_MS, Consumer, Topic, owner_of_one, refusal_of

# --- who gets what --------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 40), unique=True, max_size=20),
    st.lists(st.integers(1, 9), unique=True, min_size=1),
    st.dictionaries(st.integers(1, 40), st.integers(1, 9)),
)
def test_assignment_is_even_whole_and_moves_as_little_as_it_must(
    partitions: list[int], members: list[int], now: dict[int, int]
) -> None:
    found = assign(partitions, members, now)
    assert sorted(found) == sorted(partitions)
    counts = [list(found.values()).count(member) for member in members]
    assert max(counts) - min(counts) <= 1
    assert assign(partitions, members, found) == found, "an even assignment stays as it is"
    fair, spare = divmod(len(partitions), len(members))
    mine = [sum(now.get(p) == member for p in partitions) for member in members]
    over = sorted((count - fair for count in mine if count > fair), reverse=True)
    moved = sum(found[p] != now[p] for p in partitions if now.get(p) in members)
    assert moved == sum(over) - sum(min(1, extra) for extra in over[:spare])


def test_assignment_without_members_is_nobodys() -> None:
    assert assign([1, 2], [], {1: 5}) == {}


# --- members come and go --------------------------------------------------------------------------------------


def test_only_member_owns_all_once_every_partition_knows() -> None:
    topic = Topic(3)
    consumer = Consumer(topic, b"a").join()
    assert consumer.held == {}
    assert {asked.partition for _, asked in topic.fences} == {1, 2, 3}
    topic.settle()
    assert set(consumer.beat().held) == {1, 2, 3}
    topic.check_folds()


def test_second_member_gets_a_partition_only_after_the_first_let_go() -> None:
    topic = Topic(2)
    a, b = Consumer(topic, b"a").join(), Consumer(topic, b"b")
    topic.settle()
    a.beat().keeps = {1, 2}
    b.join()
    for _ in range(3):
        a.beat()
        assert topic.fences == [] and b.beat().held == {}
    a.keeps = set()
    a.beat()
    assert len(a.held) == 1
    assert topic.fences == [], "it said that it lets go only with the next heartbeat"
    a.beat()
    topic.settle()
    assert set(b.beat().held) == {1, 2} - set(a.held)


def test_heartbeat_of_an_older_generation_lets_nothing_go() -> None:
    topic = Topic(2)
    a, b = Consumer(topic, b"a").join(), Consumer(topic, b"b")
    topic.settle()
    late = m.GroupHeartbeatRequest(1, GROUP, a.epoch, a.generation, [])
    b.join()
    topic.ask(late)  # sent before it heard of any partition
    assert topic.fences == []
    a.beat()
    assert len(a.beat().held) == 1


def test_member_that_leaves_gives_everything_to_the_others() -> None:
    topic = Topic(2)
    a, b = Consumer(topic, b"a").join(), Consumer(topic, b"b").join()
    topic.settle()
    a.beat().leave()
    topic.settle()
    assert set(b.beat().held) == {1, 2}
    a.leave()  # once more: the same answer
    assert refusal_of(a.beat) is ErrorCode.FENCED


def test_member_that_is_silent_for_a_session_loses_everything_and_the_log_says_so() -> None:
    topic = Topic(2)
    a, b = Consumer(topic, b"a").join(), Consumer(topic, b"b").join()
    topic.settle()
    for _ in range(4):
        topic.pass_ms(SESSION_MS // 4)
        b.beat()
    topic.settle()
    assert set(b.beat().held) == {1, 2}
    assert refusal_of(a.beat) is ErrorCode.FENCED
    topic.check_folds()


def test_session_whose_end_is_staged_goes_on_when_the_member_is_heard_before_the_log_has_it() -> None:
    topic = Topic(1)
    a = Consumer(topic, b"a").join()
    topic.settle()
    topic.logs[1].is_slow = True
    topic.pass_ms(SESSION_MS)
    a.beat()
    topic.logs[1].commit_staged()
    assert set(a.beat().held) == {1}


def test_new_leader_gives_everybody_a_whole_session() -> None:
    topic = Topic(1)
    a = Consumer(topic, b"a").join()
    topic.settle()
    topic.pass_ms(SESSION_MS - 1)
    topic.logs[1].fail_over()
    topic.pass_ms(SESSION_MS - 1)
    assert set(a.beat().held) == {1}
    topic.pass_ms(SESSION_MS)
    assert refusal_of(a.beat) is ErrorCode.FENCED


def test_member_that_joins_again_under_its_name_gets_what_it_had_and_its_old_session_is_over() -> None:
    topic = Topic(3)
    a, b = Consumer(topic, b"a").join(), Consumer(topic, b"b").join()
    topic.settle()
    held = set(a.beat().held)
    assert len(held) == 2
    zombie_epoch = a.epoch
    a.join()
    topic.settle()
    assert set(a.beat().held) == held
    request = m.GroupHeartbeatRequest(1, GROUP, zombie_epoch, 0, [])
    assert refusal_of(lambda: topic.ask(request)) is ErrorCode.FENCED
    b.beat()


def test_partitions_that_are_new_are_shared_out_and_former_ones_are_let_go_of() -> None:
    topic = Topic(1)
    a, b = Consumer(topic, b"a").join(), Consumer(topic, b"b").join()
    topic.settle()
    topic.add_partition()
    b.join()
    topic.settle()
    assert set(a.beat().held) | set(b.beat().held) == {1, 2}
    old = m.GroupJoinRequest(1, GROUP, b"c", SESSION_MS, [1], 0)
    topic.ask(old)  # does not know of the second one yet: the group goes on with both
    other = m.GroupJoinRequest(1, GROUP, b"c", SESSION_MS, [1, 3], 1)
    assert refusal_of(lambda: topic.ask(other)) is ErrorCode.INVALID_REQUEST
    topic.ask(m.GroupJoinRequest(1, GROUP, b"b", SESSION_MS, [1], 2))
    for _ in range(2):
        a.beat()
        topic.settle()
    assert 2 not in a.held
    topic.check_folds()


# --- limits, deletion, checkpoints ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"group": b""},
        {"group": b"x" * (CONSUMER_NAME_BYTES_MAX + 1)},
        {"name": b""},
        {"session_ms": CONSUMER_SESSION_MS_MIN - 1},
        {"partitions": []},
        {"partitions": [1, 1]},
        {"partitions": [2, 1]},
        {"version": -1},
    ],
)
def test_join_that_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    fields = {
        "partition": 1,
        "group": GROUP,
        "name": b"a",
        "session_ms": SESSION_MS,
        "partitions": [1, 2],
        "version": 0,
    }
    request = m.GroupJoinRequest(**{**fields, **change})  # type: ignore[arg-type]
    assert refusal_of(lambda: Topic().ask(request)) is ErrorCode.INVALID_REQUEST


def test_members_and_groups_beyond_their_limits_are_refused() -> None:
    topic = Topic(1)
    for number in range(CONSUMER_MEMBERS_MAX):
        Consumer(topic, b"%d" % number).join()
    assert refusal_of(Consumer(topic, b"one more").join) is ErrorCode.OVER_LIMIT
    Consumer(topic, b"0").join()  # the same member again
    for number in range(CONSUMER_GROUPS_MAX - 1):
        topic.ask(m.GroupJoinRequest(1, b"group %d" % number, b"a", SESSION_MS, [1]))
    request = m.GroupJoinRequest(1, b"one more", b"a", SESSION_MS, [1])
    assert refusal_of(lambda: topic.ask(request)) is ErrorCode.OVER_LIMIT
    topic.check_folds()


def test_fences_of_more_groups_than_a_partition_keeps_are_refused() -> None:
    topic = Topic(1)
    for number in range(CONSUMER_GROUPS_MAX):
        topic.ask(m.GroupFenceRequest(1, b"group %d" % number, 2, 1))
    assert refusal_of(lambda: topic.ask(m.GroupFenceRequest(1, GROUP, 2, 1))) is ErrorCode.OVER_LIMIT
    topic.ask(m.GroupFenceRequest(1, b"group 0", 4, 3))


def test_more_commands_than_one_batch_takes_go_in_several() -> None:
    topic, a = owner_of_one()
    log, count = topic.logs[1], CONSUMER_COMMANDS_PER_BATCH_MAX + 5
    topic.append(1, count)
    log.is_slow = True
    for offset in range(count):
        request = m.GroupCommitRequest(1, *a.grant(1), offset)
        log.do(log.leader.group_request(offset, request, topic.now_ms))
    log.commit_staged()
    assert len(log.answers) == CONSUMER_COMMANDS_PER_BATCH_MAX
    log.commit_staged()
    assert len(log.answers) == count and topic.committed(1) == count - 1


def test_deleted_group_is_forgotten_and_its_former_members_are_never_taken_for_new_ones() -> None:
    topic, a = owner_of_one()
    a.commit(1, 7)
    assert refusal_of(lambda: topic.ask(m.GroupDeleteRequest(1, GROUP))) is ErrorCode.GROUP_NOT_EMPTY
    a.leave()
    for _ in range(2):
        topic.ask(m.GroupDeleteRequest(1, GROUP))
    assert topic.committed(1) == -1
    b = Consumer(topic, b"b").join()
    topic.settle()
    b.beat()
    assert b.epoch > a.epoch and b.held[1] > a.held[1]
    assert refusal_of(lambda: a.commit(1, 9)) is ErrorCode.FENCED
    assert b.commit(1, 2) == 2


def test_late_delete_takes_nothing_from_a_later_life_of_the_group() -> None:
    topic = Topic(2)
    a = Consumer(topic, b"a").join()
    topic.settle()
    a.beat().leave()
    generation = topic.ask(m.GroupDeleteRequest(1, GROUP)).generation
    b = Consumer(topic, b"b").join()
    topic.settle()
    topic.append(2)
    b.beat().commit(2, 5)
    assert topic.ask(m.GroupDeleteRequest(2, GROUP, generation)).generation == generation
    assert topic.committed(2) == 5 and b.commit(2, 6) == 6


def test_late_fence_of_a_deleted_group_lets_nobody_in() -> None:
    topic = Topic(2)
    a = Consumer(topic, b"a").join()
    late = topic.fences[1]
    topic.settle()
    held = dict(a.beat().held)
    a.leave()
    topic.delete()
    topic.answer_fence(*late)
    topic.append(2)
    request = m.GroupCommitRequest(2, GROUP, held[2], a.epoch, 5)
    assert refusal_of(lambda: topic.ask(request)) is ErrorCode.FENCED
    assert topic.committed(2) == -1


def test_group_whose_generation_is_too_old_for_a_partition_gets_a_new_one() -> None:
    topic = Topic(2)
    old = topic.ask(m.GroupJoinRequest(1, b"slow", b"s", SESSION_MS, [1, 2]))
    slow, topic.fences = topic.fences, []
    a = Consumer(topic, b"a").join()
    topic.settle()
    a.leave()
    topic.delete()  # of a younger group
    for coordinator, asked in slow:
        topic.answer_fence(coordinator, asked)
    assert topic.fences == [], "it does not ask again at once"
    topic.pass_ms(CONSUMER_FENCE_PAUSE_MS)
    topic.settle()
    told = topic.ask(m.GroupHeartbeatRequest(1, b"slow", old.epoch, old.generation, []))
    assert [partition for partition, _ in told.owned] == [1, 2]
    assert told.generation > old.generation
    topic.check_folds()


def test_checkpoint_without_groups_is_of_version_1_and_has_none() -> None:
    plain = StreamMachine()
    version_1 = plain.checkpoint()
    assert version_1[1] == 1
    topic = Topic(1)
    topic.committed(1)  # asked for at the leader only
    topic.check_folds()
    owned, _ = owner_of_one()
    assert owned.logs[1].leader.checkpoint()[1] == 2
    machine = owned.logs[1].leader
    machine.restore(version_1)
    assert machine.checkpoint() == version_1


def test_commands_of_groups_in_a_stream_without_messages_are_trimmed_in_the_end() -> None:
    topic = Topic(1)
    log = topic.logs[1]
    for _ in range(STREAM_COMMANDS_LEFT_MAX + 10):
        Consumer(topic, b"a").join()
        topic.settle()
        log.commit_staged()
    topic.pass_ms(RETENTION_MS_MAX // 50)
    log.commit_staged()
    assert log.end - log.leader.log_start < 100
    topic.check_folds()
