"""A disk for the Raft simulation: staged changes, group commits, and a crash that loses what was not fsynced.

An entry is the bytes `base:end:epoch:name`, so that whole logs compare by value. One that is named `voters=1,2,3/4` is
a configuration, with voters 1, 2 and 3 and learner 4.
"""

from __future__ import annotations

from typing import NamedTuple

from storage_nodes.machines.raft.effects import EntryHeader
from storage_nodes.protocol.configuration import Configuration, ConfigurationEntry
from storage_nodes.protocol.peer_messages import RaftMessage

CONFIGURATION = "voters="


def make_entry(base: int, end: int, epoch: int, name: str) -> bytes:
    return f"{base}:{end}:{epoch}:{name}".encode()


def header_of(entry: bytes) -> EntryHeader:
    base, end, epoch, _name = entry.split(b":", 3)
    return EntryHeader(int(base), int(end), int(epoch))


def name_of(configuration: Configuration) -> str:
    voters, learners = (",".join(map(str, nodes)) for nodes in configuration)
    return f"{CONFIGURATION}{voters}/{learners}"


def configurations_of(entries: list[bytes]) -> tuple[ConfigurationEntry, ...]:
    found = []
    for entry in entries:
        _base, end, _epoch, name = entry.decode().split(":", 3)
        if name.startswith(CONFIGURATION):
            nodes = [tuple(map(int, filter(None, part.split(",")))) for part in name[len(CONFIGURATION) :].split("/")]
            found.append(ConfigurationEntry(int(end), Configuration(*nodes)))
    return tuple(found)


class Image(NamedTuple):
    """What the platter holds."""

    entries: tuple[bytes, ...] = ()
    epoch: int = 0
    voted_for: int = 0
    # Entries below are only handed out as part of a snapshot (they are all kept, so that whole logs compare).
    whole_from: int = 0
    suspect: bool = False
    # With which the replica was created.
    boot: Configuration = Configuration(())

    def end(self) -> int:
        return header_of(self.entries[-1]).end_offset if self.entries else 0

    def holds(self, entries: list[bytes]) -> bool:
        return len(self.entries) >= len(entries) and all(
            mine == theirs for mine, theirs in zip(self.entries, entries, strict=False)
        )


class SimLog:
    """One partition's log with the interface of `LogPositions`; `image` is what survives a crash."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.entries: list[bytes] = list(image.entries)
        self._headers = [header_of(entry) for entry in self.entries]
        self.configurations = configurations_of(self.entries)
        self.epoch = image.epoch
        self.voted_for = image.voted_for
        self.whole_from = image.whole_from
        self.suspect = image.suspect
        self.durable_end = self.log_end
        self.writing: Image | None = None
        self.dirty = False
        # Sends that wait: for the group that is gathering, and for the one that is being written.
        self.after_gathering: list[tuple[int, RaftMessage]] = []
        self.after_writing: list[tuple[int, RaftMessage]] = []

    @property
    def log_end(self) -> int:
        return self._headers[-1].end_offset if self._headers else 0

    @property
    def last_epoch(self) -> int:
        return self._headers[-1].epoch if self._headers else 0

    def epoch_at(self, offset: int) -> int:
        assert 0 <= offset <= self.log_end
        for header in reversed(self._headers):
            if header.base_offset < offset:
                return header.epoch
        return 0

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        for header in reversed(self._headers):
            if header.epoch <= epoch:
                return header.epoch, header.end_offset
        return 0, 0

    def append(self, entry: bytes) -> None:
        header = header_of(entry)
        assert header.base_offset == self.log_end, "base offset must equal log end"
        self.entries.append(entry)
        self._headers.append(header)
        self.configurations += configurations_of([entry])
        self.dirty = True

    def save_vote(self, epoch: int, voted_for: int) -> None:
        assert epoch >= self.epoch
        self.epoch, self.voted_for = epoch, voted_for
        self.dirty = True

    def truncate(self, offset: int) -> None:
        while self._headers and self._headers[-1].end_offset > offset:
            self._headers.pop()
            self.entries.pop()
        assert self.log_end == offset, "a cut falls between entries"
        if self.configurations and self.configurations[-1].end_offset > offset:
            self.configurations = configurations_of(self.entries)
        self.durable_end = min(self.durable_end, offset)
        self.dirty = True

    def trust(self) -> None:
        self.suspect = False
        self.dirty = True

    def trim(self, offset: int) -> None:
        """Dead entries below `offset` go, with the next group."""
        self.whole_from = max(self.whole_from, offset)
        self.dirty = True

    def install(self, entries: list[bytes]) -> None:
        """The log is these entries now, durably; a group that is being written no longer counts but for the vote."""
        self.entries = list(entries)
        self._headers = [header_of(entry) for entry in entries]
        self.configurations = configurations_of(entries)
        self.durable_end = self.whole_from = self.log_end
        self.image = self.image._replace(entries=tuple(entries), whole_from=self.whole_from)
        if self.writing is not None:
            self.writing = self.writing._replace(entries=tuple(entries), whole_from=self.whole_from)

    def read(self, offset: int, entries_max: int) -> list[bytes]:
        assert offset >= self.whole_from, "what was trimmed is not read"
        at = next((i for i, header in enumerate(self._headers) if header.end_offset > offset), len(self._headers))
        return self.entries[at : at + entries_max]

    def prefix(self, end: int) -> list[bytes]:
        """The entries that end at or below `end`."""
        count = len(self._headers)
        while count and self._headers[count - 1].end_offset > end:
            count -= 1
        return self.entries[:count]

    def staged(self) -> bool:
        return self.dirty or bool(self.after_gathering)

    def begin_write(self) -> None:
        assert self.writing is None
        entries = tuple(self.entries)
        self.writing = Image(entries, self.epoch, self.voted_for, self.whole_from, self.suspect, self.image.boot)
        self.after_writing, self.after_gathering = self.after_gathering, []
        self.dirty = False

    def end_write(self) -> list[tuple[int, RaftMessage]]:
        """The fsync returned: answers the sends that waited for it."""
        assert self.writing is not None
        self.image, self.writing = self.writing, None
        end = 0
        for mine, durable in zip(self.entries, self.image.entries, strict=False):
            if mine != durable:
                break
            end = header_of(mine).end_offset
        self.durable_end = end
        sends, self.after_writing = self.after_writing, []
        return sends
