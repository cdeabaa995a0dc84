"""Handing ticks to storage: as scheduled messages, a little before they are due.

    claim    schedules whose next tick is near (api/schedules/firing.py)
    send     per partition: opened, sealed anew, due at the tick, with the tick's own deduplication id
    note     what was committed

The storage nodes keep the time: a tick comes when it is due, however busy the workers are, if one of them looked
within CRON_AHEAD_MS before. What makes a tick one message is said in `api/schedules/firing.py`.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from datetime import datetime

import structlog

from api.queues.moving import view_of
from api.schedules.firing import CronClaim, claim_due, note_failed, note_handed_over
from frontend.crypto.envelope import Content, EnvelopeError, billed_bytes, key_names, open_envelope, seal
from frontend.errors import RequestError
from frontend.messages.storage_errors import check_taken
from frontend.queues.fifo import dedup_key
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.limits import RECORDS_PER_SEND_MAX
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_DUE, HEADER_GROUP, encode_body
from storage_nodes.protocol.usage import Origin, size_field, usage_key
from workers.limits import CRON_BATCH_BYTES_MAX, CRON_ROUNDS_MAX, CRON_STEP_S_MAX
from workers.moves.work import MoveStorage
from workers.sealing import encryption_key_uses, sealed_messages, tell_key_uses
from workers.storage import StorageRunner

_log = structlog.get_logger(__name__)
_TICK_MS = struct.Struct(">Q")
# No key of a sender begins so and has this length; nor does one of a move or of a storage node.
_KEY_START = b"\0cron"


def hand_over(storage: StorageRunner[MoveStorage], now: datetime | None = None) -> int:
    """Rounds until nothing is near; how many ticks were handed over. What is left is for the next task."""
    count = 0
    for _ in range(CRON_ROUNDS_MAX):
        claimed = claim_due(now)
        if not claimed:
            break
        count += _hand_over(storage, claimed)
    return count


def _hand_over(storage: StorageRunner[MoveStorage], claimed: Sequence[CronClaim]) -> int:
    by_partition: dict[int, list[tuple[CronClaim, list[bytes]]]] = {}
    for claim in claimed:
        try:
            view = view_of(claim.queue, sealed_messages, encryption_key_uses)
            partition, bodies = ticks_of(claim, view)
        except RequestError as refusal:
            note_failed([claim], refusal.message)
            continue
        except EnvelopeError:
            note_failed([claim], "The message of the schedule cannot be read.")
            continue
        by_partition.setdefault(partition, []).append((claim, bodies))
    count = 0
    for partition, work in by_partition.items():
        count += _send(storage, partition, work)
    tell_key_uses()
    return count


def _send(storage: StorageRunner[MoveStorage], partition: int, work: Sequence[tuple[CronClaim, list[bytes]]]) -> int:
    claims = [claim for claim, _ in work]

    async def send(client: MoveStorage) -> None:
        for batch in _batches([body for _, bodies in work for body in bodies]):
            check_taken(await client.send(partition, batch, False))

    try:
        storage.run(send, CRON_STEP_S_MAX)
    except (StorageError, TimeoutError, OSError) as error:
        # Some may stand there by now: their ids make the next attempt harmless.
        _log.warning("cron_not_handed_over", partition=partition, schedules=len(claims), error=str(error))
        note_failed(claims, "The message store does not answer.")
        return 0
    note_handed_over(claims)
    return sum(len(claim.ticks) for claim in claims)


def _batches(bodies: list[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for body in bodies:
        if batch and (size + len(body) > CRON_BATCH_BYTES_MAX or len(batch) == RECORDS_PER_SEND_MAX):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += len(body)
    if batch:
        yield batch


def ticks_of(claim: CronClaim, view: ResolvedQueue) -> tuple[int, list[bytes]]:
    """The records of a schedule's ticks, and the partition that takes them: the same one whenever it is asked, so that
    a tick that is sent twice meets its first. Raises EnvelopeError, RequestError."""
    names = key_names(claim.content_sealed)
    key = view.opening_key(names)
    if key is None:
        raise EnvelopeError("the queue has no such data key")
    opened = open_envelope(key, claim.content_sealed)
    if view.encryption is not None:
        view.encryption.note(names, opened=1)
    bodies = [_body_of(claim, view, opened.sender, opened.content, tick) for tick in claim.ticks]
    return view.partition_for_copy(claim.group or None, opened.content, claim.schedule_id), bodies


def _body_of(claim: CronClaim, view: ResolvedQueue, sender: str, content: Content, tick: datetime) -> bytes:
    tick_ms = round(tick.timestamp() * 1000)
    group = claim.group.encode()
    if view.fifo is None:
        content = Content(content.body, content.attributes)
        dedup = _KEY_START + claim.schedule_uuid.bytes + _TICK_MS.pack(tick_ms)
    else:
        # A FIFO queue shows the deduplication id of every message.
        dedup_id = f"{claim.schedule_uuid}-{tick_ms}"
        content = Content(content.body, content.attributes, "", dedup_id)
        dedup = dedup_key(view.fifo, group, dedup_id)
    headers: tuple[tuple[bytes, bytes], ...] = ((HEADER_DEDUP, dedup), (HEADER_DUE, b"%d" % tick_ms))
    if group:
        headers += ((HEADER_GROUP, group),)
    record_key = usage_key(Origin.CRON, billed_bytes(content))
    envelope = seal(view.sealing_key(time.time()), sender.encode(), content, size_field(record_key))[1]
    return encode_body(envelope, record_key, headers)
