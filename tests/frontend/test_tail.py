"""The live tail: what it shows, that it changes nothing, what it counts, and what ends it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest import mock

import httpx2
import pytest

from frontend import limits
from frontend.limits import TAIL_BODY_CHARS, TAIL_CONFIRMED_S_MAX, TAIL_SHOWN_MAX, TAIL_UNCONFIRMED_S_MAX
from frontend.limits.gcra import LeakyBuckets
from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import AccountLimits, Rates
from frontend.push import tail_rights, tail_session
from frontend.push.closing import (
    CLOSE_BAD_FRAME,
    CLOSE_FORBIDDEN,
    CLOSE_OVER_LIMIT,
    CLOSE_QUEUE_GONE,
    CLOSE_TRY_LATER,
    CLOSE_UNAUTHENTICATED,
)
from frontend.push.connection import STILL, BoundedSocketProtocol, FrameExpired
from frontend.push.tail_consumer import TailConsumer
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.support.frontend_plane import ACCOUNT, HOST, Installation
from tests.support.push_socket import Socket

PERSON = "0a3c1111-1111-4111-8111-111111111111"
SESSION = "0b3c1111-1111-4111-8111-111111111111"
TICKET = "pstt_" + "a" * 43
MESSAGES = "/v1/queues/orders/messages"
WAIT_S_MAX = 10.0


async def until(condition: Callable[[], bool]) -> None:
    """Looks and confirmations come after pauses, however short."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():
            await asyncio.sleep(0.001)


class ControlScript:
    """The control plane: one ticket, of the queue `orders`; `ends` says why tails may not go on."""

    def __init__(self) -> None:
        self.tickets = {TICKET: "orders"}
        self.account_id = ACCOUNT
        self.end = ""
        self.away = False
        self.asked: list[Any] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if self.away:
            return httpx2.Response(503)
        content = json.loads(request.content)
        self.asked.append((request.url.path, content))
        if request.url.path == "/internal/tails/confirm":
            return httpx2.Response(200, json={"ends": [self.end for _ in content["tails"]]})
        assert request.url.path == "/internal/tails/open"
        if self.tickets.pop(content["ticket"], None) != content["queue"]:
            problem = {"code": "InvalidClientTokenId", "message": "The ticket is not valid any more."}
            return httpx2.Response(401, json=problem)
        ids = {"account_id": self.account_id, "person_id": PERSON, "session_id": SESSION}
        return httpx2.Response(200, json=ids)


