"""Moves dead letters of one queue to their dead-letter queue (R30): write the copy, wait for its commit, then let the
machine remove the message.

    machine: DeadLetter -> bodies from the log -> copies, each naming its source
                        -> send, committed -> machine.moved -> log -> removed

A message is always in the source, in the target, or in both for a moment. A crash in between leads to a second copy,
which the target drops: it remembers what it took until the source is done with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog
from prometheus_client import Counter

from storage_nodes.limits import DEAD_LETTERS_PER_MOVE_BYTES_MAX
from storage_nodes.machines.queue.effects import DeadLetter, DeadLetterInfo
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.queue.state.headers import group_of
from storage_nodes.node.replicas.bodies import BodyReader
from storage_nodes.node.replicas.leader_context import LeaderContext
from storage_nodes.protocol.dead_letters import copy_of_dead
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import DeadSource, DeathReason
from storage_nodes.protocol.records import section_of
from storage_nodes.protocol.spreading import partition_of_group
from storage_nodes.protocol.usage import billed_bytes_of

MESSAGES_DEAD_LETTERED = Counter("penstock_node_messages_dead_lettered", "Messages moved to a dead-letter queue")
MOVES_FAILED = Counter("penstock_node_dead_letter_moves_failed", "Moves to a dead-letter queue that failed")

# With these no later try will do better: the messages may be received again.
_FINAL = (ErrorCode.UNKNOWN_PARTITION, ErrorCode.INVALID_REQUEST, ErrorCode.TOO_LARGE)

_log = structlog.get_logger()


class DeadLetters:
    """One move of a replica that leads. One is under way at a time; what a former leadership began is ignored."""

    def __init__(
        self,
        context: LeaderContext,
        machine: QueueMachine,
        moved: Callable[[list[int]], None],
        failed: Callable[[bool], None],
    ) -> None:
        """`moved` is told the offsets, `failed` whether no later try will do better."""
        self._context = context
        self._machine = machine
        self._moved = moved
        self._failed = failed

    def move(self, effect: DeadLetter, reader: BodyReader) -> None:
        offsets = [letter.offset for letter in effect.letters]
        bodies = reader.read(offsets)
        if bodies is not None:
            self._send(effect, bodies)
        else:
            reader.read_later(offsets, self._context.then(partial(self._send, effect)))

    def _send(self, effect: DeadLetter, bodies: dict[int, bytes]) -> None:
        replica = self._context.replica
        copies: list[bytes] = []
        moving: list[int] = []
        size, target = 0, effect.partition
        groups = self._machine.config.dead_letter_groups
        for letter in effect.letters:
            body = bodies.get(letter.offset)
            if body is None:
                continue  # purged while it was being read
            place = partition_of_group(group_of(section_of(body)), groups) if groups else effect.partition
            copy = copy_of_dead(_source_of(replica.partition, effect, letter), body)
            size += len(copy)
            if copies and (size > DEAD_LETTERS_PER_MOVE_BYTES_MAX or place != target):
                break
            target = place
            copies.append(copy)
            moving.append(letter.offset)
        sizes_bytes = billed_bytes_of([bodies[offset] for offset in moving])
        self._machine.usage.note_sizes(dict(zip(moving, sizes_bytes, strict=True)))
        if copies:
            sent = self._context.then(partial(self._sent, target, moving))
            replica.host.other_partitions.send(target, copies, sent)
        else:
            self._sent(effect.partition, [], None)

    def _sent(self, target: int, moved: list[int], error: StorageError | None) -> None:
        if error is None:
            MESSAGES_DEAD_LETTERED.inc(len(moved))
            self._moved(moved)
            return
        MOVES_FAILED.inc()
        is_final = error.code in _FINAL
        _log.warning(
            "dead letters could not be moved",
            partition=self._context.replica.partition,
            target=target,
            error=str(error),
            receivable=is_final,
        )
        self._failed(is_final)


def _source_of(partition: int, effect: DeadLetter, letter: DeadLetterInfo) -> DeadSource:
    return DeadSource(
        partition,
        letter.offset,
        letter.sent_ms,
        letter.first_received_ms,
        letter.receives,
        DeathReason.MAX_RECEIVES,
        letter.died_ms,
        letter.receives_max,
        term=effect.term,
        move=effect.move,
        kept=effect.kept,
    )
