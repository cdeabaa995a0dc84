"""Policies as people and programs write them for SQS, and what they let in."""

from __future__ import annotations

import json
from typing import Any

from api.queues.attributes import QueueArn
from api.queues.permissions import Permission, with_permission
from frontend.authz import CompiledPolicy, PolicyKind, compile_policy, review
from frontend.authz.request_context import ANONYMOUS, service_caller, user_caller
from tests.frontend.authz.scene import (
    ACCOUNT,
    ALICE,
    BOB,
    NOW_MS,
    OTHER,
    OTHER_ROOT,
    QUEUE_ARN,
    REGION,
    allowed,
    asked,
    identity,
    statement,
)

SNS, S3 = service_caller("sns.amazonaws.com"), service_caller("s3.amazonaws.com")
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:news"


def queue_policy(*statements: dict[str, Any], **members: Any) -> CompiledPolicy:
    text = json.dumps({"Version": "2012-10-17", "Statement": list(statements), **members})
    assert not any(remark.refused for remark in review(text, PolicyKind.RESOURCE, QUEUE_ARN))
    return compile_policy(text, PolicyKind.RESOURCE, "queue")


def test_policy_of_add_permission_opens_the_queue_to_the_accounts_root_and_who_it_lets() -> None:
    permission = Permission("share", [OTHER], ["SendMessage", "GetQueueUrl"])
    text = with_permission({}, QueueArn(REGION, ACCOUNT, "orders"), permission)
    policy = compile_policy(text, PolicyKind.RESOURCE, "queue")
    sends = identity(statement(Action="sqs:SendMessage"))
    assert allowed(asked(OTHER_ROOT), queues=policy)
    assert allowed(asked(BOB), sends, policy)
    assert not allowed(asked(BOB), queues=policy)
    assert not allowed(asked(BOB, "sqs:ReceiveMessage"), identity(statement(Action="sqs:*")), policy)


def test_policy_that_the_console_makes_is_for_the_owner() -> None:
    policy = queue_policy(
        {
            "Sid": "__owner_statement",
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
            "Action": "SQS:*",
            "Resource": QUEUE_ARN,
        },
        Version="2008-10-17",
        Id="__default_policy_ID",
    )
    assert not allowed(asked(ALICE), queues=policy), "the account gives the right on by policies of its own"
    assert not allowed(asked(BOB), identity(statement(Action="*")), policy)


