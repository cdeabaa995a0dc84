"""What every request about a queue goes through first: is it within its rates, is it allowed, which queue is it.

It is paid for before anything is looked up: by the account and key that ask, and by the queue where it is the
account's own. A request that a quota refuses pays nothing, a send that the service fails to do pays no messages and
bytes, one that is refused for its form pays as a request (`pay_unpaid`).

    queue of the caller's account    a key without policies: allowed, but for what the policy of the queue denies;
                                     a key with policies: what they or the policy of the queue allow, and none denies
    queue of another account         allowed where the policy of that queue allows it, and those of the key do; a
                                     caller that is not hears the same, as late, of a queue that does not exist

An operation is a line of the tables in authz/actions.py: all that it asks for on the queue is asked here.
"""

from __future__ import annotations

import asyncio
from math import inf
from sys import maxsize
from typing import TYPE_CHECKING, NamedTuple

from frontend.authn.principal import Principal
from frontend.authn.rights import Allowed, Origin, Rights
from frontend.authz import NO_POLICY, CompiledPolicy, RequestContext, evaluate, refusal_text
from frontend.authz.actions import QUEUE_ACTIONS, Target, resource_arn
from frontend.authz.request_context import NO_TAGS, Tags
from frontend.errors import RequestError, Throttled, throttled, unavailable
from frontend.limits import KEY_DECISIONS_KEPT_MAX
from frontend.limits.quota_tree import PAYLOAD_QUOTA, SENDS_OF_ACCOUNT, SENDS_TO_QUEUE, HeldSends, QuotaRefusal
from frontend.limits.quotas import DEFAULT_LIMITS
from frontend.metadata.interface import MetadataUnavailable, Missing
from frontend.metering.request_counts import ERRORS, NO_KEY, NO_QUEUE, REQUESTS, THROTTLED
from frontend.queues.names import Address
from frontend.queues.resolver import ResolvedQueue
from frontend.refusal_times import wait_to_refuse
from frontend.refused_calls import RefusedCall

if TYPE_CHECKING:
    from frontend.services import FrontendServices

# What cannot be done while the encryption key that the queue names cannot be used.
_NEEDS_ENCRYPTION_KEY = frozenset(("SendMessage", "ReceiveMessage", "peek", "browser_resend"))
KEY_NOT_VALID = "The key is not valid any more."


class SentTags(NamedTuple):
    """Tags that a request sets (all of them), or takes away (keys alone): conditions look at them."""

    tags: Tags = NO_TAGS
    keys: tuple[str, ...] = ()


NO_SENT_TAGS = SentTags()


async def admit(
    services: FrontendServices,
    caller: Principal,
    operation: str,
    address: Address,
    sent_tags: SentTags = NO_SENT_TAGS,
    *,
    messages: int = 0,
) -> ResolvedQueue:
    """The queue, which the caller may use for this operation, the request and its messages paid for.

    Raises RequestError.
    """
    queue = admit_at_hand(services, caller, operation, address, messages, sent_tags)
    return queue if queue is not None else await admit_found(services, caller, operation, address, sent_tags)


def admit_at_hand(
    services: FrontendServices,
    caller: Principal,
    operation: str,
    address: Address,
    messages: int = 0,
    sent_tags: SentTags = NO_SENT_TAGS,
) -> ResolvedQueue | None:
    """The first half of `admit`, without waiting. None: it is paid for, and `admit_found` is the other half."""
    pay(services, caller, address, messages)
    queue = authorise(services, caller, operation, address, sent_tags)
    if queue is not None:
        count_request(services, caller, queue)
    return queue


async def admit_found(
    services: FrontendServices,
    caller: Principal,
    operation: str,
    address: Address,
    sent_tags: SentTags = NO_SENT_TAGS,
) -> ResolvedQueue:
    queue = await find_authorised(services, caller, operation, address, sent_tags)
    count_request(services, caller, queue)
    return queue


def count_request(services: FrontendServices, caller: Principal, queue: ResolvedQueue, counter: int = REQUESTS) -> None:
    """For the owner of the queue, which another account's key is not told to."""
    record = queue.record
    key = caller.name if caller.account_id == record.account_id else NO_KEY
    services.request_counts.count(record.account_id, record.queue_uuid, key, counter)


def count_failure(services: FrontendServices, caller: Principal, address: Address, error: Exception) -> None:
    """A request about this queue that did not succeed, in the series of the queue if it is the caller's account's own.
    `pay` has counted what a quota refused."""
    if isinstance(error, Throttled) or caller.account_id != address.account_id:
        return
    is_throttled = isinstance(error, RequestError) and error.code == "RequestThrottled"
    _count_refused(services, caller, address, THROTTLED if is_throttled else ERRORS)


