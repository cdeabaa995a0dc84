"""`send QUEUE < file`: each line of stdin becomes a message. Ends with an error unless every line was acknowledged."""

from __future__ import annotations

import argparse
import asyncio
import functools
import io
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from deploy import limits, output
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.lines import ATTRIBUTE, EncodedLine, batches, read_lines
from deploy.noted_messages import noted
from deploy.queue_clients import open_queue, queue_url, sqs_client

if TYPE_CHECKING:
    from penstock_client import Queue


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    with noted(installation, "send", options.queue) as noting:
        queue_url(installation, sqs_client(installation), options.queue, create=True)
        began = time.monotonic()
        with output.progress_bar() as bar:
            task = bar.add_task(f"sending to {options.queue}", total=None)

            def sent(messages: int) -> None:
                noting.add(messages)
                bar.advance(task, messages)

            @functools.cache
            def stalled() -> None:
                seconds = f"{limits.SEND_SILENCE_S:.0f} s"
                output.say(f"penstock: messages wait for {seconds} and are tried again; see ./penstock status")

            async def send() -> int:
                async with open_queue(installation, options.queue) as queue:
                    feed = batches(read_lines(cast(io.BufferedReader, sys.stdin.buffer)))
                    return await send_all(queue, feed, sent, stalled)

            count = asyncio.run(send())
        took_s = time.monotonic() - began
    output.say(f"sent {output.counted(count, 'message')} to {options.queue} in {took_s:.1f} s")
    return 0


async def send_all(
    queue: Queue, feed: Iterator[list[EncodedLine]], sent: Callable[[int], None], stalled: Callable[[], None]
) -> int:
    """Sends all that `feed` has; how many messages were acknowledged. `stalled` is called where a batch takes long.
    Raises CommandError where one was not acknowledged."""
    reading = asyncio.Lock()

    async def sender() -> int:
        count = 0
        while True:
            async with reading:  # a generator may be advanced by one thread at a time only
                lines = await asyncio.to_thread(next, feed, None)
            if lines is None:
                return count
            late = asyncio.get_running_loop().call_later(limits.SEND_SILENCE_S, stalled)
            try:
                await send_batch(queue, lines, sent)
            finally:
                late.cancel()
            count += len(lines)

    senders = [asyncio.create_task(sender()) for _ in range(limits.BATCHES_IN_FLIGHT)]
    try:
        return sum(await asyncio.gather(*senders))
    finally:
        for task in senders:
            task.cancel()


async def send_batch(queue: Queue, lines: list[EncodedLine], sent: Callable[[int], None]) -> None:
    """The client has sent again by then what failed for a reason of the service's. Raises CommandError."""
    from penstock_client import Message

    published = await queue.publish(
        [body if encoding is None else Message(body, attributes={ATTRIBUTE: encoding}) for body, encoding in lines]
    )
    sent(len(lines) - len(published.failed))
    if published.failed:
        first = published.failed[0]
        failed = output.counted(len(published.failed), "message")
        raise CommandError(f"not stored: {failed}: {first.code}: {first.detail}")
