"""`receive QUEUE`: each message becomes a line on stdout and is then deleted, so a crash may show a line twice, never
lose one. Ends when the queue was empty for --idle seconds, or after --max messages.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from deploy import limits, output
from deploy.installation import Installation
from deploy.lines import ATTRIBUTE, decode_line
from deploy.noted_messages import noted
from deploy.queue_clients import open_queue, queue_url, sqs_client

if TYPE_CHECKING:
    from penstock_client import Queue


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    with noted(installation, "receive", options.queue) as noting:
        queue_url(installation, sqs_client(installation), options.queue, create=False)
        with output.progress_bar() as bar:
            task = bar.add_task(f"receiving from {options.queue}", total=options.max)

            def received(messages: int) -> None:
                noting.add(messages)
                bar.advance(task, messages)

            async def receive() -> int:
                async with open_queue(installation, options.queue) as queue:
                    return await receive_all(queue, sys.stdout.buffer, options.max, options.idle, received)

            count = asyncio.run(receive())
    output.say(f"received {output.counted(count, 'message')} from {options.queue}")
    return 0


async def receive_all(
    queue: Queue, lines: BinaryIO, most: int | None, idle_s: float, received: Callable[[int], None]
) -> int:
    """How many lines were written. They are written out completely before their messages are deleted."""
    count = 0
    async for batch in queue.receive(prefetch=limits.RECEIVE_PREFETCH, limit=most, idle_s=idle_s):
        text = b"".join(decode_line(one.body, one.attributes.get(ATTRIBUTE)) + b"\n" for one in batch)
        await asyncio.to_thread(_write, lines, text)
        await batch.ack()
        received(len(batch))
        count += len(batch)
    return count


def _write(lines: BinaryIO, text: bytes) -> None:
    lines.write(text)
    lines.flush()
