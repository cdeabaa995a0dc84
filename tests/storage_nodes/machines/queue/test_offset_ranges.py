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


@given(st.lists(st.tuples(_CHANGES, _SPANS), max_size=40), _SPANS, st.sampled_from([1, 2, 3, 2_048]))
def test_ranges_answer_as_a_set_would(
    changes: list[tuple[str, tuple[int, int]]], asked: tuple[int, int], block_ranges_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_ranges, "BLOCK_RANGES_MAX", block_ranges_max)
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
    assert ranges._lows == [starts[0] for starts in ranges._starts], "no block is empty"
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
    monkeypatch.setattr(offset_ranges, "BLOCK_RANGES_MAX", 3)
    ranges = OffsetRanges()
    for number in range(11):
        ranges.add(2**40 + 5 * number, 2**40 + 5 * number + 2)
    ranges.drop_below(2**40 + 6)
    packed, pieces = ranges.pack(), ranges.pack_lazily()
    ranges.add(2**40 + 100, 2**40 + 200)
    ranges.drop_below(2**40 + 30)
    assert len(pieces) == 1 + 4 and [piece_bytes(piece) for piece in pieces] == [len(bytes(one)) for one in pieces]
    assert msgspec.msgpack.decode(b"".join(map(bytes, pieces))) == packed


def test_changes_among_many_ranges_move_those_of_one_block() -> None:
    """A FIFO queue may have 120,000, and one with delayed messages between others millions."""
    ranges = OffsetRanges()
    count = 5 * offset_ranges.BLOCK_RANGES_MAX
    for number in range(count):
        ranges.add(4 * number, 4 * number + 1)
    for number in range(count):
        assert ranges.take(4 * number + 2)
    assert len(ranges) == 2 * count and max(map(len, ranges._starts)) <= offset_ranges.BLOCK_RANGES_MAX
    for number in range(count):
        ranges.drop_below(4 * number + 1)
        assert len(ranges) == 2 * (count - number) - 1
