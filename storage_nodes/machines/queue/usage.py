"""The side of a queue machine that its driver tells and asks of metering (docs/storage/metering.md)."""

from __future__ import annotations

from typing import Protocol

from storage_nodes.machines.queue.effects import Effect, ExportUsage
from storage_nodes.machines.queue.leader.leader import Leader
from storage_nodes.machines.queue.leader.usage_export import UsageExport
from storage_nodes.machines.queue.state.metering import Metering
from storage_nodes.machines.queue.state.queue_state import QueueState


class MeteredMachine(Protocol):
    """What this needs of the machine."""

    state: QueueState
    leader: Leader | None
    export: UsageExport | None

    @property
    def is_leading(self) -> bool: ...
    def leader_state(self) -> Leader: ...


def export_of(machine: MeteredMachine) -> UsageExport:
    """Made when it is needed."""
    if machine.export is None:
        machine.export = UsageExport()
    return machine.export


class QueueUsage:
    """A view of the machine, made for each call: an idle queue stays small."""

    __slots__ = ("_machine", "_meter")

    def __init__(self, machine: MeteredMachine) -> None:
        self._machine = machine
        self._meter: Metering | None = machine.state.metering

    @property
    def is_metered(self) -> bool:
        return self._meter is not None

    # --- deliveries -------------------------------------------------------------------------------------------

    def knows_size(self, offset: int) -> bool:
        """Does the meter need no size of this message? It is known, or there is no meter."""
        leader = self._machine.leader
        return self._meter is None or (leader is not None and leader.handed_over.knows(offset))

    def note_sizes(self, sizes_bytes: dict[int, int]) -> None:
        """Billed bytes of messages, by offset, that are about to be taken out of the queue."""
        if self._meter is not None and self._machine.is_leading:
            self._machine.leader_state().handed_over.note_sizes(sizes_bytes)

    # --- windows ----------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> list[Effect]:
        if self._meter is None or not self._machine.is_leading:
            return []
        step = export_of(self._machine).step(self._meter, now_ms)
        if step is None:
            return []
        return [step] if isinstance(step, ExportUsage) else self._machine.leader_state().note(step, now_ms)

    def close(self, now_ms: int) -> list[Effect]:
        """Name what was metered up to now, although its hour is not over."""
        if self._meter is None or not self._machine.is_leading:
            return []
        leader = self._machine.leader
        is_open = leader is not None and leader.handed_over.hurry(now_ms)
        is_coming = leader is not None and not leader.handed_over.is_folded
        export_of(self._machine).ask(is_coming or self._meter.is_changed)
        effects = self.step(now_ms)
        return effects + leader.tick(now_ms) if leader is not None and is_open else effects

    @property
    def is_told(self) -> bool:
        """Does the usage stream have all that was to be closed and exported?"""
        export, leader, meter = self._machine.export, self._machine.leader, self._meter
        if meter is None:
            return True
        is_open = meter.is_changed or (leader is not None and not leader.handed_over.is_folded)
        is_asked = export is not None and export.is_asked
        return not (is_asked and is_open) and (not meter.closed or (export is not None and export.is_told(meter)))

    def exported(self, hour_ms: int, until_ms: int, now_ms: int) -> list[Effect]:
        """Answer to ExportUsage: its windows, up to this one, are committed in the usage stream."""
        if self._machine.export is None:
            return []
        self._machine.export.exported((hour_ms, until_ms), now_ms)
        return self.step(now_ms)

    def not_exported(self, now_ms: int) -> None:
        """Answer to ExportUsage: tried again after a pause."""
        if self._machine.export is not None:
            self._machine.export.not_exported(now_ms)

    # --- the end ----------------------------------------------------------------------------------------------

    def retire(self, now_ms: int) -> list[Effect]:
        """To be deleted: take no requests any more, and export the last window. Said until `may_be_deleted`."""
        state = self._machine.state
        if not self._machine.is_leading or state.is_retired or not state.config.account_id:
            return []
        command = export_of(self._machine).retire(now_ms)
        return [] if command is None else self._machine.leader_state().note(command, now_ms)

    @property
    def may_be_deleted(self) -> bool:
        """Does the usage stream have all that was folded, and does nothing more come?"""
        leader = self._machine.leader
        is_told = self._meter is not None and self._meter.is_ended and not self._meter.leased
        is_told = is_told and (leader is None or leader.is_quiet)
        return is_told or not self._machine.state.config.account_id
