"""What must hold, checked from outside: the oracle sees all disks, logs and answers at once, which no node does.

Every check is one function named after its invariant (docs/simulation.md has the table). Cheap ones run at the event
they are about; the others every CHECK_EVERY_STEPS steps.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from storage_nodes.log.record_batch import read_configuration, read_header
from storage_nodes.machines.queue.state.metering import DELETED, DELIVERED, MOVED, SENT
from storage_nodes.machines.raft.effects import Role
from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.node.replicas.partition_meta import METAS_SHARED_MAX, shared_meta
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.replicas.stream_replica import StreamReplica
from storage_nodes.protocol.peer_messages import AppendReply, RaftMessage, VoteReply, VoteRequest
from tests.simulation.accidents import may_be_closed
from tests.simulation.books import FifoBook, QueueBook, StreamBook
from tests.simulation.cluster_book import ClusterBook
from tests.simulation.guards import complaints
from tests.simulation.ledger import CommittedLog, Mirror, is_configuration
from tests.simulation.log_matching import LogMatching
from tests.simulation.log_oracle import BrokenInvariant, LogOracle, Seen
from tests.simulation.suspect_votes import SuspectVotes

if TYPE_CHECKING:
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

CHECK_EVERY_STEPS = 64
WAL_FILES_MAX = 200


@lru_cache(METAS_SHARED_MAX)
def _boot_voters(meta: str, node_id: int) -> tuple[int, ...]:
    return shared_meta(meta).boot(node_id).voters


class Oracle(LogOracle):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.books: dict[int, QueueBook | StreamBook] = {}
        self._leader_of: dict[tuple[int, int], int] = {}
        self._fold_states: dict[tuple[int, int], bytes] = {}
        self._checked_at = 0
        self._matching = LogMatching()
        self.suspect_votes = SuspectVotes()
        self.in_the_dark: set[tuple[int, int]] = set()  # (partition, epoch) of leaders that could not know the time
        self.elections = 0
        self.dead_letters = 0

    # --- after every turn of a node -------------------------------------------------------------------------------

    def turned(self, process: SimProcess) -> None:
        node = process.node
        if node is None:
            return
        if process.touched.replicas or self._world.check_all:
            self._look_at_replicas(process, getattr(node, "replicas", {}))
        if self._world.scheduler.steps >= self._checked_at + CHECK_EVERY_STEPS:
            self._checked_at = self._world.scheduler.steps
            self.check_everything()

    def _look_at_replicas(self, process: SimProcess, replicas: dict[int, Replica]) -> None:
        """At those in which something was written since, in the order in which the node has them."""
        touched = process.touched.replicas
        node_id = process.process_id
        seen_here = self._seen.setdefault(node_id, {})
        if self._world.check_all:
            self.check_marks(process, replicas)
            looked_at = list(replicas.items())
        else:
            looked_at = [(partition, replicas[partition]) for partition in replicas if partition in touched]
        touched.clear()
        for partition, replica in looked_at:
            seen = seen_here.get(partition)
            if seen is None or seen.replica is not replica:
                seen = seen_here[partition] = Seen(replica)
                process.touched.follow(replica)
            raft = replica.raft
            if replica.closed and not may_be_closed(process, partition):
                self.fail("REPLICA STOPPED", f"node {node_id}, partition {partition}: {list(complaints)[-1:]}")
            if raft.commit != seen.commit:
                self._commit_changed(node_id, partition, seen, replica)
            if raft.epoch != seen.epoch or raft.role is not seen.role:
                self._role_changed(node_id, partition, seen, replica)
            if replica.serving != seen.serving:
                seen.serving = replica.serving
                if replica.serving:
                    self.check_served_is_complete(node_id, partition, replica)
            seen.voters = self.voters_of(node_id, partition, replica)
        ledger = self.ledgers.get(node_id)
        if ledger is not None:
            if ledger.dropped:
                self.check_drops(node_id)
            if ledger.configured:
                self.check_configured(node_id)

    def check_marks(self, process: SimProcess, replicas: dict[int, Replica]) -> None:
        """NO MARK: nothing of what `_look_at_replicas` looks at changed where nothing was marked."""
        node_id, ledger = process.process_id, self.ledgers.get(process.process_id)
        for partition, replica in replicas.items():
            seen = self._seen[node_id].get(partition)
            raft = replica.raft
            if partition not in process.touched.replicas and (
                seen is None
                or seen.replica is not replica
                or (replica.closed and not may_be_closed(process, partition))
                or (seen.commit, seen.epoch, seen.role) != (raft.commit, raft.epoch, raft.role)
                or (seen.serving, seen.voters) != (replica.serving, self.voters_of(node_id, partition, replica))
            ):
                self.fail("NO MARK", f"node {node_id}, partition {partition} changed")
        if ledger is not None and (ledger.dropped or ledger.configured) and not process.touched.replicas:
            self.fail("NO MARK", f"node {node_id} dropped a replica or changed a group")

    def check_incarnation(self, process: SimProcess, sender: int, incarnation: int) -> None:
        """R4: what an older incarnation of a node sent has no effect once a newer one has greeted."""
        if process.node is not None and incarnation:
            newest = process.node.links._links[sender].incarnation
            if incarnation != newest:
                text = f"node {process.process_id} takes a message of {incarnation}, node {sender} is {newest}"
                self.fail("R4 older incarnations are fenced", text)

    def is_needed(self, partition: int, batch: bytes) -> bool:
        book, header = self.books.get(partition), read_header(batch)
        if book is None or header.is_control:
            return False
        if isinstance(book, StreamBook):
            return header.end_offset > book.log_start
        return any(offset not in book.gone for offset in range(header.base_offset, header.end_offset))

    def check_kept(self) -> None:
        """At the end: what every node holds is whole."""
        for process in self._world.processes.values():
            if process.is_up and process.node is not None:
                for partition, mirror in self.ledgers[process.process_id].staged.items():
                    self.check_readable(process.process_id, process.log, partition, mirror)

    def dropping(self, node_id: int, partition: int) -> None:
        seen = self._seen.get(node_id, {}).get(partition)
        if seen is not None and seen.replica.raft.commit != seen.commit:
            self._commit_changed(node_id, partition, seen, seen.replica)

    def _role_changed(self, node_id: int, partition: int, seen: Seen, replica: Replica) -> None:
        raft = replica.raft
        if raft.epoch < seen.epoch:
            self.fail("I6 epochs only grow", f"node {node_id}, partition {partition}: {seen.epoch} -> {raft.epoch}")
        if raft.role is Role.LEADER and (seen.role is not Role.LEADER or raft.epoch != seen.epoch):
            self.elections += 1
            if self.is_in_the_dark(self._world.processes[node_id]):
                self.in_the_dark.add((partition, raft.epoch))
            self.check_one_leader(node_id, partition, raft.epoch)
            self.check_electors(node_id, partition, replica)
            self.check_leader_completeness(node_id, partition, raft.epoch)
            self._world.lease_referee.check_alone(node_id, partition, raft.epoch)
        seen.epoch, seen.role = raft.epoch, raft.role

    def check_one_leader(self, node_id: int, partition: int, epoch: int) -> None:
        """I6: one leader in an epoch."""
        other = self._leader_of.setdefault((partition, epoch), node_id)
        if other != node_id:
            self.fail("I6 one leader per epoch", f"nodes {other} and {node_id}, partition {partition}, epoch {epoch}")

    def voters_of(self, node_id: int, partition: int, replica: Replica) -> tuple[int, ...]:
        """Of the configuration in force here: the latest in the log, committed or not."""
        ledger = self.ledgers.get(node_id)
        mirror = ledger.staged.get(partition) if ledger is not None else None
        if mirror is None or mirror.voters is None:
            return _boot_voters(replica.log.tag, node_id)
        return mirror.voters

    def check_electors(self, node_id: int, partition: int, replica: Replica) -> None:
        """R15: whoever wins has the votes of a majority of the voters in force at it."""
        voters, votes = self.voters_of(node_id, partition, replica), set(replica.raft.elected_by)
        if len(votes.intersection(voters)) <= len(voters) // 2:
            self.fail("R15 elected by a majority", f"node {node_id}, partition {partition}: {votes} of {voters}")
        self.suspect_votes.check(self, partition, replica.raft.epoch, votes, voters)
        self.check_boot(node_id, partition, voters)

    def check_boot(self, node_id: int, partition: int, voters: tuple[int, ...]) -> None:
        """R15: where the log names no configuration, all replicas must mean the same one, with which it was created.

        One that means another changes it without an entry: the next change is two at once. Until the log is here it may
        mean the one after later moves, but nobody wins so: their entries are in the log of every majority.
        """
        boot = self.cluster.boots.get(partition)
        if boot is not None and not self.ledgers[node_id].staged[partition].configurations and {*boot} != {*voters}:
            self.fail("R15 one boot configuration", f"node {node_id}, partition {partition}: {voters}, made as {boot}")

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
            voters = self.voters_of(node_id, partition, replica)
            if raft.voters != voters:
                self.fail("R15 latest configuration", f"node {node_id}, partition {partition}: {raft.voters}, {voters}")
            self.check_majority(partition, count, {seen.voters or voters, voters})
            self._world.lease_referee.check_alone(node_id, partition, epoch)
            book = self.cluster if partition == CLUSTER_PARTITION else self.book(partition, replica)
            self.check_stamps(partition, truth, len(fresh))
            for batch in fresh:
                self.set_times(partition, book, batch)
                book.fold(batch, epoch)
                if is_configuration(batch):
                    self.check_change(partition, replica.meta.replicas, batch)
            if not isinstance(book, ClusterBook):
                self._world.levels.committed(partition, book.level)
            if not isinstance(book, ClusterBook) and book.times.wrong:
                self.fail(book.times.wrong[0][0], f"partition {partition}: {book.times.wrong[0][1]}")
            if isinstance(book, FifoBook) and book.leased_though_parked:
                self.fail("PARKED groups are held", f"partition {partition}: {book.leased_though_parked}")
            if isinstance(book, QueueBook):
                self.check_dead_letters(partition, book)
                self._world.referee.folded(partition, book)
            elif isinstance(book, StreamBook):
                self._world.group_referee.folded(partition, book)
            if partition == CLUSTER_PARTITION:
                self._cluster_changed()
        seen.commit, seen.counted = raft.commit, count

    def check_dead_letters(self, partition: int, book: QueueBook) -> None:
        """R30: a dead letter leaves its queue only when its copy is committed in the other one."""
        if book.early:
            self.fail("DUE", f"partition {partition}, offset {book.early[0]} was released before it was due")
        if book.wrong_sizes:
            self.fail("METERING", f"partition {partition}, offset {book.wrong_sizes[0]} was deleted with another size")
        target = self.books.get(self._world.dead_partition)
        for offset in book.dead:
            if not isinstance(target, QueueBook) or (partition, offset) not in target.copies:
                self.fail("R30 copied before removed", f"partition {partition}, offset {offset} has no copy")
            self.dead_letters += 1
        book.dead.clear()

    def _cluster_changed(self) -> None:
        """SAME FOLD: what the nodes' machine makes of the cluster's log is what the book says. I14: and ends moves."""
        book, truth = self.cluster, self.committed[CLUSTER_PARTITION]
        found = {plan.partition: (plan.kind, plan.tag) for plan in book.machine.partitions.values()}
        if found != book.live:
            self.fail("SAME FOLD", f"by the machine there are {found}, by the log {book.live}")
        self._fold_states[CLUSTER_PARTITION, truth.end] = book.machine.checkpoint()
        for process in self._world.processes.values():
            process.touched.states.add(CLUSTER_PARTITION)  # there is something else to compare with
        self.check_ended_moves()

    def check_change(self, partition: int, boot: tuple[int, ...], batch: bytes) -> None:
        """R15, R34: one member at a time, and never fewer voters than the partition has replicas."""
        truth, now = self.committed[partition], read_configuration(batch)
        earlier = CommittedLog()
        earlier.batches = truth.batches[: truth.batches.index(batch)]
        before = earlier.configuration(self.cluster.boots.get(partition, boot))
        moved = set(before.members) ^ set(now.members)
        promoted = set(before.learners) & set(now.voters)
        if len(moved) + len(promoted) != 1 or moved & set(now.voters) or set(before.voters) & set(now.learners):
            self.fail("R15 one member at a time", f"partition {partition}: {before}, {now}")
        plan = self.cluster.machine.partitions.get(partition)
        if plan is not None and len(now.voters) < len(plan.replicas):
            self.fail("R34 never fewer voters", f"partition {partition}: {now}, it has {plan.replicas}")

    def book(self, partition: int, replica: Replica) -> QueueBook | StreamBook:
        kind: type[QueueBook | StreamBook] = StreamBook
        if isinstance(replica, QueueReplica):
            kind = FifoBook if replica.machine.is_fifo else QueueBook
        book = self.books.setdefault(partition, kind())
        machine: Any = replica.machine
        if isinstance(book, StreamBook):
            book.times.retention_ms = machine.retention_ms
            return book
        config = machine.state.config
        book.times.retention_ms, book.times.window_ms = config.retention_ms, config.dedup_window_ms
        book.receives_max = machine.state.receives_max
        if isinstance(book, FifoBook):
            book.parks = config.park_groups
        return book

    def check_stamps(self, partition: int, truth: CommittedLog, count: int) -> None:
        """R28: the stamps of a log never fall. But that of the cluster, in which nobody reads the time."""
        if partition == CLUSTER_PARTITION:
            return
        stamps = [read_header(batch).timestamp_ms for batch in truth.batches[-count - 1 :]]
        if any(a > b for a, b in pairwise(stamps)):
            self.fail("R28 stamps never fall", f"partition {partition}: {stamps} up to {truth.end}")

    def set_times(self, partition: int, book: Any, batch: bytes) -> None:
        """When what is about to be folded was staged, and by whom."""
        if not isinstance(book, ClusterBook):
            header = read_header(batch)
            book.times.now_us = self.staged_us[partition, header.base_offset, header.epoch]
            book.times.trusted = (partition, header.epoch) not in self.in_the_dark

    def is_in_the_dark(self, process: SimProcess) -> bool:
        """Has the process not heard of a majority of right clocks since it started? Then it cannot know the time."""
        right = process.heard.difference(self._world.clock_faults.liars)
        return len(right) <= len(self._world.node_ids) // 2

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

    def check_majority(self, partition: int, count: int, configurations: set[tuple[int, ...]]) -> None:
        """I2, I5: what is committed is on the synced disks of a majority.

        Of the voters in force: those after this turn, or those before it.

        A disk that was lost since counts: its acknowledgement may have been under way. That it is not trusted with more
        than that is checked where it matters, at elections.
        """
        last = self.committed[partition].batches[count - 1]
        holders = set()
        for node_id, ledger in self.ledgers.items():
            mirrors = (ledger.synced.get(partition), ledger.lost.get(partition))
            if any(m is not None and len(m.batches) >= count and m.batches[count - 1] == last for m in mirrors):
                holders.add(node_id)
        if partition not in self.cluster.deleted and not any(
            len(holders.intersection(voters)) > len(voters) // 2 for voters in configurations
        ):
            self.fail(
                "I5 majority durable", f"partition {partition}: {holders} of {configurations} hold {count} entries"
            )

    # --- messages between nodes -------------------------------------------------------------------------------------

    def leaves(self, process: SimProcess, peer: int, message: RaftMessage) -> None:
        """R1, R5: an answer leaves after what it promises is durable."""
        self._world.older.check_vote(process, message)
        ledger = self.ledgers[process.process_id]
        if message.partition not in ledger.staged:
            return  # deleted meanwhile
        mirror = ledger.synced.get(message.partition) or Mirror()
        self.suspect_votes.leaves(process.process_id, message, mirror.suspect)
        kind = type(message)
        if kind is AppendReply and message.ok and mirror.end < message.offset:  # type: ignore[union-attr]
            staged = ledger.staged[message.partition]
            if message.epoch == staged.epoch:
                self.fail("R5 acknowledged after fsync", f"node {process.process_id}: {message} has {mirror.end}")
        elif ((kind is VoteReply and message.granted) or kind is VoteRequest) and not message.pre_vote:  # type: ignore[union-attr]
            voted_for = peer if kind is VoteReply else process.process_id
            if mirror.epoch < message.epoch or (mirror.epoch == message.epoch and mirror.voted_for != voted_for):
                self.fail("R1 vote after fsync", f"node {process.process_id}: {message}")

    # --- now and then -------------------------------------------------------------------------------------------------

    def check_everything(self, at_end: bool = False) -> None:
        for process in self._world.processes.values():
            node = process.node
            if node is None or not process.is_up:
                continue
            self.check_bounds(process)
            replicas = getattr(node, "replicas", {})
            if at_end:
                self.check_marks(process, replicas)
            self.check_states(process, replicas, at_end or self._world.check_all)
        for partition in list(self.committed):
            self.check_log_matching(partition)

    def check_states(self, process: SimProcess, replicas: dict[int, Replica], check_all: bool) -> None:
        """What was well stays so while neither the state changes nor how far it is folded: what is committed grows."""
        node_id, touched = process.process_id, process.touched.states
        for partition, replica in ((p, r) for p, r in replicas.items() if not r.closed):  # else perhaps in mid-entry
            is_touched = partition in touched
            if isinstance(replica, StreamReplica):
                self._world.group_referee.check_fold(node_id, replica)
            if is_touched or check_all:
                if isinstance(replica, QueueReplica):
                    self.check_conservation(node_id, replica)
                    self.check_own_bugs(node_id, replica)
                state = self.check_same_fold(node_id, replica)
                seen = self._seen[node_id].get(partition)
                if seen is not None and seen.replica is replica:
                    if seen.state != state and not is_touched:
                        self.fail("NO MARK", f"node {node_id}, partition {partition}: the state changed")
                    seen.state = state
        touched.clear()

    def check_log_matching(self, partition: int) -> None:
        """I4: logs that share an entry (epoch, offset) share everything before it."""
        mirrors = [
            (node_id, mirror)
            for node_id, ledger in self.ledgers.items()
            if (mirror := ledger.staged.get(partition)) is not None
        ]
        mismatch = self._matching.look(partition, mirrors, len(self.committed[partition].batches))
        if mismatch:
            self.fail("I4 log matching", mismatch)

    def check_conservation(self, node_id: int, replica: QueueReplica) -> None:
        """I10: sent = fresh + live + deleted + expired + purged, and never more than is committed."""
        state = replica.machine.state
        total = state.fresh_count + len(state.live) + state.deleted + state.expired + state.purged
        total += state.dead_lettered + len(state.scheduled) + len(state.delayed)
        if state.sent != total:
            self.fail("I10 conservation", f"node {node_id}: sent {state.sent}, found {total}")
        self.check_metering(node_id, replica)
        committed = self.committed.get(replica.partition)
        if replica.applied > (committed.end if committed is not None else 0):
            self.fail("I7 folded beyond the commit", f"node {node_id}: {replica.applied}")

    def check_own_bugs(self, node_id: int, replica: QueueReplica) -> None:
        """OWN BUGS: what the machine asserts of itself from time to time holds at each look."""
        leader = replica.machine.leader
        try:
            replica.machine.state.check()
            if leader is not None:
                leader.delivery.check()
        except AssertionError as error:
            self.fail("OWN BUGS", f"node {node_id}, partition {replica.partition}: {error}")

    def check_metering(self, node_id: int, replica: QueueReplica) -> None:
        """Windows bill at most what was sent, received and deleted, one an hour; an empty queue holds nothing."""
        state = replica.machine.state
        meter = state.metering
        if meter is None:
            return
        windows = [window for window in meter.closed if window.hour_ms != meter.hour_ms]
        rows = [row[1:] for window in (*windows, meter.window()) for row in window.origins]
        sent = sum(row[SENT] + row[MOVED] for row in rows)
        billed = [sent, *(sum(row[at] for row in rows) for at in (DELIVERED, DELETED))]
        if any(more > total for more, total in zip(billed, (state.sent, state.received, state.deleted), strict=True)):
            self.fail("METERING", f"node {node_id}: billed {billed}, sent {state.sent}")
        if meter.held_bytes < 0 or (meter.held_bytes and not state.held_count):
            self.fail("METERING", f"node {node_id}: {meter.held_bytes} bytes of {state.held_count} messages")
        hours = [window.hour_ms for window in windows]
        if sorted(set(hours)) != hours:
            self.fail("METERING", f"node {node_id}: windows of {hours}")
        self._world.usage_referee.check(node_id, replica)

    def check_same_fold(self, node_id: int, replica: Any) -> tuple[tuple[int, int], bytes]:
        """Replicas that folded the same entries have the same state. Returns what was folded, and the state."""
        key = (replica.partition, replica.machine.log_end if replica.partition else replica.applied)
        state = replica.machine.checkpoint()
        other = self._fold_states.setdefault(key, state)
        if other != state:
            self.fail("SAME FOLD", f"node {node_id}, partition {replica.partition}, folded up to {key[1]}")
        return key, state

    def check_bounds(self, process: SimProcess) -> None:
        """I14: nothing grows without a bound."""
        node = process.node
        assert node is not None
        wal, committer = process.log._wal, node.committer
        sizes = (
            (len(wal.files), WAL_FILES_MAX, "WAL files"),
            (len(wal.writing), 1, "groups under way"),
            (len(node.timers._heap), 500, "timers"),
            (len(committer._held) + len(committer._held_writing), 5_000, "held messages"),
            (len(committer._proposers), len(node.replicas), "proposers"),
        )
        for size, most, name in sizes:
            if size > most:
                self.fail("I14 bounded", f"node {process.process_id}: {name} {size} > {most}")
        self._world.memory.check_node(process)

    # --- bugs the node itself finds ---------------------------------------------------------------------------

    def stopped_by_bug(self, process: SimProcess, error: BaseException) -> NoReturn:
        raise BrokenInvariant("NODE STOPPED", f"node {process.process_id}: {type(error).__name__}: {error}") from error
