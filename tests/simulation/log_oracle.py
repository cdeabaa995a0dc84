"""What must hold of the log of one node: what is staged, synced, found by recovery, cut, installed and dropped.

The oracle (`oracle.py`) hears of all of it through wrapped calls of the node's `NodeLog`, and writes it down in a
`NodeLedger` per node.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.node_log import NodeLog, WriteGroup
from storage_nodes.log.record_batch import ATTRIBUTE_CONFIGURATION, read_header
from storage_nodes.machines.raft.effects import Role
from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.node.replicas.partition_meta import PartitionMeta
from storage_nodes.node.replicas.replica import Replica
from tests.simulation.clocks import RIGHT_MS
from tests.simulation.cluster_book import ClusterBook
from tests.simulation.ledger import Change, CommittedLog, Mirror, NodeLedger

if TYPE_CHECKING:
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

_READ_ALL = 1 << 30


class BrokenInvariant(AssertionError):
    """The simulation found what must never be."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Seen:
    """What was last seen of a replica."""

    __slots__ = ("applied", "commit", "counted", "epoch", "replica", "role", "serving", "state", "voters")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.commit = self.counted = 0
        self.epoch = 0
        self.applied = replica.applied
        self.role = Role.FOLLOWER
        self.serving = False
        self.state: tuple[tuple[int, int], bytes] | None = None  # (partition, folded up to), state: found to be well
        self.voters: tuple[int, ...] = ()  # in force at the end of its last turn


