"""What may stand as a principal. Whom it lets in is tried in test_evaluation.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend.authz import PolicyError, PolicyKind, compile_policy
from tests.frontend.authz.scene import ACCOUNT, ALICE, allowed, asked, document, queue, statement

USER = f"arn:aws:iam::{ACCOUNT}:user/alice"


@pytest.mark.parametrize(
    "principal",
    [
        "*",
        {"AWS": "*"},
        {"AWS": ACCOUNT},
        {"AWS": [ACCOUNT, "*"]},
        {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
        {"AWS": f"arn:aws-us-gov:iam::{ACCOUNT}:root"},
        {"AWS": f"arn:aws:iam::{ACCOUNT}:user/a/b/c+=,.@_-"},
        {"AWS": f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/sns.amazonaws.com/x"},
        {"AWS": f"arn:aws:sts::{ACCOUNT}:assumed-role/clerk/someone@example.com"},
        {"AWS": f"arn:aws:sts::{ACCOUNT}:federated-user/kiosk"},
        {"AWS": "AIDAEXAMPLEEXAMPLE123"},
        {"AWS": "AROAEXAMPLEEXAMPLE123"},
        {"Service": "sns.amazonaws.com"},
        {"Service": ["s3.amazonaws.com", "events.amazonaws.com"], "AWS": USER},
        {"Federated": "cognito-identity.amazonaws.com"},
        {"Federated": f"arn:aws:iam::{ACCOUNT}:saml-provider/x"},
    ],
)
def test_principal_is_read(principal: Any) -> None:
    queue(statement(Principal=principal))


@pytest.mark.parametrize(
    ("path", "principal"),
    [
        ("", ACCOUNT),
        ("", USER),
        ("", ["*"]),
        ("", {}),
        ("", None),
        ("", 5),
        ("", "**"),
        (".aws", {"aws": ACCOUNT}),
        (".AWS", {"AWS": []}),
        (".AWS", {"AWS": {}}),
        (".AWS", {"AWS": int(ACCOUNT)}),
        (".AWS[1]", {"AWS": [ACCOUNT, None]}),
        (".AWS", {"AWS": "11112222333"}),
        (".AWS", {"AWS": f"{ACCOUNT} "}),
        (".AWS", {"AWS": "alice"}),
        (".AWS", {"AWS": ""}),
        (".AWS", {"AWS": "arn:aws:iam::*:root"}),
        (".AWS", {"AWS": f"arn:aws:iam::{ACCOUNT}:user/*"}),
        (".AWS", {"AWS": f"arn:aws:iam::{ACCOUNT}:user/al?ce"}),
        (".AWS", {"AWS": f"arn:aws:sts::{ACCOUNT}:assumed-role/clerk/*"}),
        (".AWS", {"AWS": f"arn:aws:sts::{ACCOUNT}:assumed-role/clerk"}),
        (".AWS", {"AWS": f"arn:aws:sts::{ACCOUNT}:assumed-role/path/clerk/monday"}),
        (".AWS", {"AWS": f"arn:aws:iam::{ACCOUNT}:group/admins"}),
        (".AWS", {"AWS": f"arn:aws:iam::{ACCOUNT}:user/"}),
        (".AWS", {"AWS": f"arn:aws:iam:us-east-1:{ACCOUNT}:root"}),
        (".AWS", {"AWS": f"arn:aws:iam::{ACCOUNT}:user/a\n"}),
        (".AWS", {"AWS": f"arn:aws:iam::{ACCOUNT}:user/${{aws:username}}"}),
        (".Service", {"Service": "*"}),
        (".Service", {"Service": "sns"}),
        (".Service", {"Service": "sns.amazonaws.com "}),
        (".Federated", {"Federated": "*"}),
        (".Federated", {"Federated": ""}),
        (".CanonicalUser", {"CanonicalUser": "0" * 64}),
        (".Everyone", {"Everyone": "*"}),
    ],
)
def test_what_is_no_principal_is_refused_by_its_path(path: str, principal: Any) -> None:
    text = json.dumps({"Statement": [{**statement(), "Principal": principal}]})
    with pytest.raises(PolicyError) as raised:
        compile_policy(text, PolicyKind.RESOURCE, "p")
    assert raised.value.path == f"$.Statement[0].Principal{path}"


def test_kind_that_stands_twice_is_refused() -> None:
    text = document(statement(Principal={"AWS": "@"})).replace('"AWS": "@"', '"AWS": "*", "AWS": "111122223333"')
    with pytest.raises(PolicyError) as raised:
        compile_policy(text, PolicyKind.RESOURCE, "p")
    assert raised.value.path == "$.Statement[0].Principal.AWS"


@pytest.mark.parametrize("principal", [{"AWS": "AIDAEXAMPLEEXAMPLE123"}, {"Federated": "accounts.example.com"}])
def test_deleted_and_federated_principals_match_no_caller(principal: Any) -> None:
    assert not allowed(asked(ALICE), queues=queue(statement(Principal=principal)))
