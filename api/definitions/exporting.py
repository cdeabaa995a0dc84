"""The document of an account, of what the caller may read."""

from __future__ import annotations

import json

import msgspec

from api.definitions.comparison import STATE
from api.definitions.document import FORMAT, POLICIES_MAX, QUEUES_MAX, Definitions, PolicyDefinition, QueueDefinition
from api.iam.authorisation import allowed_items, allowed_queues
from api.iam.selectors import policies_of
from api.queues import attributes as rules
from api.queues.models import Queue
from api.queues.selectors import queues_of
from api.quotas.selectors import given_to_queues
from frontend.authn.principal import Principal
from frontend.authz.actions import MANAGEMENT_OPERATIONS

# Read for one document, of which the caller may see some: the next document goes on behind them.
QUEUES_READ_MAX = 10_000

assert QUEUES_READ_MAX >= QUEUES_MAX


def export_definitions(principal: Principal, prefix: str, after: str) -> Definitions:
    """Queues by name, from the first one behind `after` on, at most QUEUES_MAX; policies with the first ones."""
    account_id = principal.account_id
    queues, next_after = _readable_queues(principal, prefix, after)
    policies = [] if after else policies_of(account_id, "", POLICIES_MAX)
    names = set(allowed_items(principal, MANAGEMENT_OPERATIONS["policies.get"], [policy.name for policy in policies]))
    shown = [PolicyDefinition(policy.name, json.loads(policy.text)) for policy in policies if policy.name in names]
    readable = allowed_queues(principal, MANAGEMENT_OPERATIONS["queues.get_quotas"], queues)
    given = given_to_queues(readable)
    quotas = {queue.pk: given.get(queue.pk, {}) for queue in readable}
    described = [_queue(queue, quotas.get(queue.pk, msgspec.UNSET)) for queue in queues]
    return Definitions(FORMAT, account_id, described, shown, next_after or msgspec.UNSET)


def _readable_queues(principal: Principal, prefix: str, after: str) -> tuple[list[Queue], str]:
    """Up to QUEUES_MAX that the caller may read, and the name behind which there may be more; "" where all were
    read."""
    found: list[Queue] = []
    for _ in range(QUEUES_READ_MAX // QUEUES_MAX):
        rows = queues_of(principal.account_id, prefix, after, QUEUES_MAX)
        found += allowed_queues(principal, MANAGEMENT_OPERATIONS["queues.get"], rows)
        if len(found) > QUEUES_MAX:
            return found[:QUEUES_MAX], found[QUEUES_MAX - 1].name
        if len(rows) < QUEUES_MAX:
            return found, ""
        after = rows[-1].name
    return found, after


def _queue(queue: Queue, quotas: dict[str, int] | msgspec.UnsetType) -> QueueDefinition:
    defaults = rules.defaults_of(queue.name)
    attributes = {
        name: value
        for name, value in sorted(queue.attributes.items())
        if defaults.get(name) != value
        and name not in STATE
        and not (name == "SqsManagedSseEnabled" and _has_key(queue))
    }
    return QueueDefinition(queue.name, attributes, dict(sorted(queue.tags.items())), quotas)


def _has_key(queue: Queue) -> bool:
    """Then the other kind of encryption is off by itself."""
    return bool(queue.attributes.get("KmsMasterKeyId"))
