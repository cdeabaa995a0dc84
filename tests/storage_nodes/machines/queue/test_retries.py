"""Receives that failed: the pause that follows by the queue's policy, and receives that are taken back uncounted."""

from __future__ import annotations

import msgspec
import pytest

from storage_nodes.machines.queue.commands import NACKED, uncounted
from storage_nodes.machines.queue.delivery import leases
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.queue.state.retry import RetryPolicy
from storage_nodes.protocol.deliveries import RELEASES_MAX, receives_of, released
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import MessageState, QueueConfig, RetryKind
from tests.storage_nodes.machines.queue.partition import VISIBILITY_MS, Partition, offsets_of

LINEAR = QueueConfig(retry_kind=RetryKind.LINEAR, retry_delay_ms=1_000, retry_max_ms=2_500)
OK = ErrorCode.OK


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def partition(request: pytest.FixtureRequest) -> Partition:
    return Partition(msgspec.structs.replace(LINEAR, fifo=request.param))


def counting(fifo: bool, receives: int = 2) -> Partition:
    return Partition(QueueConfig(fifo=fifo, max_receives=receives, dead_letter_partition=7))


def take(partition: Partition, token: str, visibility_ms: int = VISIBILITY_MS) -> list[tuple[int, int]]:
    partition.acquire(token, visibility_ms=visibility_ms)
    partition.commit()
    return [pick[:2] for pick in partition.delivered[token]]


def give_back(partition: Partition, receipt: tuple[int, int], visibility_ms: int) -> ErrorCode:
    token = ("back", receipt, len(partition.log))
    partition.change(token, [(*receipt, visibility_ms)])
    partition.commit()
    (code,) = partition.answers[token]  # type: ignore[misc]
    return code


# --- the policy ---


@pytest.mark.parametrize(
    ("kind", "pauses_ms"),
    [
        (RetryKind.FIXED, [100, 100, 100, 100, 100]),
        (RetryKind.LINEAR, [100, 200, 300, 400, 450]),
        (RetryKind.EXPONENTIAL, [100, 200, 400, 450, 450]),
    ],
)
def test_pause_grows_by_its_kind_up_to_its_bound(kind: RetryKind, pauses_ms: list[int]) -> None:
    policy = RetryPolicy(kind, 100, 450, 0)
    assert [policy.pause_ms(3, receives) for receives in range(1, 6)] == pauses_ms
    assert policy.pause_ms(3, 1_000) == pauses_ms[-1]


def test_jitter_takes_off_a_share_that_offset_and_delivery_decide() -> None:
    policy = RetryPolicy(RetryKind.FIXED, 10_000, 10_000, 500)
    pauses_ms = [policy.pause_ms(offset, 1) for offset in range(1_000)]
    assert pauses_ms == [policy.pause_ms(offset, 1) for offset in range(1_000)]
    assert all(5_000 < pause_ms <= 10_000 for pause_ms in pauses_ms)
    assert len(set(pauses_ms)) > 900 and 7_300 < sum(pauses_ms) / 1_000 < 7_700
    assert policy.pause_ms(0, 1) != policy.pause_ms(0, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"retry_kind": 4},
        {"retry_kind": 1, "retry_max_ms": 1},
        {"retry_kind": 1, "retry_delay_ms": 2, "retry_max_ms": 1},
        {"retry_kind": 1, "retry_delay_ms": 1, "retry_max_ms": 50_000_000},
        {"retry_kind": 1, "retry_delay_ms": 1, "retry_max_ms": 1, "retry_jitter_permille": 1_001},
    ],
)
def test_policy_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    partition = Partition()
    partition.perform(partition.leader.configure("c", msgspec.structs.replace(QueueConfig(), **wrong)))
    assert partition.refused["c"].code is ErrorCode.INVALID_REQUEST


# --- pauses ---


def test_message_comes_again_a_pause_after_its_lease_whoever_leads(partition: Partition) -> None:
    (offset,) = partition.send_keyed((b"g", b""))
    assert take(partition, "first") == [(offset, 1)]
    partition.pass_ms(VISIBILITY_MS)
    partition.fail_over()
    assert take(partition, "within the pause") == []
    assert partition.leader.look_at(offset, partition.now_ms)[0] is MessageState.DELAYED  # type: ignore[index]
    partition.pass_ms(999)
    assert take(partition, "just before") == []
    partition.pass_ms(1)
    assert take(partition, "after it") == [(offset, 2)]
    partition.pass_ms(VISIBILITY_MS + 1_999)
    assert take(partition, "the second is longer") == []
    partition.pass_ms(1)
    assert take(partition, "third") == [(offset, 3)]
    partition.check()


