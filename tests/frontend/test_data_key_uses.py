"""Messages sealed under data keys: counted, told, and keys that come while a front end runs."""

from __future__ import annotations

import json

import httpx2
import msgspec
import pytest

from frontend.key_uses import tell_key_uses
from frontend.metadata.records import DataKeyRecord, QueueRecord
from frontend.queues import key_uses
from frontend.queues.key_uses import DataKeyUses
from tests.support.frontend_plane import ACCOUNT, QUEUE_URL, Installation

SEND = {"QueueUrl": QUEUE_URL, "MessageBody": "x"}
ONE, TWO = b"1" * 16, b"2" * 16


def test_counts_are_told_from_the_least_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_uses, "DATA_KEY_USES_TOLD_MIN", 10)
    uses = DataKeyUses()
    uses.note(ONE, 1, 9)
    uses.note(TWO, 1, 30)
    assert uses.take(5) == [(TWO.hex(), 1, 30)]
    uses.note(ONE, 1, 1)
    assert uses.take(5) == [(ONE.hex(), 1, 10)] and uses.take(5) == []


def test_largest_counts_are_kept_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_uses, "DATA_KEYS_COUNTED_MAX", 4)
    uses = DataKeyUses()
    for version, count in enumerate((5, 1, 7, 2)):
        uses.note(ONE, version, count)
    uses.note(TWO, 9, 1)
    assert uses._counts == {(ONE, 0): 5, (ONE, 2): 7, (TWO, 9): 1}


async def test_front_end_tells_what_it_sealed(front: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_uses, "DATA_KEY_USES_TOLD_MIN", 3)
    front.control_answer = lambda request: httpx2.Response(503, json={})
    for _ in range(3):
        assert (await front.sqs("SendMessage", SEND)).status == 200
    await tell_key_uses(front.plane)
    front.control_answer = lambda request: httpx2.Response(200, json={})
    await tell_key_uses(front.plane)
    told = [one for one in front.control_calls if one.url.path == "/internal/data-keys/used"]
    record = front.metadata.queues[ACCOUNT, "orders"]
    wanted = {"uses": [[record.queue_uuid.hex(), record.data_keys[-1].version, 3]]}
    assert json.loads(told[-1].content) == wanted, "what could not be told is told later"


async def test_message_that_the_browser_sends_again_is_counted(front: Installation) -> None:
    path = "/v1/queues/orders/messages"
    await front.rest(path, {"body": "x"})
    (shown,) = (await front.rest(f"{path}/peek")).json["messages"]
    assert (await front.rest(f"{path}/resend", {"message": shown["message"]})).status == 200
    record = front.metadata.queues[ACCOUNT, "orders"]
    assert front.plane.queues.data_key_uses._counts == {(record.queue_uuid, record.data_keys[-1].version): 2}


async def test_message_under_a_key_that_is_not_known_yet_is_opened(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another front end heard of the new key first."""
    address = (ACCOUNT, "orders")
    old = front.metadata.queues[address]
    version = old.data_keys[-1].version + 1
    wrapped = front.keyring.new_data_key(ACCOUNT, old.account_key_wrapped, old.queue_uuid, version)
    data_keys = [*old.data_keys, DataKeyRecord(version, wrapped)]
    new = msgspec.structs.replace(old, data_keys=data_keys, version=old.version + 1)
    front.metadata.queues[address] = new
    assert (await front.sqs("SendMessage", SEND)).status == 200
    front.metadata.queues[address] = old

    async def refresh_queue(account_id: str, name: str) -> QueueRecord:
        front.metadata.queues[account_id, name] = new
        return new

    monkeypatch.setattr(front.metadata, "refresh_queue", refresh_queue)
    (message,) = (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})).json["Messages"]
    assert message["Body"] == "x"
