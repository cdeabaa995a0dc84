"""Which partition of a FIFO queue a message group lives in: the same answer wherever it is asked, for ever.

Front ends ask it for sends, storage nodes for dead letters. Another function, or another order of the partitions, would
send a group's next message to where its earlier ones are not: both are frozen for a set of partitions once it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32


def partition_of_group(group: bytes, partitions: Sequence[int]) -> int:
    """The partition of the group, of a set in its fixed order."""
    if len(partitions) == 1:
        return partitions[0]
    # By its high bits: the low ones of groups that differ in one character are not well mixed.
    return partitions[(crc32(group) * len(partitions)) >> 32]
