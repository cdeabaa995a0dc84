"""Rows of days with their hours: the same figures as plain Python has, hour by hour, in any order and repetition."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from storage_nodes.protocol.usage import Origin
from tests.workers.spark_jobs.frames import ACCOUNT, OTHER_QUEUE, QUEUE, counters, hour, window, window_rows
from tests.workers.spark_jobs.histories import expected, random_history
from workers.spark_jobs.limits import DAY_MS, HOUR_MS, STORED_BYTES_MAX
from workers.spark_jobs.schemas.frames import COUNTERS, WINDOWS
from workers.spark_jobs.schemas.usage_record import UsageWindow
from workers.spark_jobs.spans import HourSpan
from workers.spark_jobs.transforms.day_packs import DayPacks, Suspects, owners_of, pack_requests, pack_windows

SPAN = HourSpan(hour(0), hour(48))
STORED = len(COUNTERS)
Hours = dict[tuple[Any, ...], tuple[int, ...]]


def table(windows: list[UsageWindow]) -> pa.Table:
    columns = zip(*window_rows(windows), strict=True)
    schema = to_arrow_schema(WINDOWS)
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema)


def packed(windows: list[UsageWindow], span: HourSpan = SPAN) -> tuple[pa.Table, DayPacks, Suspects]:
    rows = table(windows)
    owners, owner = owners_of(rows)
    return owners, *pack_windows(rows, owner, span)


def hours_in(owners: pa.Table, packs: DayPacks) -> Hours:
    """As `usage_hours_of` of the database reads them; the sums of the days and their bits are those of the hours."""
    queues = owners["queue_uuid"].to_pylist()
    found: Hours = {}
    for place, (owner, day, origin) in enumerate(zip(packs.owner, packs.day, packs.origin, strict=True)):
        hours: dict[int, list[int]] = {}
        for entry in filter(None, packs.hours[place].as_py().split(";")):
            at, *counted = map(int, entry.split(","))
            row = hours.setdefault(at, [0] * (STORED + 1))
            row[:] = [old + new for old, new in zip(row, counted, strict=True)]
        for entry in filter(None, packs.levels[place].as_py().split(";")):
            first, many, kept = map(int, entry.split(","))
            for at in range(first, first + many):
                hours.setdefault(at, [0] * (STORED + 1))[STORED] += kept
        assert packs.hour_bits[place] == sum(1 << at for at in hours)
        for number, name in enumerate((*COUNTERS, "stored_byte_ms")):
            assert int(packs.sums[name][place].as_py()) == sum(row[number] for row in hours.values())
        for at, row in hours.items():
            key = (queues[owner], int(day) * DAY_MS + at * HOUR_MS, int(origin))
            assert key not in found
            found[key] = tuple(row)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_hours_are_those_of_plain_python_in_any_order_and_repetition(seed: int) -> None:
    chance = random.Random(seed)
    for span in (SPAN, HourSpan(hour(5), hour(31)), HourSpan(hour(24), hour(25))):
        history = random_history(chance)
        if not history:
            continue
        records = history + chance.choices(history, k=len(history))
        chance.shuffle(records)
        owners, packs, _ = packed(records, span)
        assert hours_in(owners, packs) == expected(history, span)


def test_sums_beyond_64_bits_are_exact() -> None:
    windows = [window(-1, partition, stored_bytes=STORED_BYTES_MAX) for partition in range(90)]
    owners, packs, _ = packed(windows)
    hours_in(owners, packs)
    assert [text.as_py() for text in packs.sums["stored_byte_ms"]] == [str(90 * STORED_BYTES_MAX * DAY_MS)] * 2
    assert next(text.as_py() for text in packs.levels).split(";")[0] == f"0,24,{STORED_BYTES_MAX * HOUR_MS}"


def test_nothing_used_is_no_row() -> None:
    _, packs, _ = packed([window(1, origins=[counters()])])
    assert len(packs.owner) == 0


def test_queue_of_two_accounts_is_two_owners() -> None:
    owners, packs, suspects = packed(
        [window(1), window(2, account_id="100000000009"), window(3, queue_uuid=OTHER_QUEUE)]
    )
    pairs = zip(owners["account_id"].to_pylist(), owners["queue_uuid"].to_pylist(), strict=True)
    assert set(pairs) == {(ACCOUNT, QUEUE), ("100000000009", QUEUE), (ACCOUNT, OTHER_QUEUE)} and len(packs.owner) == 3
    assert len(suspects.owner) == 3 and len(set(suspects.owner.to_pylist())) == 3, "one partition, three owners"


def suspected(*windows: UsageWindow) -> bool:
    found: list[bool] = packed(list(windows))[2].is_suspect.to_pylist()
    return any(found)


def test_records_that_contradict_each_other_are_suspected_and_others_are_not() -> None:
    one = window(1, origins=[counters(sent=5)])
    early = window(1, until_ms=hour(1) + 9, origins=[counters(sent=2)])
    assert not suspected(one, early, one, one, window(2, origins=[counters(sent=1)]))
    assert suspected(one, early, window(1, origins=[counters(sent=6)]), one)
    assert suspected(one, window(1, until_ms=hour(1) + 9, origins=[counters(sent=6)]))
    assert not suspected(one, msgspec.structs.replace(one, final=True)), "once more, as the last one"
    assert suspected(one, msgspec.structs.replace(one, stored_bytes=4))
    assert not suspected(one, window(1, 8, origins=[counters(sent=6)])), "of another partition"


def test_requests_of_front_ends_have_days_of_their_own() -> None:
    at = np.array([hour(1), hour(1), hour(25), hour(2)])
    packs = pack_requests(np.array([0, 1, 0, 0]), at, np.array([9, 3, 4, 0]), np.array([2, 0, 0, 0]))
    texts = [text.as_py() for text in packs.hours]
    counted = ",".join(["0"] * 11)
    assert sorted(zip(packs.owner.tolist(), packs.hour_bits.tolist(), texts, strict=True)) == [
        (0, 2, f"1,{counted},4,0"), (0, 2, f"1,{counted},9,2"), (1, 2, f"1,{counted},3,0"),
    ]  # fmt: skip
    assert set(packs.origin.tolist()) == {int(Origin.CLIENT)}
    assert sum(int(text.as_py()) for text in packs.sums["requests"]) == 16
