"""What a bulk socket gives back: many messages at once, beside a renewal, by ranges that overlap."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest

from frontend.limits import BULK_MESSAGES_MAX
from frontend.push import deliveries
from frontend.push.bulk_session import BulkSession
from storage_nodes.limits import RECEIPTS_PER_CALL_MAX
from storage_nodes.protocol.messages import MessageState
from tests.support.bulk_socket import sockets as sockets
from tests.support.frontend_plane import Installation
from tests.support.settling import settle


async def hold(front: Installation, sockets: Any, count: int) -> Any:
    """A socket that holds so many messages."""
    for start in range(0, count, BULK_MESSAGES_MAX):
        bodies = [{"body": str(number)} for number in range(start, min(start + BULK_MESSAGES_MAX, count))]
        assert (await front.rest("/v1/queues/orders/messages", {"messages": bodies})).status == 200
    socket = sockets()
    await socket.first("ready")
    socket.say({"type": "credit", "n": count})
    await settle(lambda: len(socket.bodies()) == count, 5_000)
    return socket


def visible(front: Installation) -> int:
    return sum(one.state == MessageState.WAITING for one in front.storage.messages(1))


@pytest.mark.parametrize("leaves", [False, True])
async def test_more_messages_than_a_node_takes_in_one_call_are_given_back(
    front: Installation, sockets: Any, leaves: bool
) -> None:
    count = RECEIPTS_PER_CALL_MAX + 1
    socket = await hold(front, sockets, count)
    assert visible(front) == 0
    if leaves:
        await socket.leave()
    else:
        socket.say({"type": "nack", "ranges": [[1, count]], "count": False})
    await settle(lambda: visible(front) == count, 5_000)
    assert not socket.of("error")


async def test_renewal_leaves_what_was_given_back_meanwhile(
    front: Installation, sockets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal of many leases is several calls; what the later ones would name may be another consumer's by then."""
    sessions: list[BulkSession] = []
    start = BulkSession.start

    async def noted(session: BulkSession) -> None:
        sessions.append(session)
        await start(session)

    monkeypatch.setattr(BulkSession, "start", noted)
    count = RECEIPTS_PER_CALL_MAX + 1
    socket = await hold(front, sockets, count)
    monkeypatch.setattr(deliveries, "SOCKET_VISIBILITY_S", deliveries.SOCKET_VISIBILITY_S * 2)  # so all are due
    real, first, named = front.storage.change_visibility, asyncio.Event(), []

    async def slow(partition: int, changes: Any, *more: Any) -> Any:
        named.append(len(changes))
        if len(named) == 1:
            await first.wait()
        return await real(partition, changes, *more)

    monkeypatch.setattr(front.storage, "change_visibility", slow)
    renewing = asyncio.create_task(sessions[0]._renew_held(monotonic()))
    await settle(lambda: named == [RECEIPTS_PER_CALL_MAX])
    socket.say({"type": "nack", "ranges": [[count, count]], "count": False})
    await settle(lambda: len(named) == 2)
    first.set()
    await renewing
    assert visible(front) == 1 and named == [RECEIPTS_PER_CALL_MAX, 1]


async def test_message_that_several_ranges_name_is_given_back_once(front: Installation, sockets: Any) -> None:
    socket = await hold(front, sockets, 5)
    socket.say({"type": "nack", "ranges": [[1, 3], [2, 5]], "count": False})
    await settle(lambda: visible(front) == 5)
    assert not socket.of("error")
