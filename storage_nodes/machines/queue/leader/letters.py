"""At the leader: dead letters on their way to the dead-letter queue, one move at a time.

dead -> DeadLetter(the first ones) -> the driver copies them -> moved -> DEAD_LETTERED, folded -> the next ones
                                                             -> failed -> after a pause that doubles, the same
"""

from __future__ import annotations

import heapq

from storage_nodes.limits import DEAD_LETTER_PAUSE_MS_MAX, DEAD_LETTER_PAUSE_MS_MIN, DEAD_LETTERS_PER_MOVE_MAX
from storage_nodes.machines.queue.delivery.leases import Leases
from storage_nodes.machines.queue.effects import DeadLetter, DeadLetterInfo
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.protocol.deliveries import receives_of


class Letters:
    __slots__ = ("_pause_ms", "again_ms", "under_way")

    def __init__(self) -> None:
        self.under_way: list[int] = []
        self.again_ms = 0  # the last move failed: not before this time; 0 = at once
        self._pause_ms = DEAD_LETTER_PAUSE_MS_MIN

    def succeeded(self) -> None:
        self._pause_ms = DEAD_LETTER_PAUSE_MS_MIN

    def failed(self, time_ms: int) -> list[int]:
        """Those that were under way."""
        moving, self.under_way = self.under_way, []
        self.again_ms = time_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, DEAD_LETTER_PAUSE_MS_MAX)
        return moving

    def next_move(self, state: QueueState, leases: Leases, time_ms: int) -> DeadLetter | None:
        if self.again_ms and time_ms >= self.again_ms:
            self.again_ms = 0
        if self.under_way or self.again_ms or not leases.dead:
            return None
        self.under_way = heapq.nsmallest(DEAD_LETTERS_PER_MOVE_MAX, leases.dead)
        letters = []
        for offset in self.under_way:
            died_ms, delivery, first_received_ms, sent_ms = state.live[offset]
            letters.append(
                DeadLetterInfo(offset, receives_of(delivery), first_received_ms, sent_ms, died_ms, leases.receives_max)
            )
        return DeadLetter(state.config.dead_letter_partition, letters)
