"""Checkpoints in pieces: written, read and sent as if they were joined."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import NamedTuple

import pytest

from storage_nodes.log.checkpoint import Blob, BlobReader, CheckpointStore, blob_bytes, joined
from storage_nodes.log.disk import OsDisk


class Lazy(NamedTuple):
    numbers: array[int]

    @property
    def nbytes(self) -> int:
        return self.numbers.itemsize * len(self.numbers)

    def __bytes__(self) -> bytes:
        return self.numbers.tobytes()


def lazy(*numbers: int) -> Lazy:
    return Lazy(array("q", numbers))


PIECES: Blob = [b"head", lazy(*range(1_000)), b"", lazy(), b"tail", *map(lazy, range(200))]


@pytest.mark.parametrize("blob", [b"", b"alone", PIECES], ids=["empty", "bytes", "pieces"])
def test_checkpoint_is_read_as_it_was_written(tmp_path: Path, blob: Blob) -> None:
    store = CheckpointStore(OsDisk(), str(tmp_path), b"identity")
    store.write(7, 1, 42, blob)
    assert store.read(7, 1, 42) == joined(blob)
    assert blob_bytes(blob) == len(joined(blob))


@pytest.mark.parametrize("length", [1, 7, 8_000, 100_000])
def test_stretches_of_pieces_are_those_of_the_whole(length: int) -> None:
    reader, whole = BlobReader(PIECES), joined(PIECES)
    assert len(reader) == len(whole)
    starts = range(0, len(whole), length) if length > 1 else range(8_000, 8_050)
    assert all(reader.read(start, length) == whole[start : start + length] for start in starts)
    assert reader.read(len(whole), length) == b""
    assert len(BlobReader(b"")) == 0 and BlobReader(b"").read(0, length) == b""


def test_each_piece_is_made_once_for_a_write(tmp_path: Path) -> None:
    made: list[int] = []

    class Counted(Lazy):
        def __bytes__(self) -> bytes:
            made.append(len(self.numbers))
            return super().__bytes__()

    pieces: Blob = [Counted(array("q", range(count))) for count in range(100)]
    CheckpointStore(OsDisk(), str(tmp_path), b"identity").write(7, 1, 42, pieces)
    assert made == list(range(100))
