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
    READ_QUEUES = "queues.read"
    MANAGE_QUEUES = "queues.manage"
    # Bodies and attributes of messages.
    READ_MESSAGES = "messages.read"
    CHANGE_MESSAGES = "messages.change"
    READ_KEYS = "keys.read"
    MANAGE_KEYS = "keys.manage"
    READ_AUDIT = "audit.read"
    CONFIGURE_ACCOUNT = "account.configure"


_EVERY_MEMBER = frozenset((Act.READ_ACCOUNT,))
_READER = _EVERY_MEMBER | {Act.READ_MEMBERS, Act.READ_QUEUES, Act.READ_KEYS, Act.READ_AUDIT}
_DEVELOPER = _READER | {Act.MANAGE_QUEUES, Act.READ_MESSAGES, Act.CHANGE_MESSAGES}
# A key acts as the account: who makes one may do what it may.
_ADMIN = _DEVELOPER | {Act.MANAGE_MEMBERS, Act.MANAGE_KEYS, Act.CONFIGURE_ACCOUNT}

ALLOWED: dict[Role, frozenset[Act]] = {
    Role.OWNER: _ADMIN | {Act.MANAGE_OWNERS, Act.CLOSE_ACCOUNT},
    Role.ADMIN: _ADMIN,
    Role.DEVELOPER: _DEVELOPER,
    Role.READER: _READER,
    Role.BILLING: _EVERY_MEMBER,
}


def may(role: str, act: Act) -> bool:
    return act in ALLOWED[Role(role)]


def roles_that_may(act: Act) -> list[Role]:
    return [role for role, acts in ALLOWED.items() if act in acts]


def may_give(role: str, given: str) -> bool:
    """May a member of `role` give, change or take away the role `given`?"""
    return may(role, Act.MANAGE_OWNERS if given == Role.OWNER else Act.MANAGE_MEMBERS)
