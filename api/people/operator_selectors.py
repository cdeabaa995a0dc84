"""What an operator reads of all accounts. Never called for a member."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db.models import Count, Q

from api.accounts.models import Account
from api.people.models import Membership
from api.people.roles import Role
from api.queues.models import QueueState


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
            | Q(pk__in=Membership.objects.filter(person__email__icontains=text).values("account_id"))
        )
    return [_row(account) for account in _counted(rows).order_by("id")[:limit]]


def account_row(account_id: str) -> AccountRow | None:
    found = _counted(Account.objects.select_related("life").filter(pk=account_id)).first()
    return None if found is None else _row(found)


def _counted(rows: Any) -> Any:
    live = ~Q(queues__state=QueueState.DELETED)
    return rows.annotate(
        queue_count=Count("queues", filter=live, distinct=True), member_count=Count("members", distinct=True)
    )


def _row(account: Account) -> AccountRow:
    life = getattr(account, "life", None)
    state = life.state if life else ("active" if account.active else "suspended")
    owner = Membership.objects.select_related("person").filter(account=account, role=Role.OWNER).first()
    counts = vars(account)
    return AccountRow(
        account,
        life.title if life else account.name,
        state,
        life.reason if life else "",
        counts["queue_count"],
        counts["member_count"],
        owner.person.email if owner else "",
    )
