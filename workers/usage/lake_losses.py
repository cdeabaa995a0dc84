"""What became of the lake since its hours were settled: files that can be read again, entries that are gone.

A count replaces what its hours had, so it has to be known where the lake holds less than was counted before:

    a file is damaged      the job of Spark says so each time (`refused_files`): the merge is partial
    a file is whole again  `take_mended`: its entry is settled once more, also where nothing else comes for its hours
    an entry is gone       `settled.json` names it and the manifest does not, or there is no such file although hours
                           were settled: what is merged of these hours from then on is partial (`lost.json`)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from workers.spark_jobs.lake.manifest import CORRUPT_FILE, Lake, LakeEntry, LakeFile, RefusedFile, sha256_of

_log = structlog.get_logger(__name__)
T = TypeVar("T")
_SETTLED, _LOST = "settled.json", "lost.json"


def take_mended(lake: Lake, entries: Sequence[LakeEntry], noted: set[str]) -> set[str]:
    """`noted` without the entries of which a refused file is as it was written again. Safe to be cut off: a file is
    refused no longer only once its entry is to be settled."""
    listed = {file.path: (entry.name, file) for entry in entries for files in entry.tables.values() for file in files}
    mended = [
        (mark, listed[refused.path][0])
        for mark, refused in refused_files(lake)
        if refused.reason == CORRUPT_FILE and refused.path in listed and _is_whole(lake, listed[refused.path][1])
    ]
    if not mended:
        return noted
    names = {name for _, name in mended}
    left = noted - names
    note_entries(lake, left)
    for mark, _ in mended:
        mark.unlink(missing_ok=True)
    _log.info("usage_files_mended", entries=sorted(names))
    return left


def take_losses(lake: Lake, entries: Sequence[LakeEntry], noted: set[str], settled_up_to_ms: int) -> int:
    """The end of the hours of which the lake may have lost something, 0 where it has lost nothing. An entry that comes
    back is settled again, as a new one."""
    gone = noted - {entry.name for entry in entries}
    until_ms = read_note(lake.root / _LOST, int) or 0
    if gone or read_note(lake.root / _SETTLED, list[str]) is None:
        until_ms = max(until_ms, settled_up_to_ms)
        lake.note(lake.root / _LOST, msgspec.json.encode(until_ms))
        note_entries(lake, noted - gone)
    if gone:
        _log.warning("usage_left_out", entries_gone=sorted(gone), hours_before_ms=until_ms)
    return until_ms


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


def _is_whole(lake: Lake, file: LakeFile) -> bool:
    path = lake.root / file.path
    try:
        return path.stat().st_size == file.bytes and sha256_of(path) == file.sha256
    except OSError:
        return False