class LogOracle(ABC):
    """The half of the oracle that knows logs; the other half, `Oracle`, knows replicas."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ledgers: dict[int, NodeLedger] = {}
        self.committed: dict[int, CommittedLog] = {}
        self.cluster = ClusterBook()
        # (partition, base offset, epoch) -> when the leader staged the entry.
        self.staged_us: dict[tuple[int, int, int], int] = {}
        self._seen: dict[int, dict[int, Seen]] = {}  # node -> partition -> what was seen
        self.recoveries = 0
        self.flushes = 0
        self.installs = 0
        self.resets = 0
        self.drops = 0

    def fail(self, rule: str, text: str) -> NoReturn:
        raise BrokenInvariant(rule, f"{text} (at {self._world.scheduler.now_us / 1e6:.6f} s)")

    # --- the log of a node --------------------------------------------------------------------------------------

    def opened(self, process: SimProcess, log: NodeLog) -> None:
        """Recovery ended: check what it found, and follow the log from here on."""
        node_id = process.process_id
        ledger = self.ledgers.setdefault(node_id, NodeLedger())
        if log.incarnation <= ledger.incarnation:
            self.fail("I6 incarnations only grow", f"node {node_id}: {ledger.incarnation} -> {log.incarnation}")
        nothing_lost = all(is_manifest(damage.path) for damage in log.damage)
        found = self._recovered(node_id, ledger, log) if nothing_lost else None
        if found is None and process.rotted and not (log.damage and nothing_lost):
            ledger.lost = {**ledger.lost, **ledger.synced}
            found = self.check_salvage(process, ledger, log)
        if found is None:
            self.check_recovery(node_id, ledger, log)
        assert found is not None
        process.opened()
        self.recoveries += 1
        renewed = NodeLedger()
        renewed.incarnation, renewed.lost, renewed.cut = log.incarnation, ledger.lost, ledger.cut
        renewed.synced = {partition: mirror for partition, mirror in found.items() if partition in log.partitions}
        renewed.staged = {partition: mirror.copy() for partition, mirror in renewed.synced.items()}
        self.ledgers[node_id] = renewed
        self._seen.pop(node_id, None)
        self._world.older.opened(process, renewed.synced)
        self._follow(process, log, renewed)

    def wiped(self, node_id: int) -> None:
        """The node's disk is another one: nothing of what it held is expected any more, but that it is newer, by a wall
        clock that may have been stepped."""
        ledger = NodeLedger()
        before = self.ledgers.get(node_id)
        if before is not None:
            if node_id not in self._world.clock_faults.liars:
                # Else it may have been taken from a clock that was far ahead.
                ledger.incarnation = before.incarnation - 2 * RIGHT_MS
            # The disk may be the second one in a row that nothing was written to.
            ledger.lost = {**before.lost, **before.synced}
        self.ledgers[node_id] = ledger
        self._seen.pop(node_id, None)

    def went_back(self, node_id: int, mirrors: dict[int, Mirror], incarnation: int) -> None:
        """The node's directory is an older copy: of what it held since, nothing is expected any more."""
        before, ledger = self.ledgers[node_id], NodeLedger()
        ledger.incarnation, ledger.synced = incarnation, mirrors
        ledger.lost = {**before.lost, **before.synced}
        self.ledgers[node_id] = ledger
        self._seen.pop(node_id, None)

    def is_sound(self, process: SimProcess) -> bool:
        """Does the node's disk hold, beyond doubt, all that it must? Only then may another one lose something."""
        ledger = self.ledgers.get(process.process_id)
        process.look_at_damage()
        if ledger is None or process.rotted or process.gone_back:
            return False
        plans, node_id = self.cluster.machine.partitions.values(), process.process_id
        mine = [plan.partition for plan in plans if node_id in plan.holders()]
        held = ledger.synced
        return all(p in held for p in (CLUSTER_PARTITION, *mine)) and not any(m.suspect for m in held.values())

    def _recovered(self, node_id: int, ledger: NodeLedger, log: NodeLog) -> dict[int, Mirror] | None:
        """Which of the states that a restart may find this is."""
        for mirrors in ledger.possible():
            _adopt_early_votes(mirrors, ledger, log)
            if all(_agrees(mirror, log, partition) for partition, mirror in mirrors.items()) and set(
                log.partitions
            ) <= set(mirrors):
                for partition, mirror in mirrors.items():
                    if partition in log.partitions:
                        self.check_readable(node_id, log, partition, mirror)
                return mirrors
        return None

    def check_recovery(self, node_id: int, ledger: NodeLedger, log: NodeLog) -> NoReturn:
        """DURABLE: recovery finds exactly what was synced, or that and the group under way; nothing else. It did not.

        R20: nor does it find damage where there is none.
        """
        if log.damage:
            self.fail("R20 damage where there is none", f"node {node_id}: {log.damage[0]}")
        parts = log.partitions.items()
        found = {p: (part.log_end, part.epoch, part.voted_for, part.suspect) for p, part in parts}
        synced = {p: (m.end, m.epoch, m.voted_for, m.suspect) for p, m in ledger.synced.items()}
        self.fail("DURABLE", f"node {node_id} recovered (end, epoch, vote, suspect) {found}, synced was {synced}")

    def check_salvage(self, process: SimProcess, ledger: NodeLedger, log: NodeLog) -> dict[int, Mirror]:
        """R12, R20: a damaged node has what it once had, maybe less, and whoever may have less is suspect."""
        node_id = process.process_id
        kept: dict[int, Mirror] = {}
        for partition, part in log.partitions.items():
            if not part.suspect:
                self.fail("R12 suspect after damage", f"node {node_id}, partition {partition}")
            last = (part.last_epoch, part.log_end)
            # Also what was dropped: the damage may have taken the tombstone with it.
            books = [*ledger.possible(), ledger.staged, ledger.lost]
            mirrors = [*(book.get(partition) for book in books), *ledger.cut.get(partition, ())]
            mirror = kept[partition] = next(
                (m for m in (_cut(mirror, part.log_end) for mirror in mirrors) if _last(m) == last),
                Mirror(),
            )
            if _last(mirror) != last:
                self.fail("R20 never held this", f"node {node_id}, partition {partition}: {last}")
            mirror.epoch, mirror.voted_for, mirror.suspect = part.epoch, part.voted_for, True
            self.check_content(node_id, log, partition, mirror)
        return kept

    def check_readable(self, node_id: int, log: NodeLog, partition: int, mirror: Mirror) -> None:
        """As `check_content`, where damage may be in the way."""
        try:
            self.check_content(node_id, log, partition, mirror)
        except CorruptionError:
            if not self._world.processes[node_id].rotted:
                raise

    def check_content(self, node_id: int, log: NodeLog, partition: int, mirror: Mirror) -> None:
        """I7: what is read back is, byte for byte, what was written; only flushed entries may be gone, of them
        only such that hold nothing any more, by what is committed (R18, R22)."""
        part = log.partitions[partition]
        expected = {read_header(batch).base_offset: batch for batch in mirror.batches}
        bases = list(expected)  # in order, as logs are
        kept = {base for base, batch in expected.items() if self.is_needed(partition, batch)}
        offset = part.log_start
        while batches := part.read_cold(offset, _READ_ALL):
            for batch in batches:
                header = read_header(batch)
                base = header.base_offset
                if expected.get(base) != batch:
                    self.fail("I7 bytes as written", f"node {node_id}, partition {partition}, offset {base}")
                kept.discard(base)
                missing = bases[bisect_left(bases, max(offset, part.flushed_end)) : bisect_left(bases, base)]
                if missing:
                    self.fail("I7 entries lost", f"node {node_id}, partition {partition}, offsets {missing}")
                offset = header.end_offset
        if offset < part.log_end and part.log_end > part.flushed_end:
            self.fail("I7 entries lost", f"node {node_id}, partition {partition}: {offset} to {part.log_end}")
        if kept:
            self.fail("I7 needed entries lost", f"node {node_id}, partition {partition}, offsets {sorted(kept)}")

    def _follow(self, process: SimProcess, log: NodeLog, ledger: NodeLedger) -> None:
        """Hear of everything that is staged, taken and confirmed, and mark replicas whose voters may be others now."""
        node_id, mark = process.process_id, process.touched.replicas.add
        real_append, real_truncate, real_vote = log.append, log.truncate, log.save_vote
        real_restage = log.restage
        real_take, real_written, real_create = log.take_group, log.group_written, log.create

        def append(partition: int, batch: bytes) -> None:
            real_append(partition, batch)
            header = read_header(batch)
            self.staged_us.setdefault((partition, header.base_offset, header.epoch), self._world.scheduler.now_us)
            if header.attributes & ATTRIBUTE_CONFIGURATION:
                before = ledger.staged[partition].configured_at
                ledger.configured.append((partition, before, header.epoch))
                mark(partition)
            ledger.change(Change("append", partition, batch, header=header))

        def truncate(partition: int, offset: int) -> None:
            self.check_truncation(node_id, partition, offset, ledger.staged[partition])
            ledger.remember_cut(partition)
            real_truncate(partition, offset)
            ledger.change(Change("truncate", partition, a=offset))
            mark(partition)

        def restage(partition: int, batches: Sequence[bytes]) -> None:
            before = list(ledger.staged[partition].batches)
            ledger.remember_cut(partition)
            ledger.change(Change("truncate", partition, a=read_header(batches[0]).base_offset))
            real_restage(partition, batches)  # which appends
            self.check_restaged(node_id, partition, before, ledger.staged[partition])
            mark(partition)

        def save_vote(partition: int, epoch: int, voted_for: int) -> None:
            real_vote(partition, epoch, voted_for)
            ledger.change(Change("vote", partition, a=epoch, b=voted_for))

        def create(partition: int, kind: int, tag: str) -> Any:
            created = real_create(partition, kind, tag)
            ledger.change(Change("create", partition))
            mark(partition)
            return created

        def take_group() -> WriteGroup | None:
            group = real_take()
            if group is not None:
                ledger.taken(group.sequence)
            return group

        def group_written(group: WriteGroup) -> list[tuple[int, int]]:
            ends = real_written(group)
            ledger.confirmed(group.sequence)
            return ends

        followed: dict[str, Callable[..., Any]] = {
            "append": append, "truncate": truncate, "restage": restage, "save_vote": save_vote, "create": create,
            "take_group": take_group, "group_written": group_written,
        }  # fmt: skip
        for name, call in followed.items():
            setattr(log, name, call)
        self._follow_rare(process, log, ledger)

    def _follow_rare(self, process: SimProcess, log: NodeLog, ledger: NodeLedger) -> None:
        """And of what replaces or ends a whole log."""
        node_id, mark = process.process_id, process.touched.replicas.add
        real_done, real_plan, real_installed = log.flush_done, log.plan_install, log.install_done
        real_drop, real_suspect, real_close, real_reset = log.drop, log.set_suspect, log.close, log.plan_reset

        def drop(partition: int) -> None:
            self.dropping(node_id, partition)
            came_by = msgspec.json.decode(log.partitions[partition].tag, type=PartitionMeta).move
            real_drop(partition)
            ledger.dropped.append((partition, came_by))
            if partition in ledger.synced:
                ledger.lost[partition] = ledger.synced[partition]  # what it acknowledged may be under way
            ledger.change(Change("drop", partition))
            process.gone_back.discard(partition)
            mark(partition)

        def set_suspect(partition: int, suspect: bool) -> None:
            real_suspect(partition, suspect)
            ledger.change(Change("suspect", partition, a=log.partitions[partition].suspect))
            if not suspect:
                process.gone_back.discard(partition)  # trusted: it holds what is committed

        def close() -> None:
            ledger.taken(log._wal.gathering.sequence)  # and confirmed by `group_written`
            real_close()

        def plan_reset(partition: int) -> Any:
            plan = real_reset(partition)
            if plan is not None:
                self.resets += 1
                ledger.installing[partition] = Mirror()
                ledger.installing[partition].suspect = True
            return plan

        def flush_done(plan: Any) -> bool:
            is_done = real_done(plan)
            self.flushes += is_done
            return is_done

        def plan_install(partition: int, image: Any, *more: Any) -> Any:
            plan = real_plan(partition, image, *more)
            if plan is not None:
                self.installs += 1
                ledger.installing[partition] = self.check_snapshot(node_id, partition, image)
                ledger.installing[partition].suspect = log.partitions[partition].suspect
            return plan

        def install_done(plan: Any) -> None:
            real_installed(plan)
            partition = plan.log.partition
            ledger.installed(partition)
            mark(partition)
            if partition in ledger.staged:
                self.check_readable(node_id, log, partition, ledger.staged[partition])

        followed: dict[str, Callable[..., Any]] = {
            "flush_done": flush_done, "plan_install": plan_install, "install_done": install_done, "drop": drop,
            "set_suspect": set_suspect, "close": close, "plan_reset": plan_reset,
        }  # fmt: skip
        for name, call in followed.items():
            setattr(log, name, call)

    @abstractmethod
    def is_needed(self, partition: int, batch: bytes) -> bool:
        """Does the entry hold a message that is not gone, by what is committed?"""

    @abstractmethod
    def dropping(self, node_id: int, partition: int) -> None:
        """A replica goes, in the middle of a turn: look at it for the last time."""

    def check_drops(self, node_id: int) -> None:
        """I13: data goes only by a committed deletion, or the committed end of a move, that names it (R23). Checked at
        the end of the turn: only then is it known here what was committed in it."""
        dropped = self.ledgers[node_id].dropped
        for partition, came_by in dropped:
            released = self.cluster.released.get((partition, node_id), -1)
            if partition not in self.cluster.deleted and released < came_by:
                text = f"node {node_id}, partition {partition}, came by move {came_by}, released by {released}"
                self.fail("I13 dropped by a committed deletion", text)
            self.drops += 1
        dropped.clear()

    def check_configured(self, node_id: int) -> None:
        """R15: one change of a configuration at a time, and none before its leader committed in its epoch."""
        configured = self.ledgers[node_id].configured
        for partition, before, epoch in configured:
            truth = self.committed.get(partition) or CommittedLog()
            text = f"node {node_id}, partition {partition}, epoch {epoch}"
            if before > truth.end:
                self.fail("R15 one change at a time", f"{text}: the one that ends at {before} is not committed")
            if all(by != epoch for by, _, _, _ in truth.growth):
                self.fail("R15 no change before an own commit", text)
        configured.clear()

    def check_ended_moves(self) -> None:
        """R23, R34: a move ends when the group's committed configuration says so: then, and only then, data may go."""
        for ended in self.cluster.ended:
            partition = ended.plan.partition
            truth = self.committed.get(partition) or CommittedLog()
            now = truth.configuration(self.cluster.boots[partition])
            if ended.dropped in now.members or not set(ended.plan.replicas) <= set(now.voters):
                self.fail("R23 move ended too early", f"{ended}, the group is {now}")
        self.cluster.ended.clear()

    def check_snapshot(self, node_id: int, partition: int, image: Any) -> Mirror:
        """R18: a snapshot holds nothing that is not committed and replaces nothing newer. Returns the log it makes."""
        truth = self.committed.get(partition) or CommittedLog()
        if image.end_offset > truth.end:
            self.fail("R18 snapshot is committed", f"node {node_id}: up to {image.end_offset} of {truth.end}")
        installed = Mirror()
        for batch in truth.batches[: bisect_right(truth.ends, image.end_offset)]:
            installed.append(batch, read_header(batch))
        seen = self._seen.get(node_id, {}).get(partition)
        if seen is not None and seen.commit > image.end_offset:
            self.fail("R18 snapshot is newer", f"node {node_id} knows {seen.commit}, the snapshot {image.end_offset}")
        return installed

    def check_restaged(self, node_id: int, partition: int, before: Sequence[bytes], mirror: Mirror) -> None:
        """The end of a log was staged again: it is as it was."""
        if mirror.batches != before:
            self.fail("I3 restaged as it was", f"node {node_id}, partition {partition}, to {mirror.end}")

    def check_truncation(self, node_id: int, partition: int, offset: int, mirror: Mirror) -> None:
        """I3: a committed entry is never cut away."""
        truth = self.committed.get(partition)
        if truth is None:
            return
        first = bisect_right(mirror.ends, offset)
        for end, batch in zip(mirror.ends[first:], mirror.batches[first:], strict=True):
            if end <= truth.end and truth.covering(end - 1) == batch:
                self.fail("I3 no truncation below commit", f"node {node_id}, partition {partition}, entry up to {end}")


