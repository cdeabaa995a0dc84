"""What every request about a queue goes through first: is it within its rates, is it allowed, which queue is it.

It is paid for before anything is looked up: by the account and key that ask, and by the queue where it is the
account's own. A request that is refused pays nothing, one that the service fails to do pays no messages and bytes.

    queue of the caller's account    allowed, but for what the policy of the queue denies
    queue of another account         allowed where the policy of that queue allows it; a caller that is not hears the
                                     same of a queue that does not exist

A key acts as its account (policies of keys and people do not exist yet).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from frontend.authn.principal import Principal
from frontend.authz import (
    NO_POLICY,
    Caller,
    CompiledPolicy,
    Decision,
    Reason,
    RequestContext,
    evaluate,
    refusal_text,
)
from frontend.authz.actions import SQS, Target, resource_arn
from frontend.authz.request_context import root_caller
from frontend.errors import RequestError, Throttled
from frontend.limits.quota_tree import PAYLOAD_QUOTA, Refusal
from frontend.queues.names import Address
from frontend.queues.resolver import ResolvedQueue

if TYPE_CHECKING:
    from frontend.services import FrontendServices

CALLERS_KEPT_MAX = 4_096


async def admit(
    services: FrontendServices, caller: Principal, action: str, address: Address, *, messages: int = 0
) -> ResolvedQueue:
    """The queue, which the caller may use for this `action` (its SQS name), the request and its messages paid for.

    Raises RequestError.
    """
    pay(services, caller, address, messages)
    queue = authorise(services, caller, action, address)
    return await find_authorised(services, caller, action, address) if queue is None else queue


def authorise(services: FrontendServices, caller: Principal, action: str, address: Address) -> ResolvedQueue | None:
    """A queue of the caller's account that is at hand; None: ask `find_authorised`. Raises RequestError."""
    if caller.account_id != address.account_id:
        return None
    queue = services.queues.cached(address)
    if queue is not None and queue.policy is not NO_POLICY:
        _require_allowed(services, caller, action, address, queue.policy)
    return queue


async def find_authorised(
    services: FrontendServices, caller: Principal, action: str, address: Address
) -> ResolvedQueue:
    """A queue of any account. Raises RequestError."""
    is_own = caller.account_id == address.account_id
    try:
        queue = await services.queues.find(address)
    except RequestError as error:
        if is_own or error.code != "QueueDoesNotExist":
            raise
        _require_allowed(services, caller, action, address, NO_POLICY)
        raise AssertionError("no policy opens what does not exist") from None
    if not is_own or queue.policy is not NO_POLICY:
        _require_allowed(services, caller, action, address, queue.policy)
    return queue


async def also(services: FrontendServices, caller: Principal, action: str, address: Address) -> ResolvedQueue:
    """For a request that does more than one thing: the queue, if this is allowed with it, too. Nothing more is paid.
    Raises RequestError."""
    queue = authorise(services, caller, action, address)
    return await find_authorised(services, caller, action, address) if queue is None else queue


def require_own(services: FrontendServices, caller: Principal, action: str, address: Address) -> None:
    """For what only the owner's account may do, whatever a policy says. Raises RequestError."""
    if caller.account_id != address.account_id:
        throttle_account(services, caller)
        _require_allowed(services, caller, action, address, NO_POLICY)


def pay(
    services: FrontendServices,
    caller: Principal,
    address: Address,
    messages: int = 0,
    size_bytes: int = 0,
    is_send: bool = False,
) -> None:
    """One request about this queue, with so many messages and bytes. Raises RequestError."""
    account_id = caller.account_id
    refusal = services.quotas.pay(
        account_id,
        caller.access_key_id,
        address.name if address.account_id == account_id else "",
        services.steady_s(),
        messages,
        size_bytes,
        is_send,
    )
    if refusal is not None:
        raise _refused(services, refusal)


def pay_later(
    services: FrontendServices, caller: Principal, address: Address, messages: int, size_bytes: int
) -> None:
    """What a request that was paid for gave out; negative: what it could not take. Never refused: the next one is."""
    account_id, name = caller.account_id, address.name if address.account_id == caller.account_id else ""
    services.quotas.pay_later(account_id, caller.access_key_id, name, services.steady_s(), messages, size_bytes)


def throttle_account(services: FrontendServices, caller: Principal) -> None:
    """For a request that names no queue. Raises RequestError."""
    pay(services, caller, Address(caller.account_id, ""))


def _refused(services: FrontendServices, refusal: Refusal) -> RequestError:
    services.meters.count("requests_throttled")
    if refusal.stopped:
        return RequestError("SendingStopped", f"Messages cannot be sent by this account now: {refusal.stopped}.")
    if refusal.quota == PAYLOAD_QUOTA:
        return RequestError("RequestTooLarge", f"The body of the request has more than {refusal.limit_per_s:g} bytes.")
    return Throttled(refusal.quota, refusal.limit_per_s, refusal.wait_s)


def _require_allowed(
    services: FrontendServices, caller: Principal, action: str, address: Address, policy: CompiledPolicy
) -> None:
    arn = resource_arn(Target.QUEUE, services.region, address.account_id, address.name)
    request = RequestContext(
        _caller(caller.account_id),
        f"{SQS}:{action}",
        arn,
        int(services.now_s() * 1_000),
        services.region,
        source_ip=caller.source_ip or None,
        secure_transport=caller.is_secure,
    )
    decision = evaluate(request, NO_POLICY, policy)
    if not decision.allowed:
        if caller.account_id != address.account_id:
            # A denial that a policy states would tell that there is a queue.
            decision = Decision(False, Reason.NOT_ALLOWED_BY_RESOURCE)
        services.meters.count("requests_denied")
        raise RequestError("AccessDeniedException", refusal_text(request, decision, arn))


@lru_cache(CALLERS_KEPT_MAX)
def _caller(account_id: str) -> Caller:
    return root_caller(account_id)
