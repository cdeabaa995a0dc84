"""Queues of an account that a member may look at who may not list them all: a policy opens some by name or tag."""

from __future__ import annotations

from typing import NamedTuple

from api.iam.member_rights import MemberRights
from api.people.roles import Act
from api.queues.models import Queue
from api.queues.selectors import QueueSearch, names_and_tags, queues_named

# Each is weighed by itself; a search by name reaches those behind.
QUEUES_WEIGHED_MAX = 10_000
# Every page asks if there is one at all: mostly there is one among the first.
_FIRST = 100


class OpenQueues(NamedTuple):
    """A page of them, and how many there are. `is_cut`: not all queues that the search finds were weighed."""

    found: list[Queue]
    total: int
    is_cut: bool


def opens_queues(rights: MemberRights, account_id: str) -> bool:
    """Is there a queue that the member may look at?"""
    if not _may_open_some(rights):
        return False
    for limit in (_FIRST, QUEUES_WEIGHED_MAX):
        rows = names_and_tags(account_id, QueueSearch(), limit)
        if next(rights.queues_with(Act.READ_QUEUES.value, rows), None) is not None:
            return True
        if len(rows) < limit:
            return False
    return False


def search_open_queues(rights: MemberRights, account_id: str, asked: QueueSearch, start: int, limit: int) -> OpenQueues:
    """As `search_queues` finds them for those who may list all."""
    if not _may_open_some(rights):
        return OpenQueues([], 0, False)
    rows = names_and_tags(account_id, asked, QUEUES_WEIGHED_MAX + 1)
    names = list(rights.queues_with(Act.READ_QUEUES.value, rows[:QUEUES_WEIGHED_MAX]))
    found = queues_named(account_id, names[start : start + limit])
    return OpenQueues(found, len(names), len(rows) > QUEUES_WEIGHED_MAX)


def _may_open_some(rights: MemberRights) -> bool:
    """Roles open all queues or none; who is denied the list gets no part of it."""
    return rights.has_policies and not rights.is_denied("queues.list")
