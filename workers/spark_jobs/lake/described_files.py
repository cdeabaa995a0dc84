"""What the lake notes of a Parquet file: size, rows, content and the hours in it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from workers.spark_jobs.lake.manifest import LakeFile, sha256_of

_HOUR = "hour_ms"
NO_HOUR_MS = -1


def describe_file(root: Path, path: Path) -> LakeFile:
    """Raises what pyarrow raises where it is no Parquet file."""
    metadata = pq.read_metadata(path)
    first, last = NO_HOUR_MS, NO_HOUR_MS
    names = list(metadata.schema.names)
    if _HOUR in names and metadata.num_rows:
        at = names.index(_HOUR)
        groups = [metadata.row_group(number).column(at).statistics for number in range(metadata.num_row_groups)]
        first, last = min(group.min for group in groups), max(group.max for group in groups)
    return LakeFile(str(path.relative_to(root)), path.stat().st_size, metadata.num_rows, sha256_of(path), first, last)
