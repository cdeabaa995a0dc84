"""The table of roles, whole."""

from __future__ import annotations

from api.people.roles import ALLOWED, Act, Role, may, may_give

READS = {"account.read", "members.read", "queues.read", "keys.read", "audit.read"}
WORKS = READS | {"queues.manage", "messages.read", "messages.change"}
RUNS = WORKS | {"members.manage", "keys.manage", "account.configure"}
EXPECTED = {
    "owner": RUNS | {"owners.manage", "account.close"},
    "admin": RUNS,
    "developer": WORKS,
    "reader": READS,
    "billing": {"account.read"},
}


def test_each_role_may_do_what_the_page_says() -> None:
    assert {role.value: {act.value for act in ALLOWED[role]} for role in Role} == EXPECTED
    for role in Role:
        for act in Act:
            assert may(role, act) == (act.value in EXPECTED[role.value])


def test_owners_give_all_roles_admins_all_but_owner_others_none() -> None:
    given = {role.value: {other.value for other in Role if may_give(role, other)} for role in Role}
    assert given == {
        "owner": {"owner", "admin", "developer", "reader", "billing"},
        "admin": {"admin", "developer", "reader", "billing"},
        "developer": set(),
        "reader": set(),
        "billing": set(),
    }
