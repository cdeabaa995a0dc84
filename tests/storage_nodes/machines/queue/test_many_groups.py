"""A FIFO queue of very many groups: what its leader counts and derives for all of them at once says the same as a plain
look at each, and a search for outlived messages is done in bounded steps."""

from __future__ import annotations

import random

import pytest

from storage_nodes.limits import RETENTION_MS_MIN
from storage_nodes.machines.queue.delivery import backlog, by_group, fair, groups, strategy
from storage_nodes.machines.queue.delivery.groups import GroupWindow, MessageGroup
from storage_nodes.machines.queue.delivery.untouched_groups import UntouchedGroups
from storage_nodes.machines.queue.leader.leader import Leader
from storage_nodes.machines.queue.state.fifo_state import FifoState
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.fifo_partition import partition as partition
from tests.storage_nodes.machines.queue.fifo_partition import send, take
from tests.storage_nodes.machines.queue.partition import Partition, offsets_of, receipts_of

STEP_MS = 50


def leader_of(partition: Partition) -> Leader:
    leader = partition.leader.leader
    assert leader is not None
    return leader


def window_of(partition: Partition) -> GroupWindow:
    window = leader_of(partition).delivery.window
    assert isinstance(window, GroupWindow)
    return window


def plain_counts(partition: Partition) -> tuple[int, int]:
    """Groups in view and locked ones, message by message."""
    leader, window = leader_of(partition), window_of(partition)
    state = leader._state
    assert isinstance(state, FifoState)
    locked = {
        state.group_of[offset]
        for offset, entry in state.live.items()
        if entry[1] and not leader._leases.is_ready(offset)
    }
    in_view = set(window.groups) | set(state.group_of.values())
    return len(in_view), len(locked)


# --- counts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups_max", [3, 40, 100_000])
@pytest.mark.parametrize("seed", range(6))
def test_groups_are_counted_as_a_look_at_each_message_counts_them(groups_max: int, seed: int) -> None:
    """Few messages that came back or are delayed, or most of them; alone in their groups or not; after each change of
    the leader, too."""
    draw = random.Random(seed)
    partition = Partition(QueueConfig(fifo=True, max_receives=4, dead_letter_partition=7))
    receipts: list[tuple[int, int]] = []
    seen: set[tuple[int, int]] = set()
    for step in range(150):
        act = draw.choice(["send", "send", "delay", "take", "take", "take", "delete", "give", "pass", "lead", "purge"])
        if act in ("send", "delay"):
            keys = [b"%d" % draw.randrange(groups_max) for _ in range(draw.randrange(1, 30))]
            partition.send_keyed(*[(key, b"") for key in keys], delay_ms=2_000 * (act == "delay"))
        elif act == "take":
            partition.acquire(step, 10, draw.choice([0, 1_000, 20_000]))
            assert window_of(partition).group_counts() == plain_counts(partition), "a lease is under way"
            partition.commit()
            receipts += receipts_of(partition.delivered[step])
        elif act == "delete":
            partition.delete(step, [receipts.pop(draw.randrange(len(receipts))) for _ in receipts[:10]])
        elif act == "give":
            partition.change(step, [(*receipt, 0) for receipt in receipts[-3:]])
        elif act == "pass":
            partition.pass_ms(draw.choice([1, 1_500, 25_000]))
            partition.tick()
        elif act == "lead":
            partition.fail_over()
        elif draw.randrange(4) == 0:
            partition.purge(step)
        if act != "lead" or draw.randrange(2):
            partition.commit()
        if partition.leader.leader is not None:
            counts = window_of(partition).group_counts()
            assert counts == plain_counts(partition)
            seen.add(counts)
    assert len(seen) > 3
    partition.check()


