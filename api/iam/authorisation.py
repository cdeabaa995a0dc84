"""May this key do this? The one call of the control plane; the data plane's is frontend/messages/admission.py.

Asked of the database, so a policy counts from its commit on. Both sides are weighed: the policies of the key, and the
policy of each queue that the operation is about.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from api.audit.refusals import Refusal, note_refusals
from api.iam.errors import AccessDenied
from api.iam.selectors import key_rights, member_rights
from api.queues.models import Queue
from api.queues.selectors import queue_of, queue_of_id, queues_named
from api.settings.environment import environment
from frontend.authn.principal import Principal, PrincipalKind, person_id_of
from frontend.authz import (
    NO_POLICY,
    CompiledPolicy,
    Decision,
    PolicyKind,
    Reason,
    RequestContext,
    evaluate,
    load_policy,
    refusal_text,
)
from frontend.authz.actions import Demand, Target, When, resource_arn
from frontend.authz.request_context import NO_TAGS, Tags

QUEUE_POLICIES_COMPILED_MAX = 512
OF_QUEUES = frozenset((Target.QUEUE, Target.DEAD_LETTER_QUEUE, Target.DESTINATION, Target.LETTER_HOLDERS))
# Thousands, it may be: they are read together.
_OF_MANY_QUEUES = frozenset((Target.DESTINATION, Target.LETTER_HOLDERS))
# Nothing allows it, and nothing denies it.
NOT_GIVEN = frozenset((Reason.NOT_ALLOWED_BY_IDENTITY, Reason.NOT_ALLOWED_BY_RESOURCE))
_OF_THE_ACCOUNT = frozenset((Target.ALL_QUEUES, Target.ACCOUNT))


class Targets(NamedTuple):
    """What an operation is about: names of queues of the account, the name or id of something else, tags that it sets
    (`tags` and their keys) or takes away (keys alone), the id of the encryption key and the name of the dead-letter
    queue that it gives the queue, the queues that hold dead letters which it makes unreadable. `queue_id` is given for
    a deleted queue: another one may have its name, with tags and a policy of its own. `owner_id` is the account of the
    queues where it is not the caller's."""

    queue: str = ""
    destinations: tuple[str, ...] = ()
    item: str = ""
    tags: Tags = NO_TAGS
    tag_keys: tuple[str, ...] = ()
    encryption_key: str = ""
    dead_letter_queue: str = ""
    letter_holders: tuple[str, ...] = ()
    queue_id: uuid.UUID | None = None
    owner_id: str = ""


def require(principal: Principal, demands: Sequence[Demand], targets: Targets) -> None:
    """Raises AccessDenied where a demand is not allowed, and then the audit trail has it."""
    who = _with_rights(principal)
    if who is None:
        raise AccessDenied("The key is not valid any more.")
    for refused in _refused(who, demands, targets):
        note_refusals([_refusal(principal, refused.action, refused.arn)])
        raise AccessDenied(refused.text)


def allows(principal: Principal, demands: Sequence[Demand], targets: Targets) -> bool:
    """For what is left out where it is not allowed: no refusal, so the audit trail has none."""
    who = _with_rights(principal)
    return who is not None and next(_refused(who, demands, targets), None) is None


def allowed_queues(principal: Principal, demands: Sequence[Demand], queues: Sequence[Queue]) -> list[Queue]:
    """As `allows` says of each. The rights are read once, and each queue's own policy stands in its row."""
    who = _with_rights(principal)
    if who is None:
        return []

    def is_allowed(queue: Queue) -> bool:
        sides: _Sides = {(queue.name, None): _side_of(queue)}
        return next(_refused(who, demands, Targets(queue.name), sides), None) is None

    return [queue for queue in queues if is_allowed(queue)]


def allowed_items(principal: Principal, demands: Sequence[Demand], items: Sequence[str]) -> list[str]:
    """As `allows` says of each key, policy or group. The rights are read once."""
    who = _with_rights(principal)
    if who is None:
        return []
    return [item for item in items if next(_refused(who, demands, Targets(item=item)), None) is None]


class _Refused(NamedTuple):
    action: str
    arn: str
    text: str


class _QueueSide(NamedTuple):
    policy: CompiledPolicy
    tags: Tags


_NO_QUEUE = _QueueSide(NO_POLICY, NO_TAGS)
# By the name and the id that were given.
_Sides = dict[tuple[str, uuid.UUID | None], _QueueSide]


