"""A send to a queue that does not exist, in an account that lets queues be made that way: made, then sent to.

Everybody else hears what they always heard. The account's setting comes from the metadata cache; whether it still
holds, and how many queues may be made, the control plane decides. What is sent is checked first, by the rules that the
new queue would have: for messages that are refused no queue is made. Sends of one moment to one new queue share one
creation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from frontend.authn.principal import Principal
from frontend.errors import RequestError, unavailable
from frontend.http import new_request_id
from frontend.messages.admission import require_allowed
from frontend.metadata.interface import MetadataUnavailable
from frontend.queues.names import Address, check_queue_name
from frontend.queues.resolver import ResolvedQueue, SendRules, rules_of_new_queue

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_log = structlog.get_logger("frontend.messages.send")


async def create_by_send(
    services: FrontendServices,
    caller: Principal,
    address: Address,
    error: RequestError,
    check: Callable[[SendRules], None],
) -> ResolvedQueue:
    """The queue that was just made. Raises RequestError: what its absence met, where it is not to be made; and what
    `check` raises of messages that its rules refuse."""
    if error.code != "QueueDoesNotExist" or caller.account_id != address.account_id:
        raise error
    try:
        account = await services.metadata.get_account(address.account_id)
    except MetadataUnavailable:
        raise unavailable("Queues cannot be looked up at the moment.") from None
    if account is None or not account.auto_create_queues or not _is_queue_name(address.name):
        raise error
    # Each caller for itself: they share one creation.
    require_allowed(services, caller, "CreateQueue", address)
    check(rules_of_new_queue(address.name))
    creation = services.creations.get(address)
    if creation is None:
        creation = services.creations[address] = asyncio.create_task(_create(services, caller, address))
        creation.add_done_callback(lambda done: _forget(services, address, done))
    await asyncio.shield(creation)
    return await services.queues.refresh(address)


async def _create(services: FrontendServices, caller: Principal, address: Address) -> None:
    request_id = new_request_id()
    _log.info("queue_created_by_send", account_id=address.account_id, queue=address.name, request_id=request_id)
    await services.control.sqs("AutoCreateQueue", caller, request_id, {"QueueName": address.name})


def _forget(services: FrontendServices, address: Address, done: asyncio.Task[None]) -> None:
    del services.creations[address]
    if not done.cancelled():
        done.exception()  # those who waited have it; nobody may wait any more


def _is_queue_name(name: str) -> bool:
    try:
        check_queue_name(name)
    except RequestError:
        return False
    return True