def _count_refused(services: FrontendServices, caller: Principal, address: Address, counter: int) -> None:
    """For the caller's own queue where it is at hand: a refusal looks nothing up."""
    account_id, queue_uuid = caller.account_id, NO_QUEUE
    if address.account_id == account_id:
        queue_uuid = services.queues.uuid_at_hand(address) or NO_QUEUE
    services.request_counts.count(account_id, queue_uuid, caller.name, counter)


def authorise(
    services: FrontendServices,
    caller: Principal,
    operation: str,
    address: Address,
    sent_tags: SentTags = NO_SENT_TAGS,
) -> ResolvedQueue | None:
    """A queue of the caller's account that is at hand; None, also for what is sent to one where little may be sent or
    nothing: ask `find_authorised`. Raises RequestError."""
    if caller.account_id != address.account_id:
        return None
    try:
        queue = services.queues.cached(address)
    except RequestError:
        if caller.rights is not None:
            _require_allowed(services, caller, operation, address, None, sent_tags)
        raise
    if queue is not None and (caller.rights is not None or queue.policy is not NO_POLICY):
        _require_allowed(services, caller, operation, address, queue, sent_tags)
    if queue is not None and queue.is_restricted:
        if operation == "SendMessage" and queue.is_held:
            return None
        _require_encryption_key(caller, operation, queue)
    return queue


async def find_authorised(
    services: FrontendServices,
    caller: Principal,
    operation: str,
    address: Address,
    sent_tags: SentTags = NO_SENT_TAGS,
    messages: int = 0,
) -> ResolvedQueue:
    """A queue of any account; so many messages may be sent there now. Raises RequestError."""
    if caller.account_id == address.account_id:
        queue = await _find_own(services, caller, operation, address, sent_tags)
    else:
        queue = await _find_of_another(services, caller, operation, address, sent_tags)
    if messages:
        assert operation == "SendMessage"
        _require_room(services, caller, queue, messages)
    if queue.is_restricted:
        _require_encryption_key(caller, operation, queue)
    return queue


async def _find_own(
    services: FrontendServices, caller: Principal, operation: str, address: Address, sent_tags: SentTags
) -> ResolvedQueue:
    try:
        queue = await services.queues.find(address)
    except RequestError as error:
        if error.code == "QueueDoesNotExist" and caller.rights is not None:
            _require_allowed(services, caller, operation, address, None, sent_tags)
        raise
    if caller.rights is not None or queue.policy is not NO_POLICY:
        _require_allowed(services, caller, operation, address, queue, sent_tags)
    return queue


def _require_encryption_key(caller: Principal, operation: str, queue: ResolvedQueue) -> None:
    if queue.encryption is not None and operation in _NEEDS_ENCRYPTION_KEY:
        queue.encryption.require(caller.account_id)


def _require_room(services: FrontendServices, caller: Principal, queue: ResolvedQueue, messages: int) -> None:
    """Where what is sent there is billed to an account or a queue that is stopped, or held to a rate. What the caller's
    own account may send is paid for before. Raises RequestError; the reason and the rate are for the owner."""
    record = queue.record
    is_own = caller.account_id == record.account_id
    owner = DEFAULT_LIMITS if is_own else services.account_limits(record.account_id)
    if owner.stopped:
        raise RequestError("SendingStopped", "Messages cannot be sent to queues of this account now.")
    if record.sending_stopped:
        reason = f": {record.sending_stopped.rstrip('.')}" if is_own else ""
        raise RequestError("SendingStopped", f"Messages cannot be sent to this queue now{reason}.")
    levels = (
        HeldSends(SENDS_TO_QUEUE, queue.rate_name, record.sends_per_s),
        HeldSends(SENDS_OF_ACCOUNT, record.account_id, owner.sends_per_s),
    )
    refusal = services.quotas.pay_sends([one for one in levels if one.sends_per_s], services.steady_s(), messages)
    if refusal is not None:
        services.meters.count("requests_throttled")
        if not is_own:
            raise throttled(refusal.wait_s)
        raise Throttled(refusal.quota, refusal.limit_per_s, refusal.wait_s, record.held_reason)


async def _find_of_another(
    services: FrontendServices, caller: Principal, operation: str, address: Address, sent_tags: SentTags
) -> ResolvedQueue:
    """A queue of another account. Raises RequestError, with the same steps and as late whether there is no such queue,
    one that is at hand, or one that is not: each refusal has waited for one look-up, and as `wait_to_refuse` says."""
    began_s = services.steady_s()
    is_at_hand = True
    try:
        try:
            queue = services.queues.cached(address)
            if queue is None:
                is_at_hand = False
                queue = await services.queues.look_up(caller.account_id, address)
        except RequestError as error:
            if error.code != "QueueDoesNotExist":
                raise
            queue = None
        _require_allowed(services, caller, operation, address, queue, sent_tags)
        if not await _is_active(services, address.account_id):
            _require_allowed(services, caller, operation, address, None, sent_tags)
    except RequestError:
        await _delay_refusal(services, caller, address, began_s, is_at_hand)
        raise
    assert queue is not None, "no policy opens what does not exist"
    return queue


