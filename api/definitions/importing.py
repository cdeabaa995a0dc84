"""A document applied, after its changes were shown: by the actions of queues and policies, one transaction each.

    create   new queues, without the queues that they name
    update   attributes, tags and quotas, of new queues what was left out
    policies

What fails is told, and the rest goes on. After IMPORT_S_MAX, the comparison included, the rest is left: the same
document again takes it up. One step is taken in any case, so that it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from asgiref.sync import async_to_sync

from api.definitions.comparison import (
    ChangeKind,
    DefinitionChange,
    attribute_changes,
    attributes_asked,
    compare,
    digest_of,
    quotas_asked,
    tag_changes,
)
from api.definitions.document import Definitions, DefinitionsProblem, PolicyDefinition, QueueDefinition
from api.iam.actions.policies import create_policy, update_policy
from api.iam.documents import stored_form
from api.iam.errors import IamError
from api.queues import actions
from api.queues import attributes as rules
from api.queues.attributes import QueueProblem
from api.queues.selectors import queue_of
from api.queues.spreading import change_attributes
from api.quotas.errors import QuotaProblem
from api.quotas.single import set_queue_quotas
from frontend.authn.principal import Principal

# Of one request: a front end waits no longer than ten seconds.
IMPORT_S_MAX = 6.0
# They name other queues of the document.
_RELATIONS = ("RedrivePolicy", "RedriveAllowPolicy")


class ImportOutcome(NamedTuple):
    """Of one queue or policy; `problem` is "" where it was done."""

    what: str
    name: str
    kind: ChangeKind
    problem: str = ""


class ImportResult(NamedTuple):
    """`left` were not begun: the time was over."""

    outcomes: list[ImportOutcome]
    left: int


def import_definitions(principal: Principal, definitions: Definitions, digest: str) -> ImportResult:
    """Raises DefinitionsProblem where something is refused, or the changes are not those that were shown."""
    ends_s = time.monotonic() + IMPORT_S_MAX
    changes = compare(principal, definitions)
    refused = next((one for one in changes if one.kind is ChangeKind.REFUSED), None)
    if refused is not None:
        raise DefinitionsProblem(f"The {refused.what} {refused.name} is refused: {refused.problem}")
    if digest_of(changes) != digest:
        text = "The account or the document has changed since the changes were shown. Look at them again."
        raise DefinitionsProblem(text, "precondition-failed")
    return _Import(principal, definitions, changes, ends_s).run()


class _Import:
    def __init__(
        self, actor: Principal, definitions: Definitions, changes: list[DefinitionChange], ends_s: float
    ) -> None:
        self._actor = actor
        self._account_id = actor.account_id
        wanted = {(one.what, one.name): one.kind for one in changes if one.kind is not ChangeKind.NONE}
        self._queues = [(one, wanted["queue", one.name]) for one in definitions.queues if ("queue", one.name) in wanted]
        self._policies = [
            (one, wanted["policy", one.name]) for one in definitions.policies if ("policy", one.name) in wanted
        ]
        self._problems: dict[tuple[str, str], str] = {}
        self._ends_s = ends_s
        self._has_begun = False

    def run(self) -> ImportResult:
        outcomes: list[ImportOutcome] = []
        for queue, kind in self._queues:
            if kind is ChangeKind.CREATE and not self._is_late:
                self._try("queue", queue.name, partial(self._create, queue))
        for queue, kind in self._queues:
            if not self._is_late:
                self._try("queue", queue.name, partial(self._update, queue))
                outcomes.append(self._outcome("queue", queue.name, kind))
        for policy, kind in self._policies:
            if not self._is_late:
                self._try("policy", policy.name, partial(self._put, policy, kind))
                outcomes.append(self._outcome("policy", policy.name, kind))
        return ImportResult(outcomes, len(self._queues) + len(self._policies) - len(outcomes))

    @property
    def _is_late(self) -> bool:
        return self._has_begun and time.monotonic() > self._ends_s

    def _try(self, what: str, name: str, do: Callable[[], object]) -> None:
        if (what, name) in self._problems:
            return
        self._has_begun = True
        try:
            do()
        except QueueProblem as error:
            self._problems[what, name] = error.message
        except QuotaProblem as error:
            self._problems[what, name] = str(error.detail)
        except IamError as error:
            self._problems[what, name] = error.text

    def _outcome(self, what: str, name: str, kind: ChangeKind) -> ImportOutcome:
        return ImportOutcome(what, name, kind, self._problems.get((what, name), ""))

    def _create(self, definition: QueueDefinition) -> None:
        asked = {key: value for key, value in attributes_asked(definition).items() if key not in _RELATIONS}
        tags = rules.check_tags(definition.tags) if definition.tags else {}
        actions.create_queue(self._actor, self._account_id, definition.name, asked, tags)

    def _update(self, definition: QueueDefinition) -> None:
        """Also what creation left out."""
        name, account_id = definition.name, self._account_id
        queue = queue_of(account_id, name)
        if queue is None:
            raise QueueProblem("QueueDoesNotExist", "The queue was deleted at the same time.")
        change = attribute_changes(queue, definition)
        if change:
            async_to_sync(change_attributes)(self._actor, account_id, name, change)
        given, taken = tag_changes(queue, definition)
        if given:
            actions.tag_queue(self._actor, account_id, name, given)
        if taken:
            actions.untag_queue(self._actor, account_id, name, taken)
        quotas = quotas_asked(definition)
        if quotas is not None:
            set_queue_quotas(self._actor, account_id, name, quotas)

    def _put(self, definition: PolicyDefinition, kind: ChangeKind) -> None:
        text = stored_form(definition.policy)
        put = create_policy if kind is ChangeKind.CREATE else update_policy
        put(self._actor, self._account_id, definition.name, text)
