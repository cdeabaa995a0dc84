"""The message browser: what it shows, what it leaves alone, and what it does to one message."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import httpx2
import msgspec
import pytest

from frontend import limits
from frontend.crypto.message_tokens import InvalidToken, MessageToken, MessageTokens, SearchCursor
from storage_nodes.protocol.errors import ErrorCode
from tests.frontend.test_rest import problem
from tests.support.frontend_plane import ACCOUNT, OTHER_ACCOUNT, QUEUE_URL, Installation
from tests.support.message_browser import MESSAGES, act, find, peek, send, storage_fails, with_dead_letter_queue

# --- peek ---


async def test_peek_shows_every_state_and_changes_nothing(front: Installation) -> None:
    await send(front, "leased", attributes={"a": {"value": "1"}}, group="g")
    (leased,) = (await front.rest(MESSAGES + "/receive", {"visibility_seconds": 60})).json["messages"]
    await send(front, "waits")
    await send(front, "later", delay_seconds=90)
    before = front.storage.messages(1)
    first, second, third = await peek(front)
    assert front.storage.messages(1) == before
    assert {call for call, _ in front.storage.calls[-1:]} == {"browse"}
    now_ms = int(front.clock.now_s * 1000)
    assert first.pop("message") and len(second["message"]) == 44
    assert first == {
        "id": leased["id"], "state": "in_flight", "receive_count": 1, "sent_ms": now_ms, "first_received_ms": now_ms,
        "visible_at_ms": now_ms + 60_000, "sender": front.key.access_key_id, "body": "leased", "group": "g",
        "attributes": {"a": {"type": "String", "value": "1"}},
    }  # fmt: skip
    assert (second["state"], second["visible_at_ms"], second["receive_count"]) == ("waiting", None, 0)
    assert (third["state"], third["visible_at_ms"]) == ("delayed", now_ms + 90_000)
    (again,) = (await front.rest(MESSAGES + "/receive", {"max_messages": 10})).json["messages"]
    assert (again["body"], again["delivery_count"]) == ("waits", 1), "a peek is no receive"
    assert [message["body"] for message in await peek(front, states=["delayed"])] == ["later"]


async def test_peek_pages_with_a_cursor_over_all_partitions() -> None:
    front = Installation((1, 2, 3))
    for number in range(25):
        await send(front, str(number))
    bodies, cursor, rounds = [], "", 0
    while cursor is not None:
        reply = (await front.rest(MESSAGES + "/peek", {"limit": 4, "cursor": cursor})).json
        assert len(reply["messages"]) <= 4
        bodies += [message["body"] for message in reply["messages"]]
        assert reply["scanned"] == len(bodies)
        cursor, rounds = reply["cursor"], rounds + 1
    assert sorted(bodies, key=int) == [str(number) for number in range(25)] and rounds >= 7


async def test_long_bodies_are_cut_where_asked(front: Installation) -> None:
    await send(front, "x" * 1000)
    (message,) = await peek(front, body_chars=10)
    assert (message["body"], message["body_cut_from_chars"]) == ("x" * 10, 1000)


async def test_message_that_does_not_open_is_shown_as_unreadable_and_can_be_deleted(front: Installation) -> None:
    await send(front, "x")
    (stored,) = front.storage.messages(1)
    front.storage.replace_body(1, stored.offset, stored.body[:-3] + b"???")
    (message,) = await peek(front)
    assert message["unreadable"] and "body" not in message and "id" not in message
    assert (await act(front, "resend", message)).status == 400
    assert (await act(front, "delete", message)).status == 200 and front.storage.count() == 0
    assert front.audit[0]["message_id"] == ""


# --- find ---


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"groups": ["g1"]}, ["one"]),
        ({"attributes": {"color": "red"}}, ["one", "two"]),
        ({"attributes": {"color": None, "raw": "AP8="}}, ["two"]),
        ({"attributes": {"color": "blue"}}, []),
        ({"body_contains": "w"}, ["two"]),
        ({"body_contains": ".*"}, []),
        ({"states": ["delayed"]}, ["three"]),
        ({"receives_min": 1}, ["one"]),
        ({"receives_max": 0, "states": ["waiting"]}, ["two"]),
        ({"age_seconds_min": 50}, ["one"]),
        ({"age_seconds_max": 50}, ["two", "three"]),
        ({"sent_after_ms": 1_700_000_100_000}, ["two", "three"]),
        ({"sent_before_ms": 1_700_000_000_000}, ["one"]),
        ({"sources": ["dead"]}, []),
        ({"tags": ["t"]}, []),
        ({}, ["one", "two", "three"]),
    ],
)
async def test_find_by_each_condition(front: Installation, asked: dict[str, Any], found: list[str]) -> None:
    red = {"value": "red"}
    raw = {"type": "Binary", "value": base64.b64encode(b"\x00\xff").decode()}
    await send(front, "one", group="g1", attributes={"color": red})
    await front.rest(MESSAGES + "/receive", {"visibility_seconds": 300})
    front.clock.now_s += 100
    await send(front, "two", group="g2", attributes={"color": red, "raw": raw})
    await send(front, "three", delay_seconds=60)
    assert await find(front, asked) == found


async def test_find_by_id_tells_how_far_it_came_and_goes_on(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontend.message_browser.search.BROWSER_SCAN_MESSAGES_MAX", 100)
    monkeypatch.setattr("frontend.message_browser.search.BROWSER_PAGE_MESSAGES_MAX", 50)
    ids = [await send(front, str(number)) for number in range(330)]
    ask: dict[str, Any] = {"filter": {"ids": [ids[321]]}}
    scanned = []
    while True:
        reply = (await front.rest(MESSAGES + "/find", ask)).json
        scanned.append(reply["scanned"])
        if reply["messages"] or reply["cursor"] is None:
            break
        ask["cursor"] = reply["cursor"]
    assert scanned == [100, 200, 300, 330] and reply["messages"][0]["body"] == "321"
    other = await front.rest(MESSAGES + "/find", {"filter": {"ids": [ids[1]]}, "cursor": ask["cursor"]})
    assert (other.status, problem(other)) == (400, "invalid-parameter-value"), "a cursor of another search"


async def test_search_over_a_log_that_holds_little_ends_at_its_bound_of_looks(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontend.message_browser.search.BROWSER_SCAN_PAGES_MAX", 3)
    await send(front, "first")
    for _ in range(6):
        await send(front, "x" * 900_000)  # a look reads about as much of the log
    await front.storage.remove(1, [one.offset for one in front.storage.messages(1)[1:]])
    reply = (await front.rest(MESSAGES + "/find", {"filter": {"body_contains": "none"}})).json
    assert (reply["messages"], reply["scanned"]) == ([], 1) and reply["cursor"]
    assert front.storage.calls.count(("browse", 1)) == 3


@pytest.mark.parametrize(
    ("what", "ask"),
    [
        ("find", {}),
        ("find", {"filter": {"unknown": 1}}),
        ("find", {"filter": {"ids": []}}),
        ("find", {"filter": {"ids": ["x"] * 11}}),
        ("find", {"filter": {"ids": "x"}}),
        ("find", {"filter": {"groups": ["x" * 257]}}),
        ("find", {"filter": {"body_contains": ""}}),
        ("find", {"filter": {"body_contains": "x" * 257}}),
        ("find", {"filter": {"body_contains": "\x00"}}),
        ("find", {"filter": {"states": ["gone"]}}),
        ("find", {"filter": {"receives_min": -1}}),
        ("find", {"filter": {"sent_after_ms": 2**60}}),
        ("find", {"filter": {"attributes": {}}}),
        ("find", {"filter": {"attributes": {str(n): None for n in range(11)}}}),
        ("find", {"filter": {"attributes": {"": None}}}),
        ("peek", {"limit": 0}),
        ("peek", {"limit": 101}),
        ("peek", {"body_chars": -1}),
        ("peek", {"cursor": "x"}),
        ("peek", {"cursor": "A" * 64}),
        ("peek", {"states": []}),
        ("delete", {}),
        ("delete", {"message": "x"}),
        ("delete", {"message": "A" * 44}),
        ("resend", {"message": "\u00e9" * 40}),
    ],
)
async def test_asks_out_of_bounds_are_refused(front: Installation, what: str, ask: dict[str, Any]) -> None:
    await send(front, "x")
    reply = await front.rest(f"{MESSAGES}/{what}", ask)
    assert reply.status == 400 and problem(reply) and front.storage.count() == 1 and not front.audit


async def test_queue_and_messages_of_another_account_are_not_there(front: Installation) -> None:
    await send(front, "x")
    (message,) = await peek(front)
    for path in ("secret", "nowhere"):
        one = {"message": message["message"]}
        noted = {**one, "reason": "r"}
        asks: dict[str, Any] = {
            "peek": {}, "find": {"filter": {}}, "delete": noted, "dead-letter": noted, "resend": one,
        }  # fmt: skip
        for what, ask in asks.items():
            reply = await front.rest(f"/v1/queues/{path}/messages/{what}", ask)
            assert (reply.status, problem(reply)) == (404, "queue-does-not-exist")
    front.add_queue("mine", (50,), account_id=OTHER_ACCOUNT)
    front.add_queue("same", (1,))
    theirs = await front.rest(
        "/v1/queues/mine/messages/delete", {"message": message["message"]}, front.other_key.bearer_token
    )
    same = await front.rest("/v1/queues/same/messages/delete", {"message": message["message"]})
    assert theirs.status == same.status == 400 and front.storage.count() == 1, "a place is of one queue"


def test_tokens_are_of_one_queue_one_search_and_one_kind() -> None:
    tokens = MessageTokens(b"k" * 32)
    token, cursor = tokens.make(b"o", MessageToken(3, 70)), tokens.cursor(b"o", SearchCursor(3, 70, 9), b"search")
    assert (len(token), len(cursor)) == (44, 64)
    assert tokens.read(b"o", token) == (3, 70)
    assert tokens.read_cursor(b"o", cursor, b"search") == (3, 70, 9)
    changed = ("B" if token[9] == "A" else "A").join((token[:9], token[10:]))
    for owner, text in ((b"p", token), (b"o", changed), (b"o", cursor), (b"o", ""), (b"o", "\n" * 44)):
        with pytest.raises(InvalidToken):
            tokens.read(owner, text)
    for owner, text, search in ((b"p", cursor, b"search"), (b"o", cursor, b"other"), (b"o", token, b"search")):
        with pytest.raises(InvalidToken):
            tokens.read_cursor(owner, text, search)
    with pytest.raises(InvalidToken):
        MessageTokens(b"l" * 32).read(b"o", token)


def test_token_has_one_text() -> None:
    """Plain base64 writes two of its characters otherwise."""
    tokens = MessageTokens(b"k" * 32)
    made = [tokens.make(b"o", MessageToken(3, offset)) for offset in range(20)]
    for shown, plain in (("-", "+"), ("_", "/")):
        written = [token for token in made if shown in token]
        assert written
        for token in written:
            with pytest.raises(InvalidToken):
                tokens.read(b"o", token.replace(shown, plain))


# --- delete ---


async def test_delete_takes_one_message_even_in_flight_and_is_noted_before(front: Installation) -> None:
    kept, leased_id = await send(front, "kept"), await send(front, "leased")
    received = (await front.rest(MESSAGES + "/receive", {"max_messages": 10})).json["messages"]
    message = (await peek(front))[1]
    offset = front.storage.messages(1)[1].offset

    def control(request: httpx2.Request) -> httpx2.Response:
        assert front.storage.count() == 2, "noted before it is done"
        return front._control(request)

    front.control_answer = control
    reply = await act(front, "delete", message, reason="poison")
    assert reply.json == {"id": leased_id, "state": "in_flight"}
    assert front.audit == [
        {"action": "message.delete", "queue": "orders", "message_id": leased_id, "partition": 1, "offset": offset,
         "reason": "poison"}
    ]  # fmt: skip
    assert "leased" not in str(front.control_calls[-1].content)
    assert [one["id"] for one in await peek(front)] == [kept]
    gone = await act(front, "delete", message)
    assert (gone.status, problem(gone)) == (404, "message-does-not-exist") and len(front.audit) == 1
    assert (await front.rest(MESSAGES + "/ack", {"receipts": [received[1]["receipt"]]})).json["done"] == 1


@pytest.mark.parametrize(
    ("what", "more"), [("delete", {"reason": "r"}), ("dead-letter", {"reason": "r"}), ("resend", {})]
)
async def test_nothing_is_done_that_cannot_be_noted(front: Installation, what: str, more: dict[str, str]) -> None:
    with_dead_letter_queue(front)
    await send(front, "x")
    (message,) = await peek(front)

    def broken(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("down")

    front.control_answer = broken
    calls = len(front.storage.calls)
    reply = await act(front, what, message, **more)
    assert (reply.status, problem(reply)) == (503, "service-unavailable")
    assert front.storage.calls[calls:] == [("browse", 1)] and front.storage.count() == 1
    front.control_answer = lambda request: httpx2.Response(400, json={"code": "QueueDoesNotExist", "message": "m"})
    assert (await act(front, what, message, **more)).status == 404 and front.storage.count() == 1


async def test_removal_that_fails_is_noted_too(front: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(front, "x")
    (message,) = await peek(front)

    def control(request: httpx2.Request) -> httpx2.Response:
        front.storage.fail_with = ErrorCode.NO_QUORUM
        return front._control(request)

    front.control_answer = control
    assert (await act(front, "delete", message)).status == 503
    assert [entry["action"] for entry in front.audit] == ["message.delete", "message.delete.failed"]


@pytest.mark.parametrize(
    ("what", "more", "told"),
    [
        ("delete", {}, (404, "message-does-not-exist")),
        ("dead-letter", {"reason": "r"}, (409, "message-left")),
        ("resend", {"body": "y"}, (409, "message-left")),
    ],
)
async def test_message_that_leaves_before_it_is_removed_is_not_told_as_removed(
    front: Installation, monkeypatch: pytest.MonkeyPatch, what: str, more: dict[str, str], told: tuple[int, str]
) -> None:
    """It may stand in the dead-letter queue by then, or have come due at another place."""
    with_dead_letter_queue(front)
    await send(front, "x")
    (message,) = await peek(front)
    remove = front.storage.remove

    async def left(partition: int, offsets: Sequence[int], moved: bool = False) -> list[ErrorCode]:
        await remove(partition, offsets, moved)
        return await remove(partition, offsets, moved)

    monkeypatch.setattr(front.storage, "remove", left)
    reply = await act(front, what, message, **more)
    assert (reply.status, problem(reply)) == told
    action = f"message.{what.replace('-', '_')}"
    assert [entry["action"] for entry in front.audit] == [action, f"{action}.failed"]


# --- dead-letter ---


async def test_dead_letter_queue_that_denies_sends_takes_none(front: Installation) -> None:
    with_dead_letter_queue(front)
    record = front.metadata.queues[(ACCOUNT, "dead")]
    arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:dead"
    statement = {"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": arn}
    policy = json.dumps({"Version": "2012-10-17", "Statement": statement})
    front.metadata.queues[(ACCOUNT, "dead")] = msgspec.structs.replace(record, attributes={"Policy": policy})
    await send(front, "bad")
    (message,) = await peek(front)
    assert (await act(front, "dead-letter", message, reason="r")).status == 403
    assert len(await peek(front)) == 1 and await peek(front, "dead") == []


@pytest.mark.parametrize("suffix", ["", ".fifo"])
async def test_dead_letter_moves_one_with_its_reason(front: Installation, suffix: str) -> None:
    with_dead_letter_queue(front, suffix)
    fifo = {"group": "g", "deduplication_id": "d"} if suffix else {}
    queue = "orders" + suffix
    message_id = await send(front, "bad", queue, **fifo)
    sent_ms = int(front.clock.now_s * 1000)
    await front.rest(f"/v1/queues/{queue}/messages/receive", {"visibility_seconds": 300})
    front.clock.now_s += 50
    (message,) = await peek(front, queue)
    assert (await act(front, "dead-letter", message, queue)).status == 400, "a reason must be given"
    reply = await act(front, "dead-letter", message, queue, reason="bad address")
    assert reply.json == {"id": message_id, "state": "in_flight", "destination": "dead" + suffix}
    assert await peek(front, queue) == []
    (dead,) = await peek(front, "dead" + suffix)
    assert (dead["id"], dead["body"], dead["receive_count"], dead["sent_ms"]) == (message_id, "bad", 1, sent_ms)
    death = {
        "reason": "moved", "note": "bad address", "receives": 1, "max_receives": 0,
        "first_received_ms": sent_ms, "died_ms": sent_ms + 50_000,
    }  # fmt: skip
    assert dead["dead_letter"] == {"source": queue, **death}
    assert await find(front, {"sources": [queue], "note_contains": "address"}, "dead" + suffix) == ["bad"]
    (received,) = (await front.rest(f"/v1/queues/dead{suffix}/messages/receive", {})).json["messages"]
    assert (received["death"], received["id"]) == (death, message_id)
    noted = front.audit[-1]
    assert (noted["action"], noted["reason"]) == ("message.dead_letter", "bad address")
    assert noted["target"] == "dead" + suffix


async def test_dead_letter_again_after_a_failed_removal_makes_no_second_copy(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_dead_letter_queue(front)
    await send(front, "bad")
    (message,) = await peek(front)
    monkeypatch.setattr(front.storage, "remove", storage_fails)
    assert (await act(front, "dead-letter", message, reason="r")).status == 503
    assert len(await peek(front)) == len(await peek(front, "dead")) == 1, "in both, and in none too few"
    monkeypatch.undo()
    assert (await act(front, "dead-letter", message, reason="r")).status == 200
    assert (len(await peek(front)), len(await peek(front, "dead"))) == (0, 1)


async def test_dead_letter_needs_a_dead_letter_queue(front: Installation) -> None:
    await send(front, "x")
    (message,) = await peek(front)
    reply = await act(front, "dead-letter", message, reason="r")
    assert (reply.status, problem(reply)) == (400, "unsupported-operation") and not front.audit


async def test_sqs_clients_get_the_reason_when_they_name_it(front: Installation) -> None:
    with_dead_letter_queue(front)
    await send(front, "bad")
    (message,) = await peek(front)
    await act(front, "dead-letter", message, reason="bad address")
    url, names = QUEUE_URL.replace("orders", "dead"), ["Penstock.DeadLetterReason"]
    ask = {"QueueUrl": url, "MessageSystemAttributeNames": names}
    (received,) = (await front.sqs("ReceiveMessage", ask)).json["Messages"]
    death = json.loads(received["Attributes"]["Penstock.DeadLetterReason"])
    assert (death["reason"], death["note"]) == ("moved", "bad address")


async def test_browser_takes_so_many_at_a_time(front: Installation) -> None:
    for _ in range(limits.BROWSER_CALLS_MAX):
        front.plane.browser_calls.__enter__()
    reply = await front.rest(MESSAGES + "/peek", {})
    assert (reply.status, problem(reply)) == (503, "service-unavailable") and reply.headers["retry-after"]
    assert (await front.rest(MESSAGES, {"body": "x"})).status == 200, "messages go on"
