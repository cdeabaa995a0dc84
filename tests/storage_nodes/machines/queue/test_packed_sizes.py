"""Sizes of a DELETED that names one for each message."""

from __future__ import annotations

from storage_nodes.machines.queue.commands import DELETED, pack_heads, sizes_of, sum_of_packed
from storage_nodes.protocol.usage import head_of_size


def test_packed_sizes_are_read_as_they_were_said() -> None:
    sizes = [5, 70_000, 0, (1 << 32) - 1, (1 << 32) - 1]
    packed = pack_heads(list(map(head_of_size, sizes)))
    assert sum_of_packed(packed) == (5, sum(sizes))
    assert list(sizes_of([DELETED, 1, 1, 0, [], packed], 1)) == sizes


def test_sum_of_small_sizes_is_packed() -> None:
    sizes = [0, 1, 255, 256, 65_535] * 20
    assert sum_of_packed(pack_heads(list(map(head_of_size, sizes)))) == (100, sum(sizes))
