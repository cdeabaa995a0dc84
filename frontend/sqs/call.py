"""One authenticated request of the SQS wire, and what actions do with it: find the queue, ask the other planes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from frontend.authn.principal import Principal
from frontend.http import Request
from frontend.routing.queues import Address, QueueView
from frontend.send import authorise, storage_refusal, throttle
from storage_nodes.protocol.errors import StorageError

if TYPE_CHECKING:
    from frontend.plane import Plane

EMPTY = b"{}"
encode = msgspec.json.Encoder().encode


class Call(NamedTuple):
    """The request with the proof of who sent it."""

    plane: Plane
    request: Request
    caller: Principal


async def find_queue(call: Call, action: str, address: Address) -> QueueView:
    """A queue the caller may use for this, the request paid for. Raises Refusal."""
    queue = authorise(call.plane, call.caller, action, address) or await call.plane.queues.find(address)
    throttle(call.plane, call.caller, queue)
    return queue


async def ask_control(call: Call, action: str, params: dict[str, object]) -> dict[str, Any]:
    """The control plane's result. Raises Refusal."""
    return await call.plane.control.sqs(action, call.caller, call.request.request_id, params)


async def ask_storage(call: Call, queue: QueueView, calls: Sequence[Awaitable[Any]]) -> list[Any]:
    """All answers. Raises Refusal."""
    with call.plane.storage_calls:
        try:
            return await asyncio.gather(*calls)
        except StorageError as error:
            raise await storage_refusal(call.plane, queue, error) from None