async def _is_active(services: FrontendServices, account_id: str) -> bool:
    """False while the account is suspended, closing or closed: as its keys open nothing then, its policies do not.
    Raises RequestError where that cannot be told."""
    known = services.metadata.cached_account(account_id)
    if not isinstance(known, Missing):
        return known is None or known.active
    # A task, which its deadlines need: a hot request is none (frontend/express).
    try:
        found = await asyncio.create_task(services.metadata.get_account(account_id), name="owner-look-up")
    except MetadataUnavailable as error:
        raise unavailable("The service is not available. Try again.", error.retry_after_s) from None
    return found is None or found.active


async def _delay_refusal(
    services: FrontendServices, caller: Principal, address: Address, began_s: float, is_at_hand: bool
) -> None:
    """Raises RequestError where a look-up would."""
    try:
        if is_at_hand:
            await services.queues.repeat_look_up(caller.account_id, address)
    finally:
        await wait_to_refuse(began_s, services.steady_s)


async def also(
    services: FrontendServices, caller: Principal, operation: str, address: Address, messages: int = 0
) -> ResolvedQueue:
    """For a request that does more than one thing: the queue, if this is allowed with it, too. Nothing more is paid,
    but for messages that are sent where sends are held to a rate. Raises RequestError."""
    queue = authorise(services, caller, operation, address)
    if queue is None:
        queue = await find_authorised(services, caller, operation, address, messages=messages)
    return queue


async def still_caller(services: FrontendServices, caller: Principal) -> Principal:
    """For what goes on for longer than a request: the caller with the rights it has now. Raises RequestError."""
    renewed = await services.authenticator.again(caller)
    if renewed is None:
        raise RequestError("InvalidClientTokenId", KEY_NOT_VALID)
    return renewed


def require_own(services: FrontendServices, caller: Principal, operation: str, address: Address) -> None:
    """For what only the owner's account may do, whatever a policy says. Raises RequestError."""
    if caller.account_id != address.account_id:
        throttle_account(services, caller)
        _require_allowed(services, caller, operation, address, None, NO_SENT_TAGS)


def require_allowed(services: FrontendServices, caller: Principal, operation: str, address: Address) -> None:
    """On a queue of the caller's account that is not there yet. Raises RequestError."""
    if caller.rights is not None:
        _require_allowed(services, caller, operation, address, None, NO_SENT_TAGS)


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
        caller.name,
        address.name if address.account_id == account_id else "",
        services.steady_s(),
        messages,
        size_bytes,
        is_send,
    )
    if refusal is not None:
        _count_refused(services, caller, address, THROTTLED)
        raise _refused(services, caller, refusal)


def pay_later(services: FrontendServices, caller: Principal, address: Address, messages: int, size_bytes: int) -> None:
    """What a request that was paid for gave out; negative: what it could not take. Never refused: the next one is."""
    account_id, name = caller.account_id, address.name if address.account_id == caller.account_id else ""
    services.quotas.pay_later(account_id, caller.name, name, services.steady_s(), messages, size_bytes)


def messages_left(
    services: FrontendServices, caller: Principal, address: Address, ahead_s: float, message_bytes: float
) -> int:
    """How many messages of about this size the rates leave to a request that was just paid for, and grant within
    `ahead_s`; one at least."""
    account_id, name = caller.account_id, address.name if address.account_id == caller.account_id else ""
    messages, size_bytes = services.quotas.left(account_id, caller.name, name, services.steady_s(), ahead_s)
    return int(max(1.0, min(messages, size_bytes / message_bytes, maxsize)))


def pay_unpaid(
    services: FrontendServices, caller: Principal, address: Address, error: Exception, payments: int
) -> Exception:
    """What a request that failed is answered. One that was refused for its form, before it had paid, pays as a request
    now, or a flood of them would cost nothing; where a quota refuses that, the caller is told so.

    `payments` are those of everybody when the caller was known. From there to its payment no request waits, so where
    there are no more of them, this one has not paid.
    """
    if services.quotas.payments != payments:
        return error
    try:
        pay(services, caller, address)
    except RequestError as refused:
        return refused
    return error


def throttle_account(services: FrontendServices, caller: Principal) -> None:
    """For a request that names no queue. Raises RequestError."""
    pay(services, caller, Address(caller.account_id, ""))
    services.request_counts.count(caller.account_id, NO_QUEUE, caller.name)