def test_long_poll_is_woken_when_the_pause_is_over(partition: Partition) -> None:
    (offset,) = partition.send_keyed((b"g", b""))
    (receipt,) = take(partition, "first")
    assert give_back(partition, receipt, NACKED) is OK
    started_ms = partition.now_ms
    partition.acquire("long", wait_ms=5_000)
    partition.pass_ms(1_500)
    partition.commit()
    assert offsets_of(partition.delivered["long"]) == [offset]
    served_ms = partition.effect_times_ms[-1] if not partition.leader.is_fifo else partition.now_ms
    assert served_ms - started_ms >= 1_000


@pytest.mark.parametrize("ending", ["nack", "lease"])
@pytest.mark.parametrize("fails_over", [False, True], ids=["same leader", "next leader"])
def test_messages_that_wait_for_their_next_try_do_not_use_up_what_may_be_in_flight(
    partition: Partition, ending: str, fails_over: bool
) -> None:
    config = msgspec.structs.replace(partition.leader.config, in_flight_max=2)
    partition.perform(partition.leader.configure("few", config))
    partition.commit()
    offsets = partition.send_keyed(*[(b"%d" % number, b"") for number in range(4)])
    receipts = take(partition, "first")
    assert len(receipts) == 2, "no more may be in flight"
    if ending == "nack":
        assert [give_back(partition, receipt, NACKED) for receipt in receipts] == [OK, OK]
    else:
        partition.pass_ms(VISIBILITY_MS)
    if fails_over:
        partition.fail_over()
    assert [offset for offset, _ in take(partition, "others")] == list(offsets[2:])
    stats = partition.leader.stats(partition.now_ms)
    assert (stats.waiting, stats.in_flight, stats.delayed) == (0, 2, 2)
    partition.pass_ms(1_000)
    assert partition.leader.stats(partition.now_ms).waiting == 2
    partition.check()


