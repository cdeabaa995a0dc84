"""What must hold, checked from outside: the oracle sees all disks, logs and answers at once, which no node does.

Every check is one function named after its invariant (docs/simulation.md has the table). Cheap ones run at the event
they are about; the others every CHECK_EVERY_STEPS steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import combinations
from typing import TYPE_CHECKING, Any, NoReturn

from storage_nodes.log.node_log import Group, NodeLog
from storage_nodes.log.record_batch import iterate_bodies, read_header
from storage_nodes.machines.raft.effects import Role
from storage_nodes.machines.raft.timing import ELECTION_TIMEOUT_MS
from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.node.queue_replica import QueueReplica
from storage_nodes.node.replica import Replica
from storage_nodes.protocol.messages import AppendReply, RaftMessage, VoteReply, VoteRequest
from tests.simulation.guards import complaints
from tests.simulation.ledger import Change, CommittedLog, Mirror, NodeLedger, QueueBook

if TYPE_CHECKING:
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

CHECK_EVERY_STEPS = 64
# A leader that lost its majority notices by heartbeats (one timeout) and waits (another). One whose links work hears of
# the next leader, whose appends may be lost a few times.
STALE_LEADER_MS_MAX = 6 * ELECTION_TIMEOUT_MS
WAL_FILES_MAX = 200
_READ_ALL = 1 << 30


class BrokenInvariant(AssertionError):
    """The simulation found what must never be."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Seen:
    """What was last seen of a replica."""

    __slots__ = ("applied", "commit", "counted", "epoch", "replica", "role", "serving")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.commit = self.counted = 0
        self.epoch = 0
        self.applied = replica.applied
        self.role = Role.FOLLOWER
        self.serving = False


