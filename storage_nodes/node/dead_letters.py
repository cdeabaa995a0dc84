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
from storage_nodes.machines.queue.effects import DeadLetter, Letter
from storage_nodes.machines.queue.state import group_of
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import DeadSource, DeathReason, encode_message
from storage_nodes.protocol.records import (
    HEADER_DEAD_SOURCE,
    HEADER_DEDUP,
    HEADER_DELAY_MS,
    Record,
    RecordError,
    decode_body,
    encode_body,
)
from storage_nodes.protocol.spreading import partition_of_group

if TYPE_CHECKING:
    from storage_nodes.node.queue_replica import QueueReplica

MESSAGES_DEAD_LETTERED = Counter("penstock_node_messages_dead_lettered", "Messages moved to a dead-letter queue")
MOVES_FAILED = Counter("penstock_node_dead_letter_moves_failed", "Moves to a dead-letter queue that failed")

# With these no later try will do better: the messages may be received again.
_FINAL = (ErrorCode.UNKNOWN_PARTITION, ErrorCode.INVALID_REQUEST, ErrorCode.TOO_LARGE)
_REPLACED_HEADERS = (HEADER_DELAY_MS, HEADER_DEDUP, HEADER_DEAD_SOURCE)

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
            place = partition_of_group(group_of(body), groups) if groups else effect.partition
            copy = dead_letter_copy(replica.partition, letter, body)
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
            replica.host.forwards.send(target, copies, sent)
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


def dead_letter_copy(partition: int, letter: Letter, body: bytes) -> bytes:
    """The message as it is sent to the dead-letter queue: key, value and group as they are, and where it comes from."""
    try:
        record = decode_body(body)
    except RecordError:
        record = Record(None, body, ())  # what a client sent as plain and is not: kept as it is
    headers = [header for header in record.headers if header[0] not in _REPLACED_HEADERS]
    source = DeadSource(
        partition,
        letter.offset,
        letter.sent_ms,
        letter.first_received_ms,
        letter.receives,
        DeathReason.MAX_RECEIVES,
        letter.died_ms,
        letter.receives_max,
    )
    headers.append((HEADER_DEAD_SOURCE, encode_message(source)))
    headers.append((HEADER_DEDUP, dead_letter_id(partition, letter.offset)))
    return encode_body(record.value, record.key, headers)


def dead_letter_id(partition: int, offset: int) -> bytes:
    """Names the message, so that its second copy is a duplicate. No client sends a zero byte in an id."""
    return b"\x00%d/%d" % (partition, offset)
