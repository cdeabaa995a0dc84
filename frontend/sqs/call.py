"""One authenticated request of the SQS wire, and what actions do with it: find the queue, ask the other planes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from frontend.authn.principal import Principal
from frontend.http import Request
from frontend.messages.admission import NO_SENT_TAGS, SentTags, admit, require_own
from frontend.messages.storage_errors import explain_storage_error
from frontend.queues.names import Address
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.protocol.errors import StorageError

if TYPE_CHECKING:
    from frontend.services import FrontendServices

EMPTY = b"{}"
encode = msgspec.json.Encoder().encode


class SqsCall(msgspec.Struct, frozen=True):
    """The request with the proof of who sent it."""

    services: FrontendServices
    request: Request
    caller: Principal


async def find_queue(call: SqsCall, action: str, address: Address) -> ResolvedQueue:
    """A queue the caller may use for this, the request paid for. Raises RequestError."""
    return await admit(call.services, call.caller, action, address)


async def find_own_queue(
    call: SqsCall, action: str, address: Address, sent_tags: SentTags = NO_SENT_TAGS
) -> ResolvedQueue:
    """The same for what the control plane decides: it looks in the caller's account only. Raises RequestError."""
    require_own(call.services, call.caller, action, address)
    return await admit(call.services, call.caller, action, address, sent_tags)


async def ask_control(call: SqsCall, action: str, params: dict[str, object]) -> dict[str, Any]:
    """The control plane's result. Raises RequestError."""
    return await call.services.control.sqs(action, call.caller, call.request.request_id, params)


async def ask_storage(call: SqsCall, queue: ResolvedQueue, calls: Sequence[Awaitable[Any]]) -> list[Any]:
    """All answers. Raises RequestError."""
    with call.services.storage_calls:
        try:
            return await asyncio.gather(*calls)
        except StorageError as error:
            raise await explain_storage_error(call.services, queue, error) from None
