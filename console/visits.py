"""Who looks at a page, and in which account."""

from __future__ import annotations

from functools import cached_property
from typing import cast

from django.http import HttpRequest

from api.audit.actions import Actor
from api.iam.member_on_queue import MemberOnQueue
from api.iam.selectors import acts_of
from api.people.models import AccountMembership, AccountState, Person, PersonSession
from api.people.origin import RequestOrigin
from api.people.roles import Act, act_to_give
from api.people.selectors import is_operator, memberships_of
from console.data_plane import DataPlane

# Weighed for the queue of a page; all others are about the account.
ACTS_ON_QUEUES = frozenset((Act.READ_QUEUES, Act.MANAGE_QUEUES, Act.READ_MESSAGES, Act.CHANGE_MESSAGES))


class Visit:
    """A signed-in person."""

    def __init__(self, session: PersonSession, origin: RequestOrigin, is_secure: bool) -> None:
        self.session = session
        self.person: Person = session.person
        self.origin = origin
        self.is_secure = is_secure

    @cached_property
    def memberships(self) -> list[AccountMembership]:
        return sorted(memberships_of(self.person), key=lambda one: (one.account.life.title.lower(), one.account_id))

    @cached_property
    def is_operator(self) -> bool:
        return is_operator(self.person)

    @property
    def actor(self) -> Actor:
        return Actor(f"person:{self.person.pk}", self.origin.request_id)


class VisitedRequest(HttpRequest):
    """A request whose visitor is known. Serves as a type only."""

    visit: Visit


def note_visit(request: HttpRequest, visit: Visit) -> None:
    """Keeps the visit with the request, where the context processor reads it."""
    cast(VisitedRequest, request).visit = visit


class AccountVisit(Visit):
    """A member looks at the account, or at one queue of it."""

    def __init__(self, visit: Visit, membership: AccountMembership, queue: str | None = None) -> None:
        super().__init__(visit.session, visit.origin, visit.is_secure)
        on_queue = MemberOnQueue(membership, queue, visit.origin.source, visit.is_secure) if queue else None
        self._on_queue = on_queue
        self.membership = membership
        self.account_id = membership.account_id
        self.title: str = membership.account.life.title
        self.state: str = membership.account.life.state

    @property
    def is_active(self) -> bool:
        return self.state == AccountState.ACTIVE

    @cached_property
    def _acts(self) -> frozenset[Act]:
        return acts_of(self.membership)

    def may(self, act: Act) -> bool:
        """By the role, and by the policies of the member and of its groups; on the page of a queue, for that queue."""
        return act in self._acts and (act not in ACTS_ON_QUEUES or self.may_do(act.value))

    def may_do(self, action: str) -> bool:
        """May this action of policies be done with the queue of the page? True where the page is of no queue."""
        return self._on_queue is None or self._on_queue.may(action)

    def may_give(self, role: str) -> bool:
        """May this member give, change or take away the role?"""
        return self.may(act_to_give(role))

    def may_change(self, act: Act) -> bool:
        """In an account that is not active nothing changes."""
        return self.is_active and self.may(act)

    @property
    def data_plane(self) -> DataPlane:
        """For what this role may do: the caller has looked."""
        return DataPlane(self.account_id, str(self.person.pk), self.origin.source, self.is_secure)

    # Asked by templates, which pass no arguments.

    @property
    def manages_queues(self) -> bool:
        return self.may_change(Act.MANAGE_QUEUES)

    @property
    def reads_queues(self) -> bool:
        return self.may(Act.READ_QUEUES)

    @property
    def reads_metrics(self) -> bool:
        return self.may(Act.READ_METRICS)

    @property
    def reads_alarms(self) -> bool:
        return self.may(Act.READ_ALARMS)

    @property
    def manages_alarms(self) -> bool:
        return self.may_change(Act.MANAGE_ALARMS)

    @property
    def mutes_alarms(self) -> bool:
        return self.may_change(Act.MUTE_ALARMS)

    @property
    def deletes_alarms(self) -> bool:
        return self.may_change(Act.DELETE_ALARMS)

    @property
    def reads_messages(self) -> bool:
        return self.may_change(Act.READ_MESSAGES)

    @property
    def changes_messages(self) -> bool:
        return self.may_change(Act.CHANGE_MESSAGES)

    @property
    def reads_members(self) -> bool:
        return self.may(Act.READ_MEMBERS)

    @property
    def manages_members(self) -> bool:
        return self.may_change(Act.MANAGE_MEMBERS)

    @property
    def reads_keys(self) -> bool:
        return self.may(Act.READ_KEYS)

    @property
    def manages_keys(self) -> bool:
        return self.may_change(Act.MANAGE_KEYS)

    @property
    def reads_audit(self) -> bool:
        return self.may(Act.READ_AUDIT)

    @property
    def configures(self) -> bool:
        return self.may_change(Act.CONFIGURE_ACCOUNT)
