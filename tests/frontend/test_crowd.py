"""Connections that give way where there are as many as a port may have: whose, which, and what the others notice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest
import structlog

from frontend import crowd as crowd_module
from frontend import server as server_module
from frontend.crowd import Crowd, Waiting, choose
from frontend.server import BoundedHttpProtocol
from tests.support.express_client import Client, protocol_of, rest_request, until
from tests.support.frontend_plane import Installation

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
UPGRADE = (
    b"GET /v1/queues/orders/subscribe HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
Connect = Callable[[str], "asyncio.Future[Client]"]


class Member:
    def __init__(self, address: str, since_s: float | None = 1.0, has_begun: bool = False) -> None:
        self.client = (address, 1)
        self.how = None if since_s is None else (has_begun, since_s)

    def waiting(self) -> Waiting | None:
        return self.how

    def give_way(self) -> None:
        pass


# --- whose and which ---


def test_longest_idle_one_of_the_address_that_has_most_gives_way() -> None:
    many = [Member("192.0.2.1", since_s) for since_s in (7.0, 3.0, 5.0)]
    few = [Member("192.0.2.2", 1.0)]
    newcomer = Member("192.0.2.3", 9.0)
    assert choose(newcomer, [*few, *many, newcomer], 1) == [many[1]]


def test_ipv6_addresses_of_one_holder_are_one() -> None:
    many = [Member(f"2001:db8::{number:x}", 5.0) for number in range(3)]
    few = [Member("2001:db8:0:1::1", 1.0), Member("192.0.2.2", 1.0)]
    newcomer = Member("192.0.2.3", 9.0)
    (chosen,) = choose(newcomer, [*few, *many, newcomer], 1)
    assert chosen in many


def test_newcomer_of_the_address_that_has_most_displaces_its_own() -> None:
    many = [Member("192.0.2.1", 5.0), Member("192.0.2.1", 4.0)]
    few = [Member("192.0.2.2", 1.0)]
    newcomer = Member("192.0.2.1", 9.0)
    assert choose(newcomer, [*few, *many, newcomer], 1) == [many[1]]
    for one in many:
        one.how = None
    assert choose(newcomer, [*few, *many, newcomer], 1) == [], "who has fewer does not pay"


def test_unfinished_request_gives_way_to_other_addresses_alone_and_behind_idle_ones() -> None:
    begun = Member("192.0.2.1", 1.0, has_begun=True)
    idle = Member("192.0.2.1", 5.0)
    other, own = Member("192.0.2.3", 9.0), Member("192.0.2.1", 9.0)
    assert choose(other, [begun, idle, other], 1) == [idle]
    assert choose(other, [begun, Member("192.0.2.1", None), other], 1) == [begun]
    assert choose(own, [begun, own], 1) == []


def test_look_makes_room_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(crowd_module, "choose", lambda *given: looks.append(given) or choose(*given))
    many = [Member("192.0.2.1", float(number)) for number in range(6_400)]
    newcomer = Member("192.0.2.3", 9.0)
    chosen = choose(newcomer, [*many, newcomer], 101)
    assert chosen == many[:101]
    crowd = Crowd()
    busy = [Member("192.0.2.1", None) for _ in range(3)]
    assert not crowd.makes_room(newcomer, [*busy, newcomer])
    assert not crowd.makes_room(newcomer, [*busy, newcomer]) and len(looks) == 1, "not at each one that comes"
    assert (crowd.refused, crowd.gave_way) == (2, 0)
    roomy = Crowd()
    assert roomy.makes_room(newcomer, [*many, newcomer]) and (roomy.refused, roomy.gave_way) == (0, 101)


# --- over real connections ---


@pytest.fixture
async def connect(front: Installation, port: int) -> AsyncIterator[Connect]:
    """Connections of loopback addresses of the test's choice."""
    clients: list[Client] = []

    async def connected(address: str) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))
        clients.append(client)
        await asyncio.sleep(0.02)
        return client

    yield lambda address: asyncio.ensure_future(connected(address))
    for client in clients:
        client.writer.close()


async def is_served(client: Client) -> bool:
    client.write(HEALTH)
    return (await client.answer())[0] == 200


async def waits_for_its_answer(front: Installation, connect: Connect) -> Client:
    """A client that is not to give way."""
    client = await connect("127.0.0.2")
    client.write(rest_request(front, "/v1/queues/orders/messages/receive", {"wait_seconds": 20}))
    await asyncio.sleep(0.05)
    return client