class Oracle:
    def __init__(self, world: World) -> None:
        self._world = world
        self.ledgers: dict[int, NodeLedger] = {}
        self.committed: dict[int, CommittedLog] = {}
        self.books: dict[int, QueueBook] = {}
        self._seen: dict[tuple[int, int], Seen] = {}
        self._leader_of: dict[tuple[int, int], int] = {}
        self._fold_states: dict[tuple[int, int], bytes] = {}
        self._checked_at = 0
        self.elections = 0
        self.recoveries = 0
        self.flushes = 0

    def fail(self, rule: str, text: str) -> NoReturn:
        raise BrokenInvariant(rule, f"{text} (at {self._world.scheduler.now_us / 1e6:.6f} s)")

    # --- the log of a node --------------------------------------------------------------------------------------

    def opened(self, process: SimProcess, log: NodeLog) -> None:
        """Recovery ended: check what it found, and follow the log from here on."""
        node_id = process.process_id
        ledger = self.ledgers.setdefault(node_id, NodeLedger())
        if log.incarnation <= ledger.incarnation:
            self.fail("I6 incarnations only grow", f"node {node_id}: {ledger.incarnation} -> {log.incarnation}")
        found = self.check_salvage(process, ledger, log) if log.damage else self.check_recovery(node_id, ledger, log)
        self.recoveries += 1
        renewed = NodeLedger()
        renewed.incarnation = log.incarnation
        renewed.synced = found
        renewed.staged = {partition: mirror.copy() for partition, mirror in found.items()}
        self.ledgers[node_id] = renewed
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] != node_id}
        self._follow(node_id, log, renewed)

    def check_recovery(self, node_id: int, ledger: NodeLedger, log: NodeLog) -> dict[int, Mirror]:
        """DURABLE: recovery finds exactly what was synced, or that and the group under way; nothing else."""
        for mirrors in ledger.possible():
            _adopt_early_votes(mirrors, ledger.staged, log)
            if all(_agrees(mirror, log, partition) for partition, mirror in mirrors.items()) and set(
                log.partitions
            ) <= set(mirrors):
                for partition, mirror in mirrors.items():
                    if partition in log.partitions:
                        self.check_content(node_id, log, partition, mirror)
                return mirrors
        found = {p: (part.log_end, part.epoch, part.voted_for) for p, part in log.partitions.items()}
        synced = {p: (m.end, m.epoch, m.voted_for) for p, m in ledger.synced.items()}
        self.fail("DURABLE", f"node {node_id} recovered (end, epoch, vote) {found}, synced was {synced}")

    def check_salvage(self, process: SimProcess, ledger: NodeLedger, log: NodeLog) -> dict[int, Mirror]:
        """R12, R20: a damaged node has what it once had, maybe less, and every replica that may have less is suspect."""
        node_id = process.process_id
        if not process.rotted:
            self.fail("R20 damage where there is none", f"node {node_id}: {log.damage[0]}")
        kept: dict[int, Mirror] = {}
        for partition, part in log.partitions.items():
            if not part.suspect:
                self.fail("R12 suspect after damage", f"node {node_id}, partition {partition}")
            last = (part.last_epoch, part.log_end)
            mirrors = [*ledger.possible(), ledger.staged]
            mirror = kept[partition] = next(
                (m for m in (_cut(all_of.get(partition), part.log_end) for all_of in mirrors) if _last(m) == last),
                Mirror(),
            )
            if _last(mirror) != last:
                self.fail("R20 never held this", f"node {node_id}, partition {partition}: {last}")
            mirror.epoch, mirror.voted_for = part.epoch, part.voted_for
            self.check_content(node_id, log, partition, mirror)
        return kept

    def check_content(self, node_id: int, log: NodeLog, partition: int, mirror: Mirror) -> None:
        """I7: what is read back is, byte for byte, what was written; only flushed entries may be gone."""
        part = log.partitions[partition]
        expected = {read_header(batch).base_offset: batch for batch in mirror.batches}
        offset = part.log_start
        while batches := part.read_cold(offset, _READ_ALL):
            for batch in batches:
                base = read_header(batch).base_offset
                if expected.get(base) != batch:
                    self.fail("I7 bytes as written", f"node {node_id}, partition {partition}, offset {base}")
                missing = [o for o in expected if max(offset, part.flushed_end) <= o < base]
                if missing:
                    self.fail("I7 entries lost", f"node {node_id}, partition {partition}, offsets {missing}")
                offset = read_header(batch).end_offset
        if offset < part.log_end and part.log_end > part.flushed_end:
            self.fail("I7 entries lost", f"node {node_id}, partition {partition}: {offset} to {part.log_end}")

    def _follow(self, node_id: int, log: NodeLog, ledger: NodeLedger) -> None:
        """Hear of everything that is staged, taken and confirmed."""
        real_append, real_truncate, real_vote = log.append, log.truncate, log.save_vote
        real_take, real_written, real_create = log.take_group, log.group_written, log.create
        real_done, real_plan, real_installed = log.flush_done, log.plan_install, log.install_done

        def append(partition: int, batch: bytes) -> None:
            real_append(partition, batch)
            ledger.change(Change("append", partition, batch))

        def truncate(partition: int, offset: int) -> None:
            self.check_truncation(node_id, partition, offset, ledger.staged[partition])
            real_truncate(partition, offset)
            ledger.change(Change("truncate", partition, a=offset))

        def save_vote(partition: int, epoch: int, voted_for: int) -> None:
            real_vote(partition, epoch, voted_for)
            ledger.change(Change("vote", partition, a=epoch, b=voted_for))

        def create(partition: int, kind: int, tag: str) -> Any:
            created = real_create(partition, kind, tag)
            ledger.change(Change("create", partition))
            return created

        def take_group() -> Group | None:
            group = real_take()
            if group is not None:
                ledger.taken(group.sequence)
            return group

        def group_written(group: Group) -> list[tuple[int, int]]:
            ends = real_written(group)
            ledger.confirmed(group.sequence)
            return ends

        def flush_done(plan: Any) -> None:
            self.flushes += 1
            real_done(plan)

        def plan_install(partition: int, image: Any, *more: Any) -> Any:
            plan = real_plan(partition, image, *more)
            if plan is not None:
                ledger.installing[partition] = self.check_snapshot(node_id, partition, image)
            return plan

        def install_done(plan: Any) -> None:
            real_installed(plan)
            ledger.installed(plan.log.partition)

        followed: dict[str, Callable[..., Any]] = {
            "append": append, "truncate": truncate, "save_vote": save_vote, "create": create,
            "take_group": take_group, "group_written": group_written, "flush_done": flush_done,
            "plan_install": plan_install, "install_done": install_done,
        }  # fmt: skip
        for name, call in followed.items():
            setattr(log, name, call)

    def check_snapshot(self, node_id: int, partition: int, image: Any) -> Mirror:
        """R18: a snapshot holds nothing that is not committed and replaces nothing newer. Returns the log it makes."""
        truth = self.committed.get(partition) or CommittedLog()
        if image.end_offset > truth.end:
            self.fail("R18 snapshot is committed", f"node {node_id}: up to {image.end_offset} of {truth.end}")
        installed = Mirror()
        count = bisect_right(truth.ends, image.end_offset)
        installed.ends, installed.batches = truth.ends[:count], truth.batches[:count]
        seen = self._seen.get((node_id, partition))
        if seen is not None and seen.commit > image.end_offset:
            self.fail("R18 snapshot is newer", f"node {node_id} knows {seen.commit}, the snapshot {image.end_offset}")
        return installed

    def check_truncation(self, node_id: int, partition: int, offset: int, mirror: Mirror) -> None:
        """I3: a committed entry is never cut away."""
        truth = self.committed.get(partition)
        if truth is None:
            return
        first = bisect_right(mirror.ends, offset)
        for end, batch in zip(mirror.ends[first:], mirror.batches[first:], strict=True):
            if end <= truth.end and truth.covering(end - 1) == batch:
                self.fail("I3 no truncation below commit", f"node {node_id}, partition {partition}, entry up to {end}")

    # --- after every turn of a node -------------------------------------------------------------------------------

    def turned(self, process: SimProcess) -> None:
        node = process.node
        if node is None:
            return
        node_id = process.process_id
        for partition, replica in list(getattr(node, "replicas", {}).items()):
            key = (node_id, partition)
            seen = self._seen.get(key)
            if seen is None or seen.replica is not replica:
                seen = self._seen[key] = Seen(replica)
            raft = replica.raft
            if replica.closed:
                self.fail("REPLICA STOPPED", f"node {node_id}, partition {partition}: {list(complaints)[-1:]}")
            if raft.commit != seen.commit:
                self._commit_changed(node_id, partition, seen, replica)
            if raft.epoch != seen.epoch or raft.role is not seen.role:
                self._role_changed(node_id, partition, seen, replica)
            if replica.serving != seen.serving:
                seen.serving = replica.serving
                if replica.serving:
                    self.check_served_is_complete(node_id, partition, replica)
        if self._world.scheduler.steps >= self._checked_at + CHECK_EVERY_STEPS:
            self._checked_at = self._world.scheduler.steps
            self.check_everything()

    def _role_changed(self, node_id: int, partition: int, seen: Seen, replica: Replica) -> None:
        raft = replica.raft
        if raft.epoch < seen.epoch:
            self.fail("I6 epochs only grow", f"node {node_id}, partition {partition}: {seen.epoch} -> {raft.epoch}")
        if raft.role is Role.LEADER and (seen.role is not Role.LEADER or raft.epoch != seen.epoch):
            self.elections += 1
            self.check_one_leader(node_id, partition, raft.epoch)
            self.check_leader_completeness(node_id, partition, raft.epoch)
        seen.epoch, seen.role = raft.epoch, raft.role

    def check_one_leader(self, node_id: int, partition: int, epoch: int) -> None:
        """I6: one leader in an epoch."""
        other = self._leader_of.setdefault((partition, epoch), node_id)
        if other != node_id:
            self.fail("I6 one leader per epoch", f"nodes {other} and {node_id}, partition {partition}, epoch {epoch}")

    def check_leader_completeness(self, node_id: int, partition: int, epoch: int) -> None:
        """I1: whoever wins holds everything that lower epochs committed."""
        truth = self.committed.get(partition)
        if truth is None:
            return
        count, _ = truth.before_epoch(epoch)
        if self.ledgers[node_id].staged[partition].batches[:count] != truth.batches[:count]:
            self.fail("I1 leader completeness", f"node {node_id}, partition {partition}, epoch {epoch}")

    def check_served_is_complete(self, node_id: int, partition: int, replica: Replica) -> None:
        """R13: a leader serves once it has folded everything committed before its epoch."""
        truth = self.committed.get(partition)
        if truth is not None:
            _, end = truth.before_epoch(replica.raft.epoch)
            if replica.applied < end:
                self.fail("R13 serves before complete", f"node {node_id}: {replica.applied} of {end} folded")

    def _commit_changed(self, node_id: int, partition: int, seen: Seen, replica: Replica) -> None:
        raft = replica.raft
        if raft.commit < seen.commit:
            self.fail("I3 commit never falls", f"node {node_id}: {seen.commit} -> {raft.commit}")
        truth = self.committed.setdefault(partition, CommittedLog())
        mirror = self.ledgers[node_id].staged[partition]
        count = bisect_right(mirror.ends, raft.commit)
        known = min(count, len(truth.ends))
        if mirror.batches[seen.counted : known] != truth.batches[seen.counted : known]:
            self.fail("I4 committed logs match", f"node {node_id}, partition {partition}, up to {raft.commit}")
        if count > len(truth.ends):
            fresh = mirror.batches[len(truth.ends) : count]
            epoch = self.check_own_epoch(node_id, seen, raft, fresh[-1])
            truth.ends += mirror.ends[len(truth.ends) : count]
            truth.batches += fresh
            truth.growth.append((epoch, count, truth.end, self._world.scheduler.now_us))
            self.check_majority(partition, count, raft.voters)
            if isinstance(replica, QueueReplica):
                book = self.books.setdefault(partition, QueueBook())
                for batch in fresh:
                    book.fold(batch, epoch)
        seen.commit, seen.counted = raft.commit, count

    def check_own_epoch(self, node_id: int, seen: Seen, raft: Any, last: bytes) -> int:
        """R6: only a leader commits by counting, and only an entry of its own epoch, which is returned.

        It may have been deposed later in the same turn.
        """
        epoch = read_header(last).epoch
        led = (raft.role is Role.LEADER and raft.epoch == epoch) or (seen.role is Role.LEADER and seen.epoch == epoch)
        if not led:
            text = f"node {node_id}, {raft.role.name} of epoch {raft.epoch}, committed an entry of epoch {epoch}"
            self.fail("R6 commit in the own epoch", text)
        return epoch

    def check_majority(self, partition: int, count: int, voters: tuple[int, ...]) -> None:
        """I2, I5: what is committed is on the synced disks of a majority."""
        truth = self.committed[partition].batches
        holders = 0
        for voter in voters:
            ledger = self.ledgers.get(voter)
            mirror = ledger.synced.get(partition) if ledger is not None else None
            if mirror is not None and len(mirror.batches) >= count and mirror.batches[count - 1] == truth[count - 1]:
                holders += 1
        if holders <= len(voters) // 2:
            self.fail("I5 majority durable", f"partition {partition}: {holders} of {voters} hold {count} entries")

    # --- messages between nodes -------------------------------------------------------------------------------------

    def leaves(self, process: SimProcess, peer: int, message: RaftMessage) -> None:
        """R1, R5: an answer leaves after what it promises is durable."""
        mirror = self.ledgers[process.process_id].synced.get(message.partition) or Mirror()
        kind = type(message)
        if kind is AppendReply and message.ok and mirror.end < message.offset:  # type: ignore[union-attr]
            staged = self.ledgers[process.process_id].staged[message.partition]
            if message.epoch == staged.epoch:
                self.fail("R5 acknowledged after fsync", f"node {process.process_id}: {message} has {mirror.end}")
        elif ((kind is VoteReply and message.granted) or kind is VoteRequest) and not message.pre_vote:  # type: ignore[union-attr]
            voted_for = peer if kind is VoteReply else process.process_id
            if mirror.epoch < message.epoch or (mirror.epoch == message.epoch and mirror.voted_for != voted_for):
                self.fail("R1 vote after fsync", f"node {process.process_id}: {message}")

    # --- now and then -------------------------------------------------------------------------------------------------

    def check_everything(self) -> None:
        for process in self._world.processes.values():
            node = process.node
            if node is None or not process.is_up:
                continue
            self.check_bounds(process)
            for replica in getattr(node, "replicas", {}).values():
                if isinstance(replica, QueueReplica):
                    self.check_conservation(process.process_id, replica)
                self.check_same_fold(process.process_id, replica)
        for partition in list(self.committed):
            self.check_log_matching(partition)

    def check_log_matching(self, partition: int) -> None:
        """I4: logs that share an entry (epoch, offset) share everything before it."""
        mirrors = [
            (node_id, ledger.staged[partition].batches)
            for node_id, ledger in self.ledgers.items()
            if partition in ledger.staged
        ]
        settled = min((len(batches) for _, batches in mirrors), default=0)
        settled = min(settled, len(self.committed[partition].batches))
        for (a, mine), (b, theirs) in combinations(mirrors, 2):
            at = max(0, settled - 50)
            while at < min(len(mine), len(theirs)) and mine[at] == theirs[at]:
                at += 1
            shared = {_place(batch) for batch in mine[at:]} & {_place(batch) for batch in theirs[at:]}
            if shared:
                self.fail("I4 log matching", f"nodes {a} and {b}, partition {partition}, at {sorted(shared)}")

    def check_conservation(self, node_id: int, replica: QueueReplica) -> None:
        """I10: sent = fresh + live + deleted + expired + purged, and never more than is committed."""
        state = replica.machine.state
        total = state.fresh_count + len(state.live) + state.deleted + state.expired + state.purged
        if state.sent != total:
            self.fail("I10 conservation", f"node {node_id}: sent {state.sent}, found {total}")
        committed = self.committed.get(replica.partition)
        if replica.applied > (committed.end if committed is not None else 0):
            self.fail("I7 folded beyond the commit", f"node {node_id}: {replica.applied}")

    def check_same_fold(self, node_id: int, replica: Any) -> None:
        """Replicas that folded the same entries have the same state."""
        key = (replica.partition, replica.machine.log_end if replica.partition else replica.applied)
        state = replica.machine.checkpoint()
        other = self._fold_states.setdefault(key, state)
        if other != state:
            self.fail("SAME FOLD", f"node {node_id}, partition {replica.partition}, folded up to {key[1]}")

    def check_bounds(self, process: SimProcess) -> None:
        """I14: nothing grows without a bound."""
        node = process.node
        assert node is not None
        log = process.log
        sizes = {
            "WAL files": (len(log._wal.files), WAL_FILES_MAX),
            "groups under way": (len(log._wal.writing), 1),
            "timers": (len(node.timers._heap), 500),
            "held messages": (len(node.committer._held) + len(node.committer._held_writing), 5_000),
            "proposers": (len(node.committer._proposers), len(node.replicas)),
        }
        for name, (size, most) in sizes.items():
            if size > most:
                self.fail("I14 bounded", f"node {process.process_id}: {name} {size} > {most}")

    # --- leaders that should know better ----------------------------------------------------------------------

    def check_not_stale(self, process: SimProcess, partition: int) -> None:
        """R8: a leader that was replaced long ago answers no more."""
        truth = self.committed.get(partition)
        node = process.node
        replica = node.replicas.get(partition) if node is not None else None
        if truth is None or replica is None or not replica.serving or not truth.growth:
            return
        epoch = replica.raft.epoch
        since_us = next((at_us for by, _, _, at_us in truth.growth if by > epoch), None)
        if since_us is None:
            return
        late_ms = (self._world.scheduler.now_us - max(since_us, process.resumed_us)) // 1_000
        if late_ms > STALE_LEADER_MS_MAX:
            self.fail("R8 stale leader serves", f"node {process.process_id}, epoch {epoch}, {late_ms} ms too late")

    # --- bugs the node itself finds ---------------------------------------------------------------------------

    def stopped_by_bug(self, process: SimProcess, error: BaseException) -> NoReturn:
        raise BrokenInvariant("NODE STOPPED", f"node {process.process_id}: {type(error).__name__}: {error}") from error

    def sent_bodies(self, partition: int) -> list[bytes]:
        """Every message body that is committed, in order."""
        truth = self.committed.get(partition)
        return [
            body
            for batch in (truth.batches if truth is not None else ())
            if partition != CLUSTER_PARTITION and not read_header(batch).is_control
            for _, body in iterate_bodies(batch)
        ]