def _refused(
    who: Principal, demands: Sequence[Demand], targets: Targets, known: _Sides | None = None
) -> Iterator[_Refused]:
    """What is not allowed, in the order in which it is asked for. `known` queues are not read again."""
    sides: _Sides = {} if known is None else known
    owner_id = targets.owner_id or who.account_id
    for demand in demands:
        if is_made(demand, targets):
            names = names_of(demand, targets)
            if demand.target in _OF_MANY_QUEUES and len(names) > 1:
                sides.update(((queue.name, None), _side_of(queue)) for queue in queues_named(owner_id, names))
            for name in names:
                side = _NO_QUEUE
                if demand.target in OF_QUEUES:
                    which = (name, targets.queue_id if demand.target is Target.QUEUE else None)
                    side = sides[which] = sides.get(which) or _queue_side(owner_id, *which)
                if who.rights is not None or side.policy is not NO_POLICY or owner_id != who.account_id:
                    refused = _weigh(who, demand, name, side, targets)
                    if refused is not None:
                        yield refused


def _with_rights(principal: Principal) -> Principal | None:
    """With the rights that it has now: those of a key; of a person who acts through a page, for whom the front end
    asks. None: it is not valid any more. A front end that has not heard of a suspension, or whose clock is behind, may
    still have let it through."""
    if principal.kind is PrincipalKind.KEY:
        found = key_rights(principal.account_id, principal.name)
        return principal._replace(rights=found.rights) if found is not None and found.is_valid else None
    if principal.kind is not PrincipalKind.PERSON:
        return None
    try:
        person_id = uuid.UUID(person_id_of(principal.name))
    except ValueError:
        return None
    rights = member_rights(principal.account_id, person_id)
    return None if rights is None else principal._replace(rights=rights)


def _weigh(who: Principal, demand: Demand, name: str, side: _QueueSide, targets: Targets) -> _Refused | None:
    region, now_ms = environment().region, time.time_ns() // 1_000_000
    arn = resource_arn(demand.target, region, targets.owner_id or who.account_id, name)
    request = who.asks(demand.action, arn, now_ms, region, side.tags, targets.tags, targets.tag_keys)
    decision = decide(request, demand, who.policy, side.policy)
    if decision.allowed:
        return None
    return _Refused(demand.action, arn, refusal_text(request, decision, arn))


def _refusal(principal: Principal, action: str, arn: str) -> Refusal:
    who, source = principal.name, principal.source_ip
    return Refusal(principal.account_id, who, action, arn, source, request_id=principal.request_id)


def decide(
    request: RequestContext, demand: Demand, own: CompiledPolicy, of_queue: CompiledPolicy = NO_POLICY
) -> Decision:
    """`request` is for the action of the demand. Where nobody denies that one, what serves instead is asked for."""
    decision = evaluate(request, own, of_queue)
    if demand.instead and decision.reason in NOT_GIVEN:
        serves = evaluate(request._replace(action=demand.instead), own, of_queue)
        return serves if serves.allowed else decision
    return decision


def is_made(demand: Demand, targets: Targets) -> bool:
    """Does the operation ask for this, of these targets?"""
    if demand.when is When.TAGS_ARE_SET:
        return bool(targets.tags)
    if demand.when is When.KEY_IS_NAMED:
        return bool(targets.encryption_key)
    if demand.when is When.DEAD_LETTERS_ARE_SENT:
        return bool(targets.dead_letter_queue)
    return demand.when is When.ALWAYS or (bool(targets.tag_keys) and not targets.tags)


def names_of(demand: Demand, targets: Targets) -> tuple[str, ...]:
    """The names of what the demand is about."""
    if demand.target is Target.QUEUE:
        return (targets.queue,)
    if demand.target is Target.DESTINATION:
        return targets.destinations
    if demand.target is Target.LETTER_HOLDERS:
        return targets.letter_holders
    if demand.when is When.KEY_IS_NAMED:
        return (targets.encryption_key,)
    if demand.when is When.DEAD_LETTERS_ARE_SENT:
        return (targets.dead_letter_queue,)
    return ("",) if demand.target in _OF_THE_ACCOUNT else (targets.item,)


def _queue_side(account_id: str, name: str, queue_id: uuid.UUID | None) -> _QueueSide:
    queue = queue_of(account_id, name) if queue_id is None else queue_of_id(account_id, queue_id)
    return _NO_QUEUE if queue is None else _side_of(queue)


def _side_of(queue: Queue) -> _QueueSide:
    text = queue.attributes.get("Policy")
    return _QueueSide(_compiled(queue.name, text) if text else NO_POLICY, queue.tags)


@lru_cache(QUEUE_POLICIES_COMPILED_MAX)
def _compiled(name: str, text: str) -> CompiledPolicy:
    return load_policy(text, PolicyKind.RESOURCE, name)
