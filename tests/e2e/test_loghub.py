"""All 10,000 log lines through a queue, exactly once and byte for byte, by each way in and by a mix of them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.e2e.consumers import Boto3Way, RestWay, Way, WebsocketWay, receive_all, send_all
from tests.support.installation import RunningInstallation, wait_until
from tests.support.loghub import LINES, generated_lines, log_lines

pytestmark = pytest.mark.slow
COUNTS = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
KINDS: dict[str, tuple[type, ...]] = {
    "boto3": (Boto3Way, Boto3Way),
    "rest": (RestWay, RestWay),
    "websocket": (WebsocketWay, WebsocketWay),
    "mixed": (Boto3Way, RestWay, WebsocketWay),
}


@pytest.mark.parametrize("kind", KINDS)
def test_log_lines_arrive_exactly_once(installation: RunningInstallation, kind: str) -> None:
    lines, sqs = log_lines(), installation.sqs()
    assert len(lines) == LINES
    name, url = installation.new_queue(VisibilityTimeout="120")
    ways: list[Way] = [make(installation, name, url) for make in KINDS[kind]]
    acknowledged = send_all(ways, lines)
    assert len(acknowledged) == LINES, "every message has an id of its own"
    collected = receive_all(ways, LINES)
    assert collected.bodies == acknowledged, "each message came with the bytes that were sent under its id"
    assert collected.deliveries == LINES, "no message came twice"
    assert Counter(collected.bodies.values()) == Counter(lines)
    for way in ways:
        way.close()
    asked = {"QueueUrl": url, "AttributeNames": COUNTS}
    wait_until(lambda: set(sqs.get_queue_attributes(**asked)["Attributes"].values()) == {"0"})  # deleted, not hidden


def test_generated_lines_are_of_the_same_kind() -> None:
    lines = generated_lines()
    assert len(lines) == LINES
    assert len(set(lines)) < LINES and any(line.endswith(b"\r") for line in lines)
    assert all(line.decode() for line in lines)
