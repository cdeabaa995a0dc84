"""Rows of days, as the usage pipeline gives them, leave the same hours as rows of hours; whatever was there before."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

import pytest

from api.billing.merging import DAY_COLUMNS
from api.billing.models import DailyUsage, FillLedger, HourlyUsage, QuarantinedUsage, UsageHours
from api.billing.pricing.meters import COUNTER_NAMES
from api.billing.pricing.periods import HOUR
from api.billing.settling import SettledRun, SettlingError, UsageRow, begin_run, merge_days
from tests.api.billing.usage import MONTH, QUEUE, hours, make_queue, month_hour, open_since, row, settle_rows
from tests.support.control_plane import Caller, new_caller

pytestmark = pytest.mark.django_db
KEY = ("account_id", "hour", "queue_uuid", "partition_id", "origin")
_ZEROS = dict.fromkeys(COUNTER_NAMES, 0)


def lines_of(rows: Iterable[UsageRow], levels: bool = False) -> bytes:
    """The rows by day, as files of a settlement have them. `levels`: what is stored stands apart from the counters."""
    days: dict[tuple[object, ...], list[UsageRow]] = {}
    for one in rows:
        key = (one.account_id, one.hour.replace(hour=0), one.queue_uuid, one.partition_id, one.origin)
        days.setdefault(key, []).append(one)
    lines = []
    for (account_id, day, queue_uuid, partition_id, origin), of_day in days.items():
        counted, kept = [], []
        for one in of_day:
            figures = [getattr(one, name) for name in COUNTER_NAMES]
            if levels:
                place = COUNTER_NAMES.index("stored_byte_ms")
                kept.append(f"{one.hour.hour},1,{figures[place]}")
                figures[place] = 0
            counted.append(",".join(map(str, [one.hour.hour, *figures])))
        bits = sum(1 << number for number in {one.hour.hour for one in of_day})
        sums = [sum(getattr(one, name) for one in of_day) for name in COUNTER_NAMES]
        assert isinstance(day, datetime)
        columns = [account_id, day.isoformat(), queue_uuid, partition_id, origin, bits, *sums]
        assert len(columns) + 2 == len(DAY_COLUMNS)
        lines.append("\t".join([*map(str, columns), ";".join(counted), ";".join(kept)]) + "\n")
    return "".join(lines).encode()


def settle_days(*files: bytes, first: int = 0, count: int = 24, is_partial: bool = False) -> SettledRun:
    run = uuid.uuid4()
    begin_run(run, hours(first, count))
    return merge_days(run, hours(first, count), [[file[:9], file[9:]] for file in files], is_partial)


def stored() -> dict[tuple[object, ...], int]:
    """Hours with their units; days have the sums of their hours, and bits for them."""
    found = {tuple(getattr(one, name) for name in KEY): one.sent_units for one in HourlyUsage.objects.all()}
    days: dict[tuple[object, ...], list[int]] = {}
    for (account_id, hour, *rest), units in found.items():
        assert isinstance(hour, datetime)
        of_day = days.setdefault((account_id, hour.replace(hour=0), *rest), [0, 0])
        of_day[0] |= 1 << hour.hour
        of_day[1] += units
    names = ("account_id", "day", "queue_uuid", "partition_id", "origin")
    assert days == {
        tuple(getattr(one, name) for name in names): [one.hour_bits, int(one.sent_units)]
        for one in DailyUsage.objects.all()
    }
    assert UsageHours.objects.count() == DailyUsage.objects.count()
    return found


@pytest.mark.parametrize("seed", range(6))
def test_any_merges_of_days_and_hours_leave_what_the_last_one_of_each_hour_said(caller: Caller, seed: int) -> None:
    chance = random.Random(seed)
    open_since(caller.account_id)
    expected: dict[tuple[object, ...], int] = {}
    for _ in range(14):
        first, count = chance.randrange(60), chance.randrange(1, 40)
        rows = [
            row(caller.account_id, hour, queue_uuid=uuid.UUID(int=queue), partition_id=0, origin=origin,
                sent_units=chance.randrange(3), stored_byte_ms=chance.randrange(3))
            for hour in range(first, first + count)
            for queue, origin in ((1, "client"), (2, "client"), (2, "cron"))
            if chance.random() < 0.6
        ]  # fmt: skip
        given = {tuple(getattr(one, name) for name in KEY): one.sent_units for one in rows}
        before = dict(expected)
        is_partial, by_hours = chance.random() < 0.3, chance.random() < 0.3
        span = hours(first, count)
        if is_partial and not by_hours:
            given = {key: max(units, before.get(key, 0)) for key, units in given.items()}
        else:
            expected = {key: units for key, units in before.items() if not span.start <= key[1] < span.end}  # type: ignore[operator]
        expected |= given
        if by_hours:
            done = settle_rows(rows, first, count, recount=True)
        else:
            files = [
                lines_of([one for one in rows if one.queue_uuid.int == queue], levels=queue == 1) for queue in (1, 2)
            ]
            done = settle_days(*files, first=first, count=count, is_partial=is_partial)
        assert stored() == expected
        assert done.removed == len(set(before) - set(expected)) and done.quarantined == 0
        assert done.merged >= sum(before.get(key) != units for key, units in expected.items())
        assert settle_rows([], 100, 1).merged == 0


def test_days_that_are_merged_again_change_nothing(caller: Caller) -> None:
    open_since(caller.account_id)
    rows = [row(caller.account_id, hour, sent_units=hour, partition_id=0, stored_byte_ms=7) for hour in range(24)]
    other = [one._replace(queue_uuid=uuid.UUID(int=9)) for one in rows[:5]]
    assert settle_days(lines_of(rows, levels=True), lines_of(other)) == SettledRun(29, 0, 0)
    first = stored()
    assert settle_days(lines_of(rows), lines_of(other)) == SettledRun(0, 0, 0), "in other words"
    assert settle_days(lines_of(other), lines_of(rows, levels=True)) == SettledRun(0, 0, 0)
    assert stored() == first and FillLedger.objects.filter(times_done=3).count() == 24
    assert settle_days(lines_of(rows)) == SettledRun(0, 5, 0), "a queue that is not among them goes"


def test_hours_of_a_day_that_is_there_are_added_to_it(caller: Caller) -> None:
    open_since(caller.account_id)
    for hour in range(5):
        given = [row(caller.account_id, hour, sent_units=hour + 1, partition_id=0)]
        assert settle_days(lines_of(given, levels=True), first=hour, count=1) == SettledRun(1, 0, 0)
    assert sorted(stored().values()) == [1, 2, 3, 4, 5]
    assert UsageHours.objects.get().hours.count(";") == 4 and DailyUsage.objects.get().hour_bits == 31


def test_hour_of_a_day_whose_figure_no_hour_has_is_kept_aside_and_its_others_are_billed(caller: Caller) -> None:
    open_since(caller.account_id)
    day = [row(caller.account_id, hour, sent_units=2**45, partition_id=0) for hour in range(24)]
    assert settle_days(lines_of(day)) == SettledRun(24, 0, 0), "their sum is more than an hour may have"
    day[3], day[4] = day[3]._replace(sent_units=2**48 + 1), day[4]._replace(stored_byte_ms=10**30)
    for levels in (False, True):
        assert settle_days(lines_of(day, levels)).quarantined == 2
    assert sorted(hour for _, hour, *_ in stored()) == [month_hour(hour) for hour in range(24) if hour not in (3, 4)]
    assert {one.reason for one in QuarantinedUsage.objects.filter(resolved_at=None)} == {"counter_too_large"}


def test_days_with_hours_that_cannot_be_billed_are_looked_at_hour_by_hour(caller: Caller) -> None:
    from api.people.models import AccountLife, AccountState

    other = new_caller("another")
    open_since(caller.account_id, month_hour(2) + timedelta(minutes=59))
    open_since(other.account_id)
    since = month_hour(20) + timedelta(minutes=1)
    AccountLife.objects.create(account_id=caller.account_id, title="t", state=AccountState.CLOSED, state_since=since)
    queue_uuid = make_queue(other.account_id, "orders")
    day = [row(caller.account_id, hour, sent_units=1, partition_id=0) for hour in range(24)]
    wrong = [
        row("999999999999", sent_units=2, partition_id=0),
        row(caller.account_id, 5, queue_uuid=queue_uuid, sent_units=2, partition_id=0),
        row(other.account_id, 5, origin="moon", sent_units=2, partition_id=0),
        row(other.account_id, 6, sent_units=-2, partition_id=0),
    ]
    assert settle_days(lines_of([*day, *wrong])) == SettledRun(19, 0, 9)
    assert {key[1] for key in stored()} == {month_hour(hour) for hour in range(2, 21)}
    reasons = QuarantinedUsage.objects.values_list("reason", flat=True)
    assert sorted(reasons) == ["account_closed"] * 3 + ["hour_before_account"] * 2 + [
        "negative_counter", "queue_of_another_account", "unknown_account", "unknown_origin",
    ]  # fmt: skip


def test_good_day_resolves_the_bad_hour_that_it_has(caller: Caller) -> None:
    open_since(caller.account_id)
    bad = row(caller.account_id, 3, partition_id=0, messages_sent=-1)
    settle_rows([bad, bad._replace(hour=month_hour(30))], 0, 48)
    good = [row(caller.account_id, hour, partition_id=0, sent_units=1) for hour in (2, 3)]
    assert settle_days(lines_of(good)).merged == 2
    assert {one.hour: one.resolved_at is None for one in QuarantinedUsage.objects.all()} == {
        month_hour(3): False,
        month_hour(30): True,
    }


def test_row_of_a_partition_beside_a_day_of_all_is_never_counted_with_it(caller: Caller) -> None:
    open_since(caller.account_id)
    settle_rows([row(caller.account_id, partition_id=12, sent_units=3)])
    whole = [row(caller.account_id, hour, partition_id=0, sent_units=5) for hour in range(2)]
    assert settle_days(lines_of(whole), first=1, count=1, is_partial=True).quarantined == 1
    assert settle_days(lines_of(whole), count=2) == SettledRun(1, 1, 0), "a recount replaces the one by the other"
    assert set(HourlyUsage.objects.values_list("partition_id", flat=True)) == {0}


@pytest.mark.parametrize("line", [b"half a line", b"a\tb\n", b"\xff\n"])
def test_line_that_is_none_leaves_nothing_of_the_merge(caller: Caller, line: bytes) -> None:
    open_since(caller.account_id)
    good = lines_of([row(caller.account_id, partition_id=0, sent_units=1)])
    with pytest.raises(SettlingError):
        settle_days(good, line)
    assert not DailyUsage.objects.exists() and not FillLedger.objects.filter(times_done__gt=0).exists()


def test_month_is_merged_in_slices_of_files(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.billing.limits.STAGED_BYTES", 300)
    open_since(caller.account_id)
    rows = [
        row(caller.account_id, hour, queue_uuid=uuid.UUID(int=queue), partition_id=0, sent_units=1)
        for queue in range(1, 8)
        for hour in range(0, 72, 5)
    ]
    files = [lines_of([one for one in rows if one.queue_uuid.int == queue]) for queue in range(1, 8)]
    assert settle_days(*files, count=72) == SettledRun(len(rows), 0, 0)
    assert settle_days(*files[1:], count=72) == SettledRun(0, 15, 0)
    assert len(stored()) == len(rows) - 15
    assert month_hour(1) == MONTH + HOUR and QUEUE.int == 7
