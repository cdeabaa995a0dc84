"""Encryption keys that are disabled, deleted or not there: what the front end refuses, and what it keeps."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.crypto.envelope import key_names
from tests.support.encrypted_queue import (
    KEY_ID,
    change_key,
    dead_letter,
    dead_letter_queue,
    encrypted,
    receive,
    send,
    stored,
)
from tests.support.frontend_plane import ACCOUNT, OTHER_ACCOUNT, QUEUE_URL, Installation


@pytest.mark.parametrize(
    ("state", "error", "query_code"),
    [
        ("disabled", "KmsDisabled", "KMS.DisabledException"),
        ("pending_deletion", "KmsInvalidState", "KMS.InvalidStateException"),
        (None, "KmsNotFound", "KMS.NotFoundException"),
    ],
)
async def test_key_that_cannot_be_used_refuses_sends_and_receives(
    front: Installation, state: str | None, error: str, query_code: str
) -> None:
    encrypted(front)
    await send(front)
    if state is None:
        del front.metadata.encryption_keys[KEY_ID]
    else:
        change_key(front, state=state, version=2)
    batch = {"QueueUrl": QUEUE_URL, "Entries": [{"Id": "a", "MessageBody": "x"}]}
    for answer in (await send(front), await front.sqs("SendMessageBatch", batch), await receive(front)):
        assert (answer.status, answer.error) == (400, error)
        assert answer.headers["x-amzn-query-error"] == f"{query_code};Sender"
    rest = await front.rest("/v1/queues/orders/messages", {"body": "x"})
    assert rest.status == 409 and rest.json["code"] == error[:3].lower() + "-" + rest.json["code"][4:]
    # What needs no key goes on.
    asked = {"QueueUrl": QUEUE_URL, "AttributeNames": ["All"]}
    answer = await front.sqs("GetQueueAttributes", asked)
    assert answer.json["Attributes"]["ApproximateNumberOfMessages"] == "1"
    assert answer.json["Attributes"]["KmsMasterKeyId"] == KEY_ID
    assert (await front.sqs("PurgeQueue", {"QueueUrl": QUEUE_URL})).status == 200


async def test_browser_shows_and_resends_nothing_while_the_key_cannot_be_used(front: Installation) -> None:
    encrypted(front)
    await send(front, "secret")
    path = "/v1/queues/orders/messages"
    (shown,) = (await front.rest(f"{path}/peek")).json["messages"]
    change_key(front, state="disabled", version=2)
    for what, asked in (("peek", {}), ("find", {"filter": {}}), ("resend", {"message": shown["message"]})):
        refused = await front.rest(f"{path}/{what}", asked)
        assert (refused.status, refused.json["code"]) == (409, "kms-disabled"), what
    assert front.storage.count() == 1


async def test_messages_are_kept_while_their_key_is_disabled(front: Installation) -> None:
    encrypted(front)
    await send(front)
    change_key(front, state="disabled", version=2)
    assert (await receive(front)).error == "KmsDisabled"
    change_key(front, state="enabled", version=3)
    assert (await receive(front)).json["Messages"][0]["Body"] == "x"


async def test_long_poll_gives_nothing_once_the_key_is_disabled(front: Installation) -> None:
    encrypted(front)
    await send(front)
    acquire = front.storage.acquire

    async def disable_then_acquire(*given: Any, **named: Any) -> Any:
        change_key(front, state="disabled", version=2)
        return await acquire(*given, **named)

    front.storage.acquire = disable_then_acquire  # type: ignore[method-assign]  # of this one object
    answer = await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, "WaitTimeSeconds": 5})
    assert answer.error == "KmsDisabled"


async def test_long_poll_of_a_dead_letter_queue_opens_by_the_keys_as_they_are_when_it_ends(front: Installation) -> None:
    """The dead-letter queue itself names no key: what its letters need is looked at when they come."""
    source = encrypted(front)
    await send(front, "dead")
    dead_letter_queue(front, source)
    await dead_letter(front)
    acquire = front.storage.acquire

    async def disable_then_acquire(*given: Any, **named: Any) -> Any:
        change_key(front, state="disabled", version=2)
        return await acquire(*given, **named)

    front.storage.acquire = disable_then_acquire  # type: ignore[method-assign]  # of this one object
    url = QUEUE_URL.replace("orders", "dead")
    assert (await front.sqs("ReceiveMessage", {"QueueUrl": url, "WaitTimeSeconds": 5})).error == "KmsDisabled"


async def test_name_of_the_managed_key_needs_no_key_of_the_customer(front: Installation) -> None:
    for named in ("alias/aws/sqs", f"arn:aws:kms:us-east-1:{ACCOUNT}:alias/aws/sqs"):
        front.add_queue("orders", attributes={"KmsMasterKeyId": named})
        assert (await send(front)).status == 200
    assert key_names(stored(front)[0]).encryption_version == 0


async def test_name_of_no_key_refuses_as_the_key_that_it_would_name(front: Installation) -> None:
    front.add_queue("orders", attributes={"KmsMasterKeyId": "alias/none"})
    assert (await send(front)).error == "KmsNotFound"


async def test_key_record_of_another_account_opens_nothing(front: Installation) -> None:
    encrypted(front)
    change_key(front, account_id=OTHER_ACCOUNT, version=2)
    assert (await send(front)).error == "KmsNotFound"
