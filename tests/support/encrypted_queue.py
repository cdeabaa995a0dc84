"""A queue of the front end's installation that names an encryption key of its account."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from frontend.metadata.records import (
    DataKeyGrantRecord,
    DataKeyRecord,
    EncryptionKeyRecord,
    EncryptionKeyVersionRecord,
    QueueRecord,
)
from storage_nodes.protocol.records import decode_body
from tests.support.frontend_plane import ACCOUNT, QUEUE_URL, Installation

KEY_ID = "5f0c3e9e-0000-4000-8000-000000000001"


OTHER_KEY_ID = "5f0c3e9e-0000-4000-8000-000000000002"


def encrypted(front: Installation, name: str = "orders", key_id: str = KEY_ID, **attributes: str) -> QueueRecord:
    """The queue names the key, which is enabled and has one version."""
    record = front.metadata.queues[(ACCOUNT, name)]
    names = {"KmsMasterKeyId": key_id, **attributes}
    changed = msgspec.structs.replace(
        record, attributes={**record.attributes, **names}, encryption_key=key_id, encryption_keys=[key_id]
    )
    front.metadata.queues[(ACCOUNT, name)] = changed
    if key_id not in front.metadata.encryption_keys:
        front.metadata.encryption_keys[key_id] = EncryptionKeyRecord(
            key_id, ACCOUNT, "enabled", [key_version(front, changed, 7, key_id)], 1
        )
    return changed


def key_version(
    front: Installation, record: QueueRecord, number: int, key_id: str = KEY_ID
) -> EncryptionKeyVersionRecord:
    key = uuid.UUID(key_id).bytes
    wrapped = front.keyring.new_encryption_key(ACCOUNT, record.account_key_wrapped, key, number)
    return EncryptionKeyVersionRecord(number, wrapped)


def change_key(front: Installation, key_id: str = KEY_ID, **changes: Any) -> None:
    held = front.metadata.encryption_keys
    held[key_id] = msgspec.structs.replace(held[key_id], **changes)


def stored(front: Installation, partition: int = 1) -> list[bytes]:
    """Envelopes."""
    return [decode_body(message.body).value for message in front.storage.messages(partition)]


async def send(front: Installation, body: str = "x", **options: Any) -> Any:
    return await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": body}, **options)


async def receive(front: Installation, count: int = 10, url: str = QUEUE_URL, **options: Any) -> Any:
    return await front.sqs("ReceiveMessage", {"QueueUrl": url, "MaxNumberOfMessages": count}, **options)


def dead_letter_queue(front: Installation, source: QueueRecord, key_ids: Sequence[str] = (KEY_ID,)) -> None:
    """What the source's dead-letter queue looks like: it holds a grant of the data key, and the id of the key."""
    front.add_queue("dead", (50,))
    record = front.metadata.queues[(ACCOUNT, "dead")]
    wrapped = front.keyring.new_data_key(ACCOUNT, source.account_key_wrapped, record.queue_uuid, 2)
    grant = DataKeyGrantRecord(1, source.data_keys[0].wrapped, source.queue_uuid, source.name)
    front.metadata.queues[(ACCOUNT, "dead")] = msgspec.structs.replace(
        record,
        account_key_wrapped=source.account_key_wrapped,
        data_keys=[DataKeyRecord(2, wrapped)],
        key_grants=[grant],
        encryption_keys=list(key_ids),
    )


async def dead_letter(front: Installation) -> None:
    """The message of `orders` as its storage node moves it: as it is, with a header that says where it died."""
    from storage_nodes.protocol.dead_letters import copy_of_dead
    from storage_nodes.protocol.messages import DeadSource, DeathReason

    (message, *_) = front.storage.messages(1)
    await front.storage.remove(1, [message.offset])
    source = DeadSource(1, 0, message.sent_ms, message.sent_ms, 1, DeathReason.MAX_RECEIVES, message.sent_ms)
    await front.storage.send(50, [copy_of_dead(source, message.body)], False)
