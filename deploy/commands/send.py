"""`send QUEUE < file`: each line of stdin becomes a message. Ends with an error unless every line was acknowledged."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from deploy import limits, output, sqs_client
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.lines import batches, read_lines

RETRY_DELAY_S = 0.2


def run(options: argparse.Namespace) -> int:
    client = sqs_client.connect(Installation(options.data_dir))
    url = sqs_client.queue_url(client, options.queue, create=True)
    began = time.monotonic()
    feed = Feed(batches(read_lines(sys.stdin.buffer)))
    with output.progress_bar() as bar, ThreadPoolExecutor(limits.BATCHES_IN_FLIGHT) as pool:
        task = bar.add_task(f"sending to {options.queue}", total=None)

        def sent(count: int) -> None:
            bar.advance(task, count)

        senders = [pool.submit(send_all, client, url, feed, sent) for _ in range(limits.BATCHES_IN_FLIGHT)]
        try:
            count = sum(sender.result() for sender in as_completed(senders))
        finally:
            feed.stop()  # after a failure or Ctrl-C the other senders end with the batch they are at
    output.say(f"sent {count} messages to {options.queue} in {time.monotonic() - began:.1f} s")
    return 0


class Feed:
    """One reader of stdin for all senders: a generator may be advanced by one thread at a time only."""

    def __init__(self, work: Iterator[list[dict[str, Any]]]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._stopped = False

    def take(self) -> list[dict[str, Any]] | None:
        with self._lock:
            return None if self._stopped else next(self._work, None)

    def stop(self) -> None:
        self._stopped = True


def send_all(client: Any, url: str, feed: Feed, sent: Callable[[int], None]) -> int:
    """Take batches until there are none; how many messages were acknowledged."""
    count = 0
    while (entries := feed.take()) is not None:
        batch_count = len(entries)
        send_batch(client, url, entries)
        sent(batch_count)
        count += batch_count
    return count


def send_batch(client: Any, url: str, entries: list[dict[str, Any]]) -> None:
    """Send until every entry was acknowledged; what failed for a reason of the service's is sent again."""
    from botocore.exceptions import BotoCoreError, ClientError

    for attempt in range(limits.SEND_ATTEMPTS_MAX):
        if attempt:
            time.sleep(RETRY_DELAY_S * 2**attempt)
        try:
            answer = client.send_message_batch(QueueUrl=url, Entries=entries)
        except (ClientError, BotoCoreError) as error:
            raise CommandError(f"sending failed: {error}. What was counted as sent is stored.") from None
        failed = {item["Id"]: item for item in answer.get("Failed", [])}
        refused = [item for item in failed.values() if item["SenderFault"]]
        if refused:
            raise CommandError(f"a line was refused: {refused[0]['Code']} {refused[0].get('Message', '')}")
        entries = [entry for entry in entries if entry["Id"] in failed]
        if not entries:
            return
    raise CommandError(f"{len(entries)} messages were refused {limits.SEND_ATTEMPTS_MAX} times; see ./penstock status")
