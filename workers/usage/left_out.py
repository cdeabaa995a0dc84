"""What Spark could not take, beside what the merge refused: in the one report of what is not billed.

The lake keeps all of it. The control plane is told of the first records of each entry, of the number of all where there
are more, and of each whole file. Told again, a record is the same row: its place in the stream and its content name it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from api.billing.quarantine import Quarantined, note_quarantined, resolve_files
from api.limits import ACCOUNT_ID_DIGITS
from workers.spark_jobs.lake.manifest import (
    CORRUPT_FILE,
    QUARANTINE_TABLE,
    REQUESTS_TABLE,
    WINDOWS_TABLE,
    Lake,
    RefusedFile,
)
from workers.spark_jobs.lake.shown import ShownRecord, shown_quarantine
from workers.spark_jobs.limits import HOUR_MS, SHOWN_RECORDS_MAX, SHOWN_TEXT_CHARACTERS_MAX
from workers.usage.lake_losses import refused_files

# Hours of a report are those of a month that can be written.
_HOUR_MS_MAX = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp()) * 1000
CLOCK_AHEAD = "clock_ahead"
_OF_TABLES = (f"{WINDOWS_TABLE}/", f"{REQUESTS_TABLE}/")


def note_left_out(lake: Lake, entries: list[str]) -> int:
    """How many were told."""
    found = [one for entry in entries for one in _of_entry(lake, entry)]
    refused = sorted((file for _, file in refused_files(lake)), key=lambda file: -file.seen_ms)
    paths = {_plain(file.path) for file in refused}
    # Of the lake's own: those that are whole again, and those that were given up.
    resolve_files(lambda path: path.startswith(_OF_TABLES) and path not in paths)
    return note_quarantined(None, [*found, *map(_of_file, refused[:SHOWN_RECORDS_MAX])])


def _of_entry(lake: Lake, entry: str) -> Iterator[Quarantined]:
    try:
        shown = shown_quarantine(lake, entry)
    except msgspec.DecodeError as error:
        # What was left out of this entry is in the lake's quarantine still; what it billed is billed.
        yield Quarantined(CORRUPT_FILE, _plain(str(error)), {"file": f"{QUARANTINE_TABLE}/{entry}.shown.json"})
        return
    told: dict[str, int] = {}
    for record in shown.records:
        told[record.reason] = told.get(record.reason, 0) + 1
        yield _of_record(record)
    for reason, count in shown.counts.items():
        more = count - told.get(reason, 0)
        if more:
            detail = f"{more} more records of this reason are in the entry {entry} of the lake"
            yield Quarantined(reason, detail, {"entry": entry, "more_records": more})


def _of_record(record: ShownRecord) -> Quarantined:
    fields = _fields(record.detail)
    place = {"stream_partition": record.stream_partition, "stream_offset": record.stream_offset}
    about = fields or {"value": record.value}
    account_id = fields.get("account_id")
    is_one = isinstance(account_id, str) and len(account_id) == ACCOUNT_ID_DIGITS and account_id.isdigit()
    return Quarantined(
        record.reason,
        "" if fields else _plain(record.detail),
        {name: value for name, value in {**about, **place}.items() if value is not None},
        account_id if is_one and isinstance(account_id, str) else "",
        # What lies ahead belongs to no month that anybody looks at: it is shown with each.
        None if record.reason == CLOCK_AHEAD else _hour(fields.get("hour_ms")),
    )


def _of_file(file: RefusedFile) -> Quarantined:
    content = {"sha256": file.sha256} if file.sha256 else {}
    return Quarantined(file.reason, _plain(f"{file.path}: {file.detail}"), {"file": _plain(file.path), **content})


def _fields(detail: str) -> dict[str, Any]:
    """The columns of a row that was judged; none of a record that could not be read."""
    try:
        found = json.loads(detail)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: _plain(value) if isinstance(value, str) else value for name, value in found.items()}


def _hour(hour_ms: object) -> datetime | None:
    if not isinstance(hour_ms, int) or not 0 <= hour_ms < _HOUR_MS_MAX:
        return None
    return datetime.fromtimestamp(hour_ms // HOUR_MS * HOUR_MS / 1000, UTC)


def _plain(text: str) -> str:
    """As PostgreSQL holds it: no NUL, and not without end."""
    return text.replace("\x00", "")[:SHOWN_TEXT_CHARACTERS_MAX]
