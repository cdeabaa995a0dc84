"""Messages, leases and schedules when clocks are wrong. The partition is led by what nodes make of their clocks."""

from __future__ import annotations

import pytest

from storage_nodes.limits import CLOCK_LOOK_MS, RETENTION_MS_MIN
from storage_nodes.model import AHEAD_UNKNOWN
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.clocks.clock_agreement import ClockAgreement
from storage_nodes.node.replicas.leader_time import LeaderTime
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import NOW_MS, Partition, offsets_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
RETENTION_MS = 4 * DAY_MS
PLAIN = QueueConfig(retention_ms=RETENTION_MS)
FIFO = QueueConfig(fifo=True, retention_ms=RETENTION_MS)


class MachineClock(NodeClock):
    def __init__(self) -> None:
        self.passed_ms = 0
        self.wrong_ms = 0

    def mono_ms(self) -> int:
        return 1_000_000 + self.passed_ms

    def wall_ms(self) -> int:
        return NOW_MS + self.passed_ms + self.wrong_ms


class Led:
    """A partition and the node that leads it."""

    def __init__(
        self, config: QueueConfig = PLAIN, wrong_ms: int = 0, agreed_wrong_ms: int | None = 0, tags: bool = False
    ) -> None:
        self.is_tagged = tags
        self.clock = MachineClock()
        self.agreement = ClockAgreement(1)
        self.partition = Partition(config, leads=False)
        self.lead(wrong_ms, agreed_wrong_ms)

    def agree(self, wrong_ms: int | None) -> None:
        self.agreement.base_ms = None if wrong_ms is None else NOW_MS - 1_000_000 + wrong_ms
        self.clock.passed_ms += 1
        self.look()

    def lead(self, wrong_ms: int = 0, agreed_wrong_ms: int | None = 0) -> None:
        """A node leads from here on whose clock is wrong by so much; most clocks by the second number."""
        partition = self.partition
        self.clock.wrong_ms = wrong_ms
        self.agreement.base_ms = None if agreed_wrong_ms is None else NOW_MS - 1_000_000 + agreed_wrong_ms
        last_stamp_ms = max((header.timestamp_ms for header, _ in partition.log), default=0)
        self.time = LeaderTime(self.clock, self.agreement, last_stamp_ms)
        partition.now_ms = self.time.now_ms()
        for machine in partition.machines:
            machine.clocks_say(self.time.ahead_ms)
        if partition.log:
            partition.fail_over()
        else:
            partition.start_epoch()

    def look(self) -> None:
        self.partition.now_ms = self.time.now_ms()
        self.partition.leader.clocks_say(self.time.ahead_ms)

    def pass_ms(self, ms: int) -> int:
        """Let time pass and tick when that is asked for; how often it was."""
        end_ms = self.clock.passed_ms + ms
        ticks = 0
        while (due_ms := self.partition.leader.next_tick_ms()) and self._passed(due_ms) <= end_ms:
            self.clock.passed_ms = max(self.clock.passed_ms, self._passed(due_ms))
            self.look()
            self.partition.tick()
            self.partition.commit()
            ticks += 1
            assert ticks < 10_000, "the machine asks to be woken again and again"
        self.clock.passed_ms = end_ms
        self.look()
        self.partition.tick()
        self.partition.commit()
        return ticks

    def _passed(self, due_ms: int) -> int:
        return self.time.mono_of(due_ms) - 1_000_000

    @property
    def expired(self) -> int:
        return self.partition.leader.state.expired

    def send(self, count: int = 5) -> None:
        if self.partition.leader.is_fifo:
            self.partition.send_keyed(*[(b"g", b"")] * count)
        elif self.is_tagged:
            self.partition.send_tagged(*[(b"", b"t")] * count)
        else:
            self.partition.send(count)

    def receive(self, token: str, count: int = 10) -> list[int]:
        self.partition.acquire(token, count)
        self.partition.commit()
        return offsets_of(self.partition.delivered[token])


@pytest.mark.parametrize("looks", [True, False], ids=["looked at", "received"])
@pytest.mark.parametrize(
    ("config", "tags"), [(PLAIN, False), (FIFO, False), (PLAIN, True)], ids=["standard", "fifo", "tags"]
)
def test_messages_survive_a_leader_whose_clock_is_days_ahead_and_those_sent_to_it_and_after_it(
    config: QueueConfig, tags: bool, looks: bool
) -> None:
    led = Led(config, tags=tags)
    wait_ms = 2 * HOUR_MS if looks else 1_000  # in which retention is looked at, or not
    led.send()
    # It was elected before it had heard of a majority, so it goes by its own clock.
    led.lead(wrong_ms=5 * DAY_MS, agreed_wrong_ms=None)
    led.pass_ms(wait_ms)
    assert led.expired == 0
    led.send()
    # A right-clocked one after it: what arrives now is stamped with a time that is days ahead, too.
    led.lead()
    led.send()
    led.pass_ms(wait_ms)
    assert led.expired == 0
    assert len(led.receive("all", 100)) == 15
    assert led.expired == 0
    led.partition.check()


def test_leader_that_heard_of_a_majority_stamps_and_expires_by_that_whatever_its_own_clock_says() -> None:
    led = Led(wrong_ms=5 * DAY_MS)
    led.send()
    assert led.partition.log[-1][0].timestamp_ms == NOW_MS
    led.pass_ms(RETENTION_MS - 120_000)
    assert led.expired == 0
    led.pass_ms(HOUR_MS * 2)
    assert led.expired == 5


