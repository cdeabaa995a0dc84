"""What the oracle writes down of logs: what every node has staged and synced, and what is committed.

`Mirror` is a partition log as a list; `NodeLedger` keeps one for what a node has staged and one for what its disk must
still have after a power loss; `CommittedLog` is the truth that no node may contradict. What it means is in `books.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from storage_nodes.log.record_batch import ATTRIBUTE_CONFIGURATION, BatchHeader, read_configuration, read_header
from storage_nodes.protocol.configuration import Configuration


def is_configuration(batch: bytes) -> bool:
    return bool(read_header(batch).attributes & ATTRIBUTE_CONFIGURATION)


class Mirror:
    """The entries of one partition on one node. `version` counts changes of them."""

    __slots__ = ("batches", "configurations", "ends", "epoch", "suspect", "version", "voted_for", "voters")

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.batches: list[bytes] = []
        self.configurations: list[tuple[int, Configuration]] = []  # (end of its entry, what it says)
        self.voters: tuple[int, ...] | None = None  # by the last of them
        self.version = 0
        self.epoch = 0
        self.voted_for = 0
        self.suspect = False

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def configured_at(self) -> int:
        """Where the entry of the configuration in force ends."""
        return self.configurations[-1][0] if self.configurations else 0

    def append(self, batch: bytes, header: BatchHeader) -> None:
        self.version += 1
        self.ends.append(header.last_offset + 1)
        self.batches.append(batch)
        if header.attributes & ATTRIBUTE_CONFIGURATION:
            self.configurations.append((header.end_offset, read_configuration(batch)))
            self.voters = self.configurations[-1][1].voters

    def truncate(self, offset: int) -> None:
        self.version += 1
        while self.configured_at > offset:
            self.configurations.pop()
        self.voters = self.configurations[-1][1].voters if self.configurations else None
        keep = bisect_right(self.ends, offset)
        del self.ends[keep:]
        del self.batches[keep:]

    def copy(self) -> Mirror:
        other = Mirror()
        other.ends, other.batches, other.configurations = self.ends[:], self.batches[:], self.configurations[:]
        other.voters = self.voters
        other.epoch, other.voted_for, other.suspect = self.epoch, self.voted_for, self.suspect
        return other


class Change(NamedTuple):
    """One staged change. `batch` and `header` of an append; (a, b) of a truncation (offset, 0), a vote (epoch, voted
    for), or a mark (suspect, 0)."""

    kind: str
    partition: int
    batch: bytes = b""
    a: int = 0
    b: int = 0
    header: BatchHeader | None = None


def play(mirrors: dict[int, Mirror], change: Change) -> None:
    if change.kind == "drop":
        mirrors.pop(change.partition, None)
        return
    mirror = mirrors.setdefault(change.partition, Mirror())
    if change.header is not None:
        mirror.append(change.batch, change.header)
    elif change.kind == "truncate":
        mirror.truncate(change.a)
    elif change.kind == "vote":
        mirror.epoch, mirror.voted_for = change.a, change.b
    elif change.kind == "suspect":
        mirror.suspect = bool(change.a)


# More are forgotten: by then a flush has let go of what they were cut from.
CUTS_REMEMBERED = 16


class NodeLedger:
    def __init__(self) -> None:
        self.staged: dict[int, Mirror] = {}
        self.synced: dict[int, Mirror] = {}
        self.gathering: list[Change] = []
        self.groups: dict[int, list[Change]] = {}  # taken, not confirmed
        self.incarnation = 0
        self.lost: dict[int, Mirror] = {}  # what was synced when the disk was lost, or a log found damaged
        # What logs held before something was cut from them: damage may take the truncation, and leave what it cut.
        self.cut: dict[int, list[Mirror]] = {}
        # In this turn: (partition, move it came by) of replicas that were dropped, and (partition, end of the
        # configuration before, epoch) of configurations that were appended.
        self.dropped: list[tuple[int, int]] = []
        self.configured: list[tuple[int, int, int]] = []
        # Partitions whose log is being replaced by a snapshot, and by what.
        self.installing: dict[int, Mirror] = {}

    def installed(self, partition: int) -> None:
        new = self.installing.pop(partition)
        if new.suspect and not new.ends and partition in self.synced:
            self.lost[partition] = self.synced[partition]
        for mirrors in (self.staged, self.synced):
            if partition in mirrors:  # not dropped meanwhile
                _replace(mirrors, partition, new)
        # Entries of the old log that are on their way to the disk are void: recovery passes over them.
        for changes in (self.gathering, *self.groups.values()):
            changes[:] = [
                change
                for change in changes
                if change.partition != partition or change.kind not in ("append", "truncate", "suspect")
            ]

    def remember_cut(self, partition: int) -> None:
        earlier = self.cut.setdefault(partition, [])
        earlier.append(self.staged[partition].copy())
        del earlier[:-CUTS_REMEMBERED]

    def change(self, change: Change) -> None:
        play(self.staged, change)
        self.gathering.append(change)

    def taken(self, sequence: int) -> None:
        self.groups[sequence] = self.gathering
        self.gathering = []

    def confirmed(self, sequence: int) -> None:
        for change in self.groups.pop(sequence):
            play(self.synced, change)

    def votes_under_way(self, partition: int) -> set[tuple[int, int]]:
        """(epoch, voted for) of every vote that was staged and is not confirmed."""
        changes = [change for group in (*self.groups.values(), self.gathering) for change in group]
        return {(one.a, one.b) for one in changes if one.kind == "vote" and one.partition == partition}

    def possible(self) -> Iterator[dict[int, Mirror]]:
        """What a restart may find: all that was synced, with or without the group and the snapshot under way."""
        yield from self._with_groups()
        for partition, new in self.installing.items():
            for mirrors in self._with_groups():
                if partition in mirrors:
                    _replace(mirrors, partition, new)
                    yield mirrors

    def _with_groups(self) -> Iterator[dict[int, Mirror]]:
        mirrors = {partition: mirror.copy() for partition, mirror in self.synced.items()}
        yield mirrors
        for sequence in sorted(self.groups):
            mirrors = {partition: mirror.copy() for partition, mirror in mirrors.items()}
            for change in self.groups[sequence]:
                play(mirrors, change)
            yield mirrors


def _replace(mirrors: dict[int, Mirror], partition: int, new: Mirror) -> None:
    """The log becomes the snapshot's; the hard state stays."""
    mirror = new.copy()
    old = mirrors[partition]
    mirror.epoch, mirror.voted_for = old.epoch, old.voted_for
    mirrors[partition] = mirror


class CommittedLog:
    """The true log of a partition: grows, never changes."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.batches: list[bytes] = []
        # (epoch of the leader that committed, entries, end, time): how it grew
        self.growth: list[tuple[int, int, int, int]] = []
        self._configuration: Configuration | None = None  # the last one of the first `_looked_at` entries
        self._looked_at = 0

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    def before_epoch(self, epoch: int) -> tuple[int, int]:
        """(entries, end) committed by leaders of lower epochs."""
        return next(((count, end) for by, count, end, _ in reversed(self.growth) if by < epoch), (0, 0))

    def configuration(self, boot: Sequence[int]) -> Configuration:
        """The last one that is committed; `boot`: who votes before there is one."""
        for batch in self.batches[self._looked_at :]:
            if is_configuration(batch):
                self._configuration = read_configuration(batch)
        self._looked_at = len(self.batches)
        return Configuration(tuple(boot)) if self._configuration is None else self._configuration

    def covering(self, offset: int) -> bytes:
        return self.batches[bisect_right(self.ends, offset)]
