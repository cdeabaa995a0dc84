"""Bugs that can be planted into the log, to see whether the fuzz would notice them. D1 to D10 were in the product once.

Each is a context manager that takes its bug out again. Its docstring says the number and what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

from storage_nodes.log import manifest_keeper, node_log, partition_log, verify
from storage_nodes.log.checkpoint import _HEADER_BYTES as CHECKPOINT_HEADER_BYTES
from storage_nodes.log.checkpoint import CheckpointStore
from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.flush import Flusher
from storage_nodes.log.manifest_keeper import ManifestKeeper
from storage_nodes.log.mark import MARK_NAME, SyncMark
from storage_nodes.log.node_log import NodeLog
from storage_nodes.log.partition_log import PartitionLog
from storage_nodes.log.record_batch import BatchError, read_header, verify_batch
from storage_nodes.log.recovery import WalScanner
from storage_nodes.log.replay import Replay
from storage_nodes.log.salvage import Salvage
from storage_nodes.log.wal import RECORD_BYTES, RECORD_DROP, RECORD_ENTRY, RECORD_SUSPECT, RECORD_TRUNCATE, Wal

Plant = AbstractContextManager[Any]


def believes_epochs() -> Plant:
    """D1: an entry is read back from the write-ahead log with any epoch that stands there."""
    real = partition_log._problem_of

    def problem_of(record: bytes, partition: int, base: int, _epoch: int, length: int) -> str:
        try:
            return real(record, partition, base, verify_batch(record[RECORD_BYTES:]).epoch, length)
        except BatchError as error:
            return str(error)

    return mock.patch.object(partition_log, "_problem_of", problem_of)


def trusts_early() -> Plant:
    """D2: a manifest says that a replica is trusted before the entries are durable for which it is."""

    def set_suspect(self: NodeLog, partition: int, suspect: bool) -> None:
        self._wal.add(RECORD_SUSPECT, partition, bytes([suspect]))
        self.partitions[partition].suspect = suspect

    return mock.patch.object(NodeLog, "set_suspect", set_suspect)


def trusts_emptied() -> Plant:
    """D3: a replica that is emptied while the group gathers that says it is trusted, is trusted after a restart."""

    def plan_reset(self: NodeLog, partition: int) -> Any:
        log = self.partitions[partition]
        image = node_log.EMPTY._replace(configuration=log.committed_configuration())
        return self._flusher.plan_install(log, image, True)

    return mock.patch.object(NodeLog, "plan_reset", plan_reset)


@contextmanager
def counts_void_groups_again() -> Iterator[None]:
    """D4: where log and mark are lost, groups written after a repair have numbers that a snapshot made void."""
    rebuild, resume = NodeLog._rebuild, Wal.resume

    def _rebuild(self: NodeLog, walk: Any, *rest: Any) -> None:
        def resumed(wal: Wal, number: int, position: int, _sequence: int) -> None:
            resume(wal, number, position, max(walk.end.sequence, wal.mark.sequence + 1))

        with mock.patch.object(Wal, "resume", resumed):
            rebuild(self, walk, *rest)

    with mock.patch.object(NodeLog, "_rebuild", _rebuild):
        yield


@contextmanager
def forgets_that_the_mark_is_lost() -> Iterator[None]:
    """D5: a mark is made in the place of a lost one before anything says that replicas are suspect."""
    create = SyncMark.create

    def at_once(disk: Any, directory: str, identity: bytes, name: str = MARK_NAME) -> SyncMark:
        return create(disk, directory, identity)

    with (
        mock.patch.object(SyncMark, "create", staticmethod(at_once)),
        mock.patch.object(node_log, "name_mark", lambda disk, directory: None),
    ):
        yield


def expects_every_file() -> Plant:
    """D6: a file that is missing, and goes to trash with its replica, ends the node."""
    return mock.patch.object(manifest_keeper, "suppress", lambda *errors: nullcontext())


def lists_while_it_changes() -> Plant:
    """D7: a partition that is made while a scrub lists the files ends the node."""
    return mock.patch.object(verify, "list", iter, create=True)


def keeps_the_earlier_log() -> Plant:
    """D8: a log made again keeps the row of the one before, which a kill left in the manifest."""
    return mock.patch.object(Flusher, "forget_made_again", lambda self: None)


def leaves_half_an_install() -> Plant:
    """D9: an install that was cut short between its two manifests never gets the second one."""
    return mock.patch.object(node_log, "may_replace", lambda previous, newest: True)


def takes_zeros_for_data() -> Plant:
    """D10: a block is valid though bytes of it cannot be read, where zeros in their place give its checksum."""
    real = WalScanner.block_at

    def block_at(self: WalScanner, position: int) -> Any:
        with mock.patch.object(WalScanner, "_holds_unreadable", lambda self, start, end: False):
            return real(self, position)

    return mock.patch.object(WalScanner, "block_at", block_at)


def trusts_behind_damage() -> Plant:
    """D11: a damaged write-ahead log makes no replica suspect."""
    real = node_log.doubt
    return mock.patch.object(
        node_log, "doubt", lambda store, partitions, incomplete, doubtful: real(store, partitions, incomplete, False)
    )


def takes_what_follows() -> Plant:
    """D12: behind damage every entry counts that begins where the log ends, of any epoch."""
    real = Replay._record_behind_damage

    def record(self: Replay, kind: int, partition: int, payload: bytes, place: int, sequence: int) -> None:
        log = self._partitions.get(partition)
        if kind == RECORD_ENTRY and log is not None and read_header(payload).base_offset == log.log_end:
            self._entry(log, payload, place)
        else:
            real(self, kind, partition, payload, place, sequence)

    return mock.patch.object(Replay, "_record_behind_damage", record)


def passes_over_removals() -> Plant:
    """D13: behind damage no truncation and no drop counts."""
    real = Replay._record_behind_damage

    def record(self: Replay, kind: int, *rest: Any) -> None:
        if kind not in (RECORD_TRUNCATE, RECORD_DROP):
            real(self, kind, *rest)

    return mock.patch.object(Replay, "_record_behind_damage", record)


def doubts_no_mark() -> Plant:
    """D14: a mark that is lost is replaced, and no replica is suspect."""
    real = node_log.open_mark
    return mock.patch.object(node_log, "open_mark", lambda *given: (real(*given)[0], False))


def reads_unchecked_checkpoints() -> Plant:
    """D15: a checkpoint's checksum is not looked at."""

    def read(self: CheckpointStore, partition: int, number: int, _offset: int, from_disk: bool = False) -> bytes:
        path = self.path(partition, number)
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            raise CorruptionError(path, 0, "missing") from None
        return file.read(0, file.size())[CHECKPOINT_HEADER_BYTES:]

    return mock.patch.object(CheckpointStore, "read", read)


