"""Queue attributes beyond SQS at the front end: which values are passed on, and what they do to requests."""

from __future__ import annotations

import pytest

from tests.support.frontend_plane import QUEUE_URL, Installation


@pytest.mark.parametrize(("name", "value"), [("Penstock.Paused", "yes"), ("Penstock.Unknown", "true")])
async def test_attribute_that_is_not_right_is_refused(front: Installation, name: str, value: str) -> None:
    answer = await front.sqs("SetQueueAttributes", {"QueueUrl": QUEUE_URL, "Attributes": {name: value}})
    assert answer.error in ("InvalidAttributeValue", "InvalidAttributeName")
    assert not front.control_calls


async def test_paused_is_shown_among_the_attributes(front: Installation) -> None:
    front.add_queue("orders", (1,), attributes={"Penstock.Paused": "true"})
    asked = {"QueueUrl": QUEUE_URL, "AttributeNames": ["Penstock.Paused"]}
    assert (await front.sqs("GetQueueAttributes", asked)).json["Attributes"] == {"Penstock.Paused": "true"}
