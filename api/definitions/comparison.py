"""What a document would change of an account: one line for each queue and policy that it names.

Nothing is taken away that the document does not name. A queue that is there gets the attributes and tags of the
document, and the defaults where it says nothing; its quotas, if the document has any member for them.

A comparison tells no more than its caller may read: what is there already is compared for those who may read it.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from api.definitions.document import Definitions, PolicyDefinition, QueueDefinition
from api.iam.authorisation import Targets, allows, require
from api.iam.documents import stored_form
from api.iam.errors import AccessDenied, IamError
from api.iam.selectors import policy_of
from api.iam.targets import with_attributes
from api.queues import attributes as rules
from api.queues.attributes import QueueProblem
from api.queues.models import Queue
from api.queues.selectors import queue_of
from api.quotas.errors import QuotaProblem
from api.quotas.selectors import given_to_queues
from api.quotas.single import check_quotas
from frontend.authn.principal import Principal
from frontend.authz.actions import MANAGEMENT_OPERATIONS
from frontend.queues.extensions import PAUSED

# Whether a queue gives messages now is its state, and no definition.
STATE = frozenset({PAUSED})


class ChangeKind(enum.StrEnum):
    CREATE = "create"
    UPDATE = "update"
    NONE = "none"
    REFUSED = "refused"


class Difference(NamedTuple):
    """Of an attribute, a tag (`tag:KEY`), a quota (`quota:NAME`), or the text of a policy. "" = there is none."""

    field: str
    before: str
    after: str


class DefinitionChange(NamedTuple):
    """`what` is queue or policy; `problem` says why it is refused."""

    what: str
    name: str
    kind: ChangeKind
    differences: tuple[Difference, ...] = ()
    problem: str = ""


def compare(principal: Principal, definitions: Definitions) -> list[DefinitionChange]:
    """For this caller: what it may not do is refused here already."""
    queues = [_guarded("queue", one.name, partial(_queue_change, principal, one)) for one in definitions.queues]
    return queues + [
        _guarded("policy", one.name, partial(_policy_change, principal, one)) for one in definitions.policies
    ]


def digest_of(changes: list[DefinitionChange]) -> str:
    """The same for the same changes: what is applied is what was shown."""
    return hashlib.sha256(msgspec.json.encode(changes)).hexdigest()[:32]


def attributes_asked(definition: QueueDefinition) -> dict[str, str]:
    """In normal form. Raises QueueProblem."""
    name = rules.check_name(definition.name)
    fifo = {"FifoQueue": "true"} if rules.is_fifo(name) else {}
    return rules.check_new({**fifo, **definition.attributes}, name)


def attribute_changes(queue: Queue, definition: QueueDefinition) -> dict[str, str]:
    """What makes the queue's attributes those of the document. Raises QueueProblem."""
    asked = attributes_asked(definition)
    wanted = rules.merged(rules.defaults_of(queue.name), asked)
    stored = {name: value for name, value in queue.attributes.items() if name not in STATE or name in asked}
    change = {
        name: wanted.get(name, "")
        for name in sorted({*stored, *wanted})
        if stored.get(name, "") != wanted.get(name, "")
    }
    if change.get("KmsMasterKeyId"):
        change.pop("SqsManagedSseEnabled", None)  # goes with the key
    return rules.check_change(change, queue.name) if change else {}


def tag_changes(queue: Queue, definition: QueueDefinition) -> tuple[dict[str, str], list[str]]:
    """Tags to be set, and keys to be taken away. Raises QueueProblem."""
    tags = rules.check_tags(definition.tags) if definition.tags else {}
    given = {key: value for key, value in tags.items() if queue.tags.get(key) != value}
    return given, sorted(key for key in queue.tags if key not in tags)


def quotas_asked(definition: QueueDefinition) -> dict[str, int] | None:
    """None: the document says nothing of them. Raises QuotaProblem."""
    return None if definition.quotas is msgspec.UNSET else check_quotas(definition.quotas)


def _guarded(what: str, name: str, look: Callable[[], DefinitionChange]) -> DefinitionChange:
    try:
        return look()
    except QueueProblem as error:
        return DefinitionChange(what, name, ChangeKind.REFUSED, problem=error.message)
    except QuotaProblem as error:
        return DefinitionChange(what, name, ChangeKind.REFUSED, problem=str(error.detail))
    except IamError as error:
        return DefinitionChange(what, name, ChangeKind.REFUSED, problem=error.text)
    except AccessDenied as error:
        return DefinitionChange(what, name, ChangeKind.REFUSED, problem=str(error))