def is_manifest(path: str) -> bool:
    return os.path.basename(path).startswith("manifest-")


def _adopt_early_votes(mirrors: dict[int, Mirror], ledger: NodeLedger, log: NodeLog) -> None:
    """A manifest may make a staged epoch and vote durable before their group is, and others may be staged since: early
    is safe, late would not be. The vote may follow its epoch in a group of its own."""
    for partition, part in log.partitions.items():
        mirror = mirrors.get(partition)
        if mirror is None or (part.epoch, 0) < (mirror.epoch, mirror.voted_for):
            continue
        if (part.epoch, part.voted_for) in ledger.votes_under_way(partition):
            mirror.epoch, mirror.voted_for = part.epoch, part.voted_for


def _agrees(mirror: Mirror, log: NodeLog, partition: int) -> bool:
    part = log.partitions.get(partition)
    if part is None:
        return not mirror.ends and not mirror.epoch
    last_epoch = read_header(mirror.batches[-1]).epoch if mirror.batches else 0
    found = (part.log_end, part.last_epoch, part.epoch, part.voted_for, part.suspect)
    return found == (mirror.end, last_epoch, mirror.epoch, mirror.voted_for, mirror.suspect)


def _cut(mirror: Mirror | None, end: int) -> Mirror:
    """The log up to there; the whole of it where no entry ends there."""
    cut = Mirror() if mirror is None else mirror.copy()
    cut.truncate(end)
    return cut


def _last(mirror: Mirror) -> tuple[int, int]:
    return (read_header(mirror.batches[-1]).epoch if mirror.batches else 0), mirror.end
