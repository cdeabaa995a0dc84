"""Ranges of offsets against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storage_nodes.machines.queue.state.offset_ranges import OffsetRanges

_SPANS = st.tuples(st.integers(0, 60), st.integers(1, 8))


_CHANGES = st.sampled_from(["add", "add", "take", "take", "take", "drop"])


@given(st.lists(st.tuples(_CHANGES, _SPANS), max_size=40), _SPANS)
def test_ranges_answer_as_a_set_would(changes: list[tuple[str, tuple[int, int]]], asked: tuple[int, int]) -> None:
    ranges, plain = OffsetRanges(), set[int]()
    for change, (first, length) in changes:
        if change == "add":
            ranges.add(first, first + length)
            plain |= set(range(first, first + length))
        elif change == "take":
            assert ranges.take(first) == (first not in plain)
            plain.add(first)
        else:
            ranges.drop_below(first)
            plain = {offset for offset in plain if offset >= first}
    first, end = asked[0], asked[0] + asked[1]
    wanted = set(range(first, end))
    assert list(ranges) == sorted(plain) and bool(ranges) == bool(plain)
    assert [offset for offset in range(80) if offset in ranges] == sorted(plain)
    assert ranges.covers(first, end) == (wanted <= plain)
    assert ranges.is_disjoint(first, end) == wanted.isdisjoint(plain)
    assert {offset for start, stop in ranges.gaps(first, end) for offset in range(start, stop)} == wanted - plain
    assert OffsetRanges.unpack(ranges.pack()).pack() == ranges.pack()
    together = sorted(offset for offset in plain if offset - 1 not in plain)
    assert [start for start, _ in ranges.ranges()] == together, "neighbours are one range"
    if plain:
        assert ranges.end_of_first(min(plain)) == ranges.ranges()[0][1]
    assert ranges.end_of_first(200) == 200
