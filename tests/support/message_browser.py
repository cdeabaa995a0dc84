"""The message browser over REST: what tests ask it for."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from frontend.metadata.records import DataKeyGrantRecord, DataKeyRecord
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.support.frontend_plane import ACCOUNT, Installation, Reply

MESSAGES = "/v1/queues/orders/messages"


async def send(front: Installation, body: str, queue: str = "orders", **fields: Any) -> str:
    reply = await front.rest(f"/v1/queues/{queue}/messages", {"body": body, **fields})
    assert reply.status == 200, reply.body
    return str(reply.json["id"])


async def peek(front: Installation, queue: str = "orders", **ask: Any) -> list[Any]:
    reply = await front.rest(f"/v1/queues/{queue}/messages/peek", ask)
    assert reply.status == 200, reply.body
    return list(reply.json["messages"])


async def find(front: Installation, asked: dict[str, Any], queue: str = "orders") -> list[str]:
    """Bodies of all that match, over as many requests as it takes."""
    bodies: list[str] = []
    cursor = ""
    while True:
        ask = {"filter": asked, "limit": 100, "cursor": cursor}
        reply = await front.rest(f"/v1/queues/{queue}/messages/find", ask)
        assert reply.status == 200, reply.body
        bodies += [message["body"] for message in reply.json["messages"]]
        if reply.json["cursor"] is None:
            return bodies
        cursor = reply.json["cursor"]


async def act(front: Installation, what: str, message: Any, queue: str = "orders", **fields: Any) -> Reply:
    return await front.rest(f"/v1/queues/{queue}/messages/{what}", {"message": message["message"], **fields})


def with_dead_letter_queue(front: Installation, suffix: str = "") -> None:
    """`orders` has the dead-letter queue `dead`, which has been granted its key."""
    policy = {"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:dead{suffix}", "maxReceiveCount": 1}
    front.add_queue("orders" + suffix, (1,), attributes={"RedrivePolicy": json.dumps(policy)})
    source = front.metadata.queues[(ACCOUNT, "orders" + suffix)]
    grant = DataKeyGrantRecord(1, source.data_keys[0].wrapped, source.queue_uuid, source.name)
    front.add_queue("dead" + suffix, (2,), key_grants=[grant])
    record = front.metadata.queues[(ACCOUNT, "dead" + suffix)]
    # Keys of an account are wrapped by one key, those of the helper's records each by another.
    wrapped = front.keyring.new_data_key(ACCOUNT, source.account_key_wrapped, record.queue_uuid, 1)
    front.metadata.queues[(ACCOUNT, "dead" + suffix)] = msgspec.structs.replace(
        record, account_key_wrapped=source.account_key_wrapped, data_keys=[DataKeyRecord(1, wrapped)]
    )


async def storage_fails(*_: Any) -> Any:
    raise StorageError(ErrorCode.NO_QUORUM)
