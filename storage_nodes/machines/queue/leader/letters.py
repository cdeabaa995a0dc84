"""At the leader: dead letters on their way to the dead-letter queue, one move at a time.

dead -> DeadLetter(the first ones) -> the driver copies them -> moved -> DeadLetteredCommand, folded -> the next ones
                                                             -> failed -> after a pause that doubles, the same

The letters of a move are chosen once, and no other is chosen while one of them still is dead here: then the queue that
takes them need not remember more than one move (state/taken_letters.py). A move is numbered by where the log ended when
it was chosen, so the next leader numbers higher.
"""

from __future__ import annotations

import heapq

from storage_nodes.limits import DEAD_LETTER_PAUSE_MS_MAX, DEAD_LETTER_PAUSE_MS_MIN, DEAD_LETTERS_PER_MOVE_MAX
from storage_nodes.machines.queue.delivery.leases import Leases, Removals
from storage_nodes.machines.queue.effects import DeadLetter, DeadLetterInfo
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.protocol.deliveries import receives_of


class Letters:
    __slots__ = ("_chosen", "_kept", "_move", "_pause_ms", "_term", "again_ms", "under_way")

    def __init__(self, term: int) -> None:
        self._term = term
        self._chosen: list[int] = []  # of the move, and of earlier ones what lies here alive
        self._move = self._kept = term
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

    def next_move(self, state: QueueState, leases: Leases, removals: Removals, time_ms: int) -> DeadLetter | None:
        """What is to be removed does not move, since its caller may have it elsewhere by then."""
        if self.again_ms and time_ms >= self.again_ms:
            self.again_ms = 0
        if self.under_way or self.again_ms or not leases.dead or state.is_retired:
            return None
        dead = leases.dead - removals.among(leases.dead) if removals else leases.dead
        chosen = [offset for offset in self._chosen if offset in dead] or self._choose(state, dead)
        if not chosen:
            return None
        self.under_way = chosen[:DEAD_LETTERS_PER_MOVE_MAX]
        letters = []
        for offset in self.under_way:
            died_ms, delivery, first_received_ms, sent_ms = state.live[offset]
            letters.append(
                DeadLetterInfo(offset, receives_of(delivery), first_received_ms, sent_ms, died_ms, leases.receives_max)
            )
        return DeadLetter(state.config.dead_letter_partition, letters, self._term, self._move, self._kept)

    def _choose(self, state: QueueState, dead: set[int]) -> list[int]:
        """The letters of a new move. One of an earlier move that lies here, and may be received again, may come again:
        until it is gone that move is not done."""
        if not dead:
            return []
        self._chosen = [offset for offset in self._chosen if offset in state.live]
        self._move = state.log_end
        if not self._chosen:
            self._kept = self._move
        chosen = heapq.nsmallest(DEAD_LETTERS_PER_MOVE_MAX, dead)
        self._chosen += chosen
        return chosen
