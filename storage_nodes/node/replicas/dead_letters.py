"""Moves dead letters of one queue to their dead-letter queue (R30): write the copy, wait for its commit, then let the
machine remove the message.

    machine: DeadLetter -> bodies from the log -> copies, each with a deduplication id of its source
                        -> send, committed -> machine.moved -> log -> removed

A message is always in the source, in the target, or in both for a moment. A crash in between leads to a second copy
with the same id, which the target drops while it remembers the id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from prometheus_client import Counter

from storage_nodes.limits import DEAD_LETTERS_PER_MOVE_BYTES_MAX
from storage_nodes.machines.queue.effects import DeadLetter, DeadLetterInfo
from storage_nodes.machines.queue.state.headers import group_of
from storage_nodes.protocol.dead_letters import copy_of_dead
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import DeadSource, DeathReason
from storage_nodes.protocol.records import section_of
from storage_nodes.protocol.spreading import partition_of_group

if TYPE_CHECKING:
    from storage_nodes.node.replicas.queue_replica import QueueReplica

MESSAGES_DEAD_LETTERED = Counter("penstock_node_messages_dead_lettered", "Messages moved to a dead-letter queue")
MOVES_FAILED = Counter("penstock_node_dead_letter_moves_failed", "Moves to a dead-letter queue that failed")

# With these no later try will do better: the messages may be received again.
_FINAL = (ErrorCode.UNKNOWN_PARTITION, ErrorCode.INVALID_REQUEST, ErrorCode.TOO_LARGE)

_log = structlog.get_logger()


class DeadLetters:
    """Of one replica, while it leads. One move is under way at a time; what a former leadership began is ignored."""

    def __init__(self, replica: QueueReplica) -> None:
        self._replica = replica

    def move(self, effect: DeadLetter) -> None:
        replica = self._replica
        epoch = replica.raft.epoch
        offsets = [letter.offset for letter in effect.letters]

        def found(bodies: dict[int, bytes]) -> None:
            if replica.serving and replica.raft.epoch == epoch:
                self._send(effect, bodies, epoch)

        bodies = replica.bodies.read(offsets)
        if bodies is not None:
            self._send(effect, bodies, epoch)
        else:
            replica.bodies.read_later(offsets, found)

    def _send(self, effect: DeadLetter, bodies: dict[int, bytes], epoch: int) -> None:
        replica = self._replica
        copies: list[bytes] = []
        moving: list[int] = []
        size, target = 0, effect.partition
        groups = replica.machine.state.config.dead_letter_groups
        for letter in effect.letters:
            body = bodies.get(letter.offset)
            if body is None:
                continue  # purged while it was being read
            place = partition_of_group(group_of(section_of(body)), groups) if groups else effect.partition
            copy = copy_of_dead(_source_of(replica.partition, letter), body)
            size += len(copy)
            if copies and (size > DEAD_LETTERS_PER_MOVE_BYTES_MAX or place != target):
                break
            target = place
            copies.append(copy)
            moving.append(letter.offset)

        def sent(error: StorageError | None) -> None:
            if replica.serving and replica.raft.epoch == epoch:
                self._sent(target, moving, error)

        if copies:
            replica.host.other_partitions.send(target, copies, sent)
        else:
            self._sent(effect.partition, [], None)

    def _sent(self, target: int, moved: list[int], error: StorageError | None) -> None:
        replica = self._replica
        if error is None:
            MESSAGES_DEAD_LETTERED.inc(len(moved))
            replica.moved(moved)
            return
        MOVES_FAILED.inc()
        is_final = error.code in _FINAL
        _log.warning(
            "dead letters could not be moved",
            partition=replica.partition,
            target=target,
            error=str(error),
            receivable=is_final,
        )
        replica.move_failed(is_final)


def _source_of(partition: int, letter: DeadLetterInfo) -> DeadSource:
    return DeadSource(
        partition,
        letter.offset,
        letter.sent_ms,
        letter.first_received_ms,
        letter.receives,
        DeathReason.MAX_RECEIVES,
        letter.died_ms,
        letter.receives_max,
    )
