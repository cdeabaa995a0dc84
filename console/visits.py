"""Who looks at a page, and in which account."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import cast

from django.http import HttpRequest

from api import clock
from api.audit.refusals import Refusal, note_refusals
from api.iam.authorisation import Targets
from api.iam.errors import AccessDenied
from api.iam.member_rights import MemberRights
from api.iam.open_queues import OpenQueues, opens_queues, search_open_queues
from api.iam.selectors import acts_of
from api.people.acting_rights import acting_policy
from api.people.actions.acting import note_request
from api.people.actions.visit_ends import actor_acting
from api.people.models import AccountMembership, AccountState, ActingVisit, Person, PersonSession
from api.people.origin import RequestOrigin
from api.people.roles import Act, MemberRole, act_to_give
from api.people.selectors import acting_of, is_operator, memberships_of
from api.queues.selectors import QueueSearch, search_queues
from api.settings.environment import environment
from console.data_plane import DataPlane
from console.message_guard import MessageGuard
from frontend.authn.principal import Principal
from frontend.authz.actions import MANAGEMENT_OPERATIONS, Target, resource_arn

# Weighed for the queue of a page; all others are about the account.
ACTS_ON_QUEUES = frozenset((Act.READ_QUEUES, Act.MANAGE_QUEUES, Act.READ_MESSAGES, Act.CHANGE_MESSAGES))

_ACTS_ON_THE_ACCOUNT = frozenset(act.value for act in Act if act not in ACTS_ON_QUEUES)

MONEY_PAGES = (
    (Act.READ_METER, ""),
    (Act.READ_USAGE, "/usage"),
    (Act.LIST_INVOICES, "/invoices"),
    (Act.READ_BUDGETS, "/budgets"),
    (Act.READ_PLANS, "/prices"),
)


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

    @cached_property
    def acting(self) -> ActingVisit | None:
        """The member as whom an operator acts now."""
        return acting_of(self.session, clock.now()) if self.is_operator else None

    @property
    def actor(self) -> Principal:
        return self.origin.member("", self.person.pk)


class VisitedRequest(HttpRequest):
    """A request whose visitor is known. Serves as a type only."""

    visit: Visit


def note_visit(request: HttpRequest, visit: Visit) -> None:
    """Keeps the visit with the request, where the context processor reads it."""
    cast(VisitedRequest, request).visit = visit


class _Asked:
    """An attribute of a visit that is worked out each time it is read."""

    def __init__(self, answer: Callable[[AccountVisit], bool]) -> None:
        self._answer = answer

    def __get__(self, visit: AccountVisit, _: type[AccountVisit]) -> bool:
        return self._answer(visit)


class AccountVisit(Visit):
    """A member looks at the account, or at one queue of it; or an operator who acts as that member."""

    def __init__(
        self, visit: Visit, membership: AccountMembership, queue: str | None = None, acts_for: ActingVisit | None = None
    ) -> None:
        super().__init__(visit.session, visit.origin, visit.is_secure)
        self._queue = queue
        self.membership = membership
        self.acts_for = acts_for
        self._denials = [acting_policy()] if acts_for else []
        self.account_id = membership.account_id
        self.rights = MemberRights(membership, self.actor, self._denials)
        self.title: str = membership.account.life.title
        self.state: str = membership.account.life.state

    @property
    def is_active(self) -> bool:
        return self.state == AccountState.ACTIVE

    @cached_property
    def _acts(self) -> frozenset[Act]:
        return acts_of(self.membership, self.actor, self._denials)

    @property
    def actor(self) -> Principal:
        """The member; an operator who acts as it."""
        if self.acts_for is not None:
            return actor_acting(self.origin, self.acts_for)
        return self.origin.member(self.account_id, self.person.pk)

    def may(self, act: Act) -> bool:
        """By the role, and by the policies of the member and of its groups. On the page of a queue, acts on queues are
        weighed for that queue alone: a policy can open or close one. Who may read all metrics may read its metrics."""
        if self._queue is not None and act in ACTS_ON_QUEUES:
            return self.may_do(act.value)
        is_open = act is Act.READ_METRICS and self._queue is not None and self.may_do(act.value)
        return is_open or act in self._acts

    def may_do(self, action: str) -> bool:
        """May this action of policies be done with the queue of the page? True where the page is of no queue."""
        return self._queue is None or self.rights.may_on_queue(self._queue, action)

    def allows(self, operation: str, item: str = "") -> bool:
        """May a management operation be done with `item`, the name or id of a key, policy or group?"""
        return self.refusal(operation, item) is None

    def allowed_items(self, operation: str, items: Iterable[str]) -> set[str]:
        """Those with which it may be done."""
        return {item for item in items if self.allows(operation, item)}

    def allows_on_queue(self, operation: str, queue: str) -> bool:
        """May a management operation be done with this queue, on a page that is of no queue?"""
        return self.rights.refusal(MANAGEMENT_OPERATIONS[operation], Targets(queue)) is None

    def search_queues(self, asked: QueueSearch, start: int, limit: int) -> OpenQueues:
        """Of all queues of the account, or of those that a policy opens."""
        if self.lists_queues:
            return OpenQueues(*search_queues(self.account_id, asked, start, limit), False)
        return search_open_queues(self.rights, self.account_id, asked, start, limit)

    def refusal(self, operation: str, item: str = "") -> AccessDenied | None:
        return self.rights.refusal(MANAGEMENT_OPERATIONS[operation], Targets(self._queue or "", item=item))

    def may_change_with(self, operation: str, item: str = "") -> bool:
        """In an account that is not active nothing changes."""
        return self.is_active and self.allows(operation, item)

    def require(self, operation: str, item: str = "") -> None:
        """Raises AccessDenied."""
        self.rights.require(MANAGEMENT_OPERATIONS[operation], Targets(self._queue or "", item=item))

    def require_change(self, act: Act, *actions: str, to: str = "do this") -> None:
        """The act, and the actions of policies on the queue of the page. Raises AccessDenied."""
        refused = next((one for one in actions if not self.may_do(one)), "")
        if not self.may_change(act) or refused:
            action = refused if self.may(act) else act.value
            raise AccessDenied(f"Your role in this account does not allow you to {to}", action, self.arn_of(action))

    def arn_of(self, action: str) -> str:
        """What the page asks the action for: its queue, or the account."""
        region = environment().region
        if self._queue is None or action in _ACTS_ON_THE_ACCOUNT:
            return resource_arn(Target.ACCOUNT, region, self.account_id)
        return resource_arn(Target.QUEUE, region, self.account_id, self._queue)

    def note_refusal(self, action: str, arn: str) -> None:
        """In the audit trail, as of calls that are refused elsewhere."""
        who, request_id = self.actor, self.origin.request_id
        found = Refusal(self.account_id, who.name, action, arn, self.origin.source, request_id=request_id)
        note_refusals([found._replace(acting_as=who.acting_as)])

    def may_give(self, role: str) -> bool:
        """May this member give, change or take away the role?"""
        return self.may(act_to_give(role))

    def may_change(self, act: Act, *actions: str) -> bool:
        """The act, and the actions of policies on the queue of the page. In an account that is not active nothing
        changes."""
        return self.is_active and self.may(act) and all(map(self.may_do, actions))

    @property
    def data_plane(self) -> DataPlane:
        """For what the member may do: each request is looked at."""
        guard = MessageGuard(self.account_id, self.rights, self._note_request if self.acts_for else None)
        return DataPlane(self.actor, guard)

    def _note_request(self, operation: str, queue: str) -> None:
        assert self.acts_for is not None
        note_request(self.origin, self.acts_for, operation, queue)

    # Asked by templates, which pass no arguments. An account's pages:

    reads_queues = _Asked(lambda visit: visit.may(Act.READ_QUEUES))
    reads_metrics = _Asked(lambda visit: visit.may(Act.READ_METRICS))
    reads_alarms = _Asked(lambda visit: visit.may(Act.READ_ALARMS))
    manages_alarms = _Asked(lambda visit: visit.may_change(Act.MANAGE_ALARMS))
    mutes_alarms = _Asked(lambda visit: visit.may_change(Act.MUTE_ALARMS))
    deletes_alarms = _Asked(lambda visit: visit.may_change(Act.DELETE_ALARMS))
    reads_members = _Asked(lambda visit: visit.may(Act.READ_MEMBERS))
    manages_members = _Asked(lambda visit: visit.may_change(Act.MANAGE_MEMBERS))
    reads_keys = _Asked(lambda visit: visit.may(Act.READ_KEYS))
    manages_keys = _Asked(lambda visit: visit.may_change(Act.MANAGE_KEYS))
    reads_policies = _Asked(lambda visit: visit.allows("policies.list"))
    reads_groups = _Asked(lambda visit: visit.allows("groups.list"))
    simulates = _Asked(lambda visit: visit.is_active and visit.allows("policies.simulate"))
    reads_encryption_keys = _Asked(lambda visit: visit.allows("encryption_keys.list"))
    reads_quotas = _Asked(lambda visit: visit.allows("quotas.list"))
    reads_audit = _Asked(lambda visit: visit.may(Act.READ_AUDIT))
    reads_meter = _Asked(lambda visit: visit.may(Act.READ_METER))
    reads_usage = _Asked(lambda visit: visit.may(Act.READ_USAGE))
    lists_invoices = _Asked(lambda visit: visit.may(Act.LIST_INVOICES))
    reads_invoices = _Asked(lambda visit: visit.may(Act.READ_INVOICES))
    reads_buyer = _Asked(lambda visit: visit.may(Act.READ_BUYER))
    manages_buyer = _Asked(lambda visit: visit.may_change(Act.MANAGE_BUYER))
    deletes_buyer = _Asked(lambda visit: visit.may_change(Act.DELETE_BUYER))
    reads_budgets = _Asked(lambda visit: visit.may(Act.READ_BUDGETS))
    manages_budgets = _Asked(lambda visit: visit.may_change(Act.MANAGE_BUDGETS))
    deletes_budgets = _Asked(lambda visit: visit.may_change(Act.DELETE_BUDGETS))
    reads_plans = _Asked(lambda visit: visit.may(Act.READ_PLANS))
    configures = _Asked(lambda visit: visit.may_change(Act.CONFIGURE_ACCOUNT))

    # The queue of the page:

    manages_queues = _Asked(lambda visit: visit.may_change(Act.MANAGE_QUEUES))
    pauses_queue = _Asked(
        lambda visit: visit.may_change(Act.MANAGE_QUEUES, "penstock:PauseQueue", "penstock:ResumeQueue")
    )
    purges_queue = _Asked(lambda visit: visit.is_active and visit.may_do("sqs:PurgeQueue"))
    deletes_queue = _Asked(lambda visit: visit.is_active and visit.may_do("sqs:DeleteQueue"))
    reads_tags = _Asked(lambda visit: visit.may_do("sqs:ListQueueTags"))
    tags_queue = _Asked(lambda visit: visit.may_change(Act.MANAGE_QUEUES, "sqs:TagQueue"))
    untags_queue = _Asked(lambda visit: visit.may_change(Act.MANAGE_QUEUES, "sqs:UntagQueue"))
    adds_permissions = _Asked(lambda visit: visit.may_change(Act.MANAGE_QUEUES, "sqs:AddPermission"))
    removes_permissions = _Asked(lambda visit: visit.may_change(Act.MANAGE_QUEUES, "sqs:RemovePermission"))
    writes_queue_policy = _Asked(lambda visit: visit.manages_queues and visit.acts_for is None)
    reads_queue_quotas = _Asked(lambda visit: visit.allows("queues.get_quotas"))

    # Its messages, moves and schedules:

    reads_messages = _Asked(lambda visit: visit.may_change(Act.READ_MESSAGES))
    changes_messages = _Asked(lambda visit: visit.may_change(Act.CHANGE_MESSAGES))
    sends_messages = _Asked(lambda visit: visit.is_active and visit.may_do("sqs:SendMessage"))
    resends_messages = _Asked(lambda visit: visit.may_change(Act.READ_MESSAGES, "penstock:ResendMessage"))
    moves_to_dead_letters = _Asked(lambda visit: visit.is_active and visit.may_do("penstock:DeadLetterMessage"))
    deletes_messages = _Asked(lambda visit: visit.may_change(Act.CHANGE_MESSAGES, "sqs:DeleteMessage"))
    cancels_scheduled = _Asked(lambda visit: visit.may_change(Act.CHANGE_MESSAGES, "penstock:CancelScheduledMessages"))
    reschedules = _Asked(lambda visit: visit.may_change(Act.CHANGE_MESSAGES, "penstock:RescheduleMessages"))
    reads_moves = _Asked(lambda visit: visit.may_do("sqs:ListMessageMoveTasks"))
    starts_moves = _Asked(lambda visit: visit.may_change(Act.CHANGE_MESSAGES, "sqs:StartMessageMoveTask"))
    reads_schedules = _Asked(lambda visit: visit.may_do("penstock:ListSchedules"))
    creates_schedules = _Asked(lambda visit: visit.changes_messages and visit.allows("schedules.create"))
    updates_schedules = _Asked(lambda visit: visit.changes_messages and visit.allows("schedules.update"))
    pauses_schedules = _Asked(lambda visit: visit.changes_messages and visit.allows("schedules.pause"))
    resumes_schedules = _Asked(lambda visit: visit.changes_messages and visit.allows("schedules.resume"))
    deletes_schedules = _Asked(lambda visit: visit.changes_messages and visit.allows("schedules.delete"))

    @cached_property
    def lists_queues(self) -> bool:
        """May names and numbers of the account's queues be shown?"""
        return self.allows("queues.list")

    @property
    def reads_all_queues(self) -> bool:
        """May the account's pages about its queues be shown?"""
        return Act.READ_QUEUES in self._acts

    @cached_property
    def finds_queues(self) -> bool:
        """Has the list of queues something to show: all of them, or those that a policy opens?"""
        return self.lists_queues or opens_queues(self.rights, self.account_id)

    @property
    def has_nothing(self) -> bool:
        """Does no policy open anything to a guest yet?"""
        return self.membership.role == MemberRole.GUEST and not self.rights.has_policies

    @property
    def money_page(self) -> str:
        """The first page about money that this member may see; empty: none."""
        base = f"/console/a/{self.account_id}/billing"
        return next((f"{base}{tail}" for act, tail in MONEY_PAGES if self.may(act)), "")
