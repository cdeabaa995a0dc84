"""The queue machine: standard-queue delivery as a fold over a partition log (docs/storage.md, "Queue machine").

Pure: (input, now_ms) -> effects. Four parts:

    state        what every replica folds, in log order: cursor, live messages, counters
    delivery     what a leader can hand out, in which order and to whom: messages at hand, leases, waiters, commands
    leader       requests, what follows from the fold, and what is done after every input
    commands.py  the records between leader and state

    acquire/delete/...  ->  Leader decides and stages  ->  take_commands()  ->  log  ->  apply()  ->  state, answers

An acquire on a standard queue is delivered before its command is committed. If the leader is lost in between the lease
is lost with it and the message is handed out again: at least once. A delete is answered only when its command comes
back through the fold, so an acknowledged delete survives every failover.

Driver's duties: call `apply` for committed entries, each once, in order; `lead` after the epoch-start entry of the own
epoch was applied; `follow` at step-down, after which results of older fetches are dropped; take commands
only for a batch that really goes to the log next (if it cannot, step down).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from storage_nodes.limits import (
    ACQUIRE_MESSAGES_MAX,
    DEDUP_IDS_MAX,
    DELAYED_LIVE_MAX,
    DELAYED_MESSAGES_MAX,
    SCHEDULE_MS_MAX,
    SCHEDULED_MESSAGES_MAX,
)
from storage_nodes.machines.driver_contract import Piece, Refuse, Token
from storage_nodes.machines.queue.commands import (
    UNSEEN,
    RetiredCommand,
    UsageCommand,
    decode_command,
    uncounted,
)
from storage_nodes.machines.queue.delivery.by_group import ByGroupDelivery
from storage_nodes.machines.queue.effects import (
    BatchFacts,
    Duplicated,
    Effect,
    FreshRange,
    Groups,
    Keys,
    Retired,
    Tags,
)
from storage_nodes.machines.queue.leader.leader import Leader
from storage_nodes.machines.queue.leader.usage_export import UsageExport
from storage_nodes.machines.queue.state.checkpoint import decode_checkpoint
from storage_nodes.machines.queue.state.configs import config_problem
from storage_nodes.machines.queue.state.fifo_state import FifoState
from storage_nodes.machines.queue.state.folding import StateFold, fold_producer
from storage_nodes.machines.queue.state.headers import FoldedHeaders
from storage_nodes.machines.queue.state.meter_entries import (
    Usages,
    drop_idle_meter,
    meter_commands,
    meter_messages,
    meter_new_leader,
    no_usages,
    totals_of,
)
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.machines.queue.usage import QueueUsage, export_of
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.levels import LEVEL_FIRST
from storage_nodes.protocol.messages import MessageState, ParkedGroup, QueueConfig, QueueStats

Records = Callable[[], Iterable[tuple[int, bytes]]]

_NOT_LEADING = -1


class QueueMachine:
    __slots__ = ("_led_ms", "_term", "ahead_ms", "export", "leader", "state")

    def __init__(self, config: QueueConfig | None = None) -> None:
        self.state = _new_state(config or QueueConfig())
        self._term = _NOT_LEADING
        self._led_ms = 0
        self.leader: Leader | None = None  # made when needed: an idle queue stays small
        self.ahead_ms = 0
        self.export: UsageExport | None = None  # made when needed

    # --- fold, every replica ----------------------------------------------------------------------------------

    def apply(self, header: BatchFacts, records: Records, now_ms: int, usages: Usages = no_usages) -> list[Effect]:
        """Fold one committed entry. `records` gives (offset, body) of commands, (offset, header section) of messages;
        it is called only for control batches and batches that are not plain. `usages` says what each message is billed
        for; it is called where the sums in the header do not."""
        base = header.base_offset
        before = self.state.log_end
        assert base >= before, f"entry at {base} was folded already, the log ends at {before} here"
        if header.is_control:
            return self._apply_commands(header, records, before, now_ms)
        leader = self.leader_state() if self._term >= 0 else None
        last, timestamp_ms = header.last_offset, header.timestamp_ms
        self.state.fold_messages(last, timestamp_ms, header.record_count)
        noted: FoldedHeaders | None = None
        if not header.is_plain:
            noted = self.state.fold_records(records(), timestamp_ms)
            self.state.end_entry(last + 1)
            if noted.keys and leader is not None:
                leader.track_keys()
        if header.usage >= 0 and self.state.config.account_id:
            meter_messages(self.state, header, noted, usages)
        if header.producer_id >= 0:
            fold_producer(self.state, header, noted)
        if leader is None:
            return []
        if noted is not None and noted.duplicates:
            effects: list[Effect] = [Duplicated(noted.duplicates)]
            return effects + leader.messages_arrived(base, last, timestamp_ms, before, noted, now_ms)
        return leader.messages_arrived(base, last, timestamp_ms, before, noted, now_ms)

    def checkpoint(self) -> bytes:
        return self.state.checkpoint()

    def checkpoint_pieces(self) -> bytes | list[Piece]:
        """The same; not joined where that would take long. Nothing of it changes any more."""
        return self.state.checkpoint_pieces()

    def restore(self, blob: bytes) -> None:
        """Continue from a checkpoint: the next entry to apply is the first one at or after `log_end`. Raises
        CheckpointError."""
        self.adopt(state_of(blob))

    def adopt(self, state: QueueState) -> None:
        """The same, from what `state_of` read."""
        assert self._term == _NOT_LEADING, "a leader's state comes from its log"
        self.state = state

    def rest(self) -> None:
        """From time to time: let go of what an idle queue can do without. Nothing else changes."""
        if self.leader is None:
            self.state.rest()

    def is_live(self, base_offset: int, last_offset: int) -> bool:
        return self.state.is_live(base_offset, last_offset)

    def low_watermark(self) -> int:
        return self.state.low_watermark()

    @property
    def log_end(self) -> int:
        """End of the last entry folded."""
        return self.state.log_end

    @property
    def level(self) -> int:
        """Feature level of the partition, at this place in its log."""
        return self.state.level

    @property
    def last_ms(self) -> int:
        """The latest time in what was folded."""
        return self.state.last_ms

    # --- leadership -------------------------------------------------------------------------------------------

    def lead(self, now_ms: int) -> list[Effect]:
        """The epoch-start entry of our epoch was applied: serve."""
        assert self._term == _NOT_LEADING, "leads already"
        # No two leaderships have the same: each begins with an entry of its own below this position.
        self._term = self.state.log_end
        self._led_ms = self.state.last_ms  # what earlier leaders leased, they leased before
        self.state.check()
        effects: list[Effect] = [Retired()] if self.state.is_retired else []
        return effects + (self.leader_state().start(now_ms) if self.state.held_count else [])

    def clocks_say(self, ahead_ms: int) -> None:
        """So far is `now_ms` ahead of what most clocks of the cluster say; AHEAD_UNKNOWN where that is not known."""
        self.ahead_ms = ahead_ms
        if self.leader is not None:
            self.leader.clocks_say(ahead_ms)

    def follow(self) -> list[Effect]:
        """Leadership is over: everyone who waits is refused. Harmless when not leading."""
        leader, self.leader, self._term = self.leader, None, _NOT_LEADING
        self.export = None
        return leader.stop() if leader is not None else []

    # --- leader: requests -------------------------------------------------------------------------------------

    def acquire(
        self,
        token: Token,
        max_messages: int,
        visibility_ms: int,
        wait_until_ms: int,
        now_ms: int,
        attempt: bytes = b"",
        tags: Tags = (),
    ) -> list[Effect]:
        """Lease messages and deliver, FIFO after commit; wait_until_ms is on the clock of now_ms, 0 = do not wait.

        With tags, distinct ones: only messages that have one of them.
        """
        if self._term < 0:
            return [_not_leader(token)]
        wanted = min(max_messages, ACQUIRE_MESSAGES_MAX)
        if tags:
            if self.is_fifo:
                return [Refuse(token, ErrorCode.INVALID_REQUEST, "a FIFO queue keeps an order: no tags")]
            self.leader_state().track_keys()
        return self.leader_state().acquire(token, wanted, visibility_ms, wait_until_ms, now_ms, attempt, tags)

    def cancel(self, token: Token) -> list[Effect]:
        """Give up a waiting acquire: refused with CANCELLED if it still waited, nothing otherwise."""
        return self.leader.cancel(token) if self.leader is not None else []

    def delete(self, token: Token, receipts: Sequence[tuple[int, int]]) -> list[Effect]:
        """Receipts are (offset, delivery)."""
        return self.leader_state().delete(token, receipts) if self._term >= 0 else [_not_leader(token)]

    def change_visibility(self, token: Token, changes: Sequence[tuple[int, int, int]], now_ms: int) -> list[Effect]:
        """Changes are (offset, delivery, visibility_ms from commit; 0 = available at once; NACKED, UNSEEN, or
        `uncounted` of a visibility)."""
        if self._term < 0:
            return [_not_leader(token)]
        return self.leader_state().change_visibility(token, changes, now_ms)

    def of_earlier_leaders(self, changes: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """The same changes, but with no delivery where the lease may be one of this leadership: of a standard queue
        only the time of a first receive tells, and no later delivery."""
        if self.is_fifo:
            return list(changes)
        live, led_ms = self.state.live, self._led_ms
        return [
            (offset, delivery if delivery == 1 and offset in live and live[offset][2] < led_ms else 0, visibility_ms)
            for offset, delivery, visibility_ms in changes
        ]

    def is_under_way(self, changes: Sequence[tuple[int, int, int]]) -> bool:
        """Is a command on one of these messages under way? What becomes of them is not known before it is folded."""
        leader = self.leader
        return leader is not None and any(leader.is_held(offset) for offset, _, _ in changes)

    def of_leases_until(self, changes: Sequence[tuple[int, int, int]], deadline_ms: int) -> list[tuple[int, int, int]]:
        """The same changes, but with no delivery where the lease has another deadline: the receive was repeated since,
        which gives the same delivery a new lease, or the consumer acted on it; or one of both is under way."""
        live = self.state.live
        kept = []
        for change in changes:
            offset, _, visibility_ms = change
            is_same = offset in live and live[offset][0] == deadline_ms and not self.is_under_way((change,))
            kept.append(change if is_same else (offset, 0, visibility_ms))
        return kept

    def release(
        self, picks: Sequence[tuple[int, int]], now_ms: int, deadline_ms: int = 0, was_told: bool = False
    ) -> list[Effect]:
        """Hand back (offset, delivery) that were delivered to nobody: an answer that did not fit, a lost connection.
        `deadline_ms` of their leases, of a FIFO queue. `was_told`: to the meter, as handed over."""
        if self._term < 0:
            return []
        changes = [(offset, delivery, UNSEEN if was_told else uncounted(0)) for offset, delivery in picks]
        if deadline_ms:
            changes = self.of_leases_until(changes, deadline_ms)
        return self.leader_state().change_visibility(None, changes, now_ms)

    def purge(self, token: Token, now_ms: int, attempt: bytes = b"") -> list[Effect]:
        """`attempt` names the call: a repeat of it hears what the first one did."""
        return self.leader_state().purge(token, now_ms, attempt) if self._term >= 0 else [_not_leader(token)]

    def remove(self, token: Token, offsets: Sequence[int], groups: Mapping[int, bytes], moved: bool) -> list[Effect]:
        """Remove messages from wherever they stand. Distinct offsets of messages, -1 in the place of what is none; of a
        FIFO queue with the groups of those that are not in `live`."""
        if self._term < 0 or self.state.is_retired:  # since the messages were looked up
            return [_not_leader(token)]
        return self.leader_state().remove(token, offsets, groups, moved)

    def configure(self, token: Token, config: QueueConfig) -> list[Effect]:
        if self._term < 0:
            return [_not_leader(token)]
        problem = config_problem(config, self.state.config)
        if problem is not None:
            return [Refuse(token, ErrorCode.INVALID_REQUEST, problem)]
        return self.leader_state().configure(token, config)

    def reschedule(self, token: Token, changes: Sequence[tuple[int, int]], now_ms: int) -> list[Effect]:
        """Changes are (offset, due_ms; 0 = cancel) of scheduled messages; answered with a code each, after commit."""
        if self._term < 0 or self.state.is_retired:  # since the sizes of those to be cancelled were looked up
            return [_not_leader(token)]
        if any(not 0 <= due_ms <= now_ms + SCHEDULE_MS_MAX for _, due_ms in changes):
            return [Refuse(token, ErrorCode.INVALID_REQUEST, "due_ms is out of range")]
        return self.leader_state().reschedule(token, changes, now_ms)

    def scheduled_page(self, after: tuple[int, int], count_max: int, until_ms: int) -> list[tuple[int, int]]:
        """(due_ms, offset) of scheduled messages beyond `after`, in the order in which they are due."""
        return self.state.scheduled.page(after, count_max, until_ms)

    def unpark(self, token: Token, groups: list[bytes], now_ms: int) -> list[Effect]:
        """Hand parked groups out again; none named = all of them."""
        if self._term < 0:
            return [_not_leader(token)]
        if not self.is_fifo:
            return [Refuse(token, ErrorCode.INVALID_REQUEST, "a standard queue parks no groups")]
        return self.leader_state().unpark(token, groups, now_ms)

    # --- leader: the driver's other inputs --------------------------------------------------------------------

    def handed_over(self, bodies: Mapping[int, bytes], kept_back: int) -> None:
        """For the meter: of a Deliver that is no repeat these messages (offset -> record body) went to its token, and
        so many did not and are available again, or gone."""
        if self.state.metering is not None and self._term >= 0:
            leader = self.leader or self.leader_state()
            leader.handed_over.handed_over(bodies, kept_back, leader.time_ms)

    def fetched(
        self,
        from_offset: int,
        ranges: Sequence[FreshRange],
        next_offset: int,
        now_ms: int,
        groups: Sequence[Groups] | Sequence[Keys] = (),
    ) -> list[Effect]:
        """Answer to Fetch: the data batches from there on, and where reading goes on (a gap at the end: log end).

        For a FIFO queue with the groups of each range's messages, for one that `sorts` with their keys.
        """
        if self.leader is None:
            return []
        return self.leader.fetched(from_offset, ranges, groups, next_offset, now_ms)

    def moved(self, offsets: list[int], now_ms: int) -> list[Effect]:
        """Answer to DeadLetter: these, the first of them, are committed in the dead-letter queue."""
        return self.leader.moved(offsets, now_ms) if self.leader is not None else []

    def move_failed(self, is_final: bool, now_ms: int) -> list[Effect]:
        """Answer to DeadLetter: none of them was moved, and (is_final) none ever will be."""
        return self.leader.move_failed(is_final, now_ms) if self.leader is not None else []

    def release_begun(self, offsets: Sequence[int], now_ms: int) -> list[Effect]:
        """Answer to Release: these, the first of them, were appended once more; none: try again later."""
        if self.leader is None:
            return []
        self.leader.releases.begun(offsets, max(now_ms, self.state.last_ms))
        return self.leader.tick(now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        effects = self.leader.tick(now_ms) if self.leader is not None else []
        if self.state.metering is not None:
            effects += self.usage.step(now_ms)
        return effects

    def next_tick_ms(self) -> int:
        """When to call `tick`, on the clock of now_ms; 0 = never. May change with every call into the machine."""
        due_ms = self.leader.next_tick_ms() if self.leader is not None else 0
        meter = self.state.metering
        if meter is None or self._term < 0:
            return due_ms
        export_ms = (self.export or export_of(self)).next_ms(meter)
        return export_ms if not due_ms or 0 < export_ms < due_ms else due_ms

    def take_commands(self, now_ms: int, level: int = LEVEL_FIRST) -> list[bytes]:
        """Record bodies for one control batch, in this order; what exceeds a batch is announced by Propose again.
        `level`: what the cluster allows."""
        return self.leader.take_commands(now_ms, level) if self.leader is not None else []

    @property
    def is_fifo(self) -> bool:
        return self.state.config.fifo

    @property
    def tracks_keys(self) -> bool:
        """Does the leader look at groups and tags of a standard queue?"""
        return self.leader is not None and self.leader.tracks_keys

    def dedup_room(self, now_ms: int, uncommitted: int) -> int:
        """How many messages with deduplication ids may be appended, when so many are on their way already."""
        return DEDUP_IDS_MAX - self.state.dedup.count_at(max(now_ms, self.state.last_ms)) - uncommitted

    def schedule_room(self, uncommitted: int) -> int:
        """How many messages may still be scheduled, when so many are on their way already."""
        return SCHEDULED_MESSAGES_MAX - len(self.state.scheduled) - uncommitted

    def delay_room(self, uncommitted: int) -> int:
        """The same of delayed messages. Those of a FIFO queue take six times the memory."""
        if self.is_fifo:
            return DELAYED_LIVE_MAX - len(self.state.live) - uncommitted
        return DELAYED_MESSAGES_MAX - len(self.state.delayed) - uncommitted

    def look_at(self, offset: int, now_ms: int) -> tuple[MessageState, int, int, int] | None:
        """(state, delivery, deadline_ms, sent_ms, 0 = that of its batch) of a message, None for one that is gone."""
        return (self.leader or self.state).look_at(offset, now_ms)

    def is_tracked(self, offset: int) -> bool:
        """Is the message known by itself: was it handed out, or delayed?"""
        return offset in self.state.live

    def is_delivered(self, offset: int, delivery: int) -> bool:
        """Is this delivery of the message the last one that is folded?"""
        entry = self.state.live.get(offset)
        return entry is not None and entry[1] == delivery

    def first_received_ms(self, offset: int) -> int:
        entry = self.state.live.get(offset)
        return 0 if entry is None else entry[2]

    def due_ms(self, offset: int) -> int | None:
        """Of a message that waits in a schedule; None: it does not (any more)."""
        return self.state.due_of(offset)

    @property
    def config(self) -> QueueConfig:
        return self.state.config

    @property
    def parked_count(self) -> int:
        """How many groups are parked."""
        return self.state.parked_count

    def stats(self, now_ms: int) -> QueueStats:
        return self.state.stats(now_ms) if self.leader is None else self.leader.stats(now_ms)

    def parked_groups(self, after: bytes, groups_max: int) -> list[ParkedGroup]:
        """By name, from the first one behind `after` on; of a leader, which knows how many messages wait."""
        state = self.state
        if not isinstance(state, FifoState) or not state.parked:
            return []
        delivery = self.leader_state().delivery
        assert isinstance(delivery, ByGroupDelivery)
        page = state.parked.page(after, groups_max)
        return [ParkedGroup(group, *parked, delivery.window.known_count(group)) for group, parked in page]

    @property
    def usage(self) -> QueueUsage:
        """What the driver tells and asks of metering."""
        return QueueUsage(self)

    @property
    def is_leading(self) -> bool:
        return self._term >= 0

    # --- inside the package -----------------------------------------------------------------------------------

    def leader_state(self) -> Leader:
        if self.leader is None:
            state = self.state
            state.allocate()
            self.leader = Leader(state, self._term, self.ahead_ms)
        return self.leader

    def _apply_commands(self, header: BatchFacts, records: Records, before: int, now_ms: int) -> list[Effect]:
        state, leader = self.state, self.leader
        effects: list[Effect] = []
        totals = totals_of(state) if state.metering is not None else None
        fold = StateFold(state)
        for offset, body in records():
            command = decode_command(body)
            if command is None:  # the epoch-start entry
                if totals is not None:
                    meter_new_leader(state)
                continue
            usage = command if isinstance(command, UsageCommand) else None
            if usage is not None and totals is not None:
                totals = meter_commands(state, totals)  # its window says what stands before it
            if leader is not None:
                leader.fold(command, offset, effects)
            else:
                command.fold(fold, offset)
            state.last_ms = max(state.last_ms, command.time_ms)
            if usage is not None and self.export is not None:
                self.export.folded(usage)
                effects += [Retired(), *self.leader_state().retire()] if isinstance(usage, RetiredCommand) else ()
        state.last_ms = max(state.last_ms, header.timestamp_ms)
        state.fold_control(header.base_offset, header.last_offset)
        state.end_entry(header.last_offset + 1)
        if totals is not None and not meter_commands(state, totals)[0]:
            drop_idle_meter(state)
        if leader is None:
            return effects
        leader.commands_arrived(before, effects, now_ms)
        if leader.is_idle:
            self.leader = None
            state.rest()
        return effects


def state_of(blob: bytes) -> QueueState:
    """What a checkpoint holds. In any thread: millions of messages take half a second. Raises CheckpointError."""
    checkpoint = decode_checkpoint(blob)
    state = _new_state(QueueConfig(fifo=checkpoint.is_fifo))
    state.restore(checkpoint)
    return state


def _new_state(config: QueueConfig) -> QueueState:
    return FifoState(config) if config.fifo else QueueState(config)


def _not_leader(token: Token) -> Refuse:
    return Refuse(token, ErrorCode.NOT_LEADER, "this node does not lead the partition")
