"""A replica of a queue partition: sends, leases, deletes. Drives the queue machine.

Send:     request -> gathered -> one data batch per group commit -> committed -> answered.
Acquire:  request -> machine picks offsets -> bodies read from the log -> answered; the lease is logged, not waited for.
Delete:   request -> machine stages a command -> committed and folded -> answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from storage_nodes.limits import (
    ATTEMPT_BYTES_MAX,
    BATCH_BYTES_MAX,
    FIFO_PARSED_BYTES_MAX,
    FIFO_READ_AHEAD_BYTES_MAX,
    LEASE_LINGER_MS,
    PARKED_GROUPS_PER_PAGE_MAX,
    READ_AHEAD_BYTES_MAX,
    SCHEDULED_BATCH_BYTES_MAX,
)
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.log.record_batch import BatchHeader, read_header, records_to_fold, usages_of
from storage_nodes.machines.queue import effects as queue_effects
from storage_nodes.machines.queue.effects import FreshRange, Keys
from storage_nodes.machines.queue.machine import QueueMachine, state_of
from storage_nodes.machines.queue.state.headers import group_of, key_of
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.node.plain_metrics import PlainCounter
from storage_nodes.node.replicas.appends import Appends
from storage_nodes.node.replicas.bodies import BodyReader
from storage_nodes.node.replicas.browsing import browse
from storage_nodes.node.replicas.dead_letters import DeadLetters
from storage_nodes.node.replicas.deliveries import deliver
from storage_nodes.node.replicas.host import Host
from storage_nodes.node.replicas.message_sizes import with_sizes
from storage_nodes.node.replicas.partition_meta import PartitionMeta
from storage_nodes.node.replicas.partition_replica import PartitionReplica
from storage_nodes.node.replicas.queue_checks import (
    check_acquire,
    check_count,
    check_headers,
    check_tags,
    check_unpark,
    check_visibility,
    give_backs,
)
from storage_nodes.node.replicas.removing import remove
from storage_nodes.node.replicas.replica import Performers
from storage_nodes.node.replicas.scheduled import check_changes, release, show
from storage_nodes.node.replicas.usage import export_usage
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    AcquireRequest,
    ChangeVisibilityRequest,
    CodesReply,
    ConfigureReply,
    ConfigureRequest,
    DeleteRequest,
    Opcode,
    ParkedGroupsReply,
    ParkedGroupsRequest,
    PurgeReply,
    PurgeRequest,
    QueueBrowseRequest,
    QueueRemoveRequest,
    RescheduleRequest,
    ScheduledRequest,
    SendRequest,
    UnparkRequest,
    VisibilityMode,
    encode_message,
)
from storage_nodes.protocol.usage import sum_of

MESSAGES_SENT = PlainCounter("penstock_node_messages_sent", "Messages appended to queue partitions led here")

_acquire_request = msgspec.msgpack.Decoder(AcquireRequest)
_delete_request = msgspec.msgpack.Decoder(DeleteRequest)
_change_request = msgspec.msgpack.Decoder(ChangeVisibilityRequest)
_purge_request = msgspec.msgpack.Decoder(PurgeRequest)
_browse_request = msgspec.msgpack.Decoder(QueueBrowseRequest)
_remove_request = msgspec.msgpack.Decoder(QueueRemoveRequest)
_parked_request = msgspec.msgpack.Decoder(ParkedGroupsRequest)
_unpark_request = msgspec.msgpack.Decoder(UnparkRequest)
_configure_request = msgspec.msgpack.Decoder(ConfigureRequest)
_scheduled_request = msgspec.msgpack.Decoder(ScheduledRequest)
_reschedule_request = msgspec.msgpack.Decoder(RescheduleRequest)


class QueueReplica(PartitionReplica):
    """Queue semantics on one partition."""

    __slots__ = ("_body_reader", "_fetching", "_linger_until_ms", "_released")
    machine: QueueMachine

    def __init__(self, host: Host, log: PartitionLog, meta: PartitionMeta) -> None:
        self._fetching = False
        # When leases that were handed out must be on their way to the log (monotonic); 0 = none are.
        self._linger_until_ms = 0
        # Made with the first read: an idle partition stays small.
        self._body_reader: BodyReader | None = None
        # Scheduled messages that are due, to be appended with the next group commit.
        self._released: Sequence[bytes] = ()
        super().__init__(host, log, meta, QueueMachine(meta.config))

    @property
    def bodies(self) -> BodyReader:
        if self._body_reader is None:
            is_shuffled = self.machine.is_fifo or self.machine.tracks_keys
            parsed_bytes_max = FIFO_PARSED_BYTES_MAX if is_shuffled else 0
            self._body_reader = BodyReader(self.log, self.host.bodies, self.host.run_cold, parsed_bytes_max)
        return self._body_reader

    # --- requests ---------------------------------------------------------------------------------------------

    def send(self, token: Token, payload: bytes) -> None:
        self.require_leader()
        appends = self._appends
        if appends is None:
            appends = self._appends = Appends(self.host.room, self.used_since_ms, sum_of)
        if appends.take(token, payload, self.machine.state.producers, self._check_send):
            self.progressed()
        self.propose_soon()

    def acquire(self, token: Token, payload: bytes) -> None:
        request = _acquire_request.decode(payload)
        self.require_lease()
        check_acquire(request)
        now_ms = self.now_ms()
        wait_until_ms = now_ms + request.wait_ms if request.wait_ms else 0
        if wait_until_ms:
            token.connection.parked[token.request_id] = (self.partition, token.opcode)
        tags = check_tags(request.tags) if request.tags else ()
        effects = self.machine.acquire(
            token, request.max_messages, request.visibility_ms, wait_until_ms, now_ms, request.attempt, tags
        )
        self._do(effects)
        self.schedule()

    def delete(self, token: Token, payload: bytes) -> None:
        request = _delete_request.decode(payload)
        self.require_lease()
        check_count(len(request.receipts))
        self._do(self.machine.delete(token, request.receipts))
        self.propose_soon()

    def change_visibility(self, token: Token, payload: bytes) -> None:
        request = _change_request.decode(payload)
        self.require_lease()
        check_count(len(request.changes))
        for _, _, visibility_ms in request.changes:
            check_visibility(visibility_ms)
        changes = request.changes if request.mode == VisibilityMode.SET else give_backs(request)
        if 0 < request.epoch < self.raft.epoch:
            changes = self.machine.of_earlier_leaders(changes)
        if request.deadline_ms:
            if self.machine.is_under_way(changes):
                raise StorageError(ErrorCode.OVERLOADED, "a command on one of these messages is under way")
            changes = self.machine.of_leases_until(changes, request.deadline_ms)
        self._do(self.machine.change_visibility(token, changes, self.now_ms()))
        self.propose_soon()

    def purge(self, token: Token, payload: bytes) -> None:
        request = _purge_request.decode(payload)
        self.require_lease()
        if len(request.attempt) > ATTEMPT_BYTES_MAX:
            raise StorageError(ErrorCode.INVALID_REQUEST, f"an attempt id has at most {ATTEMPT_BYTES_MAX} bytes")
        self._do(self.machine.purge(token, self.now_ms(), request.attempt))
        self.propose_soon()

    def configure(self, token: Token, payload: bytes) -> None:
        request = _configure_request.decode(payload)
        self.require_lease()
        config = request.config
        if self.partition in (config.dead_letter_partition, *config.dead_letter_groups):
            raise StorageError(ErrorCode.INVALID_REQUEST, "a queue is not its own dead-letter queue")
        self._do(self.machine.configure(token, request.config))
        self.propose_soon()

    def stats(self, token: Token, payload: bytes) -> None:
        self.require_lease()
        token.connection.answer(token, encode_message(self.machine.stats(self.now_ms())))

    def parked_groups(self, token: Token, payload: bytes) -> None:
        request = _parked_request.decode(payload)
        self.require_lease()
        if not 1 <= request.groups_max <= PARKED_GROUPS_PER_PAGE_MAX:
            raise StorageError(ErrorCode.INVALID_REQUEST, f"groups_max must be 1 to {PARKED_GROUPS_PER_PAGE_MAX}")
        groups = self.machine.parked_groups(request.after, request.groups_max)
        reply = ParkedGroupsReply(groups, self.machine.parked_count)
        token.connection.answer(token, encode_message(reply))

    def unpark(self, token: Token, payload: bytes) -> None:
        request = _unpark_request.decode(payload)
        self.require_lease()
        check_unpark(request.groups)
        self._do(self.machine.unpark(token, request.groups, self.now_ms()))
        self.propose_soon()

    def browse(self, token: Token, payload: bytes) -> None:
        request = _browse_request.decode(payload)
        self.require_lease()
        browse(self.leader_context(), self.machine, token, request)

    def scheduled(self, token: Token, payload: bytes) -> None:
        request = _scheduled_request.decode(payload)
        self.require_lease()
        show(self.leader_context(), self.machine, token, request)

    def reschedule(self, token: Token, payload: bytes) -> None:
        request = _reschedule_request.decode(payload)
        self.require_lease()
        check_changes(request)
        cancelled = [offset for offset, due_ms in request.changes if not due_ms]

        def changed() -> None:
            self.staged(self.machine.reschedule(token, request.changes, self.now_ms()))

        with_sizes(self.leader_context(), self.machine, token, cancelled, changed)

    def remove(self, token: Token, payload: bytes) -> None:
        request = _remove_request.decode(payload)
        self.require_lease()
        remove(self.leader_context(), self.machine, token, request, self.staged)

    def staged(self, effects: Iterable[queue_effects.Effect]) -> None:
        """The machine was told something outside this class: its effects, and what it staged goes to the log."""
        self._do(effects)
        self.propose_soon()

    # --- scheduled messages -----------------------------------------------------------------------------------

    def released(self, copies: list[bytes], offsets: list[int]) -> None:
        """These were read to be appended once more; none: there is no room for them now."""
        self._released = copies
        self._do(self.machine.release_begun(offsets, self.now_ms()))
        self.propose_soon()
        self.schedule()

    # --- dead letters -----------------------------------------------------------------------------------------

    def moved(self, offsets: list[int]) -> None:
        self._do(self.machine.moved(offsets, self.now_ms()))
        self.propose_soon()
        self.schedule()

    def move_failed(self, is_final: bool) -> None:
        self._do(self.machine.move_failed(is_final, self.now_ms()))
        self.schedule()

    # --- Replica ----------------------------------------------------------------------------------------------

    def propose(self) -> None:
        now_ms = self.now_ms()
        self._linger_until_ms = 0
        if self._appends is not None:
            self._appends.propose(self, now_ms)
        if self._released:
            self.append_own(list(self._released), now_ms)
            self._released = ()
        commands = self.machine.take_commands(now_ms, self.host.feature_level)
        if commands:
            self.append_own(commands, now_ms, control=True)

    def fold(self, header: BatchHeader, batch: bytes) -> None:
        now_ms = self.now_ms()
        self._do(self.machine.apply(header, lambda: records_to_fold(batch), now_ms, lambda: usages_of(batch)))
        if self.serving and not header.is_control:
            MESSAGES_SENT.count += header.record_count

    @staticmethod
    def read_state(checkpoint: bytes) -> QueueState:
        return state_of(checkpoint)

    def on_follow(self) -> None:
        self._released = ()
        super().on_follow()
        if self._body_reader is not None:
            self._body_reader.close()
            self._body_reader = None
        self._linger_until_ms = 0

    def on_tick(self) -> None:
        super().on_tick()
        if self._linger_until_ms and self._linger_until_ms <= self.host.clock.mono_ms():
            # Booked no more: the proposal itself waits for the disk, and the timer must not ring for it meanwhile.
            self._linger_until_ms = 0
            self.propose_soon()

    def machine_tick_mono_ms(self) -> int:
        due_ms = self.machine.next_tick_ms()
        tick_ms = self.time.mono_of(due_ms) if due_ms and self.time is not None else 0
        linger_until_ms = self._linger_until_ms
        return linger_until_ms if linger_until_ms and not 0 < tick_ms < linger_until_ms else tick_ms

    def rest(self) -> None:
        if self._appends is not None and self._appends.is_idle:
            self._appends = None
        if self._body_reader is not None and self._body_reader.is_idle:
            self._body_reader = None
        self.machine.rest()

    def _check_send(self, request: SendRequest) -> int:
        """How large batches with these messages may be. Raises StorageError where headers do not fit this queue: what
        is appended is folded, whatever it says."""
        is_fifo = self.machine.is_fifo
        if request.plain:
            if is_fifo:
                raise StorageError(ErrorCode.INVALID_REQUEST, "a message of a FIFO queue names its group")
            return BATCH_BYTES_MAX
        ids = scheduled = delayed = 0
        for body in request.bodies:
            has_id, is_scheduled, is_delayed = check_headers(body, is_fifo)
            ids += has_id
            scheduled += is_scheduled
            delayed += is_delayed
        if ids or scheduled or delayed:
            gathered = 0 if self._appends is None else self._appends.gathered_records
            uncommitted = self.log.log_end - self.applied + gathered
            if scheduled > self.machine.schedule_room(uncommitted):
                raise StorageError(ErrorCode.SCHEDULE_FULL, "no more messages can be scheduled here")
            if delayed > self.machine.delay_room(uncommitted):
                raise StorageError(ErrorCode.OVER_LIMIT, "no more messages can be delayed here")
            if ids > self.machine.dedup_room(self.now_ms(), uncommitted):
                raise StorageError(ErrorCode.OVER_LIMIT, "too many deduplication ids are remembered")
        return SCHEDULED_BATCH_BYTES_MAX if scheduled else BATCH_BYTES_MAX

    # --- the machine's effects --------------------------------------------------------------------------------

    def _proposal_wanted(self, _effect: queue_effects.Propose) -> None:
        if self.machine.is_fifo:
            self.propose_soon()  # leases are waited for
        else:
            # A request that waits for a command has asked for its proposal already; leases may gather.
            self._linger_until_ms = self._linger_until_ms or self.host.clock.mono_ms() + LEASE_LINGER_MS

    def _duplicated(self, effect: queue_effects.Duplicated) -> None:
        if self._appends is not None:  # else nobody waits for what was folded
            self._appends.duplicated(effect.pairs)

    def _dead_letters_due(self, effect: queue_effects.DeadLetter) -> None:
        # A turn later: its answer is an input to the machine, which has not returned from this one.
        self.host.loop.call_soon(self.leader_context().then(self._move_dead_letters), effect)

    def _move_dead_letters(self, effect: queue_effects.DeadLetter) -> None:
        DeadLetters(self.leader_context(), self.machine, self.moved, self.move_failed).move(effect, self.bodies)

    def _export_usage(self, effect: queue_effects.ExportUsage) -> None:
        export_usage(self.leader_context(), self.machine, effect, self.staged)

    def _retired(self, _effect: queue_effects.Retired) -> None:
        self.host.retired(self.partition)

    def _release_due(self, effect: queue_effects.Release) -> None:
        # A turn later, as with dead letters.
        self.host.loop.call_soon(self.leader_context().then(self._release), effect)

    def _release(self, effect: queue_effects.Release) -> None:
        release(self.leader_context(), self.machine, effect, self.released)

    def _refuse(self, effect: queue_effects.Refuse) -> None:
        token: Token | None = effect.token
        if token is not None:
            token.connection.refuse(token, StorageError(effect.code, effect.text))

    def _answer(self, effect: queue_effects.CommandAnswer) -> None:
        token: Token | None = effect.token
        if token is None:
            return
        if token.opcode == Opcode.PURGE:
            code, purged = effect.result
            if code is not ErrorCode.OK:
                token.connection.refuse(token, StorageError(code, "one purge a minute"))
                return
            token.connection.answer(token, encode_message(PurgeReply(purged)))
        elif token.opcode == Opcode.CONFIGURE:
            _, held = effect.result
            token.connection.answer(token, encode_message(ConfigureReply(held)))
        else:
            codes: Any = effect.result
            token.connection.answer(token, encode_message(CodesReply(codes)))

    def _fetch(self, effect: queue_effects.Fetch) -> None:
        """Read on for the machine. Fetches are answered from the event loop, one a turn: never one within another."""
        from_offset = effect.from_offset
        is_parsed = self.machine.is_fifo or self.machine.tracks_keys
        bytes_max = FIFO_READ_AHEAD_BYTES_MAX if is_parsed else READ_AHEAD_BYTES_MAX
        batches = self.log.read_hot(from_offset, bytes_max)
        if batches is not None:
            if self._fetching:
                self.host.loop.call_soon(self.leader_context().then(self._fetch_later), effect)
                return
            self._fetching = True
            self._fetched(from_offset, batches)
            self._fetching = False
            return
        bytes_max = min(bytes_max, self.host.bodies.stretch_bytes())

        def done(cold: list[bytes]) -> None:
            self.bodies.keep_ahead(from_offset, cold)
            self._fetched(from_offset, cold)
            self.schedule()

        self.leader_context().run_cold(lambda: self.log.read_cold(from_offset, bytes_max), done)

    def _fetch_later(self, effect: queue_effects.Fetch) -> None:
        self._fetch(effect)
        self.schedule()

    def _fetched(self, from_offset: int, batches: list[bytes]) -> None:
        """Tell the machine where messages stand; only what is folded may be handed out (R9)."""
        ranges: list[FreshRange] = []
        groups: list[list[bytes]] = []
        keys: list[Keys] = []
        next_offset = from_offset
        for batch in batches:
            header = read_header(batch)
            if header.end_offset > self.applied:
                break
            if not header.is_control:
                first = max(header.base_offset, from_offset)
                ranges.append(FreshRange(first, header.last_offset, header.timestamp_ms))
                if self.machine.is_fifo:
                    sections = records_to_fold(batch)
                    groups.append([group_of(section) for offset, section in sections if offset >= first])
                elif self.machine.tracks_keys:
                    sections = [] if header.is_plain else records_to_fold(batch)
                    keys.append([key_of(section) for offset, section in sections if offset >= first])
            next_offset = header.end_offset
        else:
            if not batches:
                next_offset = self.applied
        self._do(self.machine.fetched(from_offset, ranges, next_offset, self.now_ms(), keys or groups))

    performers: ClassVar[Performers] = {
        queue_effects.Deliver: deliver,
        queue_effects.Propose: _proposal_wanted,
        queue_effects.Duplicated: _duplicated,
        queue_effects.DeadLetter: _dead_letters_due,
        queue_effects.ExportUsage: _export_usage,
        queue_effects.Retired: _retired,
        queue_effects.Release: _release_due,
        queue_effects.CommandAnswer: _answer,
        queue_effects.Fetch: _fetch,
        queue_effects.Refuse: _refuse,
    }
