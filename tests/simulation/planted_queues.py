"""Planted bugs of what queues hand out and take back; what they are for says `planted.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from storage_nodes.machines.queue.commands import DeletedCommand
from storage_nodes.machines.queue.delivery.groups import GroupWindow, MessageGroup
from storage_nodes.machines.queue.delivery.handed_over import HandedOver
from storage_nodes.machines.queue.leader.letters import Letters
from storage_nodes.machines.queue.state.queue_state import QueueState


@contextmanager
def drops_deletes_by_older_receipts() -> Iterator[None]:
    """B44: a delete by the receipt of an older delivery is answered, and has no effect."""
    real = QueueState.fold_deleted

    def fold_deleted(self: QueueState, command: DeletedCommand) -> list[int]:
        flat = command.receipts
        kept = [
            number
            for offset, delivery in zip(flat[::2], flat[1::2], strict=True)
            if self.live.get(offset, (0, 0))[1] <= delivery
            for number in (offset, delivery)
        ]
        return real(self, DeletedCommand(command.term, command.sequence, command.time_ms, kept))

    with mock.patch.object(QueueState, "fold_deleted", fold_deleted):
        yield


@contextmanager
def tells_the_size_of_another() -> Iterator[None]:
    """B65: a leader says of all messages of an answer that they are as large as the first one."""
    real = HandedOver.handed_over

    def handed_over(self: HandedOver, bodies: Mapping[int, bytes], kept_back: int, time_ms: int) -> None:
        first = next(iter(bodies.values()), b"")
        real(self, dict.fromkeys(bodies, first), kept_back, time_ms)

    with mock.patch.object(HandedOver, "handed_over", handed_over):
        yield


@contextmanager
def passes_messages_in_flight() -> Iterator[None]:
    """B45: of a group whose first message is in flight those are handed out that nobody received yet."""
    real = GroupWindow.run

    def run(self: GroupWindow, group: MessageGroup, room: int) -> tuple[int, int]:
        found = real(self, group, room)
        return found if any(found) else (0, min(len(group.fresh) - group.head, room))

    with mock.patch.object(GroupWindow, "run", run):
        yield


@contextmanager
def forgets_letters_under_way() -> Iterator[None]:
    """B46: a leader says that its moves are done when the next one begins, whatever lies there."""
    real = Letters.next_move

    def next_move(self: Letters, state: Any, leases: Any, time_ms: int) -> Any:
        move = real(self, state, leases, time_ms)
        return None if move is None else move._replace(term=0, move=state.log_end, kept=state.log_end)

    with mock.patch.object(Letters, "next_move", next_move):
        yield
