"""The versioned cache: every order of fills and changes, stepped by hand."""

from __future__ import annotations

from typing import NamedTuple

from frontend.metadata.cache import VersionedCache
from frontend.metadata.interface import MISS


class Thing(NamedTuple):
    version: int


def new_cache(entries_max: int = 10) -> VersionedCache[str, Thing]:
    return VersionedCache(entries_max, negative_ms=1_000)


def test_fill_is_served_until_a_newer_version_is_heard() -> None:
    cache = new_cache()
    assert cache.get("k", 0) is MISS
    assert cache.finish(cache.begin("k"), Thing(5), 0)
    assert cache.get("k", 10**9) == Thing(5)
    cache.invalidate("k", 5)
    assert cache.get("k", 0) == Thing(5), "no newer than what is held"
    cache.invalidate("k", 6)
    assert cache.get("k", 0) is MISS


def test_fill_that_raced_with_a_change_is_not_stored() -> None:
    cache = new_cache()
    fill = cache.begin("k")
    cache.invalidate("k", 7)
    assert not cache.finish(fill, Thing(6), 0)
    assert cache.get("k", 0) is MISS
    assert cache.finish(cache.begin("k"), Thing(7), 0), "the next one starts without a floor"


def test_fill_that_raced_with_a_change_but_saw_it_is_stored() -> None:
    cache = new_cache()
    fill = cache.begin("k")
    cache.invalidate("k", 7)
    assert cache.finish(fill, Thing(7), 0)
    assert cache.get("k", 0) == Thing(7)


def test_absence_that_raced_with_a_change_is_not_stored() -> None:
    cache = new_cache()
    fill = cache.begin("k")
    cache.invalidate("k", 7)
    assert not cache.finish(fill, None, 0)
    assert cache.get("k", 0) is MISS


def test_absence_is_served_for_its_time_and_ended_by_a_change() -> None:
    cache = new_cache()
    assert cache.finish(cache.begin("k"), None, 5_000)
    assert cache.get("k", 5_999) is None
    assert cache.get("k", 6_000) is MISS
    assert cache.finish(cache.begin("k"), None, 6_000)
    cache.invalidate("k", 1)
    assert cache.get("k", 6_000) is MISS


def test_old_answer_does_not_replace_a_newer_record() -> None:
    """Two lookups: the one that started first answers last, with what was true when it was read."""
    cache = new_cache()
    slow, quick = cache.begin("k"), cache.begin("k")
    assert cache.finish(quick, Thing(9), 0)
    assert not cache.finish(slow, Thing(8), 0)
    assert cache.get("k", 0) == Thing(9)


def test_old_absence_does_not_replace_a_newer_record() -> None:
    cache = new_cache()
    slow, quick = cache.begin("k"), cache.begin("k")
    assert cache.finish(quick, Thing(9), 0)
    assert not cache.finish(slow, None, 0)
    assert cache.get("k", 0) == Thing(9)


def test_record_ends_an_absence_and_absence_ends_a_record() -> None:
    cache = new_cache()
    cache.finish(cache.begin("k"), None, 0)
    cache.finish(cache.begin("k"), Thing(1), 0)
    assert cache.get("k", 0) == Thing(1)
    cache.finish(cache.begin("k"), None, 0)
    assert cache.get("k", 0) is None


def test_change_of_one_key_leaves_fills_of_others_alone() -> None:
    cache = new_cache()
    fill = cache.begin("k")
    cache.invalidate("other", 99)
    assert cache.finish(fill, Thing(1), 0)


def test_drop_forgets_entries_and_voids_fills_under_way() -> None:
    cache = new_cache()
    cache.finish(cache.begin("a"), Thing(1), 0)
    cache.finish(cache.begin("b"), None, 0)
    under_way = cache.begin("c")
    cache.drop()
    assert cache.get("a", 0) is MISS and cache.get("b", 0) is MISS
    assert not cache.finish(under_way, Thing(100), 0)
    assert cache.get("c", 0) is MISS


def test_abandoned_fill_leaves_nothing_behind() -> None:
    cache = new_cache()
    cache.abandon(cache.begin("k"))
    cache.invalidate("k", 3)
    assert cache.finish(cache.begin("k"), Thing(1), 0)


def test_full_cache_lets_its_oldest_entry_go() -> None:
    cache = new_cache(entries_max=3)
    for number, key in enumerate("abcd", 1):
        cache.finish(cache.begin(key), Thing(number), 0)
    assert len(cache) == 3
    assert cache.get("a", 0) is MISS
    assert [cache.get(key, 0) for key in "bcd"] == [Thing(2), Thing(3), Thing(4)]
    cache.finish(cache.begin("d"), Thing(9), 0)
    assert cache.get("b", 0) == Thing(2), "a newer version of what is held pushes nobody out"


def test_absences_are_bounded_too() -> None:
    from frontend.metadata.limits import NEGATIVES_CACHED_MAX

    cache = new_cache()
    for number in range(NEGATIVES_CACHED_MAX + 1):
        cache.finish(cache.begin(str(number)), None, 0)
    assert cache.get("0", 0) is MISS
    assert cache.get(str(NEGATIVES_CACHED_MAX), 0) is None
