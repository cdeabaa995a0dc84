"""docs/guarantees.md, each promise as its producer and consumer would have it, with a crash at the worst moment."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from typing import Any

import pytest

from tests.e2e.test_fifo_and_dead_letters import new_queue
from tests.support.installation import RunningInstallation

pytestmark = pytest.mark.slow
ORDERS = [f"order {number}" for number in range(8)]


class Crash(Exception):
    """The consumer dies here."""


def leases(sqs: Any, url: str, idle_s: float = 3.0) -> Any:
    """Messages one at a time, until none has come for a while."""
    until_s = time.monotonic() + idle_s
    while time.monotonic() < until_s:
        answer = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1, VisibilityTimeout=1)
        for message in answer.get("Messages", []):
            until_s = time.monotonic() + idle_s
            yield message


def test_at_most_once_deletes_before_it_works(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    url = new_queue(sqs)
    for body in ORDERS:
        sqs.send_message(QueueUrl=url, MessageBody=body)
    done: Counter[str] = Counter()
    for message in leases(sqs, url):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        if message["Body"] != ORDERS[3]:  # there the consumer crashed after the delete
            done[message["Body"]] += 1
    assert done == Counter(ORDERS[:3] + ORDERS[4:])


def test_at_least_once_deletes_after_it_worked(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    url = new_queue(sqs)
    for body in ORDERS:
        sqs.send_message(QueueUrl=url, MessageBody=body)
    done: Counter[str] = Counter()
    for message in leases(sqs, url):
        done[message["Body"]] += 1
        if message["Body"] == ORDERS[3] and done[ORDERS[3]] == 1:
            continue  # the consumer crashed before the delete
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert done == Counter([*ORDERS, ORDERS[3]])


def test_exactly_once_names_each_message_and_notes_what_is_done(installation: RunningInstallation) -> None:
    sqs = installation.sqs()
    url = new_queue(sqs, ".fifo")
    for number, body in enumerate(ORDERS):
        params = {"MessageGroupId": f"g{number % 2}", "MessageDeduplicationId": f"order-{number}"}
        sqs.send_message(QueueUrl=url, MessageBody=body, **params)
        if number % 3 == 0:  # the producer did not see the answer
            sqs.send_message(QueueUrl=url, MessageBody=body, **params)
    books = sqlite3.connect(":memory:")
    books.execute("CREATE TABLE done (message_id TEXT PRIMARY KEY, body TEXT)")
    crashed = []
    for message in leases(sqs, url):
        try:
            unlucky = message["Body"] in (ORDERS[2], ORDERS[5]) and message["Body"] not in crashed
            work_once(books, message, crash=unlucky)
        except Crash:
            crashed.append(message["Body"])
            continue
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert sorted(crashed) == [ORDERS[2], ORDERS[5]]
    rows = [body for (body,) in books.execute("SELECT body FROM done ORDER BY rowid")]
    assert sorted(rows) == ORDERS
    for parity in (0, 1):
        of_group = [body for body in rows if int(body.split()[1]) % 2 == parity]
        assert of_group == ORDERS[parity::2], "in the order of the group"


def work_once(books: sqlite3.Connection, message: Any, crash: bool) -> None:
    """The work and the note that it is done are one transaction of the consumer's own store."""
    with books:
        note = "INSERT INTO done VALUES (?, ?) ON CONFLICT DO NOTHING"
        books.execute(note, (message["MessageId"], message["Body"]))
    if crash:
        raise Crash
