"""Consumer groups: fences and committed offsets, in the log of each partition (R31)."""

from __future__ import annotations

from storage_nodes.limits import (
    CONSUMER_FENCE_PAUSE_MS,
    CONSUMER_FENCES_AT_ONCE_MAX,
)
from storage_nodes.machines.stream.consumers import GRANTED, JOINED, Consumers
from storage_nodes.protocol import messages as m
from storage_nodes.protocol.errors import ErrorCode
from tests.storage_nodes.machines.stream.topic import GROUP, SESSION_MS, Consumer, Topic, owner_of_one, refusal_of

# --- fences ---------------------------------------------------------------------------------------------------


def test_partition_is_granted_only_when_its_own_log_refuses_everybody_else() -> None:
    topic = Topic(2)
    a = Consumer(topic, b"a").join()
    first, second = topic.fences
    topic.fences = []
    topic.answer_fence(*second)
    assert set(a.beat().held) == {2}
    first[0].do(first[0].leader.fenced(first[1], ErrorCode.NO_QUORUM, topic.now_ms))
    topic.pass_ms(CONSUMER_FENCE_PAUSE_MS - 1)
    assert topic.fences == []
    topic.pass_ms(1)
    topic.settle()
    assert set(a.beat().held) == {1, 2}


def test_answer_to_a_fence_that_was_given_up_grants_nothing() -> None:
    topic = Topic(1)
    a = Consumer(topic, b"a").join()
    coordinator, asked = topic.fences.pop()
    coordinator.do(coordinator.leader.fenced(asked, ErrorCode.NO_QUORUM, topic.now_ms))
    b = Consumer(topic, b"b").join()
    topic.pass_ms(CONSUMER_FENCE_PAUSE_MS)
    coordinator.do(coordinator.leader.fenced(asked, ErrorCode.OK, topic.now_ms))
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
        topic.ask(m.GroupFenceRequest(1, GROUP, 9, 8))
    for generation, epoch in ((7, 6), (9, 6)):
        late = m.GroupFenceRequest(1, GROUP, generation, epoch)
        assert refusal_of(lambda late=late: topic.ask(late)) is ErrorCode.FENCED
    assert topic.logs[1].evicted == [GROUP]


# --- offsets --------------------------------------------------------------------------------------------------


def test_committed_offset_is_in_the_log_before_it_is_answered_and_survives_its_leader() -> None:
    topic, a = owner_of_one()
    assert topic.committed(1) == -1
    topic.logs[1].is_slow = True
    request = m.GroupCommitRequest(1, *a.grant(1), 5)
    topic.logs[1].do(topic.logs[1].leader.group_request("later", request, topic.now_ms))
    assert "later" not in topic.logs[1].answers and topic.committed(1) == -1
    topic.logs[1].commit_staged()
    assert topic.logs[1].answers["later"] == m.GroupCommitReply(5)
    topic.logs[1].is_slow = False
    topic.logs[1].fail_over()
    assert topic.committed(1) == 5 and a.commit(1, 6) == 6
    topic.check_folds()


def test_commit_that_was_not_folded_when_the_leader_changed_has_an_unknown_outcome() -> None:
    topic, a = owner_of_one()
    log = topic.logs[1]
    log.is_slow = True
    log.do(log.leader.group_request("staged", m.GroupCommitRequest(1, *a.grant(1), 5), topic.now_ms))
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
        request = m.GroupCommitRequest(1, *a.grant(1), offset)
        log.do(log.leader.group_request(offset, request, topic.now_ms))
    log.commit_staged()
    assert log.answers[9] == log.answers[5] == m.GroupCommitReply(9)


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
    fence = m.GroupFenceRequest(1, GROUP, zombie.generation + 10, zombie.epoch + 10)
    log.do(log.leader.group_request("fence", fence, topic.now_ms))
    log.do(log.leader.group_request("commit", m.GroupCommitRequest(1, *zombie.grant(1), 9), topic.now_ms))
    log.commit_staged()
    assert log.answers["fence"] == m.Empty() and log.answers["commit"] is ErrorCode.FENCED
    assert topic.committed(1) == -1


def test_grant_that_a_partition_never_heard_of_is_not_taken_for_a_stale_one() -> None:
    topic, a = owner_of_one()
    for request in (
        m.GroupCommitRequest(1, GROUP, a.generation + 5, a.epoch, 3),
        m.GroupCommitRequest(1, b"another", 1, 1, 3),
        m.GroupCommittedRequest(1, GROUP, a.generation + 5, a.epoch),
    ):
        assert refusal_of(lambda request=request: topic.ask(request)) is ErrorCode.GRANT_UNKNOWN
