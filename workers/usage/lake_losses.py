"""What the lake lost since its hours were settled, and the small files in which it is noted.

A count replaces what its hours had, so it has to be known where the lake holds less than was counted before:

    a file is damaged   the job of Spark says so each time (`refused_files`): the merge is partial
    one is given up     `give_up_file`; its hours are noted as those of an entry that is gone
    an entry is gone    `settled.json` names it and the manifest does not, or there is no such file, and all entries
                        came after the last merge: the folder was emptied. What is merged of the hours that were
                        settled before is partial from then on, too (`lost.json`)

Without `settled.json` alone nothing is lost: operators remove it to have all counted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from workers.spark_jobs.lake.manifest import CORRUPT_FILE, Lake, LakeEntry, RefusedFile, what_is_wrong
from workers.spark_jobs.limits import HOUR_MS

_log = structlog.get_logger(__name__)
T = TypeVar("T")
_SETTLED, _LOST = "settled.json", "lost.json"


def forget_refused(lake: Lake, paths: set[str]) -> None:
    """Files that count again are refused no longer."""
    for mark, refused in refused_files(lake):
        if refused.reason == CORRUPT_FILE and refused.path in paths:
            mark.unlink(missing_ok=True)


def give_up_file(lake: Lake, path: str) -> str:
    """A damaged file of the lake, named as the report of quarantine names it, counts no more: no hour is unsure any
    longer because of it. What was settled from it stays, as where an entry is lost. Why not; empty: it is done."""
    listed = [file for entry in lake.entries() for files in entry.tables.values() for file in files]
    found = next((file for file in listed if file.path == path), None)
    if found is None:
        return f"{path}: no entry of the lake lists it"
    if not what_is_wrong(lake.root / path, found):
        return f"{path}: it is as it was written, and counts"
    until_ms = max(read_note(lake.root / _LOST, int) or 0, found.hour_ms_max + HOUR_MS)
    lake.note(lake.root / _LOST, msgspec.json.encode(until_ms))
    lake.give_up(path)
    forget_refused(lake, {path})
    return ""


def take_losses(lake: Lake, entries: Sequence[LakeEntry], settled_up_to_ms: int, merged_ms: int) -> int:
    """The end of the hours of which the lake may have lost something, 0 where it has lost nothing. An entry that comes
    back is settled again, as a new one. `merged_ms`: when the last run was merged, 0 if none was."""
    noted = noted_entries(lake)
    gone = noted - {entry.name for entry in entries}
    until_ms = read_note(lake.root / _LOST, int) or 0
    is_emptied = not noted and merged_ms > 0 and all(entry.ingested_ms > merged_ms for entry in entries)
    if gone or is_emptied:
        until_ms = max(until_ms, settled_up_to_ms)
        lake.note(lake.root / _LOST, msgspec.json.encode(until_ms))
        note_entries(lake, noted - gone)
    if gone:
        _log.warning("usage_left_out", entries_gone=sorted(gone), hours_before_ms=until_ms)
    return until_ms


def may_have_lost(lake: Lake, entries: Sequence[LakeEntry], from_ms: int) -> bool:
    """Anything of the hours from here on, as far as is noted. Changes nothing."""
    gone = noted_entries(lake) - {entry.name for entry in entries}
    return bool(gone) or (read_note(lake.root / _LOST, int) or 0) > from_ms


def noted_entries(lake: Lake) -> set[str]:
    """Entries that are settled."""
    return set(read_note(lake.root / _SETTLED, list[str]) or ())


def note_entries(lake: Lake, names: set[str]) -> None:
    lake.note(lake.root / _SETTLED, msgspec.json.encode(sorted(names)))


def read_note(path: Path, kind: type[T]) -> T | None:
    """A small file of the lake. None where there is none: one that cannot be read says nothing, too."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        _log.warning("lake_note_unreadable", path=str(path), error=str(error))
        return None


def refused_files(lake: Lake) -> Iterator[tuple[Path, RefusedFile]]:
    """Each with the file that notes it."""
    for path in sorted((lake.root / "refused").glob("*.json")):
        found = read_note(path, RefusedFile)
        if found is not None:
            yield path, found
