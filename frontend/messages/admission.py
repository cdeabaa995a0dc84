"""What every request about a queue goes through first: is it allowed, which queue is it, is it within its rate.

Nothing of a queue is looked at before the caller may use it. A queue of another account does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frontend.authn.principal import Principal
from frontend.authz.ownership import is_allowed
from frontend.errors import RequestError, queue_does_not_exist
from frontend.queues.names import Address
from frontend.queues.resolver import ResolvedQueue

if TYPE_CHECKING:
    from frontend.services import FrontendServices


async def admit(services: FrontendServices, caller: Principal, action: str, address: Address) -> ResolvedQueue:
    """The queue, which the caller may use for this `action` (its SQS name), the request paid for.

    Raises RequestError.
    """
    queue = authorise(services, caller, action, address) or await services.queues.find(address)
    throttle(services, caller, queue)
    return queue


def authorise(services: FrontendServices, caller: Principal, action: str, address: Address) -> ResolvedQueue | None:
    """A queue the caller may use, None if it must be looked up. Raises RequestError."""
    if not is_allowed(caller, action, address.account_id):
        raise queue_does_not_exist()
    return services.queues.cached(address)


def throttle(services: FrontendServices, caller: Principal, queue: ResolvedQueue) -> None:
    wait_s = services.rates.admit((caller.account_id, caller.access_key_id, queue.rate_name), services.now_s())
    if wait_s:
        services.meters.count("requests_throttled")
        raise throttled(wait_s)


def throttle_account(services: FrontendServices, caller: Principal) -> None:
    """For a request that names no queue, or one that need not exist."""
    wait_s = services.rates.admit((caller.account_id, caller.access_key_id), services.now_s())
    if wait_s:
        services.meters.count("requests_throttled")
        raise throttled(wait_s)


def throttled(wait_s: float, reason: str = "") -> RequestError:
    text = f"The rate of requests is over the limit: {reason}." if reason else "The rate of requests is over the limit."
    return RequestError("RequestThrottled", text, max(1, round(wait_s + 0.5)))
