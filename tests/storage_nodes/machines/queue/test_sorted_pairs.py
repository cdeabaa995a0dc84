"""Pairs in order, narrow and wide, beside a sorted list; and what a pair costs."""

from __future__ import annotations

import random
import sys
from array import array
from bisect import insort

import pytest

from storage_nodes.machines.queue.state import sorted_pairs
from storage_nodes.machines.queue.state.sorted_pairs import CHUNK_PAIRS_MAX, SortedPairs

ROUND = 1 << 32  # numbers on both sides of it do not fit one narrow chunk
NOW_MS = 418 * ROUND - 5_000


def flat(numbers: list[int]) -> bytes:
    return array("q", numbers).tobytes()


def check(pairs: SortedPairs, model: list[tuple[int, int]], chance: random.Random) -> None:
    assert list(pairs) == model and pairs.count == len(model)
    assert pairs.pack() == (flat([key for key, _ in model]), flat([value for _, value in model]))
    assert pairs.first() == (model[0] if model else None)
    after = (chance.choice(model)[0] - 1, ROUND) if model else (-1, -1)
    until = after[0] + chance.randrange(1, 2 * ROUND)
    expected = [pair for pair in model if after < pair and pair[0] <= until]
    assert pairs.page(after, 7, until) == expected[:7]
    assert pairs.has_key_between(after[0] + 1, until) == any(after[0] < key <= until for key, _ in model)
    again = SortedPairs()
    again.unpack(*pairs.pack())
    assert list(again) == model


@pytest.mark.parametrize("seed", range(20))
def test_pairs_are_those_of_a_sorted_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_pairs, "CHUNK_PAIRS_MAX", 8)
    chance = random.Random(seed)
    spread = chance.choice((100, 10_000, 4 * ROUND))
    pairs, model, frozen = SortedPairs(), [], []
    for step in range(600):
        if model and chance.random() < (0.2 if step < 400 else 0.8):
            pair = model.pop(chance.choice((0, chance.randrange(len(model)))))
            pairs.remove(*pair)
        else:
            key = model[-1][0] + 1 if model and chance.random() < 0.5 else NOW_MS + chance.randrange(spread)
            pair = (key, chance.choice((chance.randrange(50), NOW_MS + chance.randrange(spread))))
            if pair not in model:
                insort(model, pair)
                pairs.add(*pair)
        if step % 40 == 0:
            frozen.append((pairs.pack(), pairs.freeze()))
            check(pairs, model, chance)
    check(pairs, model, chance)
    for packed, columns in frozen:
        for whole, pieces in zip(packed, columns, strict=True):
            assert b"".join(map(bytes, pieces)) == whole, "what was lent changed"
            assert sum(piece.nbytes for piece in pieces if not isinstance(piece, bytes)) == len(whole)


@pytest.mark.parametrize("seed", range(5))
def test_key_of_one_pair_is_found(seed: int) -> None:
    chance = random.Random(seed)
    model = {NOW_MS + chance.randrange(10_000): chance.randrange(2 * ROUND) for _ in range(1_000)}
    pairs = SortedPairs()
    for key, value in model.items():
        pairs.add(key, value)
    assert all(pairs.get(key) == value for key, value in model.items())
    assert all(pairs.get(key) == model.get(key) for key in range(NOW_MS - 10, NOW_MS + 10_010))


def test_pair_of_near_numbers_takes_eight_bytes_and_a_checkpoint_is_read_as_narrow() -> None:
    pairs, again = SortedPairs(), SortedPairs()
    for number in range(10 * CHUNK_PAIRS_MAX):
        pairs.add(NOW_MS - 10**9 + number, 7_000_000 + number // 2)
    again.unpack(*pairs.pack())
    for made in (pairs, again):
        arrays = [*made._keys, *made._values]
        assert sum(numbers.itemsize * len(numbers) for numbers in arrays) == 8 * made.count


def test_full_chunk_has_no_room_to_spare() -> None:
    pairs = SortedPairs()
    for number in range(3 * CHUNK_PAIRS_MAX):
        pairs.add(number, number)
    for numbers in (*pairs._keys[:-1], *pairs._values[:-1]):
        assert sys.getsizeof(numbers) == sys.getsizeof(numbers[:])
