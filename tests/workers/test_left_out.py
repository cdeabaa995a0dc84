"""What Spark could not take is in the one report of what is not billed (docs/usage.md)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.billing.management.commands.billing_report import quarantine_report
from api.billing.pricing.periods import Interval, parse_period
from api.billing.selectors import quarantine_of
from workers.spark_jobs.lake import shown
from workers.spark_jobs.lake.manifest import CORRUPT_FILE, DUPLICATE_FILE, UNKNOWN_SCHEMA, Lake, RefusedFile
from workers.usage.left_out import note_left_out

pytestmark = pytest.mark.django_db

NOVEMBER = parse_period("2026-11")
HOUR_MS = int(datetime(2026, 11, 3, 5, tzinfo=UTC).timestamp()) * 1000
ACCOUNT = "100000000001"


def unreadable(reason: str, offset: int, value: bytes = b"\x07rubbish") -> dict[str, Any]:
    return {"reason": reason, "detail": f"{reason}\x00", "stream_partition": 3, "stream_offset": offset, "value": value}


def judged(reason: str, offset: int, **changed: object) -> dict[str, Any]:
    detail = {"account_id": ACCOUNT, "hour_ms": HOUR_MS, "sent": -1, "queue_uuid": "00" * 16, **changed}
    place = {"stream_partition": 3, "stream_offset": offset}
    return {"reason": reason, "detail": json.dumps(detail), **place, "value": None}


BAD = [
    unreadable("unknown_version", 0),
    unreadable("malformed", 1),
    judged("negative_counter", 2),
    judged("clock_ahead", 3, hour_ms=HOUR_MS + 10**12),
    judged("bad_hour", 4, hour_ms=-5),
    judged("malformed", 5, account_id="\x00no account"),
    judged("implausible", 6, hour_ms=2**62),
]


def reported() -> list[dict[str, Any]]:
    return list(quarantine_report(NOVEMBER)["records"])


def test_records_and_files_that_were_not_taken_are_reported_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    shown.show_quarantine(lake, "stream-1", BAD)
    for number, reason in enumerate((CORRUPT_FILE, DUPLICATE_FILE, UNKNOWN_SCHEMA)):
        lake.refuse(RefusedFile(f"/in/{number}.parquet", reason, "torn", HOUR_MS))
    for _ in range(2):
        assert note_left_out(lake, ["stream-1", "stream-without"]) == len(BAD) + 3
        rows = reported()
        assert sorted(row["reason"] for row in rows) == sorted(
            [*(one["reason"] for one in BAD), CORRUPT_FILE, DUPLICATE_FILE, UNKNOWN_SCHEMA]
        )
    negative = next(row for row in rows if row["reason"] == "negative_counter")
    assert (negative["account_id"], negative["hour"]) == (ACCOUNT, "2026-11-03T05:00:00Z")
    assert negative["record"]["sent"] == -1 and negative["record"]["stream_offset"] == 2
    version = next(row for row in rows if row["reason"] == "unknown_version")
    assert version["record"]["value"] == b"\x07rubbish".hex()
    counts = {one.reason: one.records for one in quarantine_of(ACCOUNT, Interval(*NOVEMBER))}
    assert counts["negative_counter"] == 1, "the customer sees how many of its records are not billed"


def test_many_bad_records_are_told_by_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "SHOWN_RECORDS_MAX", 5)
    lake = Lake(tmp_path)
    shown.show_quarantine(lake, "stream-1", [unreadable("malformed", at) for at in range(12)])
    note_left_out(lake, ["stream-1"])
    rows = reported()
    assert len(rows) == 6
    assert [row["record"]["more_records"] for row in rows if "more_records" in row["record"]] == [7]


def test_entry_that_is_written_again_without_bad_records_shows_none(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    shown.show_quarantine(lake, "stream-1", BAD)
    shown.show_quarantine(lake, "stream-1", [])
    assert note_left_out(lake, ["stream-1"]) == 0
