"""Windows to rows of days that hold their hours, column by column: what a settlement is. Pure; no Spark in it.

The rules are those of `windows.py` and `rollups.py`, which count months for reports; a test compares both. A task of
Spark has all windows of its queues at once and takes a third of the CPU here, because nothing is grouped by the hour:

    records of one (partition, hour, origin)  ->  the latest: figures are cumulative
    latest windows of one partition           ->  gaps between them, in which the same bytes were kept
    both, by (account, queue, day, origin)    ->  sums, a bit for each hour, and the hours as two texts

`hours` has an entry of each window, `levels` one of each stretch of whole hours within a gap, and one of the rest of
the hour in which a gap begins. Entries of one hour are added by their reader (`usage_hours_of` of the database).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage_nodes.protocol.usage import Origin
from workers.spark_jobs.limits import DAY_MS, HOUR_MS, STORED_BYTES_BITS, STORED_BYTES_MAX
from workers.spark_jobs.schemas.frames import COUNTERS
from workers.spark_jobs.spans import HourSpan

# A column of 64-bit integers, or of truths; mypy does not read numpy.
Numbers = Any
# Sums of byte-milliseconds pass 64 bits: high * RADIX + low, as in `exact_sums.py`.
RADIX = 1_000_000_000
_MILLION = 1_000_000
_ORIGINS = 8
_DAYS = 1 << 20
_WITHIN_HOUR_BITS = HOUR_MS.bit_length()
assert max(Origin) < _ORIGINS
SHOWN = ("requests", "empty_receives")
_CUMULATIVE = ("stored_byte_ms", *COUNTERS)


class DayPacks(NamedTuple):
    """Columns of as many rows as there are days. `owner` is a place in what the caller has of owners: an account's
    queue; `day` counts from the epoch. `stored_byte_ms` and the others are sums as text."""

    owner: Numbers
    day: Numbers
    origin: Numbers
    hour_bits: Numbers
    sums: dict[str, pa.Array]
    hours: pa.Array
    levels: pa.Array


class Suspects(NamedTuple):
    """A row of each (cluster, partition): a place in the windows of it, and whether its records contradict each other.
    `owner` of one partition in two rows: two queues say that it is theirs."""

    cluster: pa.Array
    partition: pa.Array
    owner: pa.Array
    is_suspect: pa.Array


class _Latest(NamedTuple):
    """A window for each (partition, hour, origin), ordered by these."""

    owner: Numbers
    starts_partition: Numbers
    hour_ms: Numbers
    until_ms: Numbers
    origin: Numbers
    final: Numbers
    stored_bytes: Numbers
    figures: dict[str, Numbers]


class _Gaps(NamedTuple):
    owner: Numbers
    from_ms: Numbers
    to_ms: Numbers
    level: Numbers


def pack_windows(
    windows: pa.Table, owner: Numbers, span: HourSpan, unsure: Sequence[HourSpan] = ()
) -> tuple[DayPacks, Suspects]:
    """WINDOWS of whole queues: those of the span, and of each partition the last one before it. `owner` is that of each
    of them, by `owners_of`. `unsure`: hours of which something cannot be read."""
    order, key_starts, partition_starts = _ordered(windows, owner)
    sorted_figures = {name: _numbers(windows, name)[order] for name in _CUMULATIVE}
    hour_ms, until_ms = _numbers(windows, "hour_ms")[order], _numbers(windows, "until_ms")[order]
    stored, final = _numbers(windows, "stored_bytes")[order], _flags(windows, "final")[order]
    contradicts = _contradicting(key_starts, until_ms, stored, sorted_figures)
    level_at = np.maximum.reduceat(((until_ms - hour_ms) << STORED_BYTES_BITS) | stored, key_starts)
    first_ms = hour_ms[key_starts]
    latest = _Latest(
        owner[order][key_starts], np.isin(key_starts, partition_starts, assume_unique=True), first_ms,
        first_ms + (level_at >> STORED_BYTES_BITS), _numbers(windows, "origin")[order][key_starts],
        np.maximum.reduceat(final, key_starts), level_at & STORED_BYTES_MAX,
        {name: np.maximum.reduceat(column, key_starts) for name, column in sorted_figures.items()},
    )  # fmt: skip
    gaps = _gaps(latest, span, unsure)
    is_used = np.logical_or.reduce([column > 0 for column in latest.figures.values()])
    own = np.flatnonzero(is_used & (latest.hour_ms >= span.from_ms) & (latest.hour_ms < span.to_ms))
    figures = {name: column[own] for name, column in latest.figures.items()}
    packs = _packed(latest.owner[own], latest.hour_ms[own], latest.origin[own], figures, gaps)
    return packs, _suspects(windows, order, partition_starts, contradicts)


def pack_requests(owner: Numbers, hour_ms: Numbers, requests: Numbers, empty_receives: Numbers) -> DayPacks:
    """Hours of what front ends counted, each (owner, hour) once."""
    nothing = np.zeros(len(owner), np.int64)
    figures = {**dict.fromkeys(_CUMULATIVE, nothing), SHOWN[0]: requests, SHOWN[1]: empty_receives}
    origin = np.full(len(owner), int(Origin.CLIENT))
    no_gaps = _Gaps(*(np.zeros(0, np.int64) for _ in _Gaps._fields))
    is_used = (requests > 0) | (empty_receives > 0)
    used = {name: column[is_used] for name, column in figures.items()}
    return _packed(owner[is_used], hour_ms[is_used], origin[is_used], used, no_gaps)


def owners_of(rows: pa.Table) -> tuple[pa.Table, Numbers]:
    """(the different accounts' queues, of each row its place among them)."""
    queue, account = (rows.column(name).combine_chunks().dictionary_encode() for name in ("queue_uuid", "account_id"))
    of_rows = _indices(queue) * max(1, len(account.dictionary)) + _indices(account)
    found, places = np.unique(of_rows, return_inverse=True)
    queues, accounts = np.divmod(found, max(1, len(account.dictionary)))
    columns = {"account_id": account.dictionary.take(accounts), "queue_uuid": queue.dictionary.take(queues)}
    return pa.table(columns), places


def _ordered(windows: pa.Table, owner: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """(the rows in the order of partition, hour, origin and time; where a (partition, hour, origin) begins in it, and
    where a partition does)."""
    cluster = _indices(windows.column("cluster").combine_chunks().dictionary_encode())
    partition, hour_ms = _numbers(windows, "partition"), _numbers(windows, "hour_ms")
    hours = (hour_ms // HOUR_MS * _ORIGINS + _numbers(windows, "origin")) << _WITHIN_HOUR_BITS
    moment = hours | (_numbers(windows, "until_ms") - hour_ms)
    order = np.lexsort((moment, partition, cluster, owner))
    differs = [_steps(column[order]) for column in (owner, cluster, partition)]
    begins_partition = np.logical_or.reduce(differs)
    begins_key = begins_partition | _steps(hours[order])
    return order, np.flatnonzero(begins_key), np.flatnonzero(begins_partition)


def _steps(column: Numbers) -> Numbers:
    """Whether a row is the first one, or differs from the one before it."""
    found = np.ones(len(column), bool)
    found[1:] = column[1:] != column[:-1]
    return found


def _contradicting(key_starts: Numbers, until_ms: Numbers, stored: Numbers, figures: dict[str, Numbers]) -> Numbers:
    """Whether a record and the one before it, of the same hour, are of one time and differ, or figures fell. `final`
    may differ: a window may be exported once more, as the last one, after its partition was retired."""
    same_time = until_ms[1:] == until_ms[:-1]
    differs, fell = stored[1:] != stored[:-1], np.zeros(len(same_time), bool)
    for column in figures.values():
        differs |= column[1:] != column[:-1]
        fell |= column[1:] < column[:-1]
    found = np.zeros(len(until_ms), bool)
    found[1:] = (same_time & differs) | fell
    found[key_starts] = False
    return found


def _suspects(windows: pa.Table, order: Numbers, starts: Numbers, contradicts: Numbers) -> Suspects:
    rows = order[starts]
    first = windows.select(["cluster", "partition", "queue_uuid", "account_id"]).take(pa.array(rows))
    owners = pc.binary_join_element_wise(
        first.column("queue_uuid").combine_chunks(), first.column("account_id").combine_chunks().cast(pa.binary()), b"/"
    )
    is_suspect = pa.array(np.logical_or.reduceat(contradicts, starts))
    return Suspects(first.column("cluster").combine_chunks(), first.column("partition").combine_chunks(), owners,
                    is_suspect)  # fmt: skip


def _gaps(latest: _Latest, span: HourSpan, unsure: Sequence[HourSpan]) -> _Gaps:
    """From the end of a window to the hour of the next one of its partition, within the span. Windows that have no row
    of CLIENT, because that one was refused, end no gap. A gap ends where hours begin of which something cannot be
    read: it may have said otherwise."""
    client = np.flatnonzero(latest.origin == int(Origin.CLIENT))
    partition = np.cumsum(latest.starts_partition)[client]
    hour_ms, level = latest.hour_ms[client], latest.stored_bytes[client]
    next_ms = np.full(len(client), span.to_ms)
    same = partition[1:] == partition[:-1]
    next_ms[:-1] = np.where(same, np.minimum(hour_ms[1:], span.to_ms), span.to_ms)
    until_ms = latest.until_ms[client]
    for hours in unsure:
        is_cut = (until_ms < hours.to_ms) & (next_ms > hours.from_ms)
        next_ms = np.where(is_cut, np.maximum(until_ms, hours.from_ms), next_ms)
    from_ms = np.maximum(until_ms, span.from_ms)
    kept = np.flatnonzero((level > 0) & (latest.final[client] == 0) & (next_ms > from_ms))
    return _Gaps(latest.owner[client][kept], from_ms[kept], next_ms[kept], level[kept])


def _packed(owner: Numbers, hour_ms: Numbers, origin: Numbers, figures: dict[str, Numbers], gaps: _Gaps) -> DayPacks:
    days = _by_day(gaps)
    own_keys = _keys(owner, origin, hour_ms // DAY_MS)
    gap_keys = _keys(days.owner, np.full(len(days.owner), int(Origin.CLIENT)), days.from_ms // DAY_MS)
    keys, places = np.unique(np.concatenate([own_keys, gap_keys]), return_inverse=True)
    own_at, gap_at = places[: len(own_keys)], places[len(own_keys) :]
    own_order, gap_order = np.argsort(own_at, kind="stable"), np.argsort(gap_at, kind="stable")
    own = _Grouped(own_at[own_order], len(keys))
    of_gaps = _Grouped(gap_at[gap_order], len(keys))
    hour_of_day = hour_ms[own_order] % DAY_MS // HOUR_MS
    columns = {name: column[own_order] for name, column in figures.items()}
    days = _Gaps(*(column[gap_order] for column in days))
    stretches = _stretches(days)
    stored = columns["stored_byte_ms"]
    high, low = _pair_of_product(days.level, days.to_ms - days.from_ms)
    highs = own.sums(stored // RADIX) + of_gaps.sums(high)
    lows = own.sums(stored % RADIX) + of_gaps.sums(low)
    sums = {name: _text(own.sums(column)) for name, column in columns.items() if name != "stored_byte_ms"}
    sums["stored_byte_ms"] = _joined(highs, lows)
    bits = own.together(1 << hour_of_day) | of_gaps.together(stretches.bits)
    texts = [_text(hour_of_day), *(_text(columns[name]) for name in COUNTERS), _text(stored)]
    texts += [_text(columns[name]) for name in SHOWN if name in columns]
    owners, rest = np.divmod(keys, _ORIGINS * _DAYS)
    return DayPacks(
        owners, rest % _DAYS, rest // _DAYS, bits, sums,
        own.joined(pc.binary_join_element_wise(*texts, ",")), of_gaps.joined(stretches.texts),
    )  # fmt: skip


class _Grouped:
    """Rows that are ordered by their group, of which some may have none."""

    def __init__(self, groups: Numbers, count: int) -> None:
        self._offsets = np.searchsorted(groups, np.arange(count + 1))
        self._count = count
        self._filled = np.flatnonzero(self._offsets[1:] > self._offsets[:-1])
        self._starts = self._offsets[:-1][self._filled]

    def sums(self, column: Numbers) -> Numbers:
        return self._spread(np.add.reduceat(column, self._starts) if len(column) else column)

    def together(self, bits: Numbers) -> Numbers:
        return self._spread(np.bitwise_or.reduceat(bits, self._starts) if len(bits) else bits)

    def joined(self, texts: pa.Array) -> pa.Array:
        """The texts of each group, those that are empty left out."""
        lengths = np.asarray(pc.binary_length(texts))
        kept = np.flatnonzero(lengths > 0)
        offsets = np.searchsorted(kept, self._offsets).astype(np.int32)
        of_groups = pa.ListArray.from_arrays(pa.array(offsets), texts.take(pa.array(kept)))
        return pc.binary_join(of_groups, ";")

    def _spread(self, of_filled: Numbers) -> Numbers:
        found = np.zeros(self._count, np.int64)
        found[self._filled] = of_filled
        return found


class _Stretches(NamedTuple):
    """Of each gap within a day: its hours as bits, and its entries in `levels`."""

    bits: Numbers
    texts: pa.Array


def _stretches(days: _Gaps) -> _Stretches:
    """The rest of the hour in which it begins, and the whole hours after that."""
    begin, end = days.from_ms % DAY_MS, days.from_ms % DAY_MS + (days.to_ms - days.from_ms)
    first = -(-begin // HOUR_MS)
    rest_ms, hours = first * HOUR_MS - begin, end // HOUR_MS - first
    rest = _text(first - 1), pa.scalar("1"), _text(days.level * rest_ms)
    whole = _text(first), _text(hours), _text(days.level * HOUR_MS)
    has_rest, has_hours = pa.array(rest_ms > 0), pa.array(hours > 0)
    texts = pc.binary_join_element_wise(
        pc.if_else(has_rest, pc.binary_join_element_wise(*rest, ","), None),
        pc.if_else(has_hours, pc.binary_join_element_wise(*whole, ","), None),
        ";", null_handling="skip",
    )  # fmt: skip
    bits = ((1 << (first + hours)) - 1) & ~((1 << np.where(rest_ms > 0, first - 1, first)) - 1)
    return _Stretches(bits, texts)


def _by_day(gaps: _Gaps) -> _Gaps:
    """Gaps cut at the ends of days."""
    first, last = gaps.from_ms // DAY_MS, (gaps.to_ms - 1) // DAY_MS
    counts = last - first + 1
    rows = np.repeat(np.arange(len(counts)), counts)
    day = first[rows] + np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    from_ms = np.maximum(gaps.from_ms[rows], day * DAY_MS)
    return _Gaps(gaps.owner[rows], from_ms, np.minimum(gaps.to_ms[rows], (day + 1) * DAY_MS), gaps.level[rows])


def _keys(owner: Numbers, origin: Numbers, day: Numbers) -> Numbers:
    return (owner * _ORIGINS + origin) * _DAYS + day


def _pair_of_product(level: Numbers, duration_ms: Numbers) -> tuple[Numbers, Numbers]:
    """As `exact_sums.pair_of_product`."""
    upper, lower = level // _MILLION * duration_ms, level % _MILLION * duration_ms
    low = upper % (RADIX // _MILLION) * _MILLION + lower
    return upper // (RADIX // _MILLION) + low // RADIX, low % RADIX


def _joined(highs: Numbers, lows: Numbers) -> pa.Array:
    """high * RADIX + low as text: beyond 64 bits by Python."""
    highs, lows = highs + lows // RADIX, lows % RADIX
    within = highs < (1 << 63) // RADIX
    found = _text(np.where(within, highs * RADIX * within + lows, 0))
    if within.all():
        return found
    texts = found.to_pylist()
    for place in np.flatnonzero(~within):
        texts[place] = str(int(highs[place]) * RADIX + int(lows[place]))
    return pa.array(texts, pa.string())


def _text(column: Numbers) -> pa.Array:
    return pa.array(column).cast(pa.string())


def _numbers(rows: pa.Table, name: str) -> Numbers:
    return rows.column(name).to_numpy().astype(np.int64, copy=False)


def _flags(rows: pa.Table, name: str) -> Numbers:
    return rows.column(name).to_numpy().astype(np.int64)


def _indices(encoded: pa.DictionaryArray) -> Numbers:
    return encoded.indices.to_numpy().astype(np.int64)
