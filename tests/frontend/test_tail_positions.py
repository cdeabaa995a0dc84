"""Where a live tail stands in each log: from the end on, near the end, and what was passed over."""

from __future__ import annotations

from frontend.limits import TAIL_AHEAD, TAIL_BEHIND_MAX
from frontend.push.tail_positions import TailPositions


def test_tail_goes_on_where_the_last_look_ended() -> None:
    positions = TailPositions({1: 10, 2: 0})
    assert (positions.of(1), positions.of(2)) == (10, 0)
    assert positions.looked(1, 12, 20), "there is more"
    assert not positions.looked(2, 0, 0)
    assert (positions.of(1), positions.of(2)) == (12, 0)
    assert not positions.looked(1, 20, 20)


def test_partition_that_comes_later_is_looked_at_from_its_beginning() -> None:
    positions = TailPositions({1: 10})
    positions.follow([1, 7])
    assert (positions.of(1), positions.of(7)) == (10, 0)
    positions.follow([7])
    positions.follow([1, 7])
    assert positions.of(1) == 0, "one that was gone is another one"


def test_log_that_runs_away_is_followed_near_its_end_and_the_gap_is_counted() -> None:
    positions = TailPositions({1: 0})
    assert positions.looked(1, 100, 100 + TAIL_BEHIND_MAX)
    assert positions.of(1) == 100 and positions.take_passed() == 0, "as far behind as it may be"
    end = 200 + 10 * TAIL_BEHIND_MAX
    assert positions.looked(1, 200, end)
    assert positions.of(1) == end - TAIL_AHEAD
    assert positions.take_passed() == end - TAIL_AHEAD - 200
    assert positions.take_passed() == 0, "counted once"


def test_leader_with_a_shorter_log_moves_no_tail_back() -> None:
    positions = TailPositions({1: 50})
    assert not positions.looked(1, 40, 40)
    assert positions.of(1) == 50
