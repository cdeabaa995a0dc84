"""What a member of an account may do with one queue, for pages.

A role is about all queues of the account; policies that are attached to the member, or to a group of it, can be about
some of them. The policy of the queue itself is not weighed here: a front end does that for messages, and a page is
where the policy can be repaired.
"""

from __future__ import annotations

import time
from functools import cached_property

from api.iam.selectors import attached_policies
from api.people.models import AccountMembership
from api.people.roles import MemberRole, role_policy
from api.queues.selectors import queue_of
from api.settings.environment import environment
from frontend.authz import CompiledPolicy, RequestContext, evaluate, join_policies
from frontend.authz.actions import Target, resource_arn
from frontend.authz.request_context import NO_TAGS, Tags, person_caller


class MemberOnQueue:
    """Looks at the database when it is first asked, and once."""

    def __init__(self, member: AccountMembership, queue: str, source_ip: str, is_secure: bool) -> None:
        self._member = member
        self._queue = queue
        self._source_ip = source_ip
        self._is_secure = is_secure

    def may(self, action: str) -> bool:
        """By the role and the attached policies."""
        account_id, region = self._member.account_id, environment().region
        request = RequestContext(
            person_caller(account_id, str(self._member.person_id)),
            action,
            resource_arn(Target.QUEUE, region, account_id, self._queue),
            time.time_ns() // 1_000_000,
            region,
            source_ip=self._source_ip or None,
            secure_transport=self._is_secure,
            resource_tags=self._tags if self._attached else NO_TAGS,
        )
        return evaluate(request, self._policy).allowed

    @cached_property
    def _attached(self) -> list[CompiledPolicy]:
        return attached_policies(self._member)

    @cached_property
    def _policy(self) -> CompiledPolicy:
        return join_policies([role_policy(MemberRole(self._member.role)), *self._attached])

    @cached_property
    def _tags(self) -> Tags:
        queue = queue_of(self._member.account_id, self._queue)
        return NO_TAGS if queue is None else queue.tags
