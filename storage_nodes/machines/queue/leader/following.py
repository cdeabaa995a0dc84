"""What a leader does when its own commands come back, committed: it folds them as every replica does, follows them in
what it derived from the state, and answers those who wait for them."""

from __future__ import annotations

from storage_nodes.machines.queue.commands import (
    AcquiredCommand,
    Command,
    ConfiguredCommand,
    DeadLetteredCommand,
    DeletedCommand,
    ExpiredCommand,
    LeasedCommand,
    PurgedCommand,
    RemovedCommand,
    RescheduledCommand,
    UnparkedCommand,
    VisibilityCommand,
)
from storage_nodes.machines.queue.delivery.leases import Removals
from storage_nodes.machines.queue.delivery.pending_commands import InFlightCommand
from storage_nodes.machines.queue.delivery.strategy import DeliveryContext, DeliveryStrategy
from storage_nodes.machines.queue.effects import CommandAnswer, Effect, answers_of
from storage_nodes.machines.queue.leader.letters import Letters
from storage_nodes.machines.queue.state.folding import StateFold
from storage_nodes.protocol.errors import ErrorCode


class LeaderFold(StateFold):
    __slots__ = ("_context", "_effects", "_leases", "_letters", "_removals", "_taken", "delivery")

    _taken: InFlightCommand
    _effects: list[Effect]

    def __init__(
        self, context: DeliveryContext, delivery: DeliveryStrategy, letters: Letters, removals: Removals
    ) -> None:
        super().__init__(context.state)
        self._context, self._leases = context, context.leases
        self._letters, self._removals = letters, removals
        self.delivery = delivery  # another one once groups and tags matter

    def fold(self, command: Command, offset: int, effects: list[Effect]) -> None:
        """`effects` get the answers of those who wait for it."""
        self._taken, self._effects = self._context.staging.folded(command), effects
        effects += self._taken.answers
        command.fold(self, offset)
        del self._taken, self._effects  # they name connections, which may close long before the next command

    # --- commands of many messages ----------------------------------------------------------------------------

    def fold_acquired(self, command: AcquiredCommand) -> None:
        self._state.fold_acquired(command)
        leases = self._leases
        for leased in command.acquisitions:
            deadline_ms, fresh, again = leased.deadline_ms, leased.fresh, leased.again
            for at in range(0, len(fresh), 3):
                leases.set_timer(deadline_ms, fresh[at], fresh[at + 1])
            for offset in again:
                leases.release(offset)
            if deadline_ms == leased.time_ms:
                self._context.coming_back -= len(again) + sum(fresh[1::3]) - sum(fresh[::3]) + len(fresh) // 3
        self.delivery.acquired(command)

    def fold_leased(self, command: LeasedCommand) -> None:
        self.delivery.fold_leased(command, self._taken, self._effects)

    def fold_deleted(self, command: DeletedCommand) -> None:
        self.delivery.fold_deleted(command, self._taken, self._effects)

    def fold_visibility(self, command: VisibilityCommand) -> None:
        codes = self._state.fold_visibility(command)
        changes = command.changes
        for at in range(0, len(changes), 3):
            if changes[at + 1] > 0:
                self._leases.release(changes[at])
        self._effects += answers_of(codes, self._taken.askers)

    def fold_expired(self, command: ExpiredCommand) -> None:
        offsets = command.offsets
        groups = self.delivery.groups_of(offsets)
        self._leases.expire(offsets)
        self._state.fold_expired(command)
        self._context.forget(offsets)
        self.delivery.expired(command.ranges)
        self.delivery.left(offsets, groups)

    def fold_dead_lettered(self, command: DeadLetteredCommand) -> None:
        groups = self.delivery.groups_of(command.offsets)
        self._state.fold_dead_lettered(command)
        self._context.forget(command.offsets)
        self._leases.spare(self._letters.under_way)
        self._letters.under_way = []
        self.delivery.left(command.offsets, groups)

    # --- commands of one call ---------------------------------------------------------------------------------

    def fold_purged(self, command: PurgedCommand, offset: int) -> None:
        parked = self.delivery.parked_groups()
        is_repeat = self._state.is_last_purge(command)
        result = self._state.fold_purged(command, offset)
        if result[0] == ErrorCode.OK and not is_repeat:
            self._leases.clear()
            self._context.staging.handed_over.clear()
            self.delivery.window.clear(offset)
            self.delivery.purged()
        self.delivery.unparked(parked)
        self._answer(result)

    def fold_rescheduled(self, command: RescheduledCommand) -> None:
        codes = self._state.fold_rescheduled(command)
        self._context.forget(command.changes[::2])
        self._answer(codes)

    def fold_removed(self, command: RemovedCommand) -> None:
        offsets = command.offsets
        live_groups = self.delivery.groups_of(offsets)
        groups = self._removals.end(offsets, self._leases)
        codes = self._state.fold_removed(command)
        self._context.forget(offsets)
        self.delivery.window.removed(offsets, groups)
        self.delivery.left(offsets, live_groups)
        self._answer(codes)

    def fold_unparked(self, command: UnparkedCommand) -> None:
        self._answer(self.delivery.fold_unparked(command))

    def fold_configured(self, command: ConfiguredCommand) -> None:
        state, parked = self._state, self.delivery.parked_groups()
        state.fold_configured(command)
        self._context.pauses_staged -= state.config.paused
        self._leases.configure(state.receives_max, state.retry, self._letters.under_way)
        self.delivery.unparked(parked)
        self._answer((ErrorCode.OK, state.held_count))

    def _answer(self, result: list[ErrorCode] | tuple[ErrorCode, int]) -> None:
        self._effects += [CommandAnswer(asker.token, result) for asker in self._taken.askers]