def leaves_garbage() -> Plant:
    """D16: what a manifest no longer names stays on the disk."""
    return mock.patch.object(ManifestKeeper, "discard", lambda self, paths, to_trash=False: None)


def falls_back_too_far() -> Plant:
    """D17: what only the manifest before needs is removed with the manifest that lets go of it."""
    return mock.patch.object(ManifestKeeper, "take_garbage", lambda self: self._garbage)


def invents_votes() -> Plant:
    """D18: a replica that is made suspect by a repair has voted for a node that is none."""
    real = node_log.doubt

    def doubt(store: Any, partitions: dict[int, PartitionLog], incomplete: set[int], doubtful: bool) -> Any:
        replaced = real(store, partitions, incomplete, doubtful)
        for log in partitions.values():
            log.epoch, log.voted_for = log.epoch + 1, 9
        return replaced

    return mock.patch.object(node_log, "doubt", doubt)


def doubts_everything() -> Plant:
    """D19: any missing file makes every replica suspect."""
    real = node_log.doubt
    return mock.patch.object(
        node_log, "doubt", lambda store, partitions, incomplete, doubtful: real(store, partitions, incomplete, True)
    )


def repairs_in_place() -> Plant:
    """D20: the damaged files stay where they are after a repair."""
    return mock.patch.object(Salvage, "quarantine", lambda self, path: None)


def drops_unflushed() -> Plant:
    """D21: a repair does not copy the entries that are in the old write-ahead log only."""
    return mock.patch.object(node_log, "rewrite_unflushed", lambda store, logs, wal, commit: commit())


PLANTED: dict[str, Callable[[], Plant]] = {
    "D1": believes_epochs,
    "D2": trusts_early,
    "D3": trusts_emptied,
    "D4": counts_void_groups_again,
    "D5": forgets_that_the_mark_is_lost,
    "D6": expects_every_file,
    "D7": lists_while_it_changes,
    "D8": keeps_the_earlier_log,
    "D9": leaves_half_an_install,
    "D10": takes_zeros_for_data,
    "D11": trusts_behind_damage,
    "D12": takes_what_follows,
    "D13": passes_over_removals,
    "D14": doubts_no_mark,
    "D15": reads_unchecked_checkpoints,
    "D16": leaves_garbage,
    "D17": falls_back_too_far,
    "D18": invents_votes,
    "D19": doubts_everything,
    "D20": repairs_in_place,
    "D21": drops_unflushed,
}
