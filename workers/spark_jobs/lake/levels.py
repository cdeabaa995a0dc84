"""What every partition stored at the beginning of an hour: the next settlement reads that, and not years of windows.

    levels/HOUR_MS-ID/*.parquet    WINDOWS, of each partition the last one before the hour, as `last_windows` finds it
    levels/HOUR_MS-ID.json         its files, and the entries of the lake that it was found from: it counts from now on

Windows of these entries before the hour need not be read again; those of other entries are, whatever hour they are of.
One that an entry has vanished from is not used: what it says may be of records that are lost.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence

import msgspec
from pyspark.sql import DataFrame

from workers.spark_jobs.lake.manifest import WINDOWS_TABLE, Lake, LakeEntry, LakeFile, describe_file
from workers.spark_jobs.limits import DAY_MS, LEVELS_KEPT_MAX

_LEVELS = "levels"


class KeptLevels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    hour_ms: int
    entries: list[str]
    files: list[LakeFile]


def latest_levels(lake: Lake, entries: Sequence[LakeEntry], before_ms: int) -> KeptLevels | None:
    """The latest ones of `before_ms` or earlier that were found from entries which are all there."""
    there = {entry.name for entry in entries}
    usable = [one for one in _kept(lake) if one.hour_ms <= before_ms and there.issuperset(one.entries)]
    return max(usable, key=lambda one: (one.hour_ms, len(one.entries)), default=None)


def files_behind(entries: Sequence[LakeEntry], levels: KeptLevels | None, before_ms: int) -> Iterator[LakeFile]:
    """The files of windows before `before_ms` that have any which these levels do not know of."""
    known = set(levels.entries) if levels else set()
    for entry in entries:
        since_ms = levels.hour_ms if levels and entry.name in known else 0
        for file in entry.tables.get(WINDOWS_TABLE, ()):
            if file.hour_ms_min < before_ms and file.hour_ms_max >= since_ms:
                yield file


def keep_levels(lake: Lake, levels: DataFrame, entries: Sequence[LakeEntry], hour_ms: int) -> None:
    """`levels` were found from all windows of `entries` before the hour: none was left out. Does nothing where the
    same is kept already, or there is nothing to be kept."""
    names = sorted(entry.name for entry in entries)
    if any((one.hour_ms, one.entries) == (hour_ms, names) for one in _kept(lake)):
        return
    name = f"{hour_ms}-{uuid.uuid4()}"
    place = lake.root / _LEVELS / name
    levels.coalesce(1).write.parquet(str(place))
    files = [file for path in sorted(place.glob("*.parquet")) if (file := describe_file(lake.root, path)).rows]
    if not files:
        shutil.rmtree(place)
        return
    lake.note(place.with_suffix(".json"), msgspec.json.encode(KeptLevels(name, hour_ms, names, files)))
    _forget_old(lake)


def _forget_old(lake: Lake) -> None:
    """Kept are the latest, and for records that come late the last of each day, LEVELS_KEPT_MAX of them."""
    in_order = sorted(_kept(lake), key=lambda one: (one.hour_ms, len(one.entries)))
    by_day = {one.hour_ms // DAY_MS: one for one in in_order}
    kept = {by_day[day].name for day in sorted(by_day)[-LEVELS_KEPT_MAX:]}
    for path in (lake.root / _LEVELS).glob("*.json"):
        if path.stem not in kept:
            path.unlink()
    for path in (lake.root / _LEVELS).iterdir():
        if path.is_dir() and path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _kept(lake: Lake) -> list[KeptLevels]:
    """One that cannot be read is as good as none: the windows themselves are there."""
    found = []
    for path in (lake.root / _LEVELS).glob("*.json"):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=KeptLevels))
        except (msgspec.DecodeError, OSError):
            continue
    return found
