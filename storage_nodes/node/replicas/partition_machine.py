"""What replicas need of the machines that they drive: of all, and of those that serve clients of a partition.

The machines are pure and know nothing of this; `QueueMachine` and `StreamMachine` are `PartitionMachine`s,
`ClusterMachine` is a `FoldedMachine`. What each folds from an entry differs, and is in the replica of its kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from storage_nodes.machines.driver_contract import Piece


class FoldedMachine(Protocol):
    """The state of a partition, folded from its log."""

    @property
    def level(self) -> int:
        """Feature level of the partition, at the place in its log that is folded (protocol/levels.py)."""

    def checkpoint(self) -> bytes:
        """The whole state; `restore` takes it."""

    def restore(self, blob: bytes) -> None: ...

    def is_live(self, base_offset: int, last_offset: int) -> bool:
        """Does any entry between these offsets, both included, still matter beside a checkpoint?"""


class PartitionMachine(FoldedMachine, Protocol):
    """State and decisions of a partition. What it decides comes as effects, for the replica to perform in order."""

    @property
    def last_ms(self) -> int:
        """The latest time in what was folded."""

    def checkpoint_pieces(self) -> bytes | list[Piece]:
        """What `checkpoint` gives; not joined where that would take long. Nothing of it changes any more, so that a
        thread can pack and write it."""

    def adopt(self, state: Any) -> None:
        """What `restore` does, from a state that was read in a thread."""

    @property
    def ahead_ms(self) -> int:
        """How far the leader's time is ahead of agreed time, as it was told last."""

    def clocks_say(self, ahead_ms: int) -> None: ...
    def lead(self, now_ms: int) -> Sequence[object]: ...
    def follow(self) -> Sequence[object]: ...
    def tick(self, now_ms: int) -> Sequence[object]: ...

    def next_tick_ms(self) -> int:
        """When `tick` is due; 0 = never."""

    def take_commands(self, now_ms: int, level: int) -> list[bytes]:
        """Those that are staged, for the next group commit. `level`: no entry may need a higher one."""

    def cancel(self, token: Any) -> Sequence[object]:
        """The caller of this request waits no longer."""
