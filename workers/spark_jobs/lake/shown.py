"""What of an entry's quarantine people are shown: how many of each reason, and the first records. No Spark is needed to
read it; the lake keeps all.

A file per entry, beside those of the table, written before the entry: `quarantine/ENTRY.shown.json`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from workers.spark_jobs.lake.manifest import QUARANTINE_TABLE, Lake
from workers.spark_jobs.limits import SHOWN_RECORDS_MAX, SHOWN_TEXT_CHARACTERS_MAX


class ShownRecord(msgspec.Struct, frozen=True):
    """`detail`: JSON of a row that was judged, else why it could not be read; `value`: the beginning of its bytes."""

    reason: str
    detail: str
    stream_partition: int | None = None
    stream_offset: int | None = None
    value: str = ""


class ShownQuarantine(msgspec.Struct, frozen=True):
    """`counts`: all records of each reason; `records`: the first ones."""

    counts: dict[str, int]
    records: list[ShownRecord]


NOTHING_SHOWN = ShownQuarantine({}, [])


def show_quarantine(lake: Lake, entry: str, rows: Iterable[dict[str, Any]]) -> None:
    """`rows` of the schema QUARANTINE. An entry without any gets no file."""
    counts: dict[str, int] = {}
    records: list[ShownRecord] = []
    for row in rows:
        counts[row["reason"]] = counts.get(row["reason"], 0) + 1
        if len(records) < SHOWN_RECORDS_MAX:
            value = bytes(row["value"] or b"")[: SHOWN_TEXT_CHARACTERS_MAX // 2].hex()
            records.append(
                ShownRecord(row["reason"], row["detail"] or "", row["stream_partition"], row["stream_offset"], value)
            )
    path = lake.table(QUARANTINE_TABLE, f"{entry}.shown.json")
    if counts:
        lake.note(path, msgspec.json.encode(ShownQuarantine(counts, records)))
    else:
        path.unlink(missing_ok=True)  # of an ingestion that was cut off


def shown_quarantine(lake: Lake, entry: str) -> ShownQuarantine:
    """Empty for entries without any, and for those of before there were such files."""
    try:
        data = lake.table(QUARANTINE_TABLE, f"{entry}.shown.json").read_bytes()
    except FileNotFoundError:
        return NOTHING_SHOWN
    return msgspec.json.decode(data, type=ShownQuarantine)