def test_pause_outlasts_the_sweep_of_timers_that_mean_nothing_any_more(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_GARBAGE_MAX", 0)
    paused, busy = partition.send_keyed((b"a", b""), (b"b", b""))
    receipts = dict(take(partition, "first"))
    assert give_back(partition, (paused, receipts[paused]), NACKED) is OK
    assert partition.leader.stats(partition.now_ms).delayed == 1
    for visibility_ms in range(60_000, 60_010):
        assert give_back(partition, (busy, receipts[busy]), visibility_ms) is OK
    partition.pass_ms(1_000)
    assert take(partition, "after the pause") == [(paused, 2)]


def test_messages_beyond_the_bound_of_those_that_wait_count_as_in_flight(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RETRIES_PAUSED_MAX", 1)
    partition.send_keyed(*[(b"%d" % number, b"") for number in range(3)])
    for receipt in take(partition, "first"):
        assert give_back(partition, receipt, NACKED) is OK
    stats = partition.leader.stats(partition.now_ms)
    assert (stats.in_flight, stats.delayed) == (2, 1)
    partition.pass_ms(1_000)
    assert partition.leader.stats(partition.now_ms).waiting == 3


def test_pause_that_a_visibility_of_the_caller_or_a_delete_ends_is_counted_no_more() -> None:
    partition = Partition(LINEAR)
    partition.send(2)
    first, second = take(partition, "first")
    for receipt in (first, second):
        assert give_back(partition, receipt, NACKED) is OK
    assert give_back(partition, first, 5_000) is OK
    partition.delete("gone", [second])
    partition.commit()
    stats = partition.leader.stats(partition.now_ms)
    assert (stats.waiting, stats.in_flight, stats.delayed) == (0, 1, 0)


def test_nack_is_followed_by_the_pause_and_a_visibility_of_the_caller_is_not(partition: Partition) -> None:
    partition.send_keyed((b"g", b""))
    (receipt,) = take(partition, "first")
    assert give_back(partition, receipt, 0) is OK
    (receipt,) = take(partition, "at once")
    assert give_back(partition, receipt, NACKED) is OK
    assert give_back(partition, receipt, NACKED) is not OK, "its lease is over"
    assert take(partition, "within the pause") == []
    partition.pass_ms(2_000)
    assert len(take(partition, "after it")) == 1


def test_nack_without_a_policy_gives_back_at_once() -> None:
    partition = Partition()
    (offset,) = partition.send()
    assert give_back(partition, take(partition, "first")[0], NACKED) is OK
    assert take(partition, "again") == [(offset, 2)]


def test_pause_of_a_fifo_message_holds_its_group_and_no_other() -> None:
    partition = Partition(msgspec.structs.replace(LINEAR, fifo=True))
    a1, a2, b1 = partition.send_keyed((b"a", b""), (b"a", b""), (b"b", b""))
    partition.acquire("first", 1)
    partition.commit()
    assert give_back(partition, (a1, 1), NACKED) is OK
    assert take(partition, "others") == [(b1, 1)]
    partition.pass_ms(1_000)
    assert take(partition, "after it") == [(a1, 2), (a2, 1)]


def test_dead_letter_does_not_wait_for_a_pause(partition: Partition) -> None:
    config = msgspec.structs.replace(partition.leader.state.config, max_receives=1, dead_letter_partition=7)
    partition = Partition(config)
    partition.send_keyed((b"g", b""))
    take(partition, "first")
    partition.pass_ms(VISIBILITY_MS)
    assert len(partition.moves) == 1


def test_policy_that_is_taken_away_ends_the_pauses(partition: Partition) -> None:
    partition.send_keyed((b"g", b""))
    assert give_back(partition, take(partition, "first")[0], NACKED) is OK
    partition.acquire("long", wait_ms=20_000)
    plain = msgspec.structs.replace(partition.leader.state.config, retry_kind=0)
    partition.perform(partition.leader.configure("c", plain))
    partition.commit()
    partition.pass_ms(1)
    partition.commit()
    assert len(partition.delivered["long"]) == 1


def test_pause_stands_in_the_checkpoint(partition: Partition) -> None:
    (offset,) = partition.send_keyed((b"g", b""))
    give_back(partition, take(partition, "first")[0], NACKED)
    restored = QueueMachine()
    restored.restore(partition.leader.checkpoint())
    assert restored.look_at(offset, partition.now_ms) == partition.leader.look_at(offset, partition.now_ms)
    assert restored.stats(partition.now_ms).waiting == 0
    assert restored.stats(partition.now_ms + 1_000).waiting == 1


# --- receives that do not count ---


def test_number_of_a_released_delivery_grows_and_its_receives_do_not() -> None:
    numbers, number = [], 0
    for _ in range(5):
        number += 1
        numbers += [number, number := released(number)]
        assert receives_of(number) == 0
    assert numbers == sorted(set(numbers))
    number = 1
    for _ in range(2 * RELEASES_MAX):
        number = released(number) + 1
    assert receives_of(number) > 1 and number < 2**32, "beyond the bound they count, and fit a receipt"


@pytest.mark.parametrize("fifo", [False, True])
def test_released_receive_does_not_count_towards_the_dead_letter_queue(fifo: bool) -> None:
    partition = counting(fifo)
    partition.send_keyed((b"g", b""))
    for number in range(5):
        ((offset, delivery),) = take(partition, f"released {number}")
        assert receives_of(delivery) == 1
        assert give_back(partition, (offset, delivery), uncounted(0)) is OK
        partition.fail_over()
    for number in (1, 2):
        ((offset, delivery),) = take(partition, f"counted {number}")
        assert receives_of(delivery) == number and not partition.moves
        assert give_back(partition, (offset, delivery), 0) is OK
    assert take(partition, "dead") == []
    assert partition.moves[0].letters[0].receives == 2
    partition.check()


def test_receipt_of_a_released_delivery_deletes_nothing_of_a_fifo_queue() -> None:
    partition = counting(True)
    (offset,) = partition.send_keyed((b"g", b""))
    (receipt,) = take(partition, "first")
    give_back(partition, receipt, uncounted(0))
    (second,) = take(partition, "second")
    partition.delete("old", [receipt])
    partition.commit()
    assert offset in partition.leader.state.live
    partition.delete("new", [second])
    partition.commit()
    assert offset not in partition.leader.state.live


@pytest.mark.parametrize("fifo", [False, True])
def test_release_with_a_delay_is_available_after_it(fifo: bool) -> None:
    partition = counting(fifo)
    (offset,) = partition.send_keyed((b"g", b""))
    give_back(partition, take(partition, "first")[0], uncounted(3_000))
    partition.pass_ms(2_999)
    assert take(partition, "early") == []
    partition.pass_ms(1)
    ((again, delivery),) = take(partition, "due")
    assert (again, receives_of(delivery)) == (offset, 1)


def test_release_of_a_lease_that_is_over_is_refused() -> None:
    partition = counting(False)
    partition.send()
    (receipt,) = take(partition, "first")
    partition.pass_ms(VISIBILITY_MS)
    assert give_back(partition, receipt, uncounted(0)) is ErrorCode.NOT_IN_FLIGHT


def test_delivery_that_reached_nobody_does_not_count() -> None:
    partition = counting(False, receives=1)
    partition.send()
    (receipt,) = take(partition, "gone")
    partition.perform(partition.leader.release([receipt], partition.now_ms))
    partition.commit()
    ((_, delivery),) = take(partition, "next")
    assert receives_of(delivery) == 1 and not partition.moves
