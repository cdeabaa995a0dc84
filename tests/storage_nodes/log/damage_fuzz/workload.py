"""What a node does with its log over its lives, beside the model: the operations of `ModelledLog`, and those that a
node adds to them (snapshots, resets, rewrites, suspicion, tails staged anew, partitions made again)."""

from __future__ import annotations

import copy
import random
from typing import NamedTuple

from storage_nodes.log.install import InstallPlan
from storage_nodes.log.node_log import ImportedLog, NodeLog
from storage_nodes.log.record_batch import build_batch, read_header
from storage_nodes.log.rewrite import RewriteFacts
from tests.storage_nodes.log import modelled_log
from tests.storage_nodes.log.faulty_disk import SECTOR_BYTES, FaultyDisk, PowerLost
from tests.storage_nodes.log.modelled_log import PARTITIONS, ModelEntry, ModelledLog, ReplicaModel
from tests.storage_nodes.log.writing import read_all

OPERATIONS = [name for name in modelled_log.OPERATIONS if name not in ("reopen", "crash")]
OPERATIONS += ["install", "reset", "suspect", "trust", "restage", "restate", "drop"] + ["rewrite", "forget"] * 2
CRASH_AFTER_MAX = 20
ZEROS_EACH = 9  # what cannot be read is taken for zeros


class DoubtedModel(ReplicaModel):
    """A replica that may be suspect."""

    suspect = False


class Pending(NamedTuple):
    """A log that is being put in the place of a partition's: a crash leaves the old one or this one."""

    partition: int
    model: DoubtedModel


class Past:
    """All that one partition ever held, over all logs of its name: nothing else may ever be found.

    Offset and epoch name an entry, as in a Raft group: no epoch is used again behind a crash, a truncation or a drop.
    """

    def __init__(self) -> None:
        self.before: dict[bytes, bytes | None] = {}  # an entry -> the one before it in the log
        self.ends: set[int] = {0}
        self.votes: set[tuple[int, int]] = {(0, 0)}
        self.checkpoints: set[tuple[int, bytes]] = {(0, b"")}
        self.epoch_free = 1  # of no entry yet

    def add(self, entries: list[ModelEntry], batch: bytes) -> None:
        """`batch` is about to follow `entries`."""
        header = read_header(batch)
        self.before[batch] = entries[-1].batch if entries else None
        self.ends.add(header.end_offset)


