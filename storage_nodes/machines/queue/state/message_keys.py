"""Message groups and tags of the messages in `live` of a standard queue, as commands and checkpoints hold them.

command      flat (group, tag, flat (first offset, last offset)...)...
checkpoint   flat (group, tag, flat (gap, length)...)..., sorted: equal keys give equal bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from storage_nodes.machines.queue.effects import Key
from storage_nodes.machines.queue.state.checkpoint import Live
from storage_nodes.machines.queue.state.offset_ranges import OffsetRanges


def take_keys(keys: dict[int, Key], live: Live, flat: Sequence[Any]) -> None:
    """Of messages just leased; some may be gone."""
    fields = iter(flat)
    for group, tag, ranges in zip(fields, fields, fields, strict=True):
        key = (group, tag)
        ends = iter(ranges)
        for first, last in zip(ends, ends, strict=True):
            for offset in range(first, last + 1):
                if offset in live:
                    keys[offset] = key


def drop_keys(keys: dict[int, Key], live: Live, offsets: Iterable[int]) -> None:
    """Of messages that may have left `live`."""
    for offset in offsets:
        if offset not in live:
            keys.pop(offset, None)


def pack_keys(keys: dict[int, Key]) -> list[Any]:
    of_key: dict[Key, OffsetRanges] = {}
    for offset in sorted(keys):
        of_key.setdefault(keys[offset], OffsetRanges()).add(offset, offset + 1)
    return [field for key in sorted(of_key) for field in (*key, of_key[key].pack())]


def unpack_keys(flat: Sequence[Any]) -> dict[int, Key]:
    keys: dict[int, Key] = {}
    fields = iter(flat)
    for group, tag, ranges in zip(fields, fields, fields, strict=True):
        keys.update(dict.fromkeys(OffsetRanges.unpack(ranges), (group, tag)))
    return keys
