"""Ends of a bulk socket that no frame asked for: what is being stored is confirmed first, and nothing more is taken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from frontend.push import bulk_session, deliveries
from frontend.push.closing import CLOSE_FORBIDDEN, CLOSE_INTERNAL, CLOSE_OVER_LIMIT, CLOSE_UNAUTHENTICATED
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.frontend.test_bulk_socket import deny
from tests.support.bulk_socket import gate_storage
from tests.support.bulk_socket import sockets as sockets
from tests.support.frontend_plane import Installation
from tests.support.settling import settle

ENDS = {"filter": CLOSE_OVER_LIMIT, "key": CLOSE_UNAUTHENTICATED, "bug": CLOSE_INTERNAL, "right": CLOSE_FORBIDDEN}


async def end(front: Installation, socket: Any, kind: str) -> None:
    """In the midst of a publish."""

    def before(call: str, partition: int) -> None:
        if call == "acquire" and kind == "bug":
            raise ZeroDivisionError
        if call == "acquire":
            raise StorageError(ErrorCode.OVER_LIMIT, "too far to look")

    if kind == "key":
        front.metadata.keys.clear()
        return
    if kind == "right":
        deny(front, "*")
    else:
        front.storage.before = before
        if kind == "filter":
            socket.say({"type": "filter", "tags": ["red"]})
    socket.say({"type": "credit", "n": 1})


@pytest.mark.parametrize("kind", ENDS)
async def test_what_is_being_stored_is_confirmed_before_the_service_ends_the_socket(
    front: Installation, sockets: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(deliveries, "SOCKET_RENEW_S", 0.01)
    monkeypatch.setattr(deliveries, "SOCKET_RECHECK_S", 0.0 if kind == "key" else 1_000.0)
    gate = gate_storage(front)
    socket = sockets()
    socket.publish(1, "x")
    await settle(lambda: front.plane.bulk_sends.calls == 1)
    await asyncio.sleep(0.02)  # it was let in
    await end(front, socket, kind)
    await asyncio.sleep(0.1)
    closed, confirms = socket.closed, socket.of("confirm")
    socket.publish(2, "never stored")
    await asyncio.sleep(0.05)
    gate.set()
    await asyncio.wait_for(socket.task, 5)
    assert closed == (0, "") and not confirms
    assert socket.closed[0] == ENDS[kind]
    assert [one["seq"] for one in socket.of("confirm")] == [1] and front.storage.count() == 1
    kinds = [message["type"] for message in socket.sent]
    assert kinds[-1] == "websocket.close", "behind the confirm"


async def test_socket_does_not_wait_for_ever_for_what_is_being_stored(
    front: Installation, sockets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_session, "SOCKET_FINISH_S_MAX", 0.05)
    gate = gate_storage(front)
    socket = sockets()
    socket.publish(1, "x")
    await settle(lambda: front.plane.bulk_sends.calls == 1)
    await end(front, socket, "filter")
    async with asyncio.timeout(5):
        while socket.closed[0] != CLOSE_OVER_LIMIT:
            await asyncio.sleep(0.01)
    gate.set()
    await asyncio.wait_for(socket.task, 5)


async def test_right_to_receive_that_is_withdrawn_does_not_end_a_socket_that_publishes(
    front: Installation, sockets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "SOCKET_RENEW_S", 0.02)
    socket = sockets()
    socket.publish(1, "x")
    socket.say({"type": "credit", "n": 1})
    await socket.first("messages")
    deny(front, "ReceiveMessage")
    monkeypatch.setattr(deliveries, "SOCKET_VISIBILITY_S", 2 * deliveries.SOCKET_VISIBILITY_S)  # so it is due
    async with asyncio.timeout(5):
        while not socket.of("error"):
            await asyncio.sleep(0.01)
    assert socket.of("error")[0]["code"] == "access-denied" and socket.closed == (0, "")
    socket.publish(2, "y")
    await settle(lambda: len(socket.of("confirm")) == 2)
