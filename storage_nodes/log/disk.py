"""The only module of the log that opens, writes, syncs, renames or removes files.

`Disk` and `File` are what everything else in `storage_nodes/log` is written against, so that a test or a simulation
can put a disk in their place that loses or tears what was not synced. Paths are joined by the callers; nothing
here knows what a file means.

Rules kept here:

- a name (created, renamed, removed) is durable only after `sync_directory` of its directory;
- bytes are durable only after `File.sync`;
- a write is whole or raises: the callers never see a short write;
- what the device cannot read is damage (CorruptionError), not a failure of the process. A failed write or sync is one;
- a file stays readable as long as somebody holds its `File`, even when another thread let go of it: the
  descriptor is closed when the last reference goes, so it can never be reused under a reader.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence
from typing import Protocol

from storage_nodes.log.errors import DirectoryInUseError, UnreadableError

# What a read of stored bytes fails with where the medium, or a file system that checks, has them no more.
UNREADABLE_ERRNOS = frozenset((errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA))
_NOT_OPENED = (
    "Start the node once more. If it ends in the same way, its file system is damaged: keep a copy and give the node "
    "an empty directory, on another device if you can; the other voters fill it again."
)
_ZEROS = bytes(256 * 1024)


class File(Protocol):
    """One open file. Positions are absolute; there is no cursor, so any thread may read at any time."""

    path: str

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file. Raises UnreadableError."""

    def write(self, position: int, buffers: Sequence[bytes]) -> None:
        """Write all buffers one after the other. Whole, or raises OSError."""

    def write_zeros(self, position: int, length: int) -> None:
        """Really write zeros, so that later writes in place change no metadata of the file system."""

    def sync(self) -> None:
        """Return once everything written is on stable storage (fdatasync)."""

    def forget(self, position: int, length: int) -> None:
        """Let go of what the page cache holds of this range: the next read comes from the disk itself."""

    def size(self) -> int:
        """Length of the file in bytes."""


class Lock(Protocol):
    """A directory held against other processes."""

    def close(self) -> None:
        """Give it up."""


class Disk(Protocol):
    """The file system calls the log needs."""

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents where they are missing; durable on return."""

    def lock_directory(self, path: str) -> Lock:
        """Hold the directory against everybody else until the lock is closed. Raises DirectoryInUseError."""

    def list_directory(self, path: str) -> list[str]:
        """Names in the directory, sorted."""

    def open(self, path: str, create: bool = False) -> File:
        """Open for reading and writing. With `create` the file is made, or emptied where it exists. Raises
        UnreadableError where a file that is there cannot be opened."""

    def rename(self, old: str, new: str) -> None:
        """Replace `new` atomically."""

    def remove(self, path: str) -> None:
        """Remove a file; one that is already gone is fine."""

    def sync_directory(self, path: str) -> None:
        """Return once all names made, changed or removed in the directory are durable."""

    def changed_ms(self, path: str) -> int:
        """When the file was last written or renamed, ms since the Unix epoch."""

    def free_bytes(self, path: str) -> int:
        """What may still be written to the file system of that directory."""

    def random_bytes(self, count: int) -> bytes:
        """For the identity of a new store."""


class OsFile:
    """A `File` of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, flags: int) -> None:
        self._fd = -1
        self.path = path
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o600)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def read(self, position: int, length: int) -> bytes:
        try:
            data = os.pread(self._fd, length, position)
            while 0 < len(data) < length:
                more = os.pread(self._fd, length - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            if error.errno in UNREADABLE_ERRNOS:
                raise UnreadableError(self.path, position, error) from error
            raise

    def write(self, position: int, buffers: Sequence[bytes]) -> None:
        total = sum(map(len, buffers))
        written = os.pwritev(self._fd, buffers, position)
        if written != total:
            rest = b"".join(buffers)
            while written != total:
                written += os.pwrite(self._fd, rest[written:], position + written)

    def write_zeros(self, position: int, length: int) -> None:
        while length > 0:
            step = min(length, len(_ZEROS))
            self.write(position, [_ZEROS[:step]])
            position += step
            length -= step

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def forget(self, position: int, length: int) -> None:
        os.posix_fadvise(self._fd, position, length, os.POSIX_FADV_DONTNEED)

    def size(self) -> int:
        return os.fstat(self._fd).st_size


class OsDisk:
    """The `Disk` of the operating system."""

    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_directory(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        self.sync_directory(parent)

    def lock_directory(self, path: str) -> Lock:
        lock = open(os.path.join(path, "LOCK"), "w")  # noqa: SIM115 - closing it gives the lock up
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise DirectoryInUseError(path) from None
        return lock

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def open(self, path: str, create: bool = False) -> File:
        try:
            return OsFile(path, os.O_RDWR | (os.O_CREAT | os.O_TRUNC if create else 0))
        except OSError as error:
            if error.errno in UNREADABLE_ERRNOS and not create:
                raise UnreadableError(path, 0, error, _NOT_OPENED) from error
            raise

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def changed_ms(self, path: str) -> int:
        return os.stat(path).st_ctime_ns // 1_000_000

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)
