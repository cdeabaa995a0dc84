"""Ranges of offsets against a plain set."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_nodes.machines.driver_contract import piece_bytes
from storage_nodes.machines.queue.state import offset_ranges
from storage_nodes.machines.queue.state.offset_ranges import OffsetRanges

_SPANS = st.tuples(st.integers(0, 60), st.integers(1, 8))


_CHANGES = st.sampled_from(["add", "add", "take", "take", "take", "drop"])


@given(st.lists(st.tuples(_CHANGES, _SPANS), max_size=40), _SPANS, st.sampled_from([0, 1, 3, 1_000]))
def test_ranges_answer_as_a_set_would(
    changes: list[tuple[str, tuple[int, int]]], asked: tuple[int, int], garbage_min: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_ranges, "_GARBAGE_MIN", garbage_min)
        check(changes, asked)


def check(changes: list[tuple[str, tuple[int, int]]], asked: tuple[int, int]) -> None:
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
    assert list(ranges) == sorted(plain) and bool(ranges) == bool(plain) and len(ranges) == len(ranges.ranges())
    assert [offset for offset in range(80) if offset in ranges] == sorted(plain)
    assert ranges.covers(first, end) == (wanted <= plain)
    assert ranges.is_disjoint(first, end) == wanted.isdisjoint(plain)
    assert {offset for start, stop in ranges.gaps(first, end) for offset in range(start, stop)} == wanted - plain
    assert OffsetRanges.unpack(ranges.pack()).pack() == ranges.pack()
    assert msgspec.msgpack.decode(b"".join(map(bytes, ranges.pack_lazily()))) == ranges.pack()
    together = sorted(offset for offset in plain if offset - 1 not in plain)
    assert [start for start, _ in ranges.ranges()] == together, "neighbours are one range"
    if plain:
        assert ranges.end_of_first(min(plain)) == ranges.ranges()[0][1]
    assert ranges.end_of_first(200) == 200


def test_packed_pieces_stay_as_they_were_and_say_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_ranges, "_PIECE_RANGES", 3)
    ranges = OffsetRanges()
    for number in range(11):
        ranges.add(2**40 + 5 * number, 2**40 + 5 * number + 2)
    ranges.drop_below(2**40 + 6)
    packed, pieces = ranges.pack(), ranges.pack_lazily()
    ranges.add(2**40 + 100, 2**40 + 200)
    ranges.drop_below(2**40 + 30)
    assert len(pieces) == 1 + 4 and [piece_bytes(piece) for piece in pieces] == [len(bytes(one)) for one in pieces]
    assert msgspec.msgpack.decode(b"".join(map(bytes, pieces))) == packed


def test_front_of_many_ranges_is_dropped_in_few_steps() -> None:
    """The cursor of a queue with delayed messages between others takes such a step with each message."""
    ranges = OffsetRanges()
    for number in range(10_000):
        ranges.add(2 * number, 2 * number + 1)
    lengths = set()
    for number in range(10_000):
        ranges.drop_below(2 * number + 1)
        lengths.add(len(ranges._starts))
        assert len(ranges) == 9_999 - number
    assert len(lengths) < 10, "the arrays were cut a few times"
