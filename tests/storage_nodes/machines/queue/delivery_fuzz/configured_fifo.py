"""A FIFO queue by its log, as `NaiveFifo`, whose configuration changes.

A lease, an expiry or a move that was staged before a change may be committed after it. So the bounds of the
configuration in force are not held against them here; the order within a group and its lock are.
"""

from __future__ import annotations

import msgspec

from storage_nodes.machines.queue import commands
from tests.storage_nodes.machines.queue.naive_fifo import NaiveFifo


class ConfiguredFifo(NaiveFifo):
    def _command(self, command: commands.Command, offset: int) -> None:
        if isinstance(command, commands.ConfiguredCommand):
            self.config = msgspec.structs.replace(self.config, **command.known)
            if not self.config.park_groups:
                self.parked.clear()
        elif isinstance(command, commands.DeadLetteredCommand):
            for moved in command.offsets:
                message = self.messages.pop(moved, None)
                if message is not None and self.config.park_groups:
                    self.parked.add(message.group)
        else:
            super()._command(command, offset)

    def _expire(self, offset: int, now_ms: int) -> None:
        self.messages.pop(offset, None)

    def _check_lock_and_order(self, group: bytes, offsets: list[int], time_ms: int) -> None:
        assert group not in self.parked, f"group {group!r} is parked"
        standing = self.group_of(group)
        assert not any(self.messages[offset].is_in_flight(time_ms) for offset in offsets), f"group {group!r}: leased"
        assert standing[: len(offsets)] == offsets, f"group {group!r}: {offsets} leased, {standing} stand"
        early = [offset for offset in offsets if self.messages[offset].deadline_ms > time_ms]
        assert not early, f"group {group!r}: {early} are delayed, and handed out too early"