class TailSocket(Socket):
    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for frame in self.of("messages") for row in frame["messages"]]

    @property
    def bodies(self) -> list[str]:
        return [row["body"] for row in self.rows]

    @property
    def found(self) -> int:
        return sum(frame["found"] for frame in self.of("messages"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_session, "TAIL_LOOK_S", 0.001)
    monkeypatch.setattr(tail_session, "TAIL_LOOK_IDLE_S", 0.002)
    monkeypatch.setattr(tail_rights, "TAIL_CONFIRM_S", 0.002)


@pytest.fixture
def control(front: Installation) -> ControlScript:
    script = ControlScript()
    front.control_answer = script.answer
    return script


@pytest.fixture
async def tails(front: Installation, control: ControlScript) -> AsyncIterator[Any]:
    opened: list[TailSocket] = []

    async def connect(ticket: str = TICKET, queue: str = "orders", text: str = "", **headers: str) -> TailSocket:
        socket = TailSocket(front, queue, headers, "tail")
        opened.append(socket)
        socket.say({"type": "open", "ticket": ticket, "text": text})
        await until(lambda: bool(socket.of("live")) or socket.close_code is not None or len(socket.sent) > 1)
        return socket

    yield connect
    for socket in opened:
        if not socket.task.done():
            await socket.leave()
    assert front.plane.browser_calls.calls == 0 and front.plane.open_sockets.calls == 0


async def send(front: Installation, *bodies: str, **more: Any) -> None:
    for start in range(0, len(bodies), 500):
        batch = [{"body": body, **more} for body in bodies[start : start + 500]]
        reply = await front.rest(MESSAGES, {"messages": batch})
        assert reply.status == 200, reply.body


# --- what it shows ---


async def test_tail_shows_what_comes_from_now_on(front: Installation, tails: Any) -> None:
    await send(front, "before")
    socket = await tails()
    await send(front, "one", "two", tag="red")
    await until(lambda: len(socket.rows) == 2)
    assert socket.bodies == ["one", "two"]
    first = socket.rows[0]
    assert (first["state"], first["receive_count"], first["tag"]) == ("waiting", 0, "red")
    assert first["id"] and first["sent_ms"]


async def test_tail_leases_counts_and_moves_nothing(front: Installation, tails: Any) -> None:
    socket = await tails()
    await send(front, "one", "two")
    await until(lambda: len(socket.rows) == 2)
    assert front.storage.polls == 0
    (peeked, _) = (await front.rest(MESSAGES + "/peek", {})).json["messages"]
    assert (peeked["state"], peeked["receive_count"]) == ("waiting", 0)
    received = (await front.rest(MESSAGES + "/receive", {"max_messages": 10})).json["messages"]
    assert [one["body"] for one in received] == ["one", "two"]


@pytest.mark.parametrize("text", ["", "m"], ids=["all", "text"])
async def test_many_messages_are_shown_in_part_and_all_are_counted(front: Installation, tails: Any, text: str) -> None:
    socket = await tails(text=text)
    socket.say({"type": "pause"})
    await asyncio.sleep(0.02)
    await send(front, *(f"m{number}" for number in range(700)))
    socket.say({"type": "resume"})
    await until(lambda: socket.found == 700)
    assert len(socket.rows) < 700 and all(len(frame["messages"]) <= TAIL_SHOWN_MAX for frame in socket.of("messages"))
    assert socket.bodies[-1] == "m699", "the newest are shown"


async def test_log_that_ran_away_is_followed_near_its_end(
    front: Installation, tails: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from frontend.push import tail_positions

    monkeypatch.setattr(tail_positions, "TAIL_BEHIND_MAX", 40)
    monkeypatch.setattr(tail_positions, "TAIL_AHEAD", 5)
    monkeypatch.setattr(tail_session, "BROWSER_PAGE_MESSAGES_MAX", 10)
    monkeypatch.setattr(tail_session, "TAIL_LOOK_MESSAGES_MAX", 10)
    socket = await tails()
    socket.say({"type": "pause"})
    await asyncio.sleep(0.02)
    await send(front, *(f"m{number}" for number in range(200)))
    socket.say({"type": "resume"})
    await until(lambda: "m199" in socket.bodies)
    passed = sum(frame["passed"] for frame in socket.of("messages"))
    assert passed == 185 and socket.found == 15, "10 looked at, 185 passed over, the last 5"


async def test_pause_holds_and_resume_goes_on_where_it_was(front: Installation, tails: Any) -> None:
    socket = await tails()
    socket.say({"type": "pause"})
    await asyncio.sleep(0.02)
    await send(front, "while paused")
    await asyncio.sleep(0.05)
    assert not socket.rows
    socket.say({"type": "resume"})
    await until(lambda: socket.bodies == ["while paused"])


async def test_text_selects_and_only_matches_are_counted(front: Installation, tails: Any) -> None:
    socket = await tails(text="red")
    await send(front, "a red one", "a blue one")
    await until(lambda: socket.bodies == ["a red one"])
    assert socket.found == 1
    socket.say({"type": "filter", "text": "blue"})
    await asyncio.sleep(0.02)
    await send(front, "red again", "blue again")
    await until(lambda: len(socket.rows) == 2)
    assert socket.bodies == ["a red one", "blue again"]


async def test_long_body_is_cut_and_says_so(front: Installation, tails: Any) -> None:
    socket = await tails()
    await send(front, "x" * (TAIL_BODY_CHARS + 1))
    await until(lambda: bool(socket.rows))
    assert len(socket.rows[0]["body"]) == TAIL_BODY_CHARS
    assert socket.rows[0]["body_cut_from_chars"] == TAIL_BODY_CHARS + 1


# --- tickets ---


async def test_ticket_opens_one_socket(tails: Any) -> None:
    assert (await tails()).of("live")
    assert (await tails()).close_code == CLOSE_UNAUTHENTICATED


async def test_ticket_of_another_queue_opens_none(front: Installation, tails: Any) -> None:
    front.add_queue("other")
    assert (await tails(queue="other")).close_code == CLOSE_UNAUTHENTICATED
    assert (await tails()).close_code == CLOSE_UNAUTHENTICATED, "it is used up"


async def test_ticket_of_another_account_opens_none_of_its_queues(
    control: ControlScript, tails: Any, front: Installation
) -> None:
    control.tickets = {TICKET: "secret"}  # of this account, which has no such queue; another one has
    assert (await tails(queue="secret")).close_code == CLOSE_QUEUE_GONE


@pytest.mark.parametrize("ticket", ["", "x" * 48, TICKET + "a", TICKET[:-1] + ".", "psts_" + "a" * 43])
async def test_text_that_is_no_ticket_is_refused_before_the_control_plane_is_asked(
    control: ControlScript, tails: Any, ticket: str
) -> None:
    assert (await tails(ticket=ticket)).close_code == CLOSE_BAD_FRAME
    assert not control.asked


async def test_address_that_shows_many_tickets_is_throttled(control: ControlScript) -> None:
    front = Installation(addresses=LeakyBuckets(1, burst_s=1.0))
    front.control_answer = control.answer
    codes = []
    for _ in range(3):
        socket = TailSocket(front, "orders", {}, "tail")
        socket.say({"type": "open", "ticket": TICKET[:-1] + "z"})
        await until(lambda made=socket: made.close_code is not None)
        codes.append(socket.close_code)
    assert codes == [CLOSE_UNAUTHENTICATED, CLOSE_OVER_LIMIT, CLOSE_OVER_LIMIT] and len(control.asked) == 1


async def test_key_opens_no_tail(front: Installation, tails: Any) -> None:
    socket = await tails(authorization=f"Bearer {front.key.bearer_token}")
    assert socket.refused == (401, "invalid-client-token-id")
    assert "by a page's ticket" in socket.detail


async def test_page_of_another_site_opens_no_tail(control: ControlScript, tails: Any) -> None:
    socket = await tails(origin="http://evil.example")
    assert socket.refused == (403, "access-denied") and TICKET in control.tickets
    assert (await tails(origin=f"http://{HOST}")).of("live")


async def test_first_frame_must_be_the_ticket(front: Installation, tails: Any) -> None:
    socket = TailSocket(front, "orders", {}, "tail")
    socket.say({"type": "pause"})
    await until(lambda: socket.close_code == CLOSE_UNAUTHENTICATED)
    await socket.task


@pytest.mark.parametrize(
    "frame",
    [
        '{"type":"filter","text":"a","text":"b"}',
        '{"type":"filter","text":"a","more":1}',
        "{",
        '{"type":"credit","n":1}',
    ],
)
async def test_frames_are_read_strictly(tails: Any, frame: str) -> None:
    socket = await tails()
    socket.say(frame)
    await until(lambda: socket.close_code == CLOSE_BAD_FRAME)


@pytest.mark.parametrize("text", ["x" * 257, "\0"], ids=["long", "zero"])
async def test_text_out_of_bounds_ends_the_tail(tails: Any, text: str) -> None:
    socket = await tails()
    socket.say({"type": "filter", "text": text})
    await until(lambda: socket.close_code == CLOSE_BAD_FRAME)


# --- rights ---


@pytest.mark.parametrize(
    ("end", "code"),
    [("session-ended", CLOSE_UNAUTHENTICATED), ("access-denied", CLOSE_FORBIDDEN), ("not-a-member", CLOSE_FORBIDDEN)],
)
async def test_tail_ends_with_the_session_and_the_right(
    control: ControlScript, tails: Any, end: str, code: int
) -> None:
    socket = await tails()
    control.end = end
    await until(lambda: socket.close_code == code)


async def test_control_plane_is_told_where_the_tail_comes_from(control: ControlScript, tails: Any) -> None:
    await tails()
    await until(lambda: len(control.asked) > 1)
    _, opened = control.asked[0]
    assert opened == {"ticket": TICKET, "queue": "orders", "source_ip": "", "is_secure": False}
    _, confirmed = control.asked[1]
    claim = {"account_id": ACCOUNT, "session_id": SESSION, "queue": "orders", "source_ip": "", "is_secure": False}
    assert confirmed == {"tails": [claim]}


async def test_nothing_is_shown_while_the_right_is_not_confirmed(
    front: Installation, control: ControlScript, tails: Any
) -> None:
    socket = await tails()
    control.away = True
    await asyncio.sleep(0.02)
    front.clock.now_s += TAIL_CONFIRMED_S_MAX + 0.1
    await until(lambda: bool(socket.of("held")))
    await send(front, "unseen")
    await asyncio.sleep(0.05)
    assert not socket.rows and socket.close_code is None
    control.away = False
    await until(lambda: socket.bodies == ["unseen"])
    assert [frame["type"] for frame in socket.frames] == ["live", "held", "live", "messages"]


async def test_frame_waits_for_a_fresh_right_when_its_reader_was_slow(
    front: Installation, tails: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right ran out while the client could take nothing."""
    show, expired = TailConsumer._show, []

    async def slow(consumer: TailConsumer, text: str, still: Callable[[], bool]) -> None:
        if not expired:
            expired.append(text)
            front.clock.now_s += TAIL_CONFIRMED_S_MAX + 1
            assert not still(), "it is asked when the client takes it"
            raise FrameExpired
        assert still()
        await show(consumer, text, still)

    monkeypatch.setattr(TailConsumer, "_show", slow)
    socket = await tails()
    await send(front, "x")
    await until(lambda: socket.bodies == ["x"])
    assert len(expired) == 1


async def test_frame_is_not_sent_when_it_may_not_be_shown_once_the_client_takes_it() -> None:
    connection = BoundedSocketProtocol.__new__(BoundedSocketProtocol)
    connection.writable = asyncio.Event()
    connection.transport = mock.Mock()
    is_right = [True]
    message = {"type": "websocket.send", "text": "secret", STILL: lambda: is_right[0]}
    sending = asyncio.create_task(connection.send(message))
    await asyncio.sleep(0)
    is_right[0] = False
    connection.writable.set()
    with pytest.raises(FrameExpired):
        await sending
    assert not connection.transport.mock_calls


async def test_tail_that_is_not_confirmed_for_long_ends(
    front: Installation, control: ControlScript, tails: Any
) -> None:
    socket = await tails()
    control.away = True
    await asyncio.sleep(0.02)
    front.clock.now_s += TAIL_UNCONFIRMED_S_MAX + 0.1
    await until(lambda: socket.close_code == CLOSE_TRY_LATER)


async def test_policy_of_the_queue_ends_the_tail(front: Installation, tails: Any) -> None:
    socket = await tails()
    statement = {"Effect": "Deny", "Principal": "*", "Action": "penstock:PeekMessages", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    front.add_queue("orders", attributes={"Policy": policy})
    await until(lambda: socket.close_code == CLOSE_FORBIDDEN)


async def test_queue_that_is_deleted_ends_the_tail(front: Installation, tails: Any) -> None:
    socket = await tails()
    del front.metadata.queues[(ACCOUNT, "orders")]
    await until(lambda: socket.close_code == CLOSE_QUEUE_GONE)


# --- what it costs ---


async def test_storage_that_fails_is_waited_for(
    front: Installation, tails: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = await tails()
    browse = front.storage.browse

    async def fails(*_: Any) -> Any:
        raise StorageError(ErrorCode.NO_QUORUM)

    monkeypatch.setattr(front.storage, "browse", fails)
    await until(lambda: bool(socket.of("held")))
    monkeypatch.setattr(front.storage, "browse", browse)
    await send(front, "after")
    await until(lambda: socket.bodies == ["after"])


async def test_what_was_found_before_a_partition_failed_is_shown(
    front: Installation, control: ControlScript, tails: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    front.add_queue("wide", (3, 4))
    control.tickets = {TICKET: "wide"}
    socket = await tails(queue="wide")
    browse = front.storage.browse

    async def fails(partition: int, *more: Any) -> Any:
        if partition == 4:
            raise StorageError(ErrorCode.NO_QUORUM)
        return await browse(partition, *more)

    monkeypatch.setattr(front.storage, "browse", fails)
    for number in range(20):
        reply = await front.rest("/v1/queues/wide/messages", {"body": f"m{number}"})
        assert reply.status == 200
    stored = {partition: len(front.storage.messages(partition)) for partition in (3, 4)}
    assert all(stored.values())
    await until(lambda: socket.found == stored[3])
    await until(lambda: bool(socket.of("held")))
    monkeypatch.setattr(front.storage, "browse", browse)
    await until(lambda: sorted(socket.bodies) == sorted(f"m{number}" for number in range(20)))


async def test_looks_keep_to_the_share_of_browsing(front: Installation, tails: Any) -> None:
    socket = await tails()
    places = [front.plane.browser_calls.place("another") for _ in range(limits.BROWSER_CALLS_MAX // 2)]
    more = [front.plane.browser_calls.place(ACCOUNT) for _ in range(limits.BROWSER_CALLS_MAX // 4)]
    for place in (*places, *more):
        place.__enter__()
    await send(front, "later")
    await until(lambda: bool(socket.of("held")))
    assert not socket.rows
    for place in (*places, *more):
        place.__exit__(None, None, None)
    await until(lambda: socket.bodies == ["later"])


async def test_account_has_as_many_tails_as_searches(control: ControlScript) -> None:
    tree = QuotaTree(lambda _: AccountLimits(Rates(), browser_searches=1))
    front = Installation(quotas=tree)
    front.control_answer = control.answer
    second = TICKET[:-1] + "b"
    control.tickets[second] = "orders"
    sockets = []
    for ticket in (TICKET, second):
        sockets.append(TailSocket(front, "orders", {}, "tail"))
        sockets[-1].say({"type": "open", "ticket": ticket})
        await until(lambda: bool(sockets[-1].of("live")) or sockets[-1].close_code is not None)
    assert sockets[0].of("live") and sockets[1].close_code == CLOSE_OVER_LIMIT
    await sockets[0].leave()
