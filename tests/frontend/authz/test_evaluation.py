"""How the policies of both sides are weighed: the 18 cases of AWS's table, and who counts as what."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from frontend.authz import NO_POLICY, CompiledPolicy, PolicyKind, Reason, evaluate, join_policies, load_policy, simulate
from frontend.authz.evaluation import UNLOCKING_ACTIONS
from frontend.authz.request_context import ANONYMOUS, Caller, federated_caller, service_caller
from tests.frontend.authz.scene import (
    ACCOUNT,
    ALICE,
    BOB,
    CLERK,
    NOW_MS,
    OTHER,
    OTHER_ROOT,
    QUEUE_ARN,
    ROOT,
    allowed,
    asked,
    decided,
    identity,
    queue,
    statement,
)

BOTH = Reason.ALLOWED_BY_BOTH
BY_IDENTITY, BY_RESOURCE = Reason.ALLOWED_BY_IDENTITY, Reason.ALLOWED_BY_RESOURCE
DENY_IDENTITY, DENY_RESOURCE = Reason.DENIED_BY_IDENTITY, Reason.DENIED_BY_RESOURCE
NO_IDENTITY, NO_RESOURCE = Reason.NOT_ALLOWED_BY_IDENTITY, Reason.NOT_ALLOWED_BY_RESOURCE

# number, caller, what the identity policy says, what the queue policy says of the caller, what comes of it
ROWS = [
    (1, ALICE, "Allow", "Allow", BY_IDENTITY),
    (2, ALICE, "Allow", "Deny", DENY_RESOURCE),
    (3, ALICE, "Allow", None, BY_IDENTITY),
    (4, ALICE, "Deny", "Allow", DENY_IDENTITY),
    (5, ALICE, "Deny", "Deny", DENY_IDENTITY),
    (6, ALICE, "Deny", None, DENY_IDENTITY),
    (7, ALICE, None, "Allow", BY_RESOURCE),
    (8, ALICE, None, "Deny", DENY_RESOURCE),
    (9, ALICE, None, None, NO_IDENTITY),
    (10, BOB, "Allow", "Allow", BOTH),
    (11, BOB, "Allow", "Deny", DENY_RESOURCE),
    (12, BOB, "Allow", None, NO_RESOURCE),
    (13, BOB, "Deny", "Allow", DENY_IDENTITY),
    (14, BOB, "Deny", "Deny", DENY_IDENTITY),
    (15, BOB, "Deny", None, DENY_IDENTITY),
    (16, BOB, None, "Allow", NO_IDENTITY),
    (17, BOB, None, "Deny", DENY_RESOURCE),
    (18, BOB, None, None, NO_RESOURCE),
]
DECIDED_BY = {
    BY_IDENTITY: "identity",
    DENY_IDENTITY: "identity",
    BY_RESOURCE: "queue",
    DENY_RESOURCE: "queue",
    BOTH: "queue",
}


def own(effect: str | None) -> CompiledPolicy:
    return NO_POLICY if effect is None else identity(statement(effect))


def queues(effect: str | None, principal: Any) -> CompiledPolicy:
    return NO_POLICY if effect is None else queue(statement(effect, Principal=principal))


@pytest.mark.parametrize(("number", "caller", "identity_says", "queue_says", "reason"), ROWS)
def test_row_of_the_table(
    number: int, caller: Caller, identity_says: str | None, queue_says: str | None, reason: Reason
) -> None:
    decision = evaluate(asked(caller), own(identity_says), queues(queue_says, {"AWS": caller.arn}))
    assert decision.reason is reason
    assert decision.allowed is (reason in (BY_IDENTITY, BY_RESOURCE, BOTH))
    assert (decision.statement.policy if decision.statement else None) == DECIDED_BY.get(reason)


@pytest.mark.parametrize(("number", "caller", "identity_says", "queue_says", "reason"), ROWS)
def test_row_of_the_table_where_the_queue_policy_names_the_account(
    number: int, caller: Caller, identity_says: str | None, queue_says: str | None, reason: Reason
) -> None:
    """An account that is named gives the right on by policies of its own: row 7 is a no then."""
    expected = NO_IDENTITY if number == 7 else reason
    assert (
        evaluate(asked(caller), own(identity_says), queues(queue_says, {"AWS": caller.account_id})).reason is expected
    )


@pytest.mark.parametrize(("number", "caller", "identity_says", "queue_says", "reason"), ROWS)
def test_row_of_the_table_where_the_queue_policy_names_everyone(
    number: int, caller: Caller, identity_says: str | None, queue_says: str | None, reason: Reason
) -> None:
    assert evaluate(asked(caller), own(identity_says), queues(queue_says, "*")).reason is reason


# --- who is who ---


def test_deny_of_an_account_reaches_its_callers() -> None:
    policy = queue(statement("Deny", Principal={"AWS": ACCOUNT}))
    reached = [decided(asked(caller), identity(statement()), policy).reason for caller in (ALICE, CLERK, ROOT)]
    assert reached == [DENY_RESOURCE] * 3


def test_role_that_is_named_stands_for_its_sessions() -> None:
    named = queue(statement(Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:role/shop/clerk"}))
    assert allowed(asked(CLERK), queues=named)
    other_path = queue(statement(Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:role/clerk"}))
    assert not allowed(asked(CLERK), queues=other_path)


def test_session_that_is_named_is_that_one_alone() -> None:
    for session, let_in in (("monday", True), ("tuesday", False)):
        named = f"arn:aws:sts::{ACCOUNT}:assumed-role/clerk/{session}"
        assert allowed(asked(CLERK), queues=queue(statement(Principal={"AWS": named}))) is let_in


def test_federated_session_is_named_by_its_own_arn() -> None:
    kiosk = federated_caller(ACCOUNT, "kiosk")
    assert allowed(asked(kiosk), queues=queue(statement(Principal={"AWS": kiosk.arn})))
    assert not allowed(asked(kiosk), queues=queue(statement(Principal={"AWS": f"{kiosk.arn}2"})))


def test_names_of_principals_compare_with_case() -> None:
    policy = queue(statement(Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:user/teams/Alice"}))
    assert not allowed(asked(ALICE), queues=policy)


def test_root_does_everything_with_its_own_and_a_deny_reaches_it() -> None:
    assert decided(asked(ROOT)).reason is Reason.ALLOWED_AS_OWNER
    for principal in ("*", {"AWS": ACCOUNT}):
        assert decided(asked(ROOT), queues=queue(statement("Deny", Principal=principal))).reason is DENY_RESOURCE
    assert decided(asked(ROOT), identity(statement("Deny"))).reason is DENY_IDENTITY


def test_root_of_another_account_needs_the_queue_policy_only() -> None:
    assert decided(asked(OTHER_ROOT)).reason is NO_RESOURCE
    assert decided(asked(OTHER_ROOT), queues=queue(statement(Principal={"AWS": OTHER}))).reason is BY_RESOURCE


@pytest.mark.parametrize("action", sorted(UNLOCKING_ACTIONS))
def test_root_repairs_a_queue_policy_that_denies_all(action: str) -> None:
    locked = queue(statement("Deny", Principal="*", Action="*"))
    broken = load_policy("{", PolicyKind.RESOURCE, "queue")
    for policy in (locked, broken):
        assert decided(asked(ROOT, action), queues=policy).reason is Reason.ALLOWED_AS_OWNER
        assert not allowed(asked(OTHER_ROOT, action), queues=policy)
        assert not allowed(asked(ALICE, action), identity(statement(Action="*")), policy)
        assert not allowed(asked(ROOT, "sqs:PurgeQueue"), queues=policy)


def test_unsigned_caller_is_let_in_by_everyone_alone() -> None:
    assert allowed(asked(ANONYMOUS), queues=queue(statement(Principal="*")))
    assert allowed(asked(ANONYMOUS), queues=queue(statement(Principal={"AWS": "*"})))
    assert not allowed(asked(ANONYMOUS), queues=queue(statement(Principal={"AWS": [ACCOUNT, OTHER]})))
    assert decided(asked(ANONYMOUS)).reason is NO_RESOURCE


def test_service_is_let_in_by_its_name_and_hit_by_a_deny_for_everyone() -> None:
    sns = service_caller("sns.amazonaws.com")
    named = statement(Principal={"Service": "sns.amazonaws.com"})
    assert decided(asked(sns), queues=queue(named)).reason is BY_RESOURCE
    assert not allowed(asked(sns), queues=queue(statement(Principal={"Service": "s3.amazonaws.com"})))
    assert decided(asked(sns), queues=queue(named, statement("Deny", Principal="*"))).reason is DENY_RESOURCE
    assert not allowed(asked(ALICE), queues=queue(named))


def test_service_grant_with_a_source_holds_for_that_source_alone() -> None:
    """The confused deputy: SNS calls for anybody, so the policy names the topic or its account."""
    sns = service_caller("sns.amazonaws.com")
    policy = queue(
        statement(
            Principal={"Service": "sns.amazonaws.com"},
            Condition={
                "ArnLike": {"aws:SourceArn": f"arn:aws:sns:*:{ACCOUNT}:news"},
                "StringEquals": {"aws:SourceAccount": ACCOUNT},
            },
        )
    )
    ours = {"source_arn": f"arn:aws:sns:us-east-1:{ACCOUNT}:news", "source_account_id": ACCOUNT}
    theirs = {"source_arn": f"arn:aws:sns:us-east-1:{OTHER}:news", "source_account_id": OTHER}
    assert [allowed(asked(sns, **source), queues=policy) for source in (ours, theirs, {})] == [True, False, False]


def test_account_in_another_partition_is_another_account() -> None:
    elsewhere = ALICE._replace(partition="aws-cn", arn=f"arn:aws-cn:iam::{ACCOUNT}:user/teams/alice")
    assert decided(asked(elsewhere), identity(statement())).reason is NO_RESOURCE


# --- NotPrincipal ---

USER, ROLE = f"arn:aws:iam::{ACCOUNT}:user/teams/alice", f"arn:aws:iam::{ACCOUNT}:role/shop/clerk"
SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role/clerk/monday"


@pytest.mark.parametrize(
    ("caller", "spared", "let_in"),
    [
        (ALICE, [USER, ACCOUNT], True),
        (ALICE, [USER], True),
        (ALICE, [ACCOUNT], False),
        (ALICE, [f"{USER}x", ACCOUNT], False),
        (CLERK, [SESSION, ROLE, ACCOUNT], True),
        (CLERK, [SESSION], True),
        (CLERK, [ROLE], True),
        (CLERK, [SESSION.replace("monday", "tuesday"), ACCOUNT], False),
        (ROOT, [ACCOUNT], True),
        (ROOT, [USER], False),
    ],
)
def test_deny_of_all_but_some_spares_who_is_named_and_not_who_shares_the_account(
    caller: Caller, spared: list[str], let_in: bool
) -> None:
    policy = queue(statement("Deny", Principal=None, NotPrincipal={"AWS": spared}))
    assert allowed(asked(caller), identity(statement()) if caller is not ROOT else NO_POLICY, policy) is let_in


def test_deny_of_all_but_a_service_reaches_others() -> None:
    policy = queue(
        statement("Deny", Principal=None, NotPrincipal={"Service": "sns.amazonaws.com"}), statement(Principal="*")
    )
    assert allowed(asked(service_caller("sns.amazonaws.com")), queues=policy)
    assert not allowed(asked(service_caller("s3.amazonaws.com")), queues=policy)
    assert not allowed(asked(ANONYMOUS), queues=policy)


# --- actions that a queue policy opens to others ---


@pytest.mark.parametrize(
    ("action", "opens"),
    [
        *((f"sqs:{name}", True) for name in (
            "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes",
            "GetQueueUrl", "ListDeadLetterSourceQueues", "PurgeQueue",
        )),
        *((f"sqs:{name}", False) for name in (
            "CreateQueue", "DeleteQueue", "SetQueueAttributes", "AddPermission", "RemovePermission", "TagQueue",
            "UntagQueue", "ListQueueTags", "ListQueues", "StartMessageMoveTask", "CancelMessageMoveTask",
            "ListMessageMoveTasks",
        )),
        ("penstock:PeekMessages", False),
    ],
)  # fmt: skip
def test_queue_policy_opens_to_another_account(action: str, opens: bool) -> None:
    policy = queue(statement(Principal="*", Action="*"))
    reason = BOTH if opens else NO_RESOURCE
    assert decided(asked(BOB, action), identity(statement(Action="*")), policy).reason is reason
    assert allowed(asked(OTHER_ROOT, action), queues=policy) is opens
    assert allowed(asked(ANONYMOUS, action), queues=policy) is opens
    assert allowed(asked(ALICE, action), queues=policy), "within the account it counts"


# --- several policies ---


def test_deny_wins_wherever_it_stands() -> None:
    statements = [statement(Sid="yes"), statement("Deny", Sid="no"), statement(Sid="again")]
    for order in itertools.permutations(statements):
        assert decided(asked(), identity(*order)).reason is DENY_IDENTITY
        apart = join_policies([identity(one) for one in order])
        assert decided(asked(), apart).reason is DENY_IDENTITY


def test_statement_whose_condition_fails_says_nothing() -> None:
    only_tls = {"Bool": {"aws:SecureTransport": "true"}}
    policy = identity(statement(Condition=only_tls), statement("Deny", Condition=only_tls))
    assert decided(asked(), policy).reason is NO_IDENTITY
    assert decided(asked(secure_transport=True), policy).reason is DENY_IDENTITY


def test_decision_names_the_statement_and_its_policy() -> None:
    policies = join_policies(
        [identity(statement("Deny", Resource="arn:aws:sqs:*:*:other"), name="first"),
         identity(statement(Action="sqs:PurgeQueue"), statement(Sid="sends"), name="second")]
    )  # fmt: skip
    decision = decided(asked(), policies)
    assert decision.statement is not None
    assert (decision.statement.policy, decision.statement.ordinal, decision.statement.sid) == ("second", 1, "sends")


def test_stored_policy_that_is_not_understood_denies_everything() -> None:
    """What it held may have been a Deny."""
    broken = load_policy('{"Statement": [{"Effect": "Maybe"}]}', PolicyKind.IDENTITY, "broken")
    assert broken.unreadable is not None
    assert decided(asked(), join_policies([identity(statement()), broken])).reason is Reason.UNREADABLE_IDENTITY
    assert decided(asked(ROOT), broken).reason is Reason.UNREADABLE_IDENTITY
    queues_broken = load_policy("[]", PolicyKind.RESOURCE, "queue")
    assert decided(asked(), identity(statement()), queues_broken).reason is Reason.UNREADABLE_RESOURCE
    assert decided(asked(ANONYMOUS), queues=queues_broken).reason is Reason.UNREADABLE_RESOURCE


def test_action_that_is_not_known_is_a_fault_of_ours() -> None:
    with pytest.raises(AssertionError):
        evaluate(asked(action="sqs:sendmessage"), NO_POLICY)


# --- simulation ---


def test_simulation_says_of_each_statement_what_does_not_match() -> None:
    policy = identity(
        statement(Sid="a", Action="sqs:PurgeQueue"),
        statement("Deny", Sid="b", Resource=f"{QUEUE_ARN}-eu"),
        statement(Sid="c", Condition={"Bool": {"aws:SecureTransport": "false"}, "Null": {"aws:username": "true"}}),
        statement(Sid="d"),
    )
    queues_policy = queue(statement(Sid="e", Principal={"AWS": OTHER}))
    simulation = simulate(asked(now_ms=NOW_MS), policy, queues_policy)
    assert simulation.decision == evaluate(asked(), policy, queues_policy)
    told = [(outcome.place.sid, outcome.denies, outcome.mismatch) for outcome in simulation.outcomes]
    assert told == [
        ("a", False, "action"),
        ("b", True, "resource"),
        ("c", False, "Null aws:username"),
        ("d", False, None),
        ("e", False, "principal"),
    ]
