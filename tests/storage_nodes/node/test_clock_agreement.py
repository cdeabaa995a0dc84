"""What time it is by most clocks of a cluster, and whose clock is wrong."""

from __future__ import annotations

import pytest

from storage_nodes.limits import (
    CLOCK_BACK_MS_MIN,
    CLOCK_OFFSET_BACK_MS_MAX,
    CLOCK_OFFSET_MS_MAX,
    CLOCK_SAMPLES_MAX,
    CLOCK_WORD_AGE_MS_MAX,
    CLOCK_WORD_NEWER_MS_MIN,
    HEARTBEAT_INTERVAL_MS,
)
from storage_nodes.node.clocks.clock_agreement import ClockAgreement

TRUE_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEARS_1970_MS = -TRUE_MS + 5_000
YEARS_2100_MS = 74 * 365 * DAY_MS


class View:
    """What node 1 knows of a cluster, whose clocks are wrong by so much. Monotonic time begins at 0."""

    def __init__(self, *wrong_ms: int) -> None:
        self.wrong_ms = dict(enumerate(wrong_ms, start=1))
        self.up = set(self.wrong_ms) - {1}
        self.delays_ms = dict.fromkeys(self.wrong_ms, 0)
        self.mono_ms = 0
        self.agreement = ClockAgreement(1)

    def beat(self, rounds: int = 1) -> ClockAgreement:
        for _ in range(rounds):
            self.mono_ms += HEARTBEAT_INTERVAL_MS
            for node in self.up:
                wall_ms = TRUE_MS + self.mono_ms - self.delays_ms[node] + self.wrong_ms[node]
                self.agreement.heard(node, wall_ms, self.mono_ms)
            self.agreement.look(TRUE_MS + self.mono_ms + self.wrong_ms[1], self.mono_ms, self.wrong_ms)
        return self.agreement

    @property
    def agreed_wrong_ms(self) -> int | None:
        """How wrong agreed time is."""
        agreed_ms = self.agreement.agreed_ms(self.mono_ms)
        return None if agreed_ms is None else agreed_ms - TRUE_MS - self.mono_ms


@pytest.mark.parametrize("wrong_ms", [DAY_MS, -DAY_MS, 1_001, -1_001, YEARS_1970_MS, YEARS_2100_MS])
@pytest.mark.parametrize("nodes", [3, 5])
def test_clock_that_is_alone_with_what_it_says_is_off_and_moves_agreed_time_for_nobody(
    nodes: int, wrong_ms: int
) -> None:
    wrong = View(wrong_ms, *[0] * (nodes - 1))
    assert wrong.beat().is_off and wrong.agreed_wrong_ms == 0 and wrong.agreement.offset_ms(1) == wrong_ms
    right = View(0, wrong_ms, *[0] * (nodes - 2))
    assert not right.beat().is_off and right.agreed_wrong_ms == 0 and right.agreement.offset_ms(2) == wrong_ms


def test_two_wrong_clocks_of_five_are_off_even_where_they_agree_with_each_other() -> None:
    assert View(DAY_MS, DAY_MS, 0, 0, 0).beat().is_off
    right = View(0, 0, 0, DAY_MS, DAY_MS)
    assert not right.beat().is_off and right.agreed_wrong_ms == 0


def test_nobody_is_off_where_no_majority_agrees_and_agreed_time_is_what_a_majority_passed() -> None:
    for own in (0, HOUR_MS, DAY_MS):
        others = sorted({0, HOUR_MS, DAY_MS} - {own})
        view = View(own, *others)
        assert not view.beat().is_off and view.agreed_wrong_ms == HOUR_MS, "the median of three"


def test_two_of_three_that_differ_both_lead_and_go_by_the_earlier_clock() -> None:
    for own, other in ((0, DAY_MS), (DAY_MS, 0)):
        view = View(own, other, 0)
        view.up = {2}
        assert not view.beat().is_off and view.agreed_wrong_ms == 0


def test_two_nodes_go_by_the_earlier_clock_and_neither_is_off() -> None:
    for own, other in ((0, DAY_MS), (DAY_MS, 0)):
        view = View(own, other)
        assert not view.beat().is_off and view.agreed_wrong_ms == 0


def test_agreed_time_is_not_known_before_a_majority_was_heard() -> None:
    view = View(DAY_MS, 0, 0)
    view.up = set()
    assert not view.beat().is_off and view.agreed_wrong_ms is None and view.agreement.offset_ms(1) is None
    view.up = {2}
    assert view.beat().base_ms is not None and view.agreed_wrong_ms == 0


def test_single_node_agrees_with_itself_whatever_its_clock_does() -> None:
    view = View(0)
    assert not view.beat().is_off and view.agreed_wrong_ms == 0
    view.wrong_ms[1] = DAY_MS
    assert not view.beat().is_off and view.agreed_wrong_ms == DAY_MS


