"""What comes late for an hour that is settled: the next round has it, and a report of now does not leave it out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from storage_nodes.protocol.usage_records import window_key
from tests.workers.test_usage_rounds import Spark, hour, settled_figures, spark
from workers.spark_jobs.limits import CLOSE_GRACE_MS
from workers.usage import running

__all__ = ["spark"]
pytestmark = pytest.mark.django_db


class Stream:
    """In the place of the usage stream of a cluster: the keys of its records, and what was read of it."""

    keys: ClassVar[list[bytes | None]] = []
    read: ClassVar[list[tuple[int, int]]] = []

    def __init__(self, cluster_id: str, nodes: str) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def records(self, partition: int, start: int, end: int, skip_removed: bool) -> Iterator[tuple[Any, ...]]:
        assert partition == 3 and skip_removed
        self.read.append((start, end))
        return ((offset, 0, self.keys[offset], b"") for offset in range(start, end))


def test_report_of_now_settles_what_came_late_though_no_hour_has_ended(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition had no leader when its hour was settled. The live meter leaves settled hours to the rounds, so the
    usage would be in neither of the two, in a report that says it is complete."""
    keys = [window_key(8, hour(0)), window_key(8, hour(1)), window_key(8, hour(2))]
    ends = {"3": len(keys)}
    monkeypatch.setattr(Stream, "keys", keys)
    monkeypatch.setattr(running, "StreamReading", Stream)
    monkeypatch.setattr(running, "_watermarks", lambda _: dict(ends))
    monkeypatch.setattr(running, "run_job", spark.run_job)
    now_ms = hour(2) + CLOSE_GRACE_MS + 60_000
    monkeypatch.setattr(running.clock, "now", lambda: datetime.fromtimestamp(now_ms / 1000, UTC))

    def settle(is_asked: bool) -> int:
        return running._settle(spark.lake, lambda: True, lambda _: None, is_asked).settled_hours

    spark.arrive("a", {0: 5, 1: 6})
    assert settle(is_asked=False) == 2 and settle(is_asked=True) == 0
    keys.append(window_key(9, hour(2)))
    ends["3"] = len(keys)
    assert settle(is_asked=True) == 0, "it is of an open hour: the live meter has it"
    keys += [None, window_key(9, hour(1))]
    ends["3"] = len(keys)
    assert settle(is_asked=False) == 0
    spark.arrive("late", {1: 9})
    assert settle(is_asked=True) == 1
    spark.arrive("files", {0: 7})
    assert settle(is_asked=False) == 2, "what was given to the lake is settled, though the stream is quiet"
    assert settle(is_asked=False) == 0
    assert settled_figures() == {0: 7, 1: 9} and Stream.read[-1] == (3, 6)
    assert settle(is_asked=True) == 0, "once"
