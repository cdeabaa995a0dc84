"""Consumer groups: one owner per partition, nobody else may read or commit, nothing hangs on clocks (R31)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_nodes.limits import (
    CONSUMER_FENCE_PAUSE_MS,
    CONSUMER_FENCES_AT_ONCE_MAX,
    CONSUMER_GROUPS_MAX,
    CONSUMER_MEMBERS_MAX,
    CONSUMER_NAME_BYTES_MAX,
    CONSUMER_SESSION_MS_MIN,
    RETENTION_MS_MAX,
    STREAM_COMMANDS_LEFT_MAX,
)
from storage_nodes.machines.stream.assignment import assign
from storage_nodes.machines.stream.consumers import GRANTED, JOINED, Consumers
from storage_nodes.machines.stream.machine import StreamMachine
from storage_nodes.protocol import group_messages as g
from storage_nodes.protocol import messages as m
from storage_nodes.protocol.errors import ErrorCode
from tests.storage_nodes.machines.stream.topic import GROUP, SESSION_MS, Consumer, Topic, refusal_of

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
    late = g.GroupHeartbeatRequest(1, GROUP, a.epoch, a.generation, [])
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
    request = g.GroupHeartbeatRequest(1, GROUP, zombie_epoch, 0, [])
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
    old = g.GroupJoinRequest(1, GROUP, b"c", SESSION_MS, [1], 0)
    topic.ask(old)  # does not know of the second one yet: the group goes on with both
    other = g.GroupJoinRequest(1, GROUP, b"c", SESSION_MS, [1, 3], 1)
    assert refusal_of(lambda: topic.ask(other)) is ErrorCode.INVALID_REQUEST
    topic.ask(g.GroupJoinRequest(1, GROUP, b"b", SESSION_MS, [1], 2))
    for _ in range(2):
        a.beat()
        topic.settle()
    assert 2 not in a.held
    topic.check_folds()


# --- fences ---------------------------------------------------------------------------------------------------


def test_partition_is_granted_only_when_its_own_log_refuses_everybody_else() -> None:
    topic = Topic(2)
    a = Consumer(topic, b"a").join()
    first, second = topic.fences
    topic.fences = []
    topic.answer_fence(*second)
    assert set(a.beat().held) == {2}
    first[0].do(first[0].leader.fenced(first[1], False, topic.now_ms))
    topic.pass_ms(CONSUMER_FENCE_PAUSE_MS - 1)
    assert topic.fences == []
    topic.pass_ms(1)
    topic.settle()
    assert set(a.beat().held) == {1, 2}


def test_answer_to_a_fence_that_was_given_up_grants_nothing() -> None:
    topic = Topic(1)
    a = Consumer(topic, b"a").join()
    coordinator, asked = topic.fences.pop()
    coordinator.do(coordinator.leader.fenced(asked, False, topic.now_ms))
    b = Consumer(topic, b"b").join()
    topic.pass_ms(CONSUMER_FENCE_PAUSE_MS)
    coordinator.do(coordinator.leader.fenced(asked, True, topic.now_ms))
    assert a.beat().held == {} == b.beat().held
    topic.settle()
    assert set(a.beat().held) == {1}


def test_fence_for_a_member_that_is_gone_when_it_is_done_goes_to_the_next() -> None:
    topic = Topic(1)
    a, b = Consumer(topic, b"a").join(), Consumer(topic, b"b").join()
    a.leave()
    topic.settle()
    assert set(b.beat().held) == {1}


def test_new_coordinator_asks_again_for_fences_that_were_under_way() -> None:
    topic = Topic(2)
    a = Consumer(topic, b"a").join()
    topic.fences = []
    topic.logs[1].fail_over()
    topic.settle()
    assert set(a.beat().held) == {1, 2}


def test_fences_of_many_partitions_are_asked_for_a_few_at_a_time() -> None:
    topic = Topic(CONSUMER_FENCES_AT_ONCE_MAX + 10)
    a = Consumer(topic, b"a").join()
    assert len(topic.fences) == CONSUMER_FENCES_AT_ONCE_MAX
    topic.settle()
    assert len(a.beat().held) == CONSUMER_FENCES_AT_ONCE_MAX + 10


def test_fence_of_an_older_generation_is_refused_and_the_same_again_is_fine() -> None:
    topic = Topic(1)
    for _ in range(2):
        topic.ask(g.GroupFenceRequest(1, GROUP, 9, 8))
    for generation, epoch in ((7, 6), (9, 6)):
        late = g.GroupFenceRequest(1, GROUP, generation, epoch)
        assert refusal_of(lambda late=late: topic.ask(late)) is ErrorCode.FENCED
    assert topic.logs[1].evicted == [GROUP]


# --- offsets --------------------------------------------------------------------------------------------------


def owner_of_one() -> tuple[Topic, Consumer]:
    topic = Topic(1)
    consumer = Consumer(topic, b"a").join()
    topic.append(1)
    topic.settle()
    return topic, consumer.beat()


def test_committed_offset_is_in_the_log_before_it_is_answered_and_survives_its_leader() -> None:
    topic, a = owner_of_one()
    assert topic.committed(1) == -1
    topic.logs[1].is_slow = True
    request = g.GroupCommitRequest(1, *a.grant(1), 5)
    topic.logs[1].do(topic.logs[1].leader.group_request("later", request, topic.now_ms))
    assert "later" not in topic.logs[1].answers and topic.committed(1) == -1
    topic.logs[1].commit_staged()
    assert topic.logs[1].answers["later"] == g.GroupCommitReply(5)
    topic.logs[1].is_slow = False
    topic.logs[1].fail_over()
    assert topic.committed(1) == 5 and a.commit(1, 6) == 6
    topic.check_folds()


def test_commit_that_was_not_folded_when_the_leader_changed_has_an_unknown_outcome() -> None:
    topic, a = owner_of_one()
    log = topic.logs[1]
    log.is_slow = True
    log.do(log.leader.group_request("staged", g.GroupCommitRequest(1, *a.grant(1), 5), topic.now_ms))
    log.fail_over()
    assert log.answers["staged"] is ErrorCode.OUTCOME_UNKNOWN


def test_commit_beyond_the_end_is_refused_and_a_late_one_moves_nothing_back() -> None:
    topic, a = owner_of_one()
    end = topic.logs[1].end
    assert refusal_of(lambda: a.commit(1, end + 1)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal_of(lambda: a.commit(1, -1)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert a.commit(1, end) == end
    length = topic.logs[1].end
    assert a.commit(1, 3) == end == a.commit(1, end)
    assert topic.logs[1].end == length, "nothing changed, so nothing is logged"


def test_commits_that_overtake_each_other_on_the_way_end_at_the_highest() -> None:
    topic, a = owner_of_one()
    log = topic.logs[1]
    log.is_slow = True
    for offset in (9, 5):
        request = g.GroupCommitRequest(1, *a.grant(1), offset)
        log.do(log.leader.group_request(offset, request, topic.now_ms))
    log.commit_staged()
    assert log.answers[9] == log.answers[5] == g.GroupCommitReply(9)


def test_grant_of_a_partition_that_has_an_owner_is_folded_to_nothing() -> None:
    consumers = Consumers()
    epoch = consumers.fold(JOINED, GROUP, [b"a", SESSION_MS, 0, [1]], 0).number
    for generation in (2, 3):
        consumers.fold(GRANTED, GROUP, [1, generation, epoch], 0)
    share = consumers.groups[GROUP].shares[1]
    assert (share.owner, share.generation) == (epoch, 2)


def test_zombie_is_refused_by_the_partition_itself_and_the_owner_goes_on() -> None:
    topic, zombie = owner_of_one()
    zombie.commit(1, 4)
    b = Consumer(topic, b"b").join()
    for _ in range(4):
        topic.pass_ms(SESSION_MS // 4)
        b.beat()
    topic.settle()
    assert set(b.beat().held) == {1}
    assert refusal_of(lambda: zombie.commit(1, 9)) is ErrorCode.FENCED
    assert topic.logs[1].leader.group_right(*zombie.grant(1)) is ErrorCode.FENCED
    assert topic.logs[1].leader.group_right(*b.grant(1)) is ErrorCode.OK
    assert topic.committed(1) == 4 and b.commit(1, 9) == 9


def test_commit_that_is_under_way_when_its_grant_ends_is_refused_by_the_fold() -> None:
    topic, zombie = owner_of_one()
    log = topic.logs[1]
    log.is_slow = True
    fence = g.GroupFenceRequest(1, GROUP, zombie.generation + 10, zombie.epoch + 10)
    log.do(log.leader.group_request("fence", fence, topic.now_ms))
    log.do(log.leader.group_request("commit", g.GroupCommitRequest(1, *zombie.grant(1), 9), topic.now_ms))
    log.commit_staged()
    assert log.answers["fence"] == m.Empty() and log.answers["commit"] is ErrorCode.FENCED
    assert topic.committed(1) == -1


def test_grant_that_a_partition_never_heard_of_is_not_taken_for_a_stale_one() -> None:
    topic, a = owner_of_one()
    for request in (
        g.GroupCommitRequest(1, GROUP, a.generation + 5, a.epoch, 3),
        g.GroupCommitRequest(1, b"another", 1, 1, 3),
        g.GroupCommittedRequest(1, GROUP, a.generation + 5, a.epoch),
    ):
        assert refusal_of(lambda request=request: topic.ask(request)) is ErrorCode.GRANT_UNKNOWN


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
    request = g.GroupJoinRequest(**{**fields, **change})  # type: ignore[arg-type]
    assert refusal_of(lambda: Topic().ask(request)) is ErrorCode.INVALID_REQUEST


def test_members_and_groups_beyond_their_limits_are_refused() -> None:
    topic = Topic(1)
    for number in range(CONSUMER_MEMBERS_MAX):
        Consumer(topic, b"%d" % number).join()
    assert refusal_of(Consumer(topic, b"one more").join) is ErrorCode.OVER_LIMIT
    Consumer(topic, b"0").join()  # the same member again
    for number in range(CONSUMER_GROUPS_MAX - 1):
        topic.ask(g.GroupJoinRequest(1, b"group %d" % number, b"a", SESSION_MS, [1]))
    request = g.GroupJoinRequest(1, b"one more", b"a", SESSION_MS, [1])
    assert refusal_of(lambda: topic.ask(request)) is ErrorCode.OVER_LIMIT
    topic.check_folds()


def test_deleted_group_is_forgotten_and_its_former_members_are_never_taken_for_new_ones() -> None:
    topic, a = owner_of_one()
    a.commit(1, 7)
    assert refusal_of(lambda: topic.ask(g.GroupDeleteRequest(1, GROUP))) is ErrorCode.GROUP_NOT_EMPTY
    a.leave()
    for _ in range(2):
        topic.ask(g.GroupDeleteRequest(1, GROUP))
    assert topic.committed(1) == -1
    b = Consumer(topic, b"b").join()
    topic.settle()
    b.beat()
    assert b.epoch > a.epoch and b.held[1] > a.held[1]
    assert refusal_of(lambda: a.commit(1, 9)) is ErrorCode.FENCED
    assert b.commit(1, 2) == 2


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


# --- anything, in any order -----------------------------------------------------------------------------------

STEPS = st.tuples(
    st.sampled_from(
        ["join", "join", "beat", "beat", "beat", "leave", "commit", "commit", "pass", "fail", "fence", "grow"]
    ),
    st.integers(0, 3),
    st.integers(0, 12),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(STEPS, max_size=70))
def test_no_order_of_events_gives_a_partition_two_owners_or_moves_an_offset_back(
    steps: list[tuple[str, int, int]],
) -> None:
    topic = Topic(2)
    consumers = [Consumer(topic, b"%d" % number) for number in range(4)]
    owners: dict[tuple[int, int], int] = {}  # (partition, generation) -> epoch
    stale: set[tuple[int, int]] = set()  # (partition, generation) of grants that a later one followed
    offsets: dict[int, int] = {}
    for step, number, value in steps:
        consumer, partition = consumers[number], topic.partitions[value % len(topic.partitions)]
        if step == "join":
            consumer.join()
        elif step == "beat" and consumer.epoch:
            refusal_of(consumer.beat)
        elif step == "leave" and consumer.epoch:
            consumer.leave()
        elif step == "commit" and partition in consumer.held:
            topic.append(partition, 1)
            try_commit(topic, consumer, partition, value, stale, offsets)
        elif step == "pass":
            topic.pass_ms(value * SESSION_MS // 10)
        elif step == "fail":
            topic.logs[partition].fail_over()
        elif step == "grow" and len(topic.logs) < 4:
            topic.add_partition()
        elif step == "fence" and topic.fences:
            coordinator, asked = topic.fences.pop(value % len(topic.fences))
            if number:
                topic.answer_fence(coordinator, asked)
            else:
                coordinator.do(coordinator.leader.fenced(asked, False, topic.now_ms))
        note_owners(consumers, owners, stale)
        topic.check_folds()


def try_commit(
    topic: Topic, consumer: Consumer, partition: int, offset: int, stale: set[tuple[int, int]], offsets: dict[int, int]
) -> None:
    grant = (partition, consumer.held[partition])
    code = refusal_of(lambda: consumer.commit(partition, min(offset, topic.logs[partition].end)))
    assert code in (ErrorCode.OK, ErrorCode.FENCED)
    assert code is ErrorCode.FENCED or grant not in stale, "a former owner committed"
    now = topic.committed(partition)
    assert now >= offsets.get(partition, -1), "the committed offset went back"
    offsets[partition] = now


def note_owners(consumers: list[Consumer], owners: dict[tuple[int, int], int], stale: set[tuple[int, int]]) -> None:
    for consumer in consumers:
        for partition, generation in consumer.held.items():
            assert owners.setdefault((partition, generation), consumer.epoch) == consumer.epoch, "two owners"
            stale.update(grant for grant in owners if grant[0] == partition and grant[1] < generation)
