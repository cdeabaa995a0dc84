"""aiobotocore: the asyncio client, many calls at once on one connection pool.

`python -m tests.clients.programs.aiobotocore_actions`
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import aiobotocore
from aiobotocore.session import get_session

from tests.clients.programs.checks import new_name, run_checks

MESSAGES = 400
CONSUMERS = 8


def with_client(check: Callable[[Any], Awaitable[None]]) -> Callable[[Any], None]:
    """An asynchronous check as `run_checks` wants it: with a client of its own, closed afterwards."""

    async def run() -> None:
        async with get_session().create_client("sqs") as sqs:
            await asyncio.wait_for(check(sqs), 90)

    def checked(_: Any) -> None:
        asyncio.run(run())

    checked.__doc__ = check.__doc__
    return checked


async def new_queue(sqs: Any, **attributes: str) -> str:
    return str((await sqs.create_queue(QueueName=new_name("aio"), Attributes=attributes))["QueueUrl"])


async def check_round_trip(sqs: Any) -> None:
    """A message sent, received and deleted, with AWS_ENDPOINT_URL_SQS alone."""
    url = await new_queue(sqs)
    sent = await sqs.send_message(QueueUrl=url, MessageBody="größe")
    answer = await sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)
    (message,) = answer["Messages"]
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "größe")
    await sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


async def check_many_at_once(sqs: Any) -> None:
    """400 messages in batches sent at once, eight consumers in long polls: each once."""
    url = await new_queue(sqs, VisibilityTimeout="120")
    batches = [
        [{"Id": str(number), "MessageBody": str(number)} for number in range(start, start + 10)]
        for start in range(0, MESSAGES, 10)
    ]
    answers = await asyncio.gather(*(sqs.send_message_batch(QueueUrl=url, Entries=batch) for batch in batches))
    assert sum(len(answer["Successful"]) for answer in answers) == MESSAGES
    seen: Counter[str] = Counter()

    async def consume() -> None:
        while seen.total() < MESSAGES:
            answer = await sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            messages = answer.get("Messages", [])
            seen.update(message["Body"] for message in messages)
            if messages:
                entries = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(messages)]
                await sqs.delete_message_batch(QueueUrl=url, Entries=entries)

    await asyncio.gather(*(consume() for _ in range(CONSUMERS)))
    assert seen == Counter(map(str, range(MESSAGES))), "some came twice"


async def check_cancelled_poll(sqs: Any) -> None:
    """A long poll that is cancelled takes no message with it."""
    url = await new_queue(sqs, VisibilityTimeout="60")
    poll = asyncio.ensure_future(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20))
    await asyncio.sleep(1)
    poll.cancel()
    await asyncio.gather(poll, return_exceptions=True)
    await asyncio.sleep(0.5)
    await sqs.send_message(QueueUrl=url, MessageBody="not lost")
    answer = await sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)
    assert [message["Body"] for message in answer.get("Messages", [])] == ["not lost"]


async def check_errors_and_pages(sqs: Any) -> None:
    """Typed errors and the paginator of list_queues."""
    try:
        await sqs.get_queue_url(QueueName="no-such-queue")
    except sqs.exceptions.QueueDoesNotExist as error:
        assert error.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    else:
        raise AssertionError("no error came")
    prefix = new_name("page")
    await asyncio.gather(*(sqs.create_queue(QueueName=f"{prefix}-{number}") for number in range(5)))
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2})
    assert sum([len(page["QueueUrls"]) async for page in pages]) == 5


CHECKS = [
    with_client(check) for check in (check_round_trip, check_many_at_once, check_cancelled_poll, check_errors_and_pages)
]


if __name__ == "__main__":
    sys.exit(run_checks("aiobotocore", aiobotocore.__version__, CHECKS, lambda: None))