def _require_read(principal: Principal, noun: str, targets: Targets) -> None:
    """Of what is there. Who may make none either is refused with the words for a free name. Raises AccessDenied."""
    read = MANAGEMENT_OPERATIONS[f"{noun}.get"]
    if not allows(principal, read, targets):
        require(principal, MANAGEMENT_OPERATIONS[f"{noun}.create"], targets)
        require(principal, read, targets)


def _queue_change(principal: Principal, definition: QueueDefinition) -> DefinitionChange:
    name, account_id = definition.name, principal.account_id
    asked = attributes_asked(definition)
    tags = rules.check_tags(definition.tags) if definition.tags else {}
    quotas = quotas_asked(definition)
    queue = queue_of(account_id, name)
    targets = with_attributes(Targets(name, tags=tags, tag_keys=tuple(tags)), account_id, asked)
    if queue is None:
        require(principal, MANAGEMENT_OPERATIONS["queues.create"], targets)
        if quotas:
            require(principal, MANAGEMENT_OPERATIONS["queues.put_quotas"], Targets(name))
        differences = (*_differences({}, asked, {}, tags), *_quota_differences({}, quotas or {}))
        return DefinitionChange("queue", name, ChangeKind.CREATE, differences)
    _require_read(principal, "queues", targets)
    change = attribute_changes(queue, definition)
    given, taken = tag_changes(queue, definition)
    of_quotas = () if quotas is None else _quota_changes(principal, queue, quotas)
    if not (change or given or taken or of_quotas):
        return DefinitionChange("queue", name, ChangeKind.NONE)
    may = MANAGEMENT_OPERATIONS["queues.update"]
    targets = Targets(name, tags=given, tag_keys=tuple(given))
    if change or given or taken:
        require(principal, may, with_attributes(targets, account_id, asked) if change else targets)
    if taken:
        require(principal, may, Targets(name, tag_keys=tuple(taken)))
    after_tags = {**given, **dict.fromkeys(taken, "")}
    differences = (*_differences(queue.attributes, change, queue.tags, after_tags), *of_quotas)
    return DefinitionChange("queue", name, ChangeKind.UPDATE, differences)


def _quota_changes(principal: Principal, queue: Queue, after: Mapping[str, int]) -> tuple[Difference, ...]:
    """Raises AccessDenied where the caller may not read the quotas, or may not make these changes."""
    targets = Targets(queue.name)
    require(principal, MANAGEMENT_OPERATIONS["queues.get_quotas"], targets)
    differences = _quota_differences(given_to_queues([queue]).get(queue.pk, {}), after)
    if differences:
        require(principal, MANAGEMENT_OPERATIONS["queues.put_quotas"], targets)
    return differences


def _quota_differences(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Difference, ...]:
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return tuple(Difference(f"quota:{name}", str(before.get(name, "")), str(after.get(name, ""))) for name in names)


def _policy_change(principal: Principal, definition: PolicyDefinition) -> DefinitionChange:
    name, text = definition.name, stored_form(definition.policy)
    stored, targets = policy_of(principal.account_id, name), Targets(item=name)
    if stored is None:
        require(principal, MANAGEMENT_OPERATIONS["policies.create"], targets)
        return DefinitionChange("policy", name, ChangeKind.CREATE, (Difference("policy", "", text),))
    _require_read(principal, "policies", targets)
    if stored.text == text:
        return DefinitionChange("policy", name, ChangeKind.NONE)
    require(principal, MANAGEMENT_OPERATIONS["policies.update"], targets)
    return DefinitionChange("policy", name, ChangeKind.UPDATE, (Difference("policy", stored.text, text),))


def _differences(
    before: Mapping[str, str], after: Mapping[str, str], tags: Mapping[str, str], after_tags: Mapping[str, str]
) -> tuple[Difference, ...]:
    """Of what `after` and `after_tags` name."""
    attributes = [Difference(name, before.get(name, ""), value) for name, value in sorted(after.items())]
    marks = [Difference(f"tag:{key}", tags.get(key, ""), value) for key, value in sorted(after_tags.items())]
    return (*(one for one in attributes if one.field != "FifoQueue"), *marks)
