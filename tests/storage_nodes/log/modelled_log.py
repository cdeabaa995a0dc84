"""A node's log beside a model of what it must hold: what tests with long random sequences of operations drive."""

from __future__ import annotations

import copy
import random
from typing import NamedTuple

from storage_nodes.log.node_log import FlushFacts, FlushPlan, NodeLog
from storage_nodes.log.partition_log import PartitionLog
from storage_nodes.log.record_batch import build_batch, read_header
from tests.storage_nodes.log.faulty_disk import FaultyDisk, PowerLost
from tests.storage_nodes.log.writing import SMALL, read_all

OPERATIONS = ["create", "truncate", "vote", "die", "reopen", "drop", "crash"]
OPERATIONS += ["append"] * 4 + ["commit"] * 3 + ["flush"] * 4
PARTITIONS = 3


class ModelEntry(NamedTuple):
    base: int
    end: int
    epoch: int
    batch: bytes


class ReplicaModel:
    """One partition as it must be."""

    def __init__(self) -> None:
        self.entries: list[ModelEntry] = []
        self.epoch = 0
        self.voted_for = 0
        self.end = 0


class ModelledLog:
    """Its operations take a partition and a number that decides the details."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.disk = FaultyDisk(chance)
        self.log = NodeLog.open("/node", SMALL, self.disk)
        self.staged: dict[int, ReplicaModel] = {}
        self.synced: dict[int, ReplicaModel] = {}
        self.commits: dict[int, int] = {}
        self.dead: dict[int, set[int]] = {}
        self.droppable: dict[int, set[int]] = {}
        self.checkpoints: dict[int, dict[int, bytes]] = {}
        self.incarnation = self.log.incarnation
        self.plan: FlushPlan | None = None
        self.flushed = False

    def new_model(self) -> ReplicaModel:
        return ReplicaModel()

    def create(self, partition: int, _n: int) -> None:
        # A name is free again only once the manifest has forgotten the log that had it.
        is_free = partition not in self.staged and partition not in self.synced
        if is_free and not self.log.is_dropping(partition):
            self.log.create(partition, 1, f"queue-{partition}")
            self.staged[partition] = self.new_model()
            self.commits[partition] = 0
            self.dead[partition], self.droppable[partition] = set(), set()
            self.checkpoints[partition] = {0: b""}

    def drop(self, partition: int, n: int) -> None:
        if partition in self.staged and n % 8 == 0:
            self.log.drop(partition)
            del self.staged[partition]

    def append(self, partition: int, n: int) -> None:
        if partition in self.staged:
            model = self.staged[partition]
            last = model.entries[-1].epoch if model.entries else 0
            epoch = max(last, model.epoch, 1)
            batch = build_batch(model.end, epoch, 5, [b"%d-" % n * (1 + n % 40)] * (1 + n % 3))
            self.log.append(partition, batch)
            header = read_header(batch)
            model.entries.append(ModelEntry(model.end, header.end_offset, epoch, batch))
            model.end = header.end_offset

    def truncate(self, partition: int, n: int) -> None:
        if partition in self.staged:
            model = self.staged[partition]
            at = [e.base for e in model.entries if e.base >= self.commits[partition]]
            if at:
                offset = at[n % len(at)]
                self.log.truncate(partition, offset)
                model.entries = [e for e in model.entries if e.base < offset]
                model.end = offset
                # What replaces truncated entries comes from a leader of a later epoch.
                self.vote(partition, 1)

    def vote(self, partition: int, n: int) -> None:
        if partition in self.staged:
            model = self.staged[partition]
            model.epoch, model.voted_for = model.epoch + 1 + n % 2, n % 4
            self.log.save_vote(partition, model.epoch, model.voted_for)

    def commit(self, _partition: int, n: int) -> None:
        group = self.log.take_group()
        if group is not None:
            self.log.write_group(group)
            ends = self.log.group_written(group)
            self.synced = copy.deepcopy(self.staged)
            assert all(self.log.partitions[p].durable_end == self.staged[p].end == end for p, end in ends)
        for partition, model in self.synced.items():
            if partition in self.staged:
                committed = [e.end for e in model.entries if e.end > self.commits[partition]]
                if committed and n % 3:
                    self.commits[partition] = committed[n % len(committed)]

    def die(self, partition: int, n: int) -> None:
        """Messages are deleted."""
        if partition in self.staged:
            below = [e.base for e in self.staged[partition].entries if e.end <= self.commits[partition]]
            self.dead[partition].update(below[: n % (len(below) + 1)])

    def flush(self, _partition: int, n: int) -> None:
        """One slice of it: anything may come between two."""
        plan = self.plan
        if plan is None:
            self.plan, self.flushed = self.log.begin_flush(), False
        elif self.flushed:
            if self.log.flush_done(plan):
                self.plan = None
        elif plan.waiting or not plan.first_sequence:
            self.log.plan_flush(plan, lambda partition: self.facts(partition, n))
        elif self.log.flush_ready(plan):
            self.log.run_flush(plan)
            self.flushed = True

    def facts(self, partition: int, n: int) -> FlushFacts | None:
        if n % 7 == 6:
            return None
        model = self.staged[partition]
        commit = min(self.commits[partition], self.log.partitions[partition].durable_end)
        ends = [0, *(e.end for e in model.entries if e.end <= commit)]
        applied = max(ends[n % len(ends)], max(self.checkpoints[partition]))
        replicated = ends[(n // 2) % len(ends)]
        blob = self.checkpoints[partition].setdefault(applied, b"%d" % applied * (1 + n % 30))
        dead = self.dead[partition]
        for e in model.entries:
            if e.end <= min(applied, replicated) and e.base in dead:
                self.droppable[partition].add(e.base)

        def live(base: int, last: int) -> bool:
            return any(base <= e.base <= last and e.base not in dead for e in model.entries)

        return FlushFacts(commit, blob, applied, replicated, live)

    def reopen(self, _partition: int, n: int) -> None:
        if n % 2:
            self.log.close()
            self.synced = copy.deepcopy(self.staged)
        self.restart(power_loss=n % 4 < 2)

    def restart(self, power_loss: bool, crash_after: int | None = None) -> None:
        """Start again; with `crash_after` the first start is cut short too."""
        self.plan = None
        self.disk = self.disk.after_power_loss() if power_loss else self.disk.as_killed()
        self.disk.crash_after = crash_after
        try:
            self.log = NodeLog.open("/node", SMALL, self.disk)
            self.disk.crash_after = None
        except PowerLost:
            self.restart(power_loss)
            return
        assert self.log.incarnation > self.incarnation
        self.incarnation = self.log.incarnation
        first = self.problems(self.synced)
        if first:
            # The group that was being written may be there wholly, never in part.
            second = self.problems(self.staged)
            assert not second, (first, second)
            self.synced = self.staged
        self.staged = copy.deepcopy(self.synced)
        for partition, model in self.staged.items():
            log = self.log.partitions[partition]
            model.epoch, model.voted_for = log.epoch, log.voted_for
            self.commits[partition] = min(self.commits[partition], model.end)
            kept = set(read_all(log))
            model.entries = [e for e in model.entries if e.batch in kept]
        self.synced = copy.deepcopy(self.staged)

    def problems(self, expected: dict[int, ReplicaModel]) -> list[str]:
        """How the recovered log differs from the model."""
        found = []
        if set(expected) != set(self.log.partitions):
            return [f"partitions {sorted(self.log.partitions)} instead of {sorted(expected)}"]
        for partition, model in expected.items():
            found += self.problems_of(self.log.partitions[partition], model)
        return found

    def problems_of(self, log: PartitionLog, model: ReplicaModel) -> list[str]:
        """How one recovered partition differs from its model."""
        found = []
        partition = log.partition
        if not log.log_end == log.durable_end == model.end:
            return [f"{partition}: ends {log.log_end} {log.durable_end} instead of {model.end}"]
        required = [e.batch for e in model.entries if e.base not in self.droppable[partition]]
        stored = read_all(log)
        if [batch for batch in stored if batch in set(required)] != required:
            found.append(f"{partition}: entries are missing")
        if not set(stored) <= {e.batch for e in model.entries}:
            found.append(f"{partition}: entries came back")
        if log.tag != f"queue-{partition}" or log.kind != 1:
            found.append(f"{partition}: other identity")
        if (log.epoch, log.voted_for) < (model.epoch, model.voted_for) and log.epoch <= model.epoch:
            found.append(f"{partition}: vote {log.epoch, log.voted_for} instead of {model.epoch, model.voted_for}")
        if (log.checkpoint or b"") != self.checkpoints[partition].get(log.checkpoint_offset):
            found.append(f"{partition}: not a checkpoint of {log.checkpoint_offset}")
        for e in model.entries:
            if e.end > log.log_start and log.epoch_at(e.end) != e.epoch:
                found.append(f"{partition}: epoch at {e.end} is {log.epoch_at(e.end)} instead of {e.epoch}")
        return found
