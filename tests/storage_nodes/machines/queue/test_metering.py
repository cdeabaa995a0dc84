"""The meter of a queue partition: windows, integrals, bounds."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from storage_nodes.limits import USAGE_WINDOWS_HELD_MAX
from storage_nodes.machines.queue.effects import MeteredHour
from storage_nodes.machines.queue.state.metering import (
    DELETED,
    DELIVERED,
    DELIVERED_BYTES,
    DELIVERED_UNITS,
    HOUR_MS,
    MOVED,
    SENT,
    SENT_BYTES,
    SENT_UNITS,
    Metering,
)
from storage_nodes.protocol.usage import Origin

START_MS = 490_000 * HOUR_MS
CLIENT, REDRIVE = int(Origin.CLIENT), int(Origin.REDRIVE)


def counters(window: MeteredHour, origin: int = CLIENT) -> list[int]:
    return next(list(row[1:]) for row in window.origins if row[0] == origin)


def metered(messages: int = 1, billed_bytes: int = 10, units: int = 1, origin: int = CLIENT) -> Metering:
    meter = Metering(START_MS)
    meter.sent(origin, messages, billed_bytes, units)
    return meter


def test_window_closes_with_the_first_entry_of_a_later_hour() -> None:
    meter = metered()
    meter.advance(START_MS + HOUR_MS - 1)
    assert not meter.closed
    meter.advance(START_MS + HOUR_MS)
    (window,) = meter.closed
    assert window[:4] == (START_MS, START_MS + HOUR_MS, 10 * HOUR_MS, 10)
    assert counters(window)[SENT] == 1
    assert counters(window)[SENT_BYTES] == 10
    assert counters(window)[SENT_UNITS] == 1
    assert meter.window() == MeteredHour(START_MS + HOUR_MS, START_MS + HOUR_MS, 0, 10, ())


def test_storage_is_integrated_from_the_beginning_of_the_hour_and_no_further_back() -> None:
    meter = metered()
    meter.advance(START_MS + 5 * HOUR_MS + 7)
    assert meter.window().stored_byte_ms == 70
    assert meter.closed[0].stored_byte_ms == 10 * HOUR_MS


def test_hour_without_change_closes_no_window() -> None:
    meter = metered()
    for hour in range(1, 9):
        meter.advance(START_MS + hour * HOUR_MS)
    assert len(meter.closed) == 1


def test_time_that_falls_changes_nothing() -> None:
    meter = metered()
    meter.advance(START_MS + 1_000)
    packed = meter.pack()
    meter.advance(START_MS + 10)
    assert meter.pack() == packed


def test_moved_message_is_stored_and_not_sent_once_more() -> None:
    meter = metered(origin=REDRIVE)
    row = counters(meter.window(), REDRIVE)
    assert row[MOVED] == 1
    assert not row[SENT] and not row[SENT_BYTES] and not row[SENT_UNITS]
    assert meter.held_bytes == 10


def delivered(meter: Metering) -> tuple[int, int, int]:
    row = counters(meter.window())
    return row[DELIVERED], row[DELIVERED_BYTES], row[DELIVERED_UNITS]


def test_delivery_is_billed_as_the_leader_says_it_was_handed_over() -> None:
    meter = metered(3, 100, 5)
    meter.settle((3, 0, 0, 0), (3, 2, 0, 0))
    assert delivered(meter) == (0, 0, 0), "nobody said yet what became of the leases"
    meter.handed_over(2, 1, 7, 1)
    meter.settle((3, 2, 0, 0), (3, 2, 0, 0))
    assert delivered(meter) == (1, 7, 1), "one of them went back"
    meter.end_leadership(3)
    assert delivered(meter) == (1, 7, 1)


def test_lease_and_its_outcome_may_stand_in_one_entry() -> None:
    meter = metered(3, 100, 5)
    meter.handed_over(1, 1, 70, 2)
    meter.handed_over(1, 1, 5, 1)
    meter.settle((3, 0, 0, 0), (3, 2, 0, 0))
    assert delivered(meter) == (2, 75, 3) and meter.leased == 0


def test_lease_that_found_its_message_gone_is_no_delivery() -> None:
    meter = metered(3, 100, 5)
    meter.handed_over(2, 2, 80, 4)
    meter.settle((3, 0, 0, 0), (2, 1, 1, 0))
    assert delivered(meter) == (1, 40, 2) and meter.leased == 0


def test_leases_of_a_leader_that_was_lost_are_deliveries_of_the_mean_size() -> None:
    meter = metered(3, 300_000, 5)
    meter.settle((3, 0, 0, 0), (3, 2, 0, 0))
    meter.end_leadership(3)
    assert delivered(meter) == (2, 200_000, 4)
    meter.end_leadership(3)
    assert delivered(meter) == (2, 200_000, 4), "once"


def test_unit_is_counted_for_each_delivery_even_where_sizes_are_unknown() -> None:
    meter = Metering(START_MS)
    meter.settle((4, 0, 0, 0), (4, 3, 0, 0))
    meter.end_leadership(4)
    assert delivered(meter) == (3, 0, 3)


def test_message_that_leaves_takes_its_own_size_or_the_mean_of_the_others() -> None:
    meter = metered(4, 1_000, 4)
    meter.left(1, 700)
    meter.settle((4, 0, 0, 0), (3, 0, 1, 0))
    assert meter.held_bytes == 300
    meter.left(1, 60)
    meter.settle((3, 0, 1, 0), (1, 0, 3, 0))
    assert meter.held_bytes == 120, "60, and half of the other 240"
    meter.settle((1, 0, 3, 0), (0, 0, 4, 0))
    assert meter.held_bytes == 0
    assert counters(meter.window())[DELETED] == 4


def test_sizes_that_are_said_never_make_what_is_stored_negative() -> None:
    meter = metered(4, 1_000, 4)
    meter.left(1, 5_000)
    meter.settle((4, 0, 0, 0), (3, 0, 1, 0))
    assert meter.held_bytes == 0
    meter.sent(CLIENT, 1, 10, 1)
    meter.settle((4, 0, 1, 0), (3, 0, 2, 0))
    assert meter.held_bytes == 8, "what one entry said is not for the next"


def test_early_close_is_cumulative_and_the_later_record_replaces_it() -> None:
    meter = metered()
    meter.close(START_MS + 100)
    assert [window.until_ms for window in meter.closed] == [START_MS + 100]
    meter.close(START_MS + 200)
    assert [window.until_ms for window in meter.closed] == [START_MS + 100], "nothing happened since"
    meter.sent(CLIENT, 1, 10, 1)
    meter.advance(START_MS + HOUR_MS)
    (window,) = meter.closed
    assert window.until_ms == START_MS + HOUR_MS
    assert counters(window)[SENT] == 2


def test_two_closes_of_one_moment_never_name_different_figures_alike() -> None:
    meter = metered()
    meter.close(START_MS + 100)
    first = meter.closed[0]
    meter.sent(CLIENT, 1, 10, 1)
    meter.close(START_MS + 100)
    assert meter.closed[0].until_ms > first.until_ms
    assert counters(meter.closed[0])[SENT] == 2


def test_exported_forgets_what_it_names_and_nothing_later() -> None:
    meter = metered()
    meter.advance(START_MS + HOUR_MS)
    meter.sent(CLIENT, 1, 10, 1)
    meter.advance(START_MS + 2 * HOUR_MS)
    first, second = meter.closed
    meter.exported(*first[:2])
    assert meter.closed == [second]
    meter.exported(*first[:2])
    assert meter.closed == [second]


def test_early_record_that_was_replaced_stays_when_the_early_one_is_confirmed() -> None:
    meter = metered()
    meter.close(START_MS + 100)
    early = meter.closed[0]
    meter.sent(CLIENT, 1, 10, 1)
    meter.advance(START_MS + HOUR_MS)
    meter.exported(*early[:2])
    assert [window.until_ms for window in meter.closed] == [START_MS + HOUR_MS]


def test_windows_beyond_the_bound_are_carried_on_and_nothing_is_lost() -> None:
    meter = Metering(START_MS)
    hours = USAGE_WINDOWS_HELD_MAX + 20
    for hour in range(hours):
        meter.advance(START_MS + hour * HOUR_MS)
        meter.sent(CLIENT, 1, 10, 1)
        meter.close(START_MS + hour * HOUR_MS + 5)
    assert len(meter.closed) <= USAGE_WINDOWS_HELD_MAX + 1
    last = [] if meter.closed[-1].hour_ms == meter.hour_ms else [meter.window()]
    assert sum(counters(window)[SENT] for window in [*meter.closed, *last]) == hours
    assert len({window.hour_ms for window in meter.closed}) == len(meter.closed)


def test_hour_that_was_named_early_is_not_carried_on_when_no_window_has_room() -> None:
    meter = Metering(START_MS)
    for hour in range(USAGE_WINDOWS_HELD_MAX):
        meter.advance(START_MS + hour * HOUR_MS)
        meter.sent(CLIENT, 1, 10, 1)
    meter.close(meter.until_ms + 5)
    assert len(meter.closed) == USAGE_WINDOWS_HELD_MAX
    meter.sent(CLIENT, 1, 10, 1)
    meter.advance(START_MS + USAGE_WINDOWS_HELD_MAX * HOUR_MS)
    assert counters(meter.closed[-1])[SENT] == 2
    assert meter.window().origins == (), "nothing is billed under two hours"


def test_meter_is_idle_when_everything_is_exported_and_the_hour_is_over() -> None:
    meter = metered()
    meter.settle((1, 0, 0, 0), (0, 0, 1, 0))
    meter.close(START_MS + 10)
    meter.exported(START_MS, START_MS + 10)
    assert not meter.is_idle, "the rest of the hour goes on from these counters"
    meter.advance(START_MS + HOUR_MS)
    assert meter.is_idle


class _Totals(NamedTuple):
    held: int = 0
    received: int = 0
    deleted: int = 0
    dead_lettered: int = 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("sent"), st.integers(1, 5), st.integers(0, 200_000)),
        st.tuples(st.just("delivered"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("told"), st.integers(1, 5), st.integers(0, 200_000)),
        st.tuples(st.just("lead"), st.just(0), st.just(0)),
        st.tuples(st.just("deleted"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("advance"), st.integers(1, 2 * HOUR_MS), st.just(0)),
        st.tuples(st.just("close"), st.just(0), st.just(0)),
        st.tuples(st.just("export"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_latest_records_of_all_hours_and_the_open_window_sum_up_to_the_totals(walk: list[tuple[str, int, int]]) -> None:
    meter, now_ms = Metering(START_MS), START_MS
    said: dict[int, MeteredHour] = {}
    totals = _Totals()
    sent = sent_bytes = 0
    for what, number, size in walk:
        meter.advance(now_ms)
        before = totals
        if what == "sent":
            meter.sent(CLIENT, number, size, number)
            totals = totals._replace(held=totals.held + number)
            sent, sent_bytes = sent + number, sent_bytes + size
        elif what == "delivered" and totals.held:
            totals = totals._replace(received=totals.received + number)
            meter.settle(before, totals)
        elif what == "told" and meter.leased:
            told = min(number, meter.leased)
            meter.handed_over(told, told, size, told)
            meter.settle(before, before)
        elif what == "lead":
            meter.end_leadership(totals.held)
        elif what == "deleted" and totals.held:
            gone = min(number, totals.held)
            totals = totals._replace(held=totals.held - gone, deleted=totals.deleted + gone)
            meter.settle(before, totals)
        elif what == "advance":
            now_ms += number
        elif what == "close":
            meter.close(now_ms)
        elif what == "export" and meter.closed:
            _export(meter, said)
        assert Metering.unpack(meter.pack()).pack() == meter.pack()
        assert meter.held_bytes >= 0 and (totals.held or not meter.held_bytes)
    meter.end_leadership(totals.held)
    meter.advance(now_ms + HOUR_MS)
    _export(meter, said)
    rows = [counters(window) for window in said.values() if window.origins]
    assert sum(row[SENT] for row in rows) == sent
    assert sum(row[SENT_BYTES] for row in rows) == sent_bytes
    assert sum(row[DELIVERED] for row in rows) == totals.received
    assert sum(row[DELETED] for row in rows) == totals.deleted


def _export(meter: Metering, said: dict[int, MeteredHour]) -> None:
    for window in meter.closed:
        earlier = said.get(window.hour_ms)
        assert earlier is None or earlier.until_ms < window.until_ms or earlier == window
        said[window.hour_ms] = window
    if meter.closed:
        meter.exported(*meter.closed[-1][:2])
