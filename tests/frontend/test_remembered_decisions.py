"""What was allowed is remembered while nothing changes that the policies look at, and no longer; docs/policies.md."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from frontend.authz import PolicyKind, compile_policy
from frontend.authz.evaluation import evaluate
from frontend.messages import admission
from tests.frontend.test_key_policies import SEND, allow, change_key, deny, document, restricted
from tests.frontend.test_queue_policies import ORDERS_ARN, set_policy, statement
from tests.support.frontend_plane import ACCOUNT, START_S, Installation

EDGE_S = int(START_S) + 100
EDGE = "2023-11-14T22:15:00Z"
LATER = "2023-11-14T22:15:00.5Z"


class Weighed:
    """How often policies were weighed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(admission, "evaluate", self._evaluate)

    def _evaluate(self, *given: Any) -> Any:
        self.count += 1
        return evaluate(*given)


@pytest.fixture
def weighed(monkeypatch: pytest.MonkeyPatch) -> Weighed:
    return Weighed(monkeypatch)


def tag(front: Installation, **tags: str) -> None:
    record = front.metadata.queues[ACCOUNT, "orders"]
    front.metadata.queues[ACCOUNT, "orders"] = msgspec.structs.replace(record, tags=tags, version=record.version + 1)


async def send(front: Installation, key: Any, times: int = 1) -> int:
    """The last answer's status."""
    statuses = [(await front.sqs("SendMessage", SEND, key=key)).status for _ in range(times)]
    return statuses[-1]


@pytest.mark.parametrize(
    ("condition", "after"),
    [
        ({"DateLessThan": {"aws:CurrentTime": EDGE}}, 0),
        ({"DateLessThanEquals": {"aws:CurrentTime": EDGE}}, 1),
        ({"DateLessThan": {"aws:CurrentTime": LATER}}, 1),
        ({"DateLessThan": {"aws:EpochTime": str(EDGE_S)}}, 0),
        ({"NumericLessThanEquals": {"aws:EpochTime": f"{EDGE_S}.5"}}, 1),
        ({"DateNotEquals": {"aws:CurrentTime": EDGE}}, 0),
    ],
)
@pytest.mark.parametrize("side", ["key", "queue"])
async def test_condition_on_the_time_is_weighed_once_and_ends_to_the_second(
    front: Installation, weighed: Weighed, condition: dict[str, Any], after: int, side: str
) -> None:
    if side == "key":
        key = restricted(front, allow("sqs:SendMessage", Condition=condition))
    else:
        key = restricted(front, allow("sqs:ReceiveMessage"))
        arn = f"arn:aws:iam::{ACCOUNT}:user/key/{key.access_key_id}"
        set_policy(
            front,
            ACCOUNT,
            "orders",
            statement("Allow", "sqs:SendMessage", ORDERS_ARN, principal=arn, Condition=condition),
        )
    assert await send(front, key, 3) == 200 and weighed.count == 1
    front.clock.now_s = EDGE_S + after - 0.001
    assert await send(front, key) == 200 and weighed.count <= 2
    front.clock.now_s = EDGE_S + after
    assert await send(front, key) == 403
    front.clock.now_s = EDGE_S + after - 1
    assert await send(front, key) == 200, "a clock that is set back"


async def test_condition_that_begins_to_hold_is_not_remembered_when_the_clock_is_set_back(front: Installation) -> None:
    key = restricted(front, allow("sqs:SendMessage", Condition={"DateGreaterThan": {"aws:CurrentTime": EDGE}}))
    assert await send(front, key) == 403
    front.clock.now_s = EDGE_S + 1
    assert await send(front, key, 2) == 200
    front.clock.now_s = EDGE_S
    assert await send(front, key) == 403


async def test_deny_that_begins_is_in_force_to_the_second(front: Installation, weighed: Weighed) -> None:
    late = deny("sqs:*", Condition={"DateGreaterThanEquals": {"aws:CurrentTime": EDGE}})
    key = restricted(front, allow("sqs:SendMessage"), late)
    front.clock.now_s = EDGE_S - 0.001
    assert await send(front, key, 3) == 200 and weighed.count == 1
    front.clock.now_s = EDGE_S
    assert await send(front, key) == 403


async def test_condition_on_tags_is_weighed_again_when_the_queue_has_others(
    front: Installation, weighed: Weighed
) -> None:
    tag(front, team="shop")
    key = restricted(front, allow("sqs:SendMessage", Condition={"StringEquals": {"aws:ResourceTag/team": "shop"}}))
    assert await send(front, key, 3) == 200 and weighed.count == 1
    tag(front, team="mail")
    assert await send(front, key) == 403
    tag(front, team="shop")
    assert await send(front, key, 2) == 200 and weighed.count == 3


async def test_policy_that_changes_is_weighed_again(front: Installation, weighed: Weighed) -> None:
    key = restricted(front, allow("sqs:SendMessage"))
    assert await send(front, key, 2) == 200 and weighed.count == 1
    until = {"DateLessThan": {"aws:CurrentTime": EDGE}}
    set_policy(front, ACCOUNT, "orders", statement("Deny", "sqs:ReceiveMessage", ORDERS_ARN))
    assert await send(front, key, 2) == 200 and weighed.count == 2
    elsewhere = {"NotIpAddress": {"aws:SourceIp": "127.0.0.0/8"}}
    set_policy(front, ACCOUNT, "orders", statement("Deny", "sqs:SendMessage", ORDERS_ARN, Condition=elsewhere))
    assert await send(front, key, 3) == 200 and weighed.count == 3, "by origin from now on"
    change_key(front, key, policies=[document(allow("sqs:SendMessage", Condition=until))])
    front.clock.now_s = EDGE_S
    assert await send(front, key) == 403


@pytest.mark.parametrize(
    "condition",
    [
        {"StringLike": {"aws:CurrentTime": "2023-*"}},
        {"Null": {"aws:CurrentTime": "false"}},
        {"StringNotLike": {"aws:UserAgent": "x*"}},
        {"NumericLessThanIfExists": {"aws:MultiFactorAuthAge": "3600"}},
        {"StringNotEquals": {"aws:RequestTag/team": "mail"}},
        {"StringNotEquals": {"aws:PrincipalTag/team": "${aws:SourceIp}"}},
    ],
)
async def test_other_conditions_are_weighed_at_each_request(
    front: Installation, weighed: Weighed, condition: dict[str, Any]
) -> None:
    key = restricted(front, allow("sqs:SendMessage", Condition=condition))
    assert await send(front, key, 3) == 200 and weighed.count == 3


def test_edges_of_a_policy_are_those_of_the_statements_of_the_action() -> None:
    times = {
        "DateLessThan": {"aws:CurrentTime": ["1970-01-01T00:00:10Z", "20.5"]},
        "Bool": {"aws:SecureTransport": "true"},
    }
    sends, all_ = (
        allow("sqs:SendMessage", Condition=times),
        deny("*", Condition={"DateEquals": {"aws:EpochTime": "-3.5"}}),
    )
    policy = compile_policy(document(sends, all_).text, PolicyKind.IDENTITY, "test")
    assert policy.edges_s("sqs:SendMessage") == (-4, -3, 10, 11, 20, 21)
    assert policy.edges_s("sqs:ReceiveMessage") == (-4, -3)
    assert policy.is_steady("sqs:SendMessage") and not policy.is_fixed("sqs:ReceiveMessage")
