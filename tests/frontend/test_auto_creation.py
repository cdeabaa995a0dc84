"""Sends to queues that do not exist: made where the account allows it, refused as ever where it does not."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from frontend.metadata.records import AccountRecord
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, Installation, Reply

NEW_URL = f"http://{HOST}/{ACCOUNT}/new"
SEND = {"QueueUrl": NEW_URL, "MessageBody": "x"}


@pytest.fixture
def generous(front: Installation) -> Installation:
    front.metadata.accounts[ACCOUNT] = AccountRecord(ACCOUNT, "a", True, 1, True)

    def create(request: httpx2.Request) -> httpx2.Response:
        name = json.loads(request.content)["params"]["QueueName"]
        assert request.url.path == "/internal/sqs/AutoCreateQueue" and front.mac_is_right(request)
        front.add_queue(name)
        return httpx2.Response(200, json={"name": name})

    front.control_answer = create
    return front


async def test_first_send_makes_the_queue_and_is_stored_in_it(generous: Installation) -> None:
    sent = await generous.sqs("SendMessage", SEND)
    assert sent.status == 200 and generous.storage.count() == 1
    batch = {"QueueUrl": NEW_URL, "Entries": [{"Id": "a", "MessageBody": "x"}]}
    assert (await generous.sqs("SendMessageBatch", batch)).status == 200
    assert (await generous.rest("/v1/queues/other/messages", {"body": "x"})).status == 200
    assert len(generous.control_calls) == 2


async def test_sends_of_one_moment_share_one_creation(generous: Installation) -> None:
    answers = await asyncio.gather(*[generous.sqs("SendMessage", SEND) for _ in range(5)])
    assert [answer.status for answer in answers] == [200] * 5
    assert len(generous.control_calls) == 1 and not generous.plane.creations


async def test_queue_is_not_made_where_the_account_does_not_allow_it(front: Installation) -> None:
    for account in (None, AccountRecord(ACCOUNT, "a", True, 1)):
        if account is not None:
            front.metadata.accounts[ACCOUNT] = account
        assert (await front.sqs("SendMessage", SEND)).error == "QueueDoesNotExist"
    assert not front.control_calls


@pytest.mark.parametrize("account_id", [OTHER_ACCOUNT, ACCOUNT])
async def test_only_sends_to_names_of_the_own_account_make_queues(generous: Installation, account_id: str) -> None:
    generous.metadata.accounts[OTHER_ACCOUNT] = AccountRecord(OTHER_ACCOUNT, "b", True, 1, True)
    url = f"http://{HOST}/{account_id}/new"
    expected = "QueueDoesNotExist" if account_id == ACCOUNT else "AccessDeniedException"
    if account_id == OTHER_ACCOUNT:
        assert (await generous.sqs("SendMessage", {"QueueUrl": url, "MessageBody": "x"})).error == expected
    assert (await generous.sqs("ReceiveMessage", {"QueueUrl": url})).error == expected
    assert not generous.control_calls


async def test_refusal_of_the_control_plane_is_the_answer(generous: Installation) -> None:
    problem = {"code": "OverLimit", "message": "At most 100 queues an hour"}
    generous.control_answer = lambda request: httpx2.Response(403, json=problem)
    answer = await generous.sqs("SendMessage", SEND)
    assert (answer.error, answer.json["message"]) == ("OverLimit", "At most 100 queues an hour")
    assert not generous.plane.creations


async def test_setting_that_nobody_can_tell_is_unavailable(generous: Installation) -> None:
    generous.metadata.queues.clear()
    generous.metadata.down = True
    assert (await generous.sqs("SendMessage", SEND)).status == 503


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("new", {"body": ""}),
        ("new", {"body": "\0"}),
        ("new", {"body": "x", "delay_seconds": 901}),
        ("new", {"body": "x", "tag": "a b"}),
        ("new", {"body": "x" * (2**20 + 1)}),
        ("new", {"body": "x", "deduplication_id": "d"}),
        ("new.fifo", {"body": "x", "group": "g", "deduplication_id": "d", "delay_seconds": 1}),
        ("new.fifo", {"body": "x", "deduplication_id": "d"}),
        ("new.fifo", {"body": "x", "group": "g"}),
    ],
)
async def test_message_that_is_refused_makes_no_queue(
    generous: Installation, name: str, message: dict[str, object]
) -> None:
    path = f"/v1/queues/{name}/messages"
    alone, batch = await generous.rest(path, message), await generous.rest(path, {"messages": [message, message]})
    assert alone.status == 400 and not generous.control_calls
    # A queue that is there refuses it in the same words.
    generous.add_queue(name)
    for refused, sent in ((alone, message), (batch, {"messages": [message, message]})):
        there = await generous.rest(path, sent)
        assert (refused.status, _told(refused)) == (there.status, _told(there))
    assert generous.storage.count() == 0


async def test_refused_sqs_sends_make_no_queue(generous: Installation) -> None:
    alone = await generous.sqs("SendMessage", {"QueueUrl": NEW_URL, "MessageBody": "\ufffe"})
    assert alone.error == "InvalidMessageContents"
    entries = [{"Id": "a", "MessageBody": "\ufffe"}, {"Id": "b", "MessageBody": "x", "DelaySeconds": 901}]
    batch = await generous.sqs("SendMessageBatch", {"QueueUrl": NEW_URL, "Entries": entries})
    assert batch.status == 200 and [failed["Id"] for failed in batch.json["Failed"]] == ["a", "b"]
    too_long = [{"Id": name, "MessageBody": "x" * 2**19} for name in "abc"]
    refused = await generous.sqs("SendMessageBatch", {"QueueUrl": NEW_URL, "Entries": too_long})
    assert refused.error == "BatchRequestTooLong"
    assert not generous.control_calls


async def test_batch_makes_the_queue_for_the_entries_that_pass(generous: Installation) -> None:
    entries = [{"Id": "a", "MessageBody": "\ufffe"}, {"Id": "b", "MessageBody": "x"}]
    batch = await generous.sqs("SendMessageBatch", {"QueueUrl": NEW_URL, "Entries": entries})
    assert [sent["Id"] for sent in batch.json["Successful"]] == ["b"]
    assert [failed["Id"] for failed in batch.json["Failed"]] == ["a"]
    assert len(generous.control_calls) == 1 and generous.storage.count() == 1


async def test_message_for_a_new_fifo_queue_is_checked_by_its_name(generous: Installation) -> None:
    generous.control_answer = lambda request: httpx2.Response(200, json={"name": _make_fifo(generous)})
    message = {"body": "x", "group": "g", "deduplication_id": "d"}
    assert (await generous.rest("/v1/queues/new.fifo/messages", message)).status == 200


def _make_fifo(front: Installation) -> str:
    front.add_queue("new.fifo", (3,))
    return "new.fifo"


def _told(answer: Reply) -> object:
    return answer.json.get("messages") or answer.json["detail"]