def test_messages_stamped_right_expire_in_time_though_later_stamps_are_ahead() -> None:
    led = Led(QueueConfig(retention_ms=RETENTION_MS_MIN))
    led.send()
    led.lead(wrong_ms=DAY_MS, agreed_wrong_ms=None)
    led.send()
    led.lead()
    led.pass_ms(RETENTION_MS_MIN - 1_000)
    assert led.expired == 0
    led.pass_ms(3_000)
    assert led.expired == 5
    led.pass_ms(2 * RETENTION_MS_MIN)
    assert led.expired == 5, "what was stamped a day ahead stays a day longer"


@pytest.mark.parametrize("config", [PLAIN, FIFO], ids=["standard", "fifo"])
def test_lease_of_a_leader_a_day_ahead_ends_in_time_at_its_successor(config: QueueConfig) -> None:
    led = Led(config, wrong_ms=DAY_MS, agreed_wrong_ms=None)
    led.send(1)
    assert led.receive("leased") == [1]
    led.lead()
    led.pass_ms(29_000)
    assert led.receive("early") == []
    led.pass_ms(2_700)  # its time runs a little slower
    assert led.receive("again") == [1]


def test_delay_and_deduplication_window_last_as_long_at_a_successor_of_a_leader_ahead() -> None:
    config = QueueConfig(dedup_window_ms=60_000)
    led = Led(config, wrong_ms=DAY_MS, agreed_wrong_ms=None)
    led.partition.send_keyed((b"", b"id"), delay_ms=10_000)
    led.lead()
    led.pass_ms(9_000)
    assert led.receive("early") == []
    led.partition.send_keyed((b"", b"id"))
    assert led.partition.duplicates, "the id is remembered"
    led.pass_ms(2_000)
    assert led.receive("due") == [1]
    led.pass_ms(60_000)
    led.partition.send_keyed((b"", b"id"))
    assert len(led.partition.duplicates) == 1, "and forgotten in time"


def test_nothing_expires_and_nothing_scheduled_is_released_where_agreed_time_is_not_known() -> None:
    led = Led(agreed_wrong_ms=None)
    led.send()
    led.partition.schedule(b"%d" % (NOW_MS + HOUR_MS))
    assert led.partition.leader.ahead_ms == AHEAD_UNKNOWN
    ticks = led.pass_ms(HOUR_MS + 60_000)
    assert led.partition.counts() == (5, 0, 1)
    assert ticks <= 60_000 // CLOCK_LOOK_MS + 30, "it looks again from time to time, not all the time"
    led.agree(0)
    led.pass_ms(2 * CLOCK_LOOK_MS)
    assert led.partition.counts() == (6, 0, 0), "once it is known"


@pytest.mark.parametrize("agreed_wrong_ms", [0, None])
def test_message_with_a_due_time_comes_no_earlier_by_a_leader_whose_clock_is_ahead(
    agreed_wrong_ms: int | None,
) -> None:
    led = Led()
    led.partition.schedule(b"%d" % (NOW_MS + HOUR_MS))
    led.lead(wrong_ms=DAY_MS, agreed_wrong_ms=agreed_wrong_ms)
    led.partition.schedule(b"%d" % (NOW_MS + HOUR_MS))  # past by the stamps of a leader that is ahead
    led.pass_ms(60_000)
    led.lead()
    led.partition.schedule(b"%d" % (NOW_MS + HOUR_MS))
    led.pass_ms(HOUR_MS - 60_100)
    assert led.partition.counts() == (0, 0, 3)
    led.pass_ms(2 * CLOCK_LOOK_MS)
    assert led.partition.counts() == (3, 0, 0)
    led.partition.check()


def test_release_that_waits_for_other_clocks_is_looked_at_once_a_second_at_most() -> None:
    led = Led(wrong_ms=DAY_MS, agreed_wrong_ms=None)
    led.partition.schedule(b"%d" % (NOW_MS + 600_000))
    led.agree(0)
    assert led.pass_ms(60_000) <= 61
    assert led.partition.counts() == (0, 0, 1)


def test_release_that_waits_is_made_once_clocks_are_heard_though_nothing_else_happens() -> None:
    led = Led(agreed_wrong_ms=None)
    led.partition.schedule(b"+1000")
    led.pass_ms(5_000)
    due_ms = led.partition.leader.next_tick_ms()
    assert 0 < due_ms - led.partition.now_ms <= CLOCK_LOOK_MS
    led.agree(0)
    assert led.pass_ms(CLOCK_LOOK_MS) >= 1
    assert led.partition.counts() == (1, 0, 0)


def test_every_entry_counts_for_the_latest_time_that_was_folded() -> None:
    led = Led()
    led.clock.passed_ms += 5_000
    led.lead()  # nothing but the start of an epoch
    assert led.partition.leader.last_ms == led.partition.follower.last_ms == NOW_MS + 5_000


def test_majority_that_was_ahead_and_is_mended_makes_messages_stay_longer_and_loses_none() -> None:
    led = Led(wrong_ms=DAY_MS, agreed_wrong_ms=DAY_MS)
    led.send()
    led.agree(0)
    led.pass_ms(RETENTION_MS)
    assert led.expired == 0
    led.pass_ms(DAY_MS + 2 * HOUR_MS)
    assert led.expired == 5


def test_delayed_message_that_is_deleted_before_it_is_due_here_is_not_counted_any_more() -> None:
    """Its lease was lost with a leader whose clock was ahead."""
    partition = Partition()
    (delayed,) = partition.send(delay_ms=10_000)
    partition.pass_ms(10_000)
    assert offsets_of(partition.acquire("lost")) == [delayed]
    partition.now_ms -= 300
    partition.fail_over()
    partition.send()
    partition.acquire("kept")
    partition.commit()
    assert partition.counts() == (0, 1, 1)
    partition.delete("d", [(delayed, 1)])
    partition.commit()
    assert partition.counts() == (0, 1, 0)
    partition.pass_ms(20_000)
    assert partition.counts() == (0, 1, 0)
    partition.check()
