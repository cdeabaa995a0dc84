"""Operating errors of the log. Our own bugs are assertions, never one of these."""

from __future__ import annotations


class LogError(Exception):
    """Base of everything that the disk, and not a bug of ours, can make go wrong in the log."""


class CorruptionError(LogError):
    """Bytes that had been synced are not what was written. Never cut away, never skipped: the replica is suspect."""

    def __init__(self, path: str, position: int, problem: str, next_step: str = "") -> None:
        self.path = path
        self.position = position
        self.problem = problem
        self.next_step = next_step or (
            "Do not edit the file. Keep a copy of the node's directory, then start the node: it keeps what is intact, "
            "moves the damaged files to trash/ and refetches the rest from the other voters."
        )
        super().__init__(f"{path}, position {position}: {problem}. {self.next_step}")


class UnreadableError(CorruptionError):
    """The device has these bytes no more (EIO). They are as lost as changed ones, and repaired in the same way."""

    def __init__(self, path: str, position: int, error: OSError, next_step: str = "") -> None:
        super().__init__(path, position, f"it cannot be read: {error.strerror}", next_step)


class DirectoryInUseError(LogError):
    """Another process has the node's directory open."""

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"{directory} is in use by another storage node process: stop that one first, "
            "or give this node its own directory"
        )


class NotVerifiedError(LogError):
    """A stored file could not be looked at, and nothing says that it is damaged."""


class DiskFailedError(LogError):
    """A write or fsync failed before. What reached the disk is unknown, so the process must end (never retry)."""

    def __init__(self) -> None:
        super().__init__("an earlier write or fsync failed: this process must end and recover from what was synced")
