"""The document of an account, of what the caller may read."""

from __future__ import annotations

import json

from api.definitions.comparison import STATE
from api.definitions.document import FORMAT, POLICIES_MAX, QUEUES_MAX, Definitions, PolicyDefinition, QueueDefinition
from api.iam.authorisation import Targets, allows
from api.iam.selectors import policies_of
from api.internal.principal import ForwardedPrincipal
from api.queues import attributes as rules
from api.queues.models import Queue
from api.queues.selectors import queues_of
from frontend.authz.actions import MANAGEMENT_OPERATIONS


def export_definitions(principal: ForwardedPrincipal, prefix: str, after: str) -> Definitions:
    """Queues by name, from the first one behind `after` on, at most QUEUES_MAX; policies with the first ones."""
    account_id = principal.account_id
    queues = [
        _queue(queue)
        for queue in queues_of(account_id, prefix, after, QUEUES_MAX)
        if _may(principal, "queues.get", Targets(queue.name))
    ]
    policies = [] if after else policies_of(account_id, "", POLICIES_MAX)
    shown = [
        PolicyDefinition(policy.name, json.loads(policy.text))
        for policy in policies
        if _may(principal, "policies.get", Targets(item=policy.name))
    ]
    return Definitions(FORMAT, account_id, queues, shown)


def _queue(queue: Queue) -> QueueDefinition:
    defaults = rules.defaults_of(queue.name)
    attributes = {
        name: value
        for name, value in sorted(queue.attributes.items())
        if defaults.get(name) != value
        and name not in STATE
        and not (name == "SqsManagedSseEnabled" and _has_key(queue))
    }
    return QueueDefinition(queue.name, attributes, dict(sorted(queue.tags.items())))


def _has_key(queue: Queue) -> bool:
    """Then the other kind of encryption is off by itself."""
    return bool(queue.attributes.get("KmsMasterKeyId"))


def _may(principal: ForwardedPrincipal, operation: str, targets: Targets) -> bool:
    return allows(principal, MANAGEMENT_OPERATIONS[operation], targets)
