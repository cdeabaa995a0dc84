"""What each role may do in an account. The one table; views and actions ask `may`."""

from __future__ import annotations

import enum


class Role(enum.StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    READER = "reader"
    BILLING = "billing"


class Act(enum.StrEnum):
    READ_ACCOUNT = "account.read"
    CLOSE_ACCOUNT = "account.close"
    READ_MEMBERS = "members.read"
    MANAGE_MEMBERS = "members.manage"
    # To make an owner, and to change or remove one.
    MANAGE_OWNERS = "owners.manage"


_EVERY_MEMBER = frozenset((Act.READ_ACCOUNT,))
_READER = _EVERY_MEMBER | {Act.READ_MEMBERS}
_ADMIN = _READER | {Act.MANAGE_MEMBERS}

ALLOWED: dict[Role, frozenset[Act]] = {
    Role.OWNER: _ADMIN | {Act.MANAGE_OWNERS, Act.CLOSE_ACCOUNT},
    Role.ADMIN: _ADMIN,
    Role.DEVELOPER: _READER,
    Role.READER: _READER,
    Role.BILLING: _EVERY_MEMBER,
}


def may(role: str, act: Act) -> bool:
    return act in ALLOWED[Role(role)]


def may_give(role: str, given: str) -> bool:
    """May a member of `role` give, change or take away the role `given`?"""
    return may(role, Act.MANAGE_OWNERS if given == Role.OWNER else Act.MANAGE_MEMBERS)
