"""What an operator reads of all accounts. Never called for a member."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from api.accounts.models import Account
from api.people.models import AccountMembership
from api.people.roles import MemberRole
from api.queues.models import Queue, QueueStatus


class AccountRow(NamedTuple):
    account: Account
    title: str
    state: str
    reason: str
    queue_count: int
    member_count: int
    owner: str


def accounts_found(text: str, after: str, limit: int) -> list[AccountRow]:
    """By id, from the first one behind `after` on: those whose id, name, title or member's address holds the text."""
    rows = Account.objects.select_related("life").filter(id__gt=after)
    if text:
        rows = rows.filter(
            Q(id__startswith=text)
            | Q(name__icontains=text)
            | Q(life__title__icontains=text)
            | Q(pk__in=AccountMembership.objects.filter(person__email__icontains=text).values("account_id"))
        )
    return [_row(account) for account in _counted(rows).order_by("id")[:limit]]


def account_row(account_id: str) -> AccountRow | None:
    found = _counted(Account.objects.select_related("life").filter(pk=account_id)).first()
    return None if found is None else _row(found)


def _counted(rows: QuerySet[Account]) -> QuerySet[Any]:
    """Each count is a query of its own beside the row: joins would multiply queues by members."""
    owners = AccountMembership.objects.filter(account=OuterRef("pk"), role=MemberRole.OWNER).order_by(
        "created_at", "pk"
    )
    return rows.annotate(
        queue_count=_count_of(Queue.objects.exclude(state=QueueStatus.DELETED)),
        member_count=_count_of(AccountMembership.objects.all()),
        owner_email=Subquery(owners.values("person__email")[:1]),
    )


def _count_of(rows: QuerySet[Any]) -> Coalesce:
    counted = rows.filter(account=OuterRef("pk")).order_by().values("account").annotate(count=Count("pk"))
    return Coalesce(Subquery(counted.values("count")), 0)


def _row(account: Account) -> AccountRow:
    life = getattr(account, "life", None)
    state = life.state if life else ("active" if account.active else "suspended")
    annotated = vars(account)
    return AccountRow(
        account,
        life.title if life else account.name,
        state,
        life.reason if life else "",
        annotated["queue_count"],
        annotated["member_count"],
        annotated["owner_email"] or "",
    )