def test_counting_locked_groups_looks_at_the_few_messages_that_lock_nothing(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """120,000 messages in flight were 56 ms a call."""
    send(partition, "aabbccddee")
    take(partition, "all", 10)
    partition.change("c", [(*receipts_of(partition.delivered["all"])[0], 0)])
    partition.commit()
    looked: list[int] = []
    window = window_of(partition)
    group_of = window._state.group_of

    class Watched(dict[int, bytes]):
        def __getitem__(self, offset: int) -> bytes:
            looked.append(offset)
            return super().__getitem__(offset)

    window._state.group_of = Watched(group_of)
    assert window.group_counts() == (5, 5)
    assert len(looked) == 1


# --- what a new leader derives ----------------------------------------------------------------------------------


def test_new_leader_makes_an_object_for_a_group_when_an_input_concerns_it(partition: Partition) -> None:
    offsets = send(partition, "abcabd")
    assert offsets_of(take(partition, "all")) == [offsets[at] for at in (0, 3, 1, 4, 2, 5)]
    partition.fail_over()
    window = window_of(partition)
    assert not window.groups and window.group_counts() == (4, 4)
    assert [window.known_count(key) for key in (b"a", b"b", b"c", b"x")] == [2, 2, 1, 0] and not window.groups
    partition.delete("d", [(offsets[3], 1)])
    partition.commit()
    assert {key: group.back for key, group in window.groups.items()} == {b"a": [offsets[0]]}
    (behind,) = send(partition, "b")
    assert window.groups[b"b"].back == [offsets[1], offsets[4]] and list(window.groups[b"b"].fresh) == [behind]
    assert window.known_count(b"b") == 3 and window.group_counts() == plain_counts(partition) == (4, 4)
    partition.check()


@pytest.mark.parametrize("seed", range(20))
def test_untouched_groups_are_those_of_a_plain_look_at_all_messages(seed: int) -> None:
    draw = random.Random(seed)
    offsets = draw.sample(range(1_000), draw.choice([0, 1, 30, 300]))
    group_of = {offset: b"%d" % draw.randrange(draw.choice([1, 20, 10_000])) for offset in offsets}
    plain: dict[bytes, list[int]] = {}
    for offset in sorted(group_of):
        plain.setdefault(group_of[offset], []).append(offset)
    untouched = UntouchedGroups(group_of)
    assert len(untouched) == len(plain) and untouched.messages == len(group_of)
    left = len(group_of)
    for key, messages in plain.items():
        assert key in untouched and untouched.count_of(key) == len(messages)
        assert untouched.take(key) == messages and untouched.take(key) == []
        left -= len(messages)
        assert key not in untouched and untouched.count_of(key) == 0 and untouched.messages == left
    assert len(untouched) == 0


def test_delayed_message_that_came_before_older_ones_were_leased_stands_behind_them_for_the_next_leader(
    partition: Partition,
) -> None:
    first, second = send(partition, "aa")
    (delayed,) = send(partition, "a", delay_ms=1_000)
    assert offsets_of(take(partition, "front", visibility_ms=0)) == [first, second]
    partition.pass_ms(1_000)
    partition.fail_over()
    assert offsets_of(take(partition, "all")) == [first, second, delayed]


def test_purge_empties_what_a_new_leader_did_not_touch(partition: Partition) -> None:
    send(partition, "aab")
    take(partition, "all")
    partition.fail_over()
    (fresh,) = send(partition, "c")
    partition.purge("p")
    partition.commit()
    send(partition, "a")
    assert window_of(partition).group_counts() == (1, 0)
    assert fresh not in offsets_of(take(partition, "next"))
    partition.check()


def test_nothing_is_put_into_what_groups_without_fresh_messages_share() -> None:
    one, other = MessageGroup(b"a", []), MessageGroup(b"b", [])
    assert one.fresh is other.fresh
    with pytest.raises(AssertionError, match="share"):
        one.fresh.append(1)


# --- expiry -----------------------------------------------------------------------------------------------------


@pytest.fixture
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_GROUPS_PER_LOOK_MAX", 10)
    monkeypatch.setattr(by_group, "_EXPIRED_PER_LOOK_MAX", 4)


def short_lived() -> Partition:
    return Partition(QueueConfig(RETENTION_MS_MIN, fifo=True))


def send_groups(partition: Partition, numbers: range, each: int = 1) -> list[int]:
    return list(partition.send_keyed(*[(b"%d" % number, b"") for number in numbers for _ in range(each)]))


def outlived(groups: int) -> Partition:
    """So many groups, each with a message that has outlived its retention."""
    partition = short_lived()
    send_groups(partition, range(groups))
    partition.now_ms += RETENTION_MS_MIN + 1_000
    return partition


def look(partition: Partition) -> int:
    """One tick; how many messages it let go of, which the fold did not see yet."""
    staging = leader_of(partition)._staging
    before = staging.fresh_expired
    partition.tick()
    return staging.fresh_expired - before


def test_each_look_lets_go_of_a_few_outlived_messages_and_soon_all_are_gone(little_at_once: None) -> None:
    partition = short_lived()
    send_groups(partition, range(10), 3)
    partition.now_ms += RETENTION_MS_MIN + 1_000
    steps = []
    while partition.leader.state.fresh_count:
        steps.append(look(partition))
        partition.commit()
        due_ms = partition.leader.next_tick_ms()
        assert not partition.leader.state.fresh_count or due_ms == partition.now_ms + STEP_MS
        partition.now_ms += STEP_MS
    assert steps == [4] * 7 + [2] and partition.leader.state.expired == 30
    partition.check()


def test_each_look_goes_through_a_few_groups(little_at_once: None) -> None:
    """Only the last one has something that outlived its retention, in its turn."""
    partition = short_lived()
    send_groups(partition, range(25))
    picks = [*take(partition, "one"), *take(partition, "two"), *take(partition, "three", 4)]
    partition.delete("all but one", receipts_of(picks))
    partition.commit()
    partition.now_ms += RETENTION_MS_MIN - 30_000
    send_groups(partition, range(100, 124))
    window = window_of(partition)
    window.groups = dict(reversed(window.groups.items()))
    partition.now_ms += 40_000
    assert look(partition) == 0
    partition.now_ms += STEP_MS
    assert look(partition) == 0
    partition.now_ms += STEP_MS
    assert look(partition) == 1
    partition.commit()
    partition.now_ms += STEP_MS
    assert look(partition) == 0
    assert partition.leader.next_tick_ms() > partition.now_ms + STEP_MS, "and then it rests"
    assert partition.leader.state.expired == 1 and partition.leader.state.fresh_count == 24
    partition.check()


def test_search_that_found_all_is_not_made_again_for_what_is_still_on_its_way(partition: Partition) -> None:
    partition = outlived(5)
    assert look(partition) == 5
    window = window_of(partition)
    window.groups = None  # type: ignore[assignment]  # a look at the groups fails
    assert window.take_expired(partition.now_ms - RETENTION_MS_MIN, 100) == []
    window.groups = {}
    partition.commit()
    partition.check()


def test_search_goes_on_in_what_is_read_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long backlog the window holds little while nobody receives: all of it outlives its retention in a look."""
    for module in (by_group, groups):
        monkeypatch.setattr(module, "FIFO_READ_AHEAD_MESSAGES_MAX", 20)
    monkeypatch.setattr(by_group, "READ_AHEAD_MESSAGES_MAX", 4)
    partition = short_lived()
    partition.fetch_batches_max = 1
    for _ in range(30):
        send_groups(partition, range(10))
        partition.commit()
    partition.now_ms += RETENTION_MS_MIN - 5_000
    send_groups(partition, range(3))
    partition.pass_ms(5_000)
    for _ in range(200):
        partition.now_ms += STEP_MS
        partition.tick()
        partition.commit()
        if partition.leader.next_tick_ms() > partition.now_ms + STEP_MS:
            break  # it rests
    assert (partition.leader.state.expired, partition.leader.state.fresh_count) == (300, 3)
    assert partition.leader.next_tick_ms() > partition.now_ms + STEP_MS
    partition.check()


@pytest.mark.parametrize("fifo", [True, False])
def test_search_waits_for_a_read_that_is_under_way(monkeypatch: pytest.MonkeyPatch, fifo: bool) -> None:
    for module in (by_group, groups):
        monkeypatch.setattr(module, "FIFO_READ_AHEAD_MESSAGES_MAX", 10)
    for module in (by_group, fair):
        monkeypatch.setattr(module, "READ_AHEAD_MESSAGES_MAX", 4)
    monkeypatch.setattr(backlog, "SIGHT_RUNS_NEAR", 10)
    partition = Partition(QueueConfig(RETENTION_MS_MIN, fifo=fifo), fetch_batches_max=1)
    for _ in range(3):
        send_groups(partition, range(10))
    partition.holds_fetches = True
    partition.now_ms += RETENTION_MS_MIN + 1_000
    for _ in range(5):
        look(partition)
        partition.commit()
        partition.now_ms += STEP_MS
    left = partition.leader.state.fresh_count
    assert 0 < left < 30 and partition.leader.next_tick_ms() <= partition.now_ms
    partition.holds_fetches = False
    for _ in range(5):
        partition.run_fetches()
        partition.tick()
        partition.commit()
        partition.now_ms += STEP_MS
    assert partition.leader.state.expired == 30
    partition.check()


@pytest.mark.parametrize("fifo", [True, False])
def test_no_more_is_let_go_of_than_one_command_names_before_the_log_has_it(
    little_at_once: None, monkeypatch: pytest.MonkeyPatch, fifo: bool
) -> None:
    monkeypatch.setattr(strategy, "EXPIRED_PER_COMMAND_MAX", 6)
    partition = Partition(QueueConfig(RETENTION_MS_MIN, fifo=fifo))
    send_groups(partition, range(9))
    partition.now_ms += RETENTION_MS_MIN + 1_000
    steps = []
    staged = []
    for _ in range(4):
        steps.append(look(partition))
        staged.append(partition.take())  # and it is not committed
        partition.now_ms += STEP_MS
    assert steps == ([4, 2, 0, 0] if fifo else [6, 0, 0, 0])
    assert partition.leader.next_tick_ms() <= partition.now_ms, "it goes on once they are"
    for bodies in staged:
        if bodies:
            partition.append(bodies, control=True)
    assert look(partition) == 3
    partition.commit()
    partition.check()


def test_retention_that_is_raised_during_a_search_spares_what_it_did_not_come_to(little_at_once: None) -> None:
    partition = outlived(9)
    assert look(partition) == 4
    partition.perform(partition.leader.configure("c", QueueConfig(10 * RETENTION_MS_MIN, fifo=True)))
    partition.commit()
    partition.pass_ms(RETENTION_MS_MIN)
    assert partition.leader.state.expired == 4 and partition.leader.state.fresh_count == 5
    partition.now_ms += 10 * RETENTION_MS_MIN
    partition.tick()
    partition.pass_ms(STEP_MS)
    partition.commit()
    partition.pass_ms(STEP_MS)
    partition.commit()
    assert partition.leader.state.expired == 9
    partition.check()


def test_retention_that_is_raised_during_a_search_ends_it_before_what_has_not_outlived_that(
    little_at_once: None,
) -> None:
    partition = short_lived()
    send_groups(partition, range(6))
    partition.now_ms += 20_000
    send_groups(partition, range(10, 16))
    partition.now_ms += RETENTION_MS_MIN
    assert look(partition) == 4
    partition.perform(partition.leader.configure("c", QueueConfig(RETENTION_MS_MIN + 10_000, fifo=True)))
    partition.commit()
    for _ in range(6):
        partition.pass_ms(STEP_MS)
        partition.commit()
    assert partition.leader.state.expired == 6 and partition.leader.state.fresh_count == 6
    partition.check()


def test_groups_that_a_search_has_passed_are_looked_at_again_for_what_outlived_since(little_at_once: None) -> None:
    partition = short_lived()
    send_groups(partition, range(3))
    partition.now_ms += 1_000
    send_groups(partition, range(3))
    send_groups(partition, range(10, 30))
    partition.now_ms += RETENTION_MS_MIN - 500
    assert look(partition) == 3, "of the ten first groups"
    partition.now_ms += 500
    assert look(partition) == 0, "the others had not outlived it when the search began"
    partition.now_ms += STEP_MS
    assert look(partition) == 0
    partition.commit()
    assert partition.leader.state.expired == 3 and not window_of(partition).is_expiring
    for _ in range(50):
        partition.pass_ms(STEP_MS)
        partition.commit()
    assert partition.leader.state.expired == 26
    partition.check()


def test_search_does_not_go_on_in_groups_that_a_purge_emptied(little_at_once: None) -> None:
    """No look came between the purge and the time when what was sent after it had outlived its retention, too."""
    partition = outlived(9)
    assert look(partition) == 4
    partition.purge("p")
    purge = partition.take()
    partition.delete("late", [(0, 1)])  # the queue is not idle, so the leader's view of it stays
    partition.append(purge, control=True)
    send_groups(partition, range(20, 22))
    partition.commit()
    partition.now_ms += RETENTION_MS_MIN + 1_000
    assert look(partition) == 2
    partition.commit()
    assert partition.leader.state.expired == 6 and partition.leader.state.fresh_count == 0
    partition.check()


def test_purge_during_a_search_ends_it(little_at_once: None) -> None:
    partition = outlived(9)
    assert look(partition) == 4
    partition.purge("p")
    partition.commit()
    fresh = send_groups(partition, range(20, 22))
    partition.pass_ms(2_000)
    partition.commit()
    assert offsets_of(take(partition, "next")) == fresh
    partition.check()


@pytest.mark.parametrize("seed", range(8))
def test_outlived_messages_go_within_seconds_and_are_never_handed_out(little_at_once: None, seed: int) -> None:
    draw = random.Random(seed)
    partition = short_lived()
    sent_ms: dict[int, int] = {}
    gone: set[int] = set()
    for number in range(400):
        first = draw.randrange(60)
        for offset in send_groups(partition, range(first, first + draw.randrange(1, 4)), draw.randrange(1, 3)):
            sent_ms[offset] = partition.now_ms
        partition.pass_ms(draw.choice([0, 300, 1_000]))
        if draw.randrange(3) == 0:
            picks = take(partition, f"t{number}", 3, visibility_ms=draw.choice([100, 100_000]))
            assert all(
                sent_ms[pick.offset] > partition.now_ms - RETENTION_MS_MIN for pick in picks if pick.delivery == 1
            )
            if draw.randrange(2):
                partition.delete(f"d{number}", receipts_of(picks))
                gone.update(offsets_of(picks))
        partition.commit()
        late_ms = partition.now_ms - RETENTION_MS_MIN - 5_000
        state = partition.leader.state
        waiting = {
            offset
            for offset in sent_ms.keys() - gone
            if offset >= state.cursor and offset not in state.removed_above_cursor
        }
        assert not [offset for offset in waiting if sent_ms[offset] < late_ms]
    assert partition.leader.state.expired > 100
    partition.check()
