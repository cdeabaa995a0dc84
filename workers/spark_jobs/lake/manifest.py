"""What the lake holds: an entry per ingestion, each a JSON file that appears whole or not at all.

    windows/ENTRY/*.parquet  requests/ENTRY/*.parquet  quarantine/ENTRY/*.parquet    files of an entry
    quarantine/ENTRY.shown.json                                                      the first of them (`shown.py`)
    manifest/ENTRY.json                                                              the entry: they count from now on
    refused/HASH-REASON.json                                                         a whole file that was not taken
    staging/ENTRY/                                                                   files that are not judged yet,
                                                                                     copies of files from elsewhere
    checkpoints/  rollups/  settlements/

A file that no entry lists is a rest of an ingestion that was cut off: the ingestion is repeated and replaces it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from workers.spark_jobs.spans import HourSpan

WINDOWS_TABLE, REQUESTS_TABLE, QUARANTINE_TABLE = "windows", "requests", "quarantine"
TABLES = (WINDOWS_TABLE, REQUESTS_TABLE, QUARANTINE_TABLE)
MANIFEST_VERSION = 1
CORRUPT_FILE, DUPLICATE_FILE, UNKNOWN_SCHEMA = "corrupt_file", "duplicate_file", "unknown_schema"
_HASHED_BYTES = 1024 * 1024
_HOUR = "hour_ms"
NO_HOUR_MS = -1


class LakeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`hour_ms_min` and `hour_ms_max` are of its records, NO_HOUR_MS where it has no hours."""

    path: str  # below the lake's root
    bytes: int
    rows: int
    sha256: str
    hour_ms_min: int
    hour_ms_max: int


class LakeEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`source_sha256`: of files that were ingested, by which they are known when they come again."""

    version: int
    name: str
    ingested_ms: int
    tables: dict[str, list[LakeFile]]
    source_sha256: list[str] = []

    def rows(self, table: str) -> int:
        return sum(file.rows for file in self.tables.get(table, ()))

    def hours(self) -> tuple[int, int] | None:
        """The first and the last hour that records of this entry speak of."""
        files = [file for table in (WINDOWS_TABLE, REQUESTS_TABLE) for file in self.tables.get(table, ())]
        if not files:
            return None
        return min(file.hour_ms_min for file in files), max(file.hour_ms_max for file in files)


class RefusedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file that was not taken, or whose content is no longer what the manifest says. `sha256`: of a file from
    elsewhere, where it could be read: another one that comes under the same name is refused beside it."""

    path: str
    reason: str
    detail: str
    seen_ms: int
    sha256: str = ""


class LakeError(Exception):
    """The lake itself is not in order; the text says what and where."""


class Lake:
    """The files of one lake. On a cluster its root is a folder that all machines share."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).resolve()

    def table(self, table: str, entry: str) -> Path:
        return self.root / table / entry

    def checkpoint(self, name: str) -> Path:
        return self.root / "checkpoints" / name

    def entries(self) -> list[LakeEntry]:
        """In the order of their names. Raises LakeError for one that cannot be read: a recount must not miss it."""
        found = []
        for path in sorted((self.root / "manifest").glob("*.json")):
            try:
                entry = msgspec.json.decode(path.read_bytes(), type=LakeEntry)
            except (msgspec.DecodeError, OSError) as error:
                raise LakeError(f"{path}: {error}") from None
            if entry.version != MANIFEST_VERSION:
                raise LakeError(f"{path}: version {entry.version}; this program reads version {MANIFEST_VERSION}")
            found.append(entry)
        return found

    def has(self, entry: str) -> bool:
        return (self.root / "manifest" / f"{entry}.json").exists()

    def add(self, entry: LakeEntry) -> None:
        """From now on its files count."""
        _write_whole(self.root / "manifest" / f"{entry.name}.json", msgspec.json.encode(entry))

    def give_up(self, path: str) -> None:
        """A file does not count any longer, for good: its entry does not list it."""
        for entry in self.entries():
            tables = {table: [file for file in files if file.path != path] for table, files in entry.tables.items()}
            if tables != entry.tables:
                self.add(msgspec.structs.replace(entry, tables=tables))

    def refuse(self, file: RefusedFile) -> None:
        name = hashlib.sha256(f"{file.path}\0{file.sha256}".encode()).hexdigest()[:16]
        _write_whole(self.root / "refused" / f"{name}-{file.reason}.json", msgspec.json.encode(file))

    def refused(self) -> list[RefusedFile]:
        paths = sorted((self.root / "refused").glob("*.json"))
        return [msgspec.json.decode(path.read_bytes(), type=RefusedFile) for path in paths]

    def note(self, path: Path, data: bytes) -> None:
        """Write a small file of the lake, whole or not at all."""
        _write_whole(path, data)

    def publish(self, period: str, name: str, directory: Path) -> None:
        """Make a rollup directory the one of its period; the one before it may still be read by others."""
        _write_whole(self.root / "rollups" / period / f"{name}.json", msgspec.json.encode(directory.name))

    def published(self, period: str, name: str) -> Path | None:
        pointer = self.root / "rollups" / period / f"{name}.json"
        if not pointer.exists():
            return None
        return pointer.parent / name / msgspec.json.decode(pointer.read_bytes(), type=str)


def files_of_hours(entries: Iterable[LakeEntry], table: str, span: HourSpan) -> Iterator[LakeFile]:
    for entry in entries:
        for file in entry.tables.get(table, ()):
            if file.hour_ms_min < span.to_ms and file.hour_ms_max >= span.from_ms:
                yield file


def describe_file(root: Path, path: Path) -> LakeFile:
    """What the lake notes of a Parquet file. Raises what pyarrow raises where it is none."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    first, last = NO_HOUR_MS, NO_HOUR_MS
    names = list(metadata.schema.names)
    if _HOUR in names and metadata.num_rows:
        at = names.index(_HOUR)
        groups = [metadata.row_group(number).column(at).statistics for number in range(metadata.num_row_groups)]
        first, last = min(group.min for group in groups), max(group.max for group in groups)
    return LakeFile(str(path.relative_to(root)), path.stat().st_size, metadata.num_rows, sha256_of(path), first, last)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASHED_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def what_is_wrong(path: Path, file: LakeFile) -> str:
    """Empty: it is as it was written."""
    try:
        if path.stat().st_size != file.bytes:
            return f"{path.stat().st_size} bytes, and {file.bytes} were written"
        return "" if sha256_of(path) == file.sha256 else "its content is not what was written"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def sync(path: Path) -> None:
    """The content of a file, or the names in a directory, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_whole(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync(path.parent)
