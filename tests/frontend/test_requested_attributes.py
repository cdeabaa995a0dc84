"""How many names of attributes an SQS receive may ask for."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.limits import MESSAGE_ATTRIBUTES_MAX, RECEIVE_MESSAGES_MAX, RECEIVE_NAMES_MAX
from tests.frontend.compat.wire import speak
from tests.support.frontend_plane import QUEUE_URL, Installation

PREFIXES = [f"p{number}.*" for number in range(RECEIVE_NAMES_MAX)]
# Of each list of names as many as may be asked for in all: the last one asks for the attribute that is there.
ASKED = {
    "MessageAttributeNames": [*PREFIXES[1:], "kind"],
    "MessageSystemAttributeNames": ["SenderId"] * RECEIVE_NAMES_MAX,
    "AttributeNames": ["QueueArn"] * RECEIVE_NAMES_MAX,
}


@pytest.fixture
async def sent(front: Installation) -> Installation:
    attributes = {"kind": {"DataType": "String", "StringValue": "x"}}
    message = {"QueueUrl": QUEUE_URL, "MessageBody": "hello", "MessageAttributes": attributes}
    assert (await front.sqs("SendMessage", message)).status == 200
    return front


@pytest.mark.parametrize("member", ASKED)
async def test_as_many_names_as_may_be_asked_for_are_looked_at_and_one_more_is_refused(
    sent: Installation, member: str
) -> None:
    """One more would be more work than is paid for. Nothing is leased by a receive that is refused."""
    reply = await sent.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, member: [*ASKED[member], ASKED[member][0]]})
    assert (reply.status, reply.error) == (400, "InvalidParameterValueException")
    assert reply.json["message"] == "A receive may name 1000 attributes at most. You have sent 1001 names."
    (message,) = (await sent.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, member: ASKED[member]})).json["Messages"]
    assert ("MessageAttributes" in message) == (member == "MessageAttributeNames")


@pytest.mark.parametrize("protocol", ["json", "query"])
async def test_names_are_counted_over_all_lists(sent: Installation, protocol: str) -> None:
    """A form holds as many fields: those that are no names are taken off."""
    asked: dict[str, Any] = {"QueueUrl": QUEUE_URL, "MessageAttributeNames": PREFIXES[: RECEIVE_NAMES_MAX - 10]}
    asked["MessageSystemAttributeNames"] = ["SenderId"] * 6
    answered = await speak(sent, protocol, "ReceiveMessage", {**asked, "VisibilityTimeout": 0})
    assert len(answered.result["Messages"]) == 1
    asked["MessageSystemAttributeNames"] = ["SenderId"] * 11
    answered = await speak(sent, protocol, "ReceiveMessage", asked)
    assert answered.code == ("InvalidParameterValue" if protocol == "json" else "MalformedInput")


def test_the_bound_is_many_times_what_a_receive_can_be_given() -> None:
    assert RECEIVE_NAMES_MAX == 10 * RECEIVE_MESSAGES_MAX * MESSAGE_ATTRIBUTES_MAX