def test_clock_of_a_node_that_is_down_counts_as_it_was_last_heard() -> None:
    view = View(0, 0, 0)
    view.beat()
    view.up = {2}
    view.wrong_ms[1] = DAY_MS
    assert view.beat(10).is_off, "node 3 is down, and its clock agreed with that of node 2"
    assert view.agreed_wrong_ms == 0


def test_delayed_beats_make_no_clock_look_behind_while_some_come_in_time() -> None:
    view = View(0, 0, 0)
    view.beat(CLOCK_SAMPLES_MAX)
    view.delays_ms = {2: 5_000, 3: 5_000}
    assert not view.beat(CLOCK_SAMPLES_MAX - 1).is_off and view.agreed_wrong_ms == -5_000, "behind, never ahead"
    view.delays_ms = {2: 0, 3: 0}
    assert not view.beat().is_off and view.agreed_wrong_ms == 0


def test_step_of_a_peers_clock_is_seen_within_two_seconds_both_ways() -> None:
    rounds = 2_000 // HEARTBEAT_INTERVAL_MS
    for wrong_ms in (HOUR_MS, -HOUR_MS):
        view = View(0, 0, 0)
        view.beat(CLOCK_SAMPLES_MAX)
        view.wrong_ms[2] = wrong_ms
        assert view.beat(rounds).offset_ms(2) == wrong_ms


def test_clocks_that_are_wrong_one_after_the_other_are_no_majority() -> None:
    view = View(0, DAY_MS, 0)
    view.beat(CLOCK_SAMPLES_MAX)
    view.wrong_ms |= {2: 0, 3: DAY_MS}
    assert view.beat().base_ms is not None and view.agreed_wrong_ms == 0


def test_step_of_the_own_clock_is_seen_at_once_and_changes_no_other() -> None:
    view = View(0, 0, 0)
    view.beat(CLOCK_SAMPLES_MAX)
    view.wrong_ms[1] = HOUR_MS
    assert view.beat().is_off and view.agreement.offset_ms(1) == HOUR_MS and view.agreement.offset_ms(2) == 0


