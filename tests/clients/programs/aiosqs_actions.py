"""aiosqs: an asynchronous client that signs requests and reads XML by itself, and asks by GET in the query protocol.

`python -m tests.clients.programs.aiosqs_actions`
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import aiosqs
import boto3

from tests.clients.programs.checks import endpoint, new_name, run_checks

BODY = "größe & <b> 'quoted' \"twice\" % + a=b&c=d\n"
MESSAGES = 80


def with_client(check: Callable[[Any], Awaitable[None]]) -> Callable[[Any], None]:
    """An asynchronous check as `run_checks` wants it: with a client of its own, closed afterwards."""

    async def run() -> None:
        key_id, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        where = urlsplit(endpoint())
        async with aiosqs.SQSClient(os.environ["AWS_REGION"], key_id, secret, where.netloc) as client:
            client.endpoint_url = f"{where.scheme}://{where.netloc}"  # it takes https for granted
            await asyncio.wait_for(check(client), 60)

    def checked(_: Any) -> None:
        asyncio.run(run())

    checked.__doc__ = check.__doc__
    return checked


def new_queue(suffix: str = "", **attributes: str) -> str:
    """The library makes none."""
    sqs = boto3.client("sqs")
    return str(sqs.create_queue(QueueName=new_name("aiosqs") + suffix, Attributes=attributes)["QueueUrl"])


def receive(url: str, wait_s: int = 5) -> list[dict[str, Any]]:
    """By boto3: the library looks for messages in XML without a namespace alone, and Amazon's has one."""
    asked = {"MaxNumberOfMessages": 10, "VisibilityTimeout": 30, "WaitTimeSeconds": wait_s}
    messages: list[dict[str, Any]] = boto3.client("sqs").receive_message(QueueUrl=url, **asked).get("Messages", [])
    return messages


async def check_round_trip(client: Any) -> None:
    """get_queue_url, send_message and delete_message, with a body full of signs that need quoting."""
    url = new_queue()
    assert (await client.get_queue_url(url.rpartition("/")[2]))["QueueUrl"] == url
    sent = await client.send_message(url, BODY)
    (message,) = receive(url)
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], BODY)
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    await client.delete_message(url, message["ReceiptHandle"])
    counts = boto3.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "0"


async def check_fifo(client: Any) -> None:
    """FIFO: order, and the same deduplication id twice is one message."""
    url = new_queue(".fifo", FifoQueue="true")
    for number in range(3):
        for _ in range(2):
            await client.send_message(url, f"{number}", message_group_id="g", message_deduplication_id=f"d{number}")
    assert [message["Body"] for message in receive(url)] == ["0", "1", "2"]


async def check_errors(client: Any) -> None:
    """Errors have the type, the code and the message that the library reads from the XML, and a request id."""
    for call, code in (
        (client.get_queue_url("no-such-queue"), "AWS.SimpleQueueService.NonExistentQueue"),
        (client.send_message(new_queue(), ""), "MissingParameter"),
        (client.delete_message(new_queue(), "nonsense"), "ReceiptHandleIsInvalid"),
    ):
        try:
            await call
        except aiosqs.SQSErrorResponse as error:
            assert (error.error.type, error.error.code) == ("Sender", code), error.error
            assert error.error.message and error.request_id
        else:
            raise AssertionError(f"{code} did not come")


async def check_wrong_secret(client: Any) -> None:
    """A wrong secret is refused with SignatureDoesNotMatch."""
    client.aws_secret_access_key = "x" * 40
    try:
        await client.get_queue_url("any")
    except aiosqs.SQSErrorResponse as error:
        assert error.error.code == "SignatureDoesNotMatch"
    else:
        raise AssertionError("no error came")


async def check_many_at_once(client: Any) -> None:
    """80 sends at once over one pool of connections: each is one message."""
    url = new_queue()
    sent = await asyncio.gather(*(client.send_message(url, str(number)) for number in range(MESSAGES)))
    assert len({one["MessageId"] for one in sent}) == MESSAGES
    seen: list[str] = []
    while len(seen) < MESSAGES:
        found = await asyncio.to_thread(receive, url)
        assert found, "less came than was sent"
        seen += [message["Body"] for message in found]
    assert sorted(map(int, seen)) == list(range(MESSAGES))


CHECKS = [
    with_client(check) for check in (check_round_trip, check_fifo, check_errors, check_wrong_secret, check_many_at_once)
]


if __name__ == "__main__":
    sys.exit(run_checks("aiosqs", aiosqs.VERSION, CHECKS, lambda: None))
