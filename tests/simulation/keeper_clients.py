"""Whoever keeps the queue: pauses it and lets it go on, and hands parked groups out again."""

from __future__ import annotations

import msgspec

from storage_nodes.limits import RETENTION_MS_DEFAULT
from storage_nodes.protocol.messages import ConfigureRequest, Opcode, QueueConfig, UnparkRequest
from tests.simulation.clients import RETRY_US, Client, Operation
from tests.simulation.faults import Faults

_TIMEOUT_US = 1_500_000
# A dead letter is there once, however long ago its first copy came.
_WINDOW_MS_MIN = 1_000


def queue_config(faults: Faults, dead_partition: int) -> QueueConfig:
    """Of the queue that everybody uses."""
    for_dead_letters = dead_partition < 0 and faults.receives_max  # they are counted in the end
    config = QueueConfig(
        retention_ms=RETENTION_MS_DEFAULT if for_dead_letters else faults.retention_ms,
        dedup_window_ms=_WINDOW_MS_MIN if for_dead_letters else faults.dedup_ms,
        fifo=faults.fifo,
        retry_kind=faults.retry_kind,
        retry_delay_ms=50 if faults.retry_kind else 0,
        retry_max_ms=400 if faults.retry_kind else 0,
        retry_jitter_permille=500 if faults.retry_kind else 0,
        account_id="1" * 12,
    )
    if dead_partition < 0:
        return config
    return msgspec.structs.replace(
        config,
        max_receives=faults.receives_max,
        dead_letter_partition=dead_partition,
        park_groups=faults.fifo and faults.park_groups,
    )


class Keeper(Client):
    """One request after the other. In the end it lets everything go, and goes on unparking what is parked then."""

    def start(self) -> None:
        self._config = queue_config(self.world.faults, self.world.dead_partition)
        self._is_open = False
        self._next()

    def _next(self) -> None:
        # In the end now and then once more: a late request to pause may have come after the last word.
        if self.world.draining and (not self._is_open or self.random.random() < 0.3):
            self._pause(False)
        elif self._config.park_groups and (self.world.draining or self.random.random() < 0.6):
            self._unpark()
        elif self.world.faults.pauses and not self.world.draining:
            self._pause(self.random.random() < 0.4)
        else:
            self._later()

    def _pause(self, paused: bool) -> None:
        def configured(operation: Operation) -> None:
            self._is_open = operation.outcome == "ok" and not paused
            self.world.referee.configured(operation)
            self._ended(operation)

        request = ConfigureRequest(self.world.partition, msgspec.structs.replace(self._config, paused=paused))
        self.world.referee.configures(request)
        self.ask(Opcode.CONFIGURE, request, _TIMEOUT_US, configured)

    def _unpark(self) -> None:
        groups = [b"g%d" % number for number in range(3) if self.random.random() < 0.7]
        request = UnparkRequest(self.world.partition, [] if self.world.draining else groups)
        self.ask(Opcode.UNPARK, request, _TIMEOUT_US, self._ended)

    def _ended(self, operation: Operation) -> None:
        if operation.outcome == "ok":
            self._later()
        else:
            self.elsewhere(operation.reply)
            self.later(RETRY_US, self._next)

    def _later(self) -> None:
        self.at_leisure(self.random.randrange(20_000, 500_000), self._next)