def test_clock_comes_back_once_it_agreed_closely_for_a_while_and_does_not_flap_around_the_bound() -> None:
    view = View(CLOCK_OFFSET_MS_MAX + 1, 0, 0)
    assert view.beat().is_off
    view.wrong_ms[1] = CLOCK_OFFSET_BACK_MS_MAX + 1
    assert view.beat(100).is_off, "within the bound, but not clearly"
    view.wrong_ms[1] = CLOCK_OFFSET_BACK_MS_MAX
    assert view.beat(CLOCK_BACK_MS_MIN // HEARTBEAT_INTERVAL_MS).is_off
    assert not view.beat(2).is_off
    view.wrong_ms[1] = CLOCK_OFFSET_MS_MAX
    assert not view.beat(100).is_off


def test_clock_that_agrees_only_now_and_then_stays_off() -> None:
    view = View(HOUR_MS, 0, 0)
    view.beat()
    for _ in range(5):
        view.wrong_ms[1] = 0
        assert view.beat(5).is_off
        view.wrong_ms[1] = HOUR_MS
        assert view.beat().is_off


def test_machine_that_was_suspended_is_right_as_soon_as_fresh_beats_came() -> None:
    view = View(0, 0, 0)
    view.beat(CLOCK_SAMPLES_MAX)
    view.mono_ms += 8 * HOUR_MS
    assert not view.beat().is_off and view.agreed_wrong_ms == 0


def test_nodes_that_are_not_registered_have_no_say() -> None:
    view = View(0, 0, 0, DAY_MS, DAY_MS, DAY_MS)
    view.beat()
    view.agreement.look(TRUE_MS + view.mono_ms, view.mono_ms, (1, 2, 3))
    assert not view.agreement.is_off and view.agreed_wrong_ms == 0


# --- told by others -----------------------------------------------------------------------------------------


def restarted_beside(own_wrong_ms: int, other_wrong_ms: int, away_wrong_ms: int) -> View:
    """Of node 1 of three, which was started while node 3 was away: node 2 heard that one when it was there."""
    other, since_ms = ClockAgreement(2), 50_000
    other.heard(3, TRUE_MS + away_wrong_ms, since_ms)
    view = View(own_wrong_ms, other_wrong_ms, away_wrong_ms)
    view.up = {2}
    view.agreement.told([(1, TRUE_MS, 0), *other.known(since_ms + 1_000)], 1_000)
    return view


@pytest.mark.parametrize("wrong_ms", [-DAY_MS, DAY_MS])
def test_node_that_is_restarted_while_another_is_away_hears_of_its_clock_from_the_third(wrong_ms: int) -> None:
    view = restarted_beside(0, wrong_ms, 0)
    assert view.beat().base_ms is not None and view.agreed_wrong_ms == 0, "of two clocks alone it is the earlier one"
    assert view.agreement.offset_ms(3) == 0
    view = restarted_beside(wrong_ms, 0, 0)
    assert view.beat().base_ms is not None and view.agreed_wrong_ms == 0


def test_word_of_a_clock_makes_nobody_off_because_it_errs_as_its_teller_does() -> None:
    """The teller's clocks drift: by its own monotonic clock it has carried the word on."""
    assert not restarted_beside(0, 4_000, 4_000).beat().is_off
    assert not restarted_beside(HOUR_MS, 0, 0).beat().is_off


def test_words_do_not_tell_whether_the_own_clock_is_off() -> None:
    view = View(HOUR_MS, 0, 0, 0, 0)
    view.up = {2}
    view.agreement.told([(node, TRUE_MS, 0) for node in (3, 4, 5)], 0)
    agreement = view.beat()
    assert view.agreed_wrong_ms == 0 and not agreement.is_off and not agreement.heard_majority
    view.up = {2, 3}
    assert view.beat().heard_majority
    view.up = {2, 3, 4}
    assert view.beat().is_off


def test_word_counts_while_it_is_young() -> None:
    teller, view = ClockAgreement(2), View(0, DAY_MS, 0)
    teller.heard(3, TRUE_MS, 0)
    assert teller.known(CLOCK_WORD_AGE_MS_MAX) == [(3, TRUE_MS + CLOCK_WORD_AGE_MS_MAX, CLOCK_WORD_AGE_MS_MAX)]
    assert teller.known(CLOCK_WORD_AGE_MS_MAX + 1) == []
    view.up = {2}
    view.agreement.told([(3, TRUE_MS - HOUR_MS, CLOCK_WORD_AGE_MS_MAX + 1), (3, TRUE_MS - HOUR_MS, -1)], 0)
    assert view.beat().offset_ms(3) is None
    view = View(0, DAY_MS, -HOUR_MS)
    view.up = {2}
    view.agreement.told([(3, TRUE_MS - HOUR_MS, CLOCK_WORD_AGE_MS_MAX - 1_000)], 0)
    assert view.beat().offset_ms(3) == -HOUR_MS and view.agreed_wrong_ms == 0
    view.beat(20)
    assert view.agreement.offset_ms(3) is None


def test_clock_that_is_heard_counts_by_what_it_says_itself() -> None:
    view = restarted_beside(0, 0, DAY_MS)
    assert view.beat().offset_ms(3) == DAY_MS
    view.wrong_ms[3] = 0
    view.up = {2, 3}
    assert view.beat().offset_ms(3) == 0
    view.agreement.told([(3, TRUE_MS + view.mono_ms - HOUR_MS, 0)], view.mono_ms)
    assert view.beat().offset_ms(3) == 0


def test_word_of_a_clock_that_is_passed_on_and_back_does_not_change() -> None:
    """Each way adds a delay: two nodes that told each other what they told each other would set the clock back."""
    one, two = ClockAgreement(1), ClockAgreement(2)
    one.heard(3, TRUE_MS + HOUR_MS, 0)
    one.heard(3, TRUE_MS, 0)
    two.told(one.known(0), 5)
    first = two.known(5)
    assert first == [(3, TRUE_MS, 0)], "as it was heard last: it may have been set back"
    restarted = ClockAgreement(1)
    for mono_ms in range(5, 10_000, 10):
        restarted.told(two.known(mono_ms), mono_ms + 5)
        two.told(restarted.known(mono_ms), mono_ms + 5)
    assert two.known(5) == first
    assert restarted.known(10) == first
    restarted.told([(3, TRUE_MS + 7, 0)], CLOCK_WORD_NEWER_MS_MIN + 10)
    assert restarted.known(10) == first, "not younger by enough"
    restarted.told([(3, TRUE_MS + 7, 0)], CLOCK_WORD_NEWER_MS_MIN + 11)
    assert restarted.known(CLOCK_WORD_NEWER_MS_MIN + 11) == [(3, TRUE_MS + 7, 0)]


def test_node_that_is_not_registered_has_no_say_whoever_tells_of_its_clock() -> None:
    view = View(0, DAY_MS, 0)
    view.up = {2}
    view.agreement.told([(9, TRUE_MS, 0)], 0)
    assert view.beat().known(0) and all(node != 9 for node, _, _ in view.agreement.known(0))
    assert view.agreed_wrong_ms == 0
    view.agreement.told([(3, TRUE_MS + view.mono_ms + HOUR_MS, 0)], view.mono_ms)
    assert view.beat() and view.agreed_wrong_ms == HOUR_MS
