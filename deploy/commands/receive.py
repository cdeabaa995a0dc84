"""`receive QUEUE`: each message becomes a line on stdout and is then deleted, so a crash may show a line twice, never
lose one. Ends when the queue was empty for --idle seconds, or after --max messages.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from deploy import limits, output, sqs_client
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.lines import ATTRIBUTE, decode_message


class Drain:
    """What the receiving threads share: how much is still wanted, when something last came, and the output."""

    def __init__(self, wanted: int | None, idle_s: float) -> None:
        self.count = 0
        self._wanted = wanted
        self._idle_s = idle_s
        self._last = time.monotonic()
        self._lock = threading.Lock()
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def reserve(self) -> int:
        """How many messages to ask for now; 0 = done."""
        with self._lock:
            if self._stopped or time.monotonic() - self._last > self._idle_s:
                return 0
            count = limits.BATCH_MESSAGES if self._wanted is None else min(limits.BATCH_MESSAGES, self._wanted)
            if self._wanted is not None:
                self._wanted -= count
            return count

    def write(self, messages: list[dict[str, Any]], reserved: int) -> None:
        """Write the lines out completely before anybody deletes their messages."""
        lines = b"".join(decode_message(message) + b"\n" for message in messages)
        with self._lock:
            if self._wanted is not None:
                self._wanted += reserved - len(messages)
            if messages:
                sys.stdout.buffer.write(lines)
                sys.stdout.buffer.flush()
                self._last = time.monotonic()
                self.count += len(messages)


def run(options: argparse.Namespace) -> int:
    client = sqs_client.connect(Installation(options.data_dir))
    url = sqs_client.queue_url(client, options.queue, create=False)
    drain = Drain(options.max, options.idle)
    with output.progress_bar() as bar, ThreadPoolExecutor(limits.BATCHES_IN_FLIGHT) as pool:
        task = bar.add_task(f"receiving from {options.queue}", total=options.max)

        def received(count: int) -> None:
            bar.advance(task, count)

        threads = [pool.submit(receive_all, client, url, drain, received) for _ in range(limits.BATCHES_IN_FLIGHT)]
        try:
            for thread in as_completed(threads):
                thread.result()
        finally:
            drain.stop()  # after a failure or Ctrl-C the other threads end with the batch they are at
    output.say(f"received {drain.count} messages from {options.queue}")
    return 0


def receive_all(client: Any, url: str, drain: Drain, received: Callable[[int], None]) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    while reserved := drain.reserve():
        try:
            answer = client.receive_message(
                QueueUrl=url, MaxNumberOfMessages=reserved, WaitTimeSeconds=1, MessageAttributeNames=[ATTRIBUTE]
            )
            messages = answer.get("Messages", [])
            drain.write(messages, reserved)
            delete_batch(client, url, messages)
        except (ClientError, BotoCoreError) as error:
            raise CommandError(f"receiving failed: {error}") from None
        received(len(messages))


def delete_batch(client: Any, url: str, messages: list[dict[str, Any]]) -> None:
    """Delete what was written; what the service could not delete now is tried again, then reported."""
    entries = [{"Id": str(i), "ReceiptHandle": message["ReceiptHandle"]} for i, message in enumerate(messages)]
    for _ in range(limits.SEND_ATTEMPTS_MAX):
        if not entries:
            return
        answer = client.delete_message_batch(QueueUrl=url, Entries=entries)
        failed = {item["Id"] for item in answer.get("Failed", [])}
        entries = [entry for entry in entries if entry["Id"] in failed]
    if entries:
        raise CommandError(f"{len(entries)} messages were written but could not be deleted: they will come again")