def require_sending(services: FrontendServices, caller: Principal) -> None:
    """For a request that sends besides what it was paid for. Raises RequestError."""
    account_id, limits = caller.account_id, services.quotas.limits(caller.account_id, caller.name)
    refusal = None
    if limits.stopped:
        refusal = QuotaRefusal("sending", 0.0, 0.0, limits.stopped)
    elif limits.sends_per_s:
        held = HeldSends(SENDS_OF_ACCOUNT, account_id, limits.sends_per_s)
        refusal = services.quotas.pay_sends((held,), services.steady_s())
    if refusal is not None:
        raise _refused(services, caller, refusal)


def _refused(services: FrontendServices, caller: Principal, refusal: QuotaRefusal) -> RequestError:
    services.meters.count("requests_throttled")
    if refusal.stopped:
        return RequestError(
            "SendingStopped", f"Messages cannot be sent by this account now: {refusal.stopped.rstrip('.')}."
        )
    if refusal.quota == PAYLOAD_QUOTA:
        text = f"The body of the request has more than {refusal.limit_per_s:.12g} bytes."
        return RequestError("RequestTooLarge", text)
    is_held = refusal.quota.startswith(SENDS_OF_ACCOUNT)
    reason = services.quotas.limits(caller.account_id, caller.name).held_reason if is_held else ""
    return Throttled(refusal.quota, refusal.limit_per_s, refusal.wait_s, reason)


def _require_allowed(
    services: FrontendServices,
    caller: Principal,
    operation: str,
    address: Address,
    queue: ResolvedQueue | None,
    sent_tags: SentTags,
) -> None:
    """`queue` None: there is none. Raises RequestError."""
    policy = NO_POLICY if queue is None else queue.policy
    rights = caller.rights
    now_s = services.now_s()
    if rights is not None and queue is not None:
        allowed = rights.allowed
        known = allowed.get((operation, address, None)) or allowed.get((operation, address, _origin(caller)))
        if known is not None:
            for_policy, for_tags, since_s, until_s = known
            if for_policy is policy and for_tags is queue.record.tags and since_s <= now_s < until_s:
                return
    arn = resource_arn(Target.QUEUE, services.region, address.account_id, address.name)
    for action in QUEUE_ACTIONS[operation]:
        tags = NO_TAGS if queue is None else queue.record.tags
        request = caller.asks(action, arn, int(now_s * 1_000), services.region, tags, sent_tags.tags, sent_tags.keys)
        _require_action(services, caller, request, policy)
    if rights is not None and queue is not None:
        _remember(caller, rights, operation, address, queue, now_s)


def _require_action(
    services: FrontendServices, caller: Principal, request: RequestContext, policy: CompiledPolicy
) -> None:
    own_policy = caller.policy
    decision = evaluate(request, own_policy, policy)
    if decision.allowed:
        return
    if caller.account_id != request.resource_account_id:
        # What an absent queue is told: a denial that a policy states would tell that there is a queue.
        decision = evaluate(request._replace(resource_tags=NO_TAGS), own_policy, NO_POLICY)
    services.meters.count("requests_denied")
    refused = RefusedCall(caller.account_id, caller.name, request.action, request.resource_arn)
    services.refused_calls.note(refused, caller.source_ip)
    raise RequestError("AccessDeniedException", refusal_text(request, decision, request.resource_arn))


def _remember(
    caller: Principal, rights: Rights, operation: str, address: Address, queue: ResolvedQueue, now_s: float
) -> None:
    """That it is allowed, where neither side looks at anything that differs between requests of one origin, about the
    queue as it is; and for how long, where conditions look at the time."""
    actions, policy = QUEUE_ACTIONS[operation], queue.policy
    if not all(rights.policy.is_steady(action) and policy.is_steady(action) for action in actions):
        return
    is_fixed = all(rights.policy.is_fixed(action) and policy.is_fixed(action) for action in actions)
    if len(rights.allowed) >= KEY_DECISIONS_KEPT_MAX:
        rights.allowed.clear()
    edges_s = [edge for action in actions for one in (rights.policy, policy) for edge in one.edges_s(action)]
    since_s = max((edge for edge in edges_s if edge <= now_s), default=-inf)
    until_s = min((edge for edge in edges_s if edge > now_s), default=inf)
    if not is_fixed:
        rights.allowed.pop((operation, address, None), None)  # of a policy that the queue had before
    found = Allowed(policy, queue.record.tags, since_s, until_s)
    rights.allowed[operation, address, None if is_fixed else _origin(caller)] = found


def _origin(caller: Principal) -> Origin:
    return caller.source_ip, caller.is_secure