class Workload(ModelledLog):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.past: dict[int, Past] = {partition: Past() for partition in range(1, PARTITIONS + 1)}
        self._floor = dict.fromkeys(self.past, 1)  # no lower epoch is used by what comes next
        self.pending: Pending | None = None
        # Partitions whose suspicion was staged since the last synced group: a manifest may say so early.
        self.doubted: set[int] = set()
        # Partitions made while the manifest still told of an earlier log of that name, in this life.
        self.made_again: set[int] = set()
        self.trace: list[str] = []
        for partition in self.past:
            self.create(partition, 0)

    def new_model(self) -> DoubtedModel:
        return DoubtedModel()

    def live(self, rnd: random.Random, crash_after: int | None = None) -> None:
        """Operations until there were enough of them, or the process ended at the `crash_after`-th change."""
        count = rnd.randrange(10, 120)
        crash_at = rnd.randrange(count)
        try:
            for at in range(count):
                if at == crash_at:
                    self.disk.crash_after = crash_after
                self.do(rnd.choice(OPERATIONS), rnd.randint(1, PARTITIONS), rnd.randint(0, 400))
        except PowerLost:
            self.trace.append("the process ended here")
        self.disk.crash_after = None

    def do(self, operation: str, partition: int, n: int) -> None:
        self.trace.append(f"{operation} {partition} {n}")
        getattr(self, operation)(partition, n)

    def end_plan(self) -> None:
        """Let the flush that is under way come to its end."""
        while self.plan is not None:
            self.flush(1, 1)
            self.commit(1, 0)

    # --- operations of the base, which leave traces in the past -----------------------------------------------------

    def append(self, partition: int, n: int) -> None:
        if partition in self.staged:
            model, past = self.staged[partition], self.past[partition]
            epoch = self._epoch_of_next(partition)
            body = b"%d-%d" % (len(past.before), n) * (1 + n % 40)  # no two entries are alike
            bodies = [bytes(4 * SECTOR_BYTES)] if n % ZEROS_EACH == 0 else [body] * (1 + n % 3)
            batch = build_batch(model.end, epoch, 5, bodies)
            past.add(model.entries, batch)
            past.epoch_free = max(past.epoch_free, epoch + 1)
            self.log.append(partition, batch)
            model.entries.append(ModelEntry(model.end, read_header(batch).end_offset, epoch, batch))
            model.end = model.entries[-1].end

    def truncate(self, partition: int, n: int) -> None:
        before = self.staged[partition].end if partition in self.staged else 0
        super().truncate(partition, n)
        if partition in self.staged and self.staged[partition].end < before:
            self._begin_epoch(partition)

    def vote(self, partition: int, n: int) -> None:
        super().vote(partition, n)
        if partition in self.staged:
            model = self.staged[partition]
            self.past[partition].votes.add((model.epoch, model.voted_for))

    def create(self, partition: int, n: int) -> None:
        is_there = partition in self.staged
        super().create(partition, n)
        if not is_there and partition in self.staged:
            if partition in self.log._manifests.newest.rows:
                self.made_again.add(partition)
            self._begin_epoch(partition)

    def commit(self, partition: int, n: int) -> None:
        super().commit(partition, n)
        if self.log.staged_bytes == 0:
            self.doubted = {p for p in self.doubted if p in self.staged and self._staged(p).suspect}

    def flush(self, partition: int, n: int) -> None:
        super().flush(partition, n)
        for p, checkpoints in self.checkpoints.items():
            self.past[p].checkpoints.update(checkpoints.items())

    # --- operations of a node ---------------------------------------------------------------------------------------

    def suspect(self, partition: int, _n: int) -> None:
        if partition in self.staged:
            self.log.set_suspect(partition, True)
            self._staged(partition).suspect = True
            self.doubted.add(partition)

    def trust(self, partition: int, _n: int) -> None:
        if partition in self.staged:
            self.log.set_suspect(partition, False)
            self._staged(partition).suspect = False

    def install(self, partition: int, n: int) -> None:
        """A snapshot takes the place of the log: up to three entries, and a state behind them."""
        if not self._may_install(partition):
            return
        past, model, old = self.past[partition], self.new_model(), self.staged[partition]
        epoch, base, batches = self._epoch_of_next(partition), old.end, []
        past.epoch_free = max(past.epoch_free, epoch + 1)
        for at in range(n % 4):
            batch = build_batch(base, epoch, 5, [b"imported %d" % len(past.before)] * (1 + at))
            past.add(model.entries, batch)
            model.entries.append(ModelEntry(base, read_header(batch).end_offset, epoch, batch))
            base = model.entries[-1].end
            batches.append(batch)
        importing = self.log.begin_import(partition)
        importing.add(batches)
        model.end = base + 1
        blob = b"imported state %d" % model.end * (1 + n % 20)
        start = model.entries[0].base if model.entries else model.end
        image = ImportedLog(model.end, [epoch], [max(start - 1, 0)], blob, importing.finish())
        self._put_in_place(self.log.plan_install(partition, image), model, {model.end: blob})

    def reset(self, partition: int, _n: int) -> None:
        """The log turned out damaged: it begins anew, suspect."""
        if self._may_install(partition):
            self._put_in_place(self.log.plan_reset(partition), self.new_model(), {})

    def rewrite(self, partition: int, _n: int) -> None:
        """What is dead goes out of the segments."""
        if partition not in self.staged or self.plan is not None:
            return
        log, model, dead = self.log.partitions[partition], self.staged[partition], self.dead[partition]

        def live(base: int, last: int) -> bool:
            return any(base <= e.base <= last and e.base not in dead for e in model.entries)

        for number in [ref.number for ref in log.segments][:2]:
            refs = self.log.rewriter.candidate(log, number)
            if not refs:
                continue
            indexes = self.log.rewriter.read_indexes(partition, refs)
            plan = self.log.rewriter.plan(log, refs, indexes, RewriteFacts(log.flushed_end, live))
            if plan is None:
                continue
            end = min(log.checkpoint_offset, log.flushed_end)
            self.droppable[partition].update(e.base for e in model.entries if e.end <= end and e.base in dead)
            try:
                self.log.rewriter.run(plan)
            except Exception:
                self.log.rewriter.failed()
                raise
            self.log.rewriter.done(plan)

    def restage(self, partition: int, _n: int) -> None:
        """The tail is carried on to the newest file."""
        if partition not in self.staged or self.plan is not None:
            return
        log = self.log.partitions[partition]
        if log.durable_end == log.log_end > log.flushed_end:
            tail = [batch for batch in read_all(log) if read_header(batch).base_offset >= log.flushed_end]
            if tail:
                self.log.restage(partition, tail)

    def forget(self, partition: int, _n: int) -> None:
        """What was dropped goes out of the manifest, so that its name is free."""
        if self.log.is_dropping(partition) and self.plan is None:
            plan = self.log.plan_forget(partition)
            if plan is not None:
                self.log.run_forget(plan)
                self.log.forget_done()

    def restate(self, _partition: int, _n: int) -> None:
        if self.log.plan_restate():
            self.log.run_restate()
            self.log.restate_done()

    # --- the next life ----------------------------------------------------------------------------------------------

    def expected(self, partition: int) -> list[tuple[str, DoubtedModel]]:
        """What the partition may be after a crash: as of the last synced group, or of the one being written."""
        found = []
        for when, models in (("synced", self.synced), ("staged", self.staged)):
            model = models.get(partition)
            if isinstance(model, DoubtedModel):
                found.append((when, model))
        if self.pending is not None and self.pending.partition == partition:
            found.append(("installed", self.pending.model))
        if found and partition not in self.synced:
            found.append(("made", self.new_model()))  # a flush may tell of it before its group is written
        return found

    def go_on(self, log: NodeLog, disk: FaultyDisk, matched: dict[int, DoubtedModel]) -> None:
        """With what was found: `matched` are the models that it equals."""
        self.log, self.disk, self.plan, self.pending = log, disk, None, None
        before, self.staged, self.doubted, self.made_again = self.staged, {}, set(), set()
        for partition, found in log.partitions.items():
            model = copy.deepcopy(matched[partition])
            if matched[partition] not in (self.synced.get(partition), before.get(partition)):
                self.dead[partition], self.droppable[partition] = set(), set()
            model.epoch, model.voted_for, model.suspect = found.epoch, found.voted_for, found.suspect
            self.staged[partition] = model
            self.commits[partition] = max(min(self.commits[partition], model.end), found.flushed_end)
            known = self.checkpoints[partition]
            self.checkpoints[partition] = {offset: blob for offset, blob in known.items() if offset <= model.end}
            self._begin_epoch(partition)
        self.synced = copy.deepcopy(self.staged)

    def _staged(self, partition: int) -> DoubtedModel:
        model = self.staged[partition]
        assert isinstance(model, DoubtedModel)
        return model

    def _begin_epoch(self, partition: int) -> None:
        """What is appended from here on comes from a leader of a later epoch."""
        self.past[partition].epoch_free += 1
        self._floor[partition] = self.past[partition].epoch_free

    def _epoch_of_next(self, partition: int) -> int:
        model = self.staged[partition]
        last = self.log.partitions[partition].last_epoch
        return max(last, model.epoch, self._floor[partition])

    def _may_install(self, partition: int) -> bool:
        """As a node does: nothing of the partition is staged but votes, and no flush runs."""
        if partition not in self.staged or self.plan is not None:
            return False
        log = self.log.partitions[partition]
        if log.durable_end != log.log_end:
            self.commit(1, 1)
        return True

    def _put_in_place(self, plan: InstallPlan | None, model: DoubtedModel, checkpoints: dict[int, bytes]) -> None:
        if plan is None:
            return
        partition = plan.log.partition
        old = self.staged[partition]
        model.suspect = plan.row.suspect
        self.past[partition].ends.add(model.end)
        self.past[partition].checkpoints.update(checkpoints.items())
        before = self.checkpoints[partition]
        self.pending = Pending(partition, model)
        self.checkpoints[partition] = {**before, **checkpoints}
        if model.suspect:
            self.doubted.add(partition)
        self.log.run_install(plan)
        self.pending = None
        self.log.install_done(plan)
        self.checkpoints[partition] = {0: b"", **checkpoints}
        self.staged[partition] = model
        durable = copy.deepcopy(model)
        model.epoch, model.voted_for = old.epoch, old.voted_for
        if partition in self.synced:
            durable.epoch, durable.voted_for = self.synced[partition].epoch, self.synced[partition].voted_for
        self.synced[partition] = durable
        self.dead[partition], self.droppable[partition] = set(), set()
        self.commits[partition] = model.end
        self._begin_epoch(partition)
