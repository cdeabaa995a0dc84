"""The words of AccessDenied."""

from __future__ import annotations

import pytest

from frontend.authz import Decision, Reason, refusal_text
from frontend.authz.request_context import ANONYMOUS, Caller, service_caller
from tests.frontend.authz.scene import ACCOUNT, ALICE, CLERK, QUEUE_ARN, asked

URL = f"http://127.0.0.1:9324/{ACCOUNT}/orders"
ASKED = f"is not authorized to perform: sqs:sendmessage on resource: {QUEUE_ARN}"


@pytest.mark.parametrize(
    ("reason", "because"),
    [
        (Reason.NOT_ALLOWED_BY_IDENTITY, "because no identity-based policy allows the sqs:sendmessage action"),
        (Reason.NOT_ALLOWED_BY_RESOURCE, "because no resource-based policy allows the sqs:sendmessage action"),
        (Reason.DENIED_BY_IDENTITY, "with an explicit deny in an identity-based policy"),
        (Reason.DENIED_BY_RESOURCE, "with an explicit deny in a resource-based policy"),
        (Reason.UNREADABLE_IDENTITY, "with an explicit deny in an identity-based policy"),
        (Reason.UNREADABLE_RESOURCE, "with an explicit deny in a resource-based policy"),
    ],
)
def test_refusal_names_caller_action_resource_and_side(reason: Reason, because: str) -> None:
    text = refusal_text(asked(ALICE), Decision(False, reason), URL)
    assert text == f"User: arn:aws:iam::{ACCOUNT}:user/teams/alice {ASKED} {because}"


def test_refusal_names_the_session_and_not_its_role() -> None:
    text = refusal_text(asked(CLERK), Decision(False, Reason.DENIED_BY_IDENTITY), URL)
    assert text.startswith(f"User: arn:aws:sts::{ACCOUNT}:assumed-role/clerk/monday {ASKED} ")


@pytest.mark.parametrize("caller", [ANONYMOUS, service_caller("sns.amazonaws.com")])
def test_refusal_of_a_caller_without_a_name_tells_the_address(caller: Caller) -> None:
    text = refusal_text(asked(caller), Decision(False, Reason.NOT_ALLOWED_BY_RESOURCE), URL)
    assert text == f"Access to the resource {URL} is denied."


def test_what_is_allowed_has_no_refusal() -> None:
    with pytest.raises(AssertionError):
        refusal_text(asked(), Decision(True, Reason.ALLOWED_BY_IDENTITY), URL)