def bound(monkeypatch: pytest.MonkeyPatch, connections: int) -> None:
    monkeypatch.setattr(BoundedHttpProtocol, "connections_max", connections)
    monkeypatch.setattr(BoundedHttpProtocol, "crowd", Crowd())


async def test_address_with_all_connections_keeps_nobody_out(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = [await connect("127.0.0.2") for _ in range(4)]
    for one in greedy:
        assert await is_served(one)
    bound(monkeypatch, 4)
    with structlog.testing.capture_logs() as logs:
        others = [await connect("127.0.0.3"), await connect("127.0.0.3")]
        for one in others:
            assert await is_served(one)
    assert [await one.ended() for one in greedy[:2]] == [b"", b""], "the longest idle ones"
    assert await is_served(greedy[2]) and await is_served(greedy[3])
    assert [line["event"] for line in logs] == ["connections_gave_way"]
    assert "127.0.0.2" in logs[0]["client"]


@pytest.mark.parametrize("start", [b"", b"G", "body", UPGRADE])
async def test_connections_that_say_little_give_way(
    front: Installation, connect: Connect, monkeypatch: pytest.MonkeyPatch, start: bytes | str
) -> None:
    """Each is bounded in time, but they may all be replaced until then."""
    greedy = [await connect("127.0.0.2") for _ in range(3)]
    for one in greedy:
        whole = rest_request(front, "/v1/queues/orders/messages", {"body": "x"})
        one.write(start if isinstance(start, bytes) else whole[:-1])
    await asyncio.sleep(0.05)
    bound(monkeypatch, 3)
    assert await is_served(await connect("127.0.0.3"))
    for one in greedy:
        one.reader._buffer.clear()  # what it was told
    await until(lambda: sum(one.reader.at_eof() or bool(one.reader.exception()) for one in greedy) == 1)


async def test_those_who_wait_for_answers_stay_and_the_next_is_refused_politely(
    front: Installation, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    polling = await waits_for_its_answer(front, connect)
    connections = protocol_of(polling).connections
    bound(monkeypatch, 1)
    refused = await connect("127.0.0.3")
    status, headers, body = await refused.answer()
    assert status == 503 and headers["retry-after"] == "1" and b"too many connections" in body
    assert await refused.ended() == b"" and len(connections) == 1
    await front.rest("/v1/queues/orders/messages", {"body": "a"})
    assert (await polling.json())["messages"][0]["body"] == "a"


async def test_refused_client_in_the_midst_of_its_request_reads_why(
    front: Installation, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close at once would reset the connection under its body."""
    await waits_for_its_answer(front, connect)
    bound(monkeypatch, 1)
    for lingering_max, is_told in ((1, True), (0, False)):
        monkeypatch.setattr(server_module, "REFUSED_LINGERING_MAX", lingering_max)
        refused = await connect("127.0.0.3")
        refused.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n")
        await asyncio.sleep(0.05)
        for _ in range(20):
            refused.write(b"x" * 10_000)
            await asyncio.sleep(0.002)
        if is_told:
            assert (await refused.answer())[0] == 503
        refused.writer.close()
        await until(lambda: BoundedHttpProtocol.refused_lingering == 0)


async def test_refused_client_that_stays_is_closed(
    front: Installation, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    await waits_for_its_answer(front, connect)
    bound(monkeypatch, 1)
    monkeypatch.setattr(server_module, "REFUSED_LINGER_S_MAX", 0.05)
    await connect("127.0.0.3")
    assert BoundedHttpProtocol.refused_lingering == 1
    await until(lambda: BoundedHttpProtocol.refused_lingering == 0)


async def test_subscriber_that_has_shown_its_key_stays(
    front: Installation, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriber = await connect("127.0.0.2")
    key = b"authorization: Bearer %b\r\n" % front.key.bearer_token.encode()
    subscriber.write(UPGRADE.replace(b"host: x\r\n", b"host: x\r\n" + key))
    await asyncio.wait_for(subscriber.reader.readuntil(b"\r\n\r\n"), 5)
    bound(monkeypatch, 1)
    assert (await (await connect("127.0.0.3")).answer())[0] == 503
    assert json.loads((await asyncio.wait_for(subscriber.reader.readexactly(18), 5))[2:]) == {"type": "ready"}
