"""The copy of one kind of records: the rules of `api/metadata/holding.py`, step by step."""

from __future__ import annotations

import random

import pytest

from api.limits import HELD_ROW_OVERHEAD_BYTES
from api.metadata.holding import EncodedRecord, Holding
from frontend.metadata.interface import MISS


def row(version: int, key: str = "a") -> EncodedRecord:
    return EncodedRecord(key, version, b"%d" % version)


def loaded(*rows: EncodedRecord, bytes_max: int = 10**6) -> Holding:
    holding = Holding(bytes_max)
    holding.begin_load()
    for one in rows:
        holding.put(one)
    holding.end_load({one.key for one in rows})
    return holding


def test_complete_copy_knows_what_does_not_exist() -> None:
    holding = Holding(1000)
    holding.put(row(1))
    assert (holding.get("a"), holding.get("b")) == (b"1", MISS), "not loaded yet"
    assert loaded(row(1)).get("b") is None


def test_changed_record_is_due_until_it_was_read() -> None:
    holding = loaded(row(3))
    assert not holding.heard("a", 3), "a read was quicker"
    assert holding.heard("a", 4)
    assert holding.get("a") is MISS and holding.due == ["a"]
    assert holding.finish(holding.begin("a"), row(4))
    assert holding.get("a") == b"4" and not holding.due


def test_deleted_record_is_absent_once_it_was_read() -> None:
    holding = loaded(row(3))
    holding.heard("a", 9)
    assert holding.finish(holding.begin("a"), None)
    assert holding.get("a") is None and holding.bytes == 0


@pytest.mark.parametrize("answer", [None, row(3)])
def test_answer_older_than_a_change_heard_meanwhile_is_refused(answer: EncodedRecord | None) -> None:
    holding = loaded(row(3))
    fill = holding.begin("a")
    holding.heard("a", 5)
    assert not holding.finish(fill, answer)
    assert holding.get("a") is MISS
    assert holding.finish(holding.begin("a"), row(5))


def test_read_that_began_before_a_deletion_does_not_bring_the_record_back() -> None:
    """Another read was quicker, and settled what was due."""
    holding = loaded(row(3))
    slow = holding.begin("a")
    holding.heard("a", 5)
    assert holding.finish(holding.begin("a"), None)
    assert not holding.finish(slow, row(3))
    assert holding.get("a") is None


def test_older_row_never_replaces_a_newer_one() -> None:
    holding = loaded(row(5))
    holding.put(row(4))
    assert holding.get("a") == b"5"


def test_load_removes_what_is_gone_and_settles_what_was_due() -> None:
    holding = loaded(row(3), row(3, "b"))
    holding.heard("b", 4)
    holding.begin_load()
    holding.put(row(4, "b"))
    assert holding.get("a") == b"3", "what is held answers meanwhile"
    holding.end_load({"b"})
    assert (holding.get("a"), holding.get("b")) == (None, b"4")


def test_least_recently_used_records_leave_beyond_the_limit() -> None:
    each = HELD_ROW_OVERHEAD_BYTES + 10  # a name of one character, eight bytes of version, one of content
    holding = loaded(row(1, "a"), row(1, "b"), bytes_max=3 * each)
    assert holding.bytes == 2 * each and holding.complete
    holding.complete = False  # order is kept only where it may be needed
    assert holding.get("a") == b"1"
    holding.put(row(2, "c"))
    holding.put(row(2, "d"))
    assert (holding.get("a"), holding.get("b"), holding.get("d")) == (b"1", MISS, b"2")
    assert holding.bytes == 3 * each
    holding.begin_load()
    holding.end_load({"a"})
    assert holding.complete, "all of them fit again"


def test_what_somebody_else_holds_is_compared() -> None:
    holding = loaded(row(5))
    holding.heard("c", 8)
    outdated = [holding.is_outdated("a", version, True) for version in (4, 5, 6)]
    assert outdated == [True, False, False]
    assert holding.is_outdated("b", 1, False), "a complete copy knows that it is gone"
    assert holding.is_outdated("c", 7, False) and not holding.is_outdated("a", 5, False)
    holding.complete = False
    assert holding.is_outdated("b", 1, True)
    assert not holding.is_outdated("b", 1, False), "nobody could have it again now: its holder keeps it"


@pytest.mark.parametrize("seed", range(30))
def test_reads_and_changes_in_any_order_never_leave_an_old_record(seed: int) -> None:
    """Reads see the database when they are sent; announcements come some time after the commit, in order."""
    rng = random.Random(seed)
    holding = loaded(row(1))
    database: EncodedRecord | None = row(1)
    version = 1
    announcements: list[int] = []
    reads: list[tuple[object, EncodedRecord | None]] = []
    for _ in range(400):
        step = rng.randrange(5)
        if step == 0:
            version += 1
            database = None if rng.random() < 0.4 else row(version)
            announcements.append(version)
        elif step == 1 and announcements:
            holding.heard("a", announcements.pop(0))
        elif step == 2:
            reads.append((holding.begin("a"), database))
        elif step >= 3 and reads:
            fill, seen = reads.pop(rng.randrange(len(reads)))
            holding.finish(fill, seen)  # type: ignore[arg-type]  # a Fill
        if not announcements and (held := holding.get("a")) is not MISS:
            assert held == (None if database is None else database.reply)
