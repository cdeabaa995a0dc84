"""The table of actions: every way in has a line, and what the line asks for exists."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest

from frontend.authz.actions import (
    ACTION_NAMES,
    ACTIONS,
    CROSS_ACCOUNT_ACTIONS,
    GRANTABLE_NAMES,
    MANAGEMENT_OPERATIONS,
    PEOPLE_OPERATIONS,
    ROUTE_OPERATIONS,
    SQS_OPERATIONS,
    Demand,
    Target,
    When,
    resource_arn,
)
from frontend.authz.policy_document import PolicyKind, Text
from frontend.authz.policy_resource import parse_resource
from frontend.queues.names import QueueArn, format_arn, parse_arn
from frontend.rest.message_browser import BROWSER_ROUTES
from frontend.rest.messages import ROUTES
from frontend.rest.parked import PARKED_ROUTES
from frontend.rest.scheduled import SCHEDULED_ROUTES
from frontend.sqs.actions import ACTIONS as SQS_ACTIONS
from tests.frontend.authz.scene import ACCOUNT, ALICE, REGION, allowed, asked, identity, statement

OPENAPI = Path(__file__).resolve().parents[3] / "docs" / "openapi.json"
TABLES = (SQS_OPERATIONS, ROUTE_OPERATIONS, MANAGEMENT_OPERATIONS, PEOPLE_OPERATIONS)
EVERY_DEMAND = [demand for table in TABLES for demands in table.values() for demand in demands]


def test_every_sqs_call_asks_for_something() -> None:
    assert SQS_OPERATIONS.keys() == {action.name for action in SQS_ACTIONS.values()}


def test_every_route_asks_for_something() -> None:
    routes = chain(ROUTES.values(), BROWSER_ROUTES.values(), PARKED_ROUTES.values(), SCHEDULED_ROUTES.values())
    assert ROUTE_OPERATIONS.keys() == {route.action for route in routes} | {"subscribe"}


# What people do with a session: decided by their roles (`api/people`), not by policies.
OF_PEOPLE = {"accounts", "invitations", "members", "passkeys", "people", "second_factor", "session", "sessions"}


def test_every_management_call_asks_for_something() -> None:
    paths = json.loads(OPENAPI.read_text())["paths"]
    named = {call["operationId"] for calls in paths.values() for call in calls.values() if "operationId" in call}
    of_keys = {name for name in named if name.partition(".")[0] not in OF_PEOPLE | {"data"}}
    assert MANAGEMENT_OPERATIONS.keys() == of_keys | {"queues.create_on_send"}


def test_demands_are_of_known_actions_and_no_action_is_left_over() -> None:
    assert all(demands for table in TABLES for demands in table.values())
    assert {demand.action for demand in EVERY_DEMAND} == ACTION_NAMES


def test_names_of_actions_differ_by_more_than_case() -> None:
    assert len({action.name.lower() for action in ACTIONS}) == len(ACTIONS)


@pytest.mark.parametrize("table", TABLES)
def test_own_actions_ask_for_an_action_of_sqs_as_well(table: dict[str, tuple[Demand, ...]]) -> None:
    """Or a Deny of sqs:* would leave the message browser open. What is of the account is no queue's."""
    for demands in table.values():
        if demands[0].action.startswith("penstock:") and demands[0].target is Target.QUEUE:
            assert any(demand.action.startswith("sqs:") for demand in demands[1:])


def test_batch_asks_for_what_the_single_call_asks_for() -> None:
    for name in ("SendMessage", "DeleteMessage", "ChangeMessageVisibility"):
        assert SQS_OPERATIONS[f"{name}Batch"] == SQS_OPERATIONS[name] == (Demand(f"sqs:{name}"),)


def test_moving_messages_asks_at_both_ends() -> None:
    """Or a move would be a way to send where one may not."""
    for demands in (
        SQS_OPERATIONS["StartMessageMoveTask"],
        ROUTE_OPERATIONS["browser_resend"],
        MANAGEMENT_OPERATIONS["moves.start"],
        MANAGEMENT_OPERATIONS["moves.resume"],
    ):
        assert Demand("sqs:SendMessage", Target.DESTINATION) in demands
        assert Demand("sqs:DeleteMessage") in demands
    assert Demand("sqs:SendMessage", Target.DEAD_LETTER_QUEUE) in ROUTE_OPERATIONS["browser_dead_letter"]


def test_naming_a_dead_letter_queue_asks_there() -> None:
    """Or a queue that dies at once would be a way to send where one may not."""
    for demands in (
        SQS_OPERATIONS["CreateQueue"],
        SQS_OPERATIONS["SetQueueAttributes"],
        MANAGEMENT_OPERATIONS["queues.create"],
        MANAGEMENT_OPERATIONS["queues.update"],
    ):
        (sends,) = (one for one in demands if one.when is When.DEAD_LETTERS_ARE_SENT)
        assert sends[:2] == ("sqs:SendMessage", Target.DEAD_LETTER_QUEUE)


def test_shredding_asks_where_the_dead_letters_lie() -> None:
    """Or deleting one queue would be a way to destroy what is in another."""
    shreds = Demand("sqs:PurgeQueue", Target.LETTER_HOLDERS, instead="sqs:DeleteQueue")
    assert MANAGEMENT_OPERATIONS["queues.delete"] == (Demand("sqs:DeleteQueue"), shreds)


def test_tags_ask_for_tagging_and_encryption_keys_for_their_use() -> None:
    use = Demand("penstock:UseEncryptionKey", Target.ENCRYPTION_KEY, When.KEY_IS_NAMED)
    for demands in (SQS_OPERATIONS["CreateQueue"], MANAGEMENT_OPERATIONS["queues.create"]):
        assert demands[:3] == (Demand("sqs:CreateQueue"), Demand("sqs:TagQueue", when=When.TAGS_ARE_SET), use)
    assert use in SQS_OPERATIONS["SetQueueAttributes"] and use in MANAGEMENT_OPERATIONS["queues.update"]


def test_actions_that_queue_policies_open_are_those_that_can_be_granted() -> None:
    """As AWS lists them for AddPermission."""
    granted = {
        "ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues",
        "PurgeQueue", "ReceiveMessage", "SendMessage",
    }  # fmt: skip
    assert granted | {"*"} == GRANTABLE_NAMES
    assert {name.removeprefix("sqs:") for name in CROSS_ACCOUNT_ACTIONS} == granted


# --- resources ---


@pytest.mark.parametrize("target", list(Target))
def test_resource_of_a_target_is_an_arn_that_patterns_reach(target: Target) -> None:
    arn = resource_arn(target, REGION, ACCOUNT, "x")
    assert len(parse_resource(*Text("$", arn), PolicyKind.IDENTITY, True)) == 6
    service = arn.split(":")[2]
    policy = identity(statement(Action="*", Resource=f"arn:aws:{service}:*:{ACCOUNT}:*"))
    assert allowed(asked(ALICE, resource_arn=arn), policy)


def test_resource_of_a_queue_is_its_arn() -> None:
    arn = resource_arn(Target.QUEUE, REGION, ACCOUNT, "orders.fifo")
    assert arn == format_arn(REGION, ACCOUNT, "orders.fifo")
    assert parse_arn(arn) == QueueArn(REGION, ACCOUNT, "orders.fifo")
    assert resource_arn(Target.ALL_QUEUES, REGION, ACCOUNT) == f"arn:aws:sqs:{REGION}:{ACCOUNT}:"


def test_resource_of_a_queue_needs_its_name() -> None:
    with pytest.raises(AssertionError):
        resource_arn(Target.QUEUE, REGION, ACCOUNT)
