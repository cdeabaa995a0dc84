"""What a member of an account may do, for pages.

By its role, and by the policies that are attached to it or to a group of it: these can be about some queues, keys,
policies and groups only. The policy of a queue is not weighed here: a front end does that for messages, and a page is
where the policy can be repaired.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from api.iam.authorisation import NOT_GIVEN, OF_QUEUES, Targets, decide, is_made, names_of
from api.iam.errors import AccessDenied
from api.iam.selectors import attached_policies
from api.people.models import AccountMembership
from api.people.roles import MemberRole, role_policy
from api.queues.selectors import queue_of, queue_of_id
from api.settings.environment import environment
from frontend.authn.principal import Principal
from frontend.authz import CompiledPolicy, Decision, RequestContext, join_policies, refusal_text
from frontend.authz.actions import MANAGEMENT_OPERATIONS, Demand, Target, resource_arn
from frontend.authz.request_context import NO_TAGS, Tags


class MemberRights:
    """Looks at the database when it is first asked, and once. `also` takes rights away for this visit.
    `who` is the member, or an operator who acts as it."""

    def __init__(self, member: AccountMembership, who: Principal, also: Sequence[CompiledPolicy] = ()) -> None:
        self._member = member
        self._who = who
        self._also = also
        self._tags: dict[str, Tags] = {}

    def may(self, operation: str, targets: Targets) -> bool:
        """A management operation, with all that it asks for."""
        return self.refusal(MANAGEMENT_OPERATIONS[operation], targets) is None

    def may_on_queue(self, queue: str, action: str) -> bool:
        """One action of policies."""
        return self.refusal((Demand(action),), Targets(queue)) is None

    @property
    def has_policies(self) -> bool:
        """Is anything weighed beside the role?"""
        return bool(self._attached)

    def is_denied(self, operation: str) -> bool:
        """Does a statement deny a management operation on the account, beyond that none may allow it?"""
        weighed = (self._weigh(demand, "", Targets())[1] for demand in MANAGEMENT_OPERATIONS[operation])
        return any(not one.allowed and one.reason not in NOT_GIVEN for one in weighed)

    def queues_with(self, action: str, queues: Iterable[tuple[str, Tags]]) -> Iterator[str]:
        """The names of those of the queues, given with their tags, with which the action may be done."""
        for name, tags in queues:
            self._tags[name] = tags
            if self.may_on_queue(name, action):
                yield name

    def require(self, demands: Sequence[Demand], targets: Targets) -> None:
        """Raises AccessDenied."""
        refusal = self.refusal(demands, targets)
        if refusal is not None:
            raise refusal

    def refusal(self, demands: Sequence[Demand], targets: Targets) -> AccessDenied | None:
        """Of the first demand that is not allowed; None where all are."""
        for demand in demands:
            if is_made(demand, targets):
                for name in names_of(demand, targets):
                    request, decision = self._weigh(demand, name, targets)
                    if not decision.allowed:
                        text = refusal_text(request, decision, request.resource_arn)
                        return AccessDenied(text, request.action, request.resource_arn)
        return None

    def _weigh(self, demand: Demand, name: str, targets: Targets) -> tuple[RequestContext, Decision]:
        account_id, region = self._member.account_id, environment().region
        tags = self._tags_weighed(demand, name, targets) if demand.target in OF_QUEUES else NO_TAGS
        arn, now_ms = resource_arn(demand.target, region, account_id, name), time.time_ns() // 1_000_000
        request = self._who.asks(demand.action, arn, now_ms, region, tags, targets.tags, targets.tag_keys)
        return request, decide(request, demand, self._policy)

    @cached_property
    def _attached(self) -> list[CompiledPolicy]:
        return attached_policies(self._member)

    @cached_property
    def _policy(self) -> CompiledPolicy:
        return join_policies([role_policy(MemberRole(self._member.role)), *self._attached, *self._also])

    def _tags_weighed(self, demand: Demand, name: str, targets: Targets) -> Tags:
        """Of a deleted queue its own: another queue may have its name now."""
        if targets.queue_id is None or demand.target is not Target.QUEUE:
            return self._tags_of(name)
        queue = queue_of_id(self._member.account_id, targets.queue_id)
        return NO_TAGS if queue is None else queue.tags

    def _tags_of(self, queue_name: str) -> Tags:
        """Roles do not look at tags."""
        if not self._attached:
            return NO_TAGS
        if queue_name not in self._tags:
            queue = queue_of(self._member.account_id, queue_name)
            self._tags[queue_name] = NO_TAGS if queue is None else queue.tags
        return self._tags[queue_name]