def _adopt_early_votes(mirrors: dict[int, Mirror], staged: dict[int, Mirror], log: NodeLog) -> None:
    """A manifest may make a staged epoch and vote durable before their group is: early is safe, late would not be."""
    for partition, part in log.partitions.items():
        mirror, late = mirrors.get(partition), staged.get(partition)
        if mirror is None or late is None or part.epoch <= mirror.epoch:
            continue
        if (part.epoch, part.voted_for) == (late.epoch, late.voted_for):
            mirror.epoch, mirror.voted_for = late.epoch, late.voted_for


def _agrees(mirror: Mirror, log: NodeLog, partition: int) -> bool:
    part = log.partitions.get(partition)
    if part is None:
        return not mirror.ends and not mirror.epoch
    last_epoch = read_header(mirror.batches[-1]).epoch if mirror.batches else 0
    found = (part.log_end, part.last_epoch, part.epoch, part.voted_for)
    return found == (mirror.end, last_epoch, mirror.epoch, mirror.voted_for)


def _cut(mirror: Mirror | None, end: int) -> Mirror:
    """The log up to there; the whole of it where no entry ends there."""
    cut = Mirror() if mirror is None else mirror.copy()
    cut.truncate(end)
    return cut


def _last(mirror: Mirror) -> tuple[int, int]:
    return (read_header(mirror.batches[-1]).epoch if mirror.batches else 0), mirror.end


def _place(batch: bytes) -> tuple[int, int]:
    header = read_header(batch)
    return header.epoch, header.end_offset