def test_topic_delivers_to_the_queue_and_other_topics_do_not() -> None:
    policy = queue_policy(
        {
            "Effect": "Allow",
            "Principal": {"Service": "sns.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": QUEUE_ARN,
            "Condition": {"ArnEquals": {"aws:SourceArn": TOPIC}},
        }
    )
    assert allowed(asked(SNS, source_arn=TOPIC), queues=policy)
    assert not allowed(asked(SNS, source_arn=f"{TOPIC}2"), queues=policy)
    assert not allowed(asked(S3, source_arn=TOPIC), queues=policy)
    assert not allowed(asked(ANONYMOUS), queues=policy)


def test_policy_for_everyone_with_a_source_arn_lets_in_the_service_alone() -> None:
    """Principal * with aws:SourceArn: no direct caller has that key."""
    policy = queue_policy(
        {
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": "SQS:SendMessage",
            "Resource": QUEUE_ARN,
            "Condition": {"StringLike": {"aws:SourceArn": TOPIC}},
        },
        Version="2008-10-17",
        Id=f"{QUEUE_ARN}/SQSDefaultPolicy",
    )
    assert allowed(asked(SNS, source_arn=TOPIC), queues=policy)
    assert not any(allowed(asked(caller), queues=policy) for caller in (ALICE, OTHER_ROOT, ANONYMOUS))


def test_bucket_notifies_the_queue_for_its_account_alone() -> None:
    bucket = "arn:aws:s3:::photos"
    policy = queue_policy(
        {
            "Effect": "Allow",
            "Principal": {"Service": "s3.amazonaws.com"},
            "Action": ["SQS:SendMessage"],
            "Resource": QUEUE_ARN,
            "Condition": {
                "ArnLike": {"aws:SourceArn": "arn:aws:s3:*:*:photos"},
                "StringEquals": {"aws:SourceAccount": ACCOUNT},
            },
        }
    )
    assert allowed(asked(S3, source_arn=bucket, source_account_id=ACCOUNT), queues=policy)
    assert not allowed(asked(S3, source_arn=bucket, source_account_id=OTHER), queues=policy)


def test_queue_takes_encrypted_connections_alone() -> None:
    guard = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sqs:*",
        "Resource": QUEUE_ARN,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    policy, own = queue_policy(guard), identity(statement(Action="sqs:*"))
    assert allowed(asked(ALICE, secure_transport=True), own, policy)
    assert not allowed(asked(ALICE, secure_transport=False), own, policy)


def test_queue_is_open_from_one_network_but_for_one_address_until_a_date() -> None:
    policy = queue_policy(
        {
            "Effect": "Allow",
            "Principal": "*",
            "Action": "sqs:ReceiveMessage",
            "Resource": QUEUE_ARN,
            "Condition": {
                "IpAddress": {"aws:SourceIp": "192.0.2.0/24"},
                "NotIpAddress": {"aws:SourceIp": "192.0.2.188/32"},
                "DateLessThan": {"aws:CurrentTime": "2026-11-30T12:00Z"},
            },
        }
    )

    def receives(source_ip: str | None, now_ms: int = NOW_MS) -> bool:
        return allowed(asked(ANONYMOUS, "sqs:ReceiveMessage", source_ip=source_ip, now_ms=now_ms), queues=policy)

    later_ms = NOW_MS + 13 * 86_400_000
    assert receives("192.0.2.1")
    assert not (receives("192.0.2.188") or receives("192.0.3.1") or receives(None) or receives("192.0.2.1", later_ms))


def test_user_works_with_queues_of_the_own_name() -> None:
    policy = identity(
        statement(Action="sqs:*", Resource=f"arn:aws:sqs:*:{ACCOUNT}:${{aws:username}}-*"),
        statement(Action="sqs:ListQueues", Resource="*"),
    )
    base = f"arn:aws:sqs:{REGION}:{ACCOUNT}:"
    assert allowed(asked(ALICE, "sqs:CreateQueue", f"{base}alice-inbox"), policy)
    assert allowed(asked(ALICE, "sqs:ListQueues", base), policy)
    assert not allowed(asked(ALICE, "sqs:CreateQueue", f"{base}bob-inbox"), policy)


def test_user_works_with_queues_of_the_own_team() -> None:
    """By tags: what is tagged as the user is; new queues must be tagged so; the tag stays."""
    mine = {"StringEquals": {"aws:ResourceTag/team": "${aws:PrincipalTag/team}"}}
    policy = identity(
        statement(Action=["sqs:SendMessage", "sqs:ReceiveMessage"], Resource="*", Condition=mine),
        statement(
            Action=["sqs:CreateQueue", "sqs:TagQueue"],
            Resource="*",
            Condition={
                "StringEquals": {"aws:RequestTag/team": "${aws:PrincipalTag/team}"},
                "ForAllValues:StringEquals": {"aws:TagKeys": ["team", "cost-center"]},
            },
        ),
        statement(
            "Deny",
            Action="sqs:UntagQueue",
            Resource="*",
            Condition={"ForAnyValue:StringEquals": {"aws:TagKeys": "team"}},
        ),
        statement(Action="sqs:UntagQueue", Resource="*"),
    )
    stranger = user_caller(ACCOUNT, "eve", "AIDAEVE000000000", tags={"team": "billing"})
    assert allowed(asked(ALICE, resource_tags={"team": "orders"}), policy)
    assert not allowed(asked(stranger, resource_tags={"team": "orders"}), policy)
    assert not allowed(asked(user_caller(ACCOUNT, "no", "AIDANO0000000000")), policy), "no tag is not an equal tag"

    def creates(**tags: str) -> bool:
        return allowed(asked(ALICE, "sqs:CreateQueue", request_tags=tags, tag_keys=tuple(tags)), policy)

    assert creates(team="orders") and not creates() and not creates(team="billing")
    assert not creates(team="orders", secret="x")
    assert [allowed(asked(ALICE, "sqs:UntagQueue", tag_keys=keys), policy) for keys in (("x",), ("x", "team"))] == [
        True,
        False,
    ]


def test_deny_without_mfa_counts_keys_that_last_as_without() -> None:
    for operator, denied in (("Bool", False), ("BoolIfExists", True)):
        policy = identity(
            statement(),
            statement("Deny", Condition={operator: {"aws:MultiFactorAuthPresent": "false"}}),
        )
        assert allowed(asked(ALICE), policy) is not denied
        assert allowed(asked(ALICE._replace(mfa_present=True)), policy)
