"""Sizes of a DELETED that names one for each message."""

from __future__ import annotations

from storage_nodes.machines.queue.commands import pack_sizes, sizes_of, sum_of_sizes


def test_packed_sizes_are_read_as_they_were_said() -> None:
    sizes = [5, 70_000, 0, (1 << 32) - 1, (1 << 32) - 1]
    packed = pack_sizes(sizes)
    assert sum_of_sizes(packed) == (5, sum(sizes))
    assert list(sizes_of(packed)) == sizes
