"""What would be decided: stored or given policies against requests that nobody makes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from api.iam import limits
from api.iam.documents import stored_form
from api.iam.errors import IamError, invalid_policy, not_found
from api.iam.selectors import key_rights, member_rights
from api.queues.attributes import parse_arn
from api.queues.selectors import queue_of
from api.settings.environment import environment
from api.unknown_members import meant_member
from frontend.authn.principal import Principal
from frontend.authn.rights import Rights, rights_of
from frontend.authz import (
    NO_POLICY,
    CompiledPolicy,
    PolicyError,
    PolicyKind,
    RequestContext,
    Simulation,
    StatementPlace,
    compile_policy,
    load_policy,
    simulate,
)
from frontend.authz.actions import ACTION_NAMES
from frontend.authz.request_context import ARN_PARTS, NO_TAGS, Tags
from frontend.metadata.records import PolicyRecord

_FOLDED = {name.lower(): name for name in ACTION_NAMES}
# Whom given policies are weighed for where no key and no person is named.
_ANYBODY = "simulated"
_EXAMPLE_ARN = "arn:aws:sqs:us-east-1:111122223333:orders"


def simulate_requests(account_id: str, asked: Mapping[str, Any]) -> list[dict[str, object]]:
    """One result for each action on each resource. `asked` has passed the serializer. Raises IamError."""
    rights = _rights(account_id, asked)
    actions = [_action(at, text) for at, text in enumerate(asked["actions"])]
    results = []
    ends_s = time.monotonic() + limits.SIMULATION_S_MAX
    for at, arn in enumerate(asked["resources"]):
        if len(arn.split(":")) < ARN_PARTS or not arn.startswith("arn:"):
            raise IamError("invalid-request", f"A resource is an ARN, as {_EXAMPLE_ARN}.", f"/resources/{at}")
        side, tags = _queue_side(account_id, arn, asked["queue_policy"])
        for action in actions:
            if time.monotonic() > ends_s:
                raise IamError("over-limit", "This takes too long: ask about fewer actions, resources or policies.")
            request = _request(account_id, rights, action, arn, tags, asked["request_context"])
            found = simulate(request, NO_POLICY if rights is None else rights.policy, side)
            results.append(_result_json(action, arn, found))
    return results


def _rights(account_id: str, asked: Mapping[str, Any]) -> Rights | None:
    """None: the account itself, or a key that has no policy. Given policies stand in the place of stored ones."""
    documents = asked["policies"]
    context = asked["request_context"]
    if documents is not None:
        texts = [stored_form(document, f"policies/{at}") for at, document in enumerate(documents)]
        given = [PolicyRecord(f"policies/{at}", text) for at, text in enumerate(texts)]
        return rights_of(account_id, asked["access_key_id"] or _ANYBODY, given, context.get("principal_tags") or {})
    if asked["person_id"] is not None:
        rights = member_rights(account_id, asked["person_id"])
        if rights is None:
            raise not_found()
        return rights
    if asked["access_key_id"] is not None:
        found = key_rights(account_id, asked["access_key_id"])
        if found is None:
            raise not_found()
        return found.rights
    return None


def _action(at: int, text: str) -> str:
    name = _FOLDED.get(text.lower())
    if name is None:
        meant = meant_member(text, sorted(ACTION_NAMES)) or "sqs:SendMessage"
        raise IamError("invalid-request", f"There is no such action; one is {meant}.", f"/actions/{at}")
    return name


def _queue_side(account_id: str, arn: str, given: object) -> tuple[CompiledPolicy, Tags]:
    """The policy that is given, or the stored one of a queue of the account; of other accounts nothing is looked at."""
    named = parse_arn(arn)
    queue = None
    if named is not None and (named.region, named.account_id) == (environment().region, account_id):
        queue = queue_of(account_id, named.name)
    tags: Tags = NO_TAGS if queue is None else queue.tags
    if given is not None:
        return _compiled_queue_policy(given), tags
    text = "" if queue is None else queue.attributes.get("Policy", "")
    return (load_policy(text, PolicyKind.RESOURCE, "queue") if text else NO_POLICY), tags


def _compiled_queue_policy(document: object) -> CompiledPolicy:
    try:
        return compile_policy(msgspec.json.encode(document).decode(), PolicyKind.RESOURCE, "queue_policy")
    except PolicyError as error:
        raise invalid_policy(error, "queue_policy") from None


def _request(
    account_id: str, rights: Rights | None, action: str, arn: str, queue_tags: Tags, context: Mapping[str, Any]
) -> RequestContext:
    when = context.get("time")
    request_tags = context.get("request_tags") or NO_TAGS
    who = Principal(
        account_id,
        _ANYBODY,
        source_ip=context.get("source_ip") or "",
        is_secure=context.get("secure_transport", True),
        rights=rights,
        user_agent=context.get("user_agent"),
        referer=context.get("referer"),
    )
    return who.asks(
        action,
        arn,
        time.time_ns() // 1_000_000 if when is None else int(when.timestamp() * 1_000),
        environment().region,
        context.get("resource_tags") or queue_tags,
        request_tags,
        tuple(context.get("tag_keys") or request_tags),
    )


def _result_json(action: str, arn: str, found: Simulation) -> dict[str, object]:
    decision = found.decision
    denied = "explicit_deny" if decision.statement is not None else "implicit_deny"
    return {
        "action": action,
        "resource": arn,
        "decision": "allowed" if decision.allowed else denied,
        "reason": decision.reason.value,
        "statement": None if decision.statement is None else _place_json(decision.statement),
        "statements": _outcomes_json(found),
    }


def _outcomes_json(found: Simulation) -> Sequence[dict[str, object]]:
    shown = found.outcomes[: limits.STATEMENTS_SHOWN_MAX]
    return [
        {**_place_json(one.place), "effect": "Deny" if one.denies else "Allow", "mismatch": one.mismatch}
        for one in shown
    ]


def _place_json(place: StatementPlace) -> dict[str, object]:
    return {"policy": place.policy, "ordinal": place.ordinal, "sid": place.sid}
