"""docs/guarantees.md, each promise as its producer and consumer would have it, with a crash at the worst moment."""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections import Counter
from typing import Any

import httpx2
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.e2e.consumers import in_parallel
from tests.e2e.test_fifo_and_dead_letters import new_queue
from tests.support.installation import RunningInstallation, wait_until

pytestmark = pytest.mark.slow
ORDERS = [f"order {number}" for number in range(8)]


class Crash(Exception):
    """The consumer dies here."""


def leases(sqs: Any, url: str, idle_s: float = 2.0, visibility_s: int = 1, most: int = 1) -> Any:
    """Messages one after the other, until none has come for a while."""
    for message, _ in timed_leases(sqs, url, idle_s, visibility_s, most):
        yield message


def timed_leases(sqs: Any, url: str, idle_s: float, visibility_s: int, most: int = 1) -> Any:
    """Each with a time at which its lease had surely not ended (monotonic)."""
    until_s = time.monotonic() + idle_s
    asked = {"WaitTimeSeconds": 1, "VisibilityTimeout": visibility_s, "MaxNumberOfMessages": most}
    while (began_s := time.monotonic()) < until_s:
        answer = sqs.receive_message(QueueUrl=url, **asked)
        for message in answer.get("Messages", []):
            until_s = time.monotonic() + idle_s
            yield message, began_s + visibility_s


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


def test_at_most_once_is_not_sent_again_when_the_leader_dies(installation: RunningInstallation) -> None:
    """Acks `none`, each message sent once, by several producers, while the node that takes them is killed.

    What it held in memory may be gone; nothing is there twice; what was answered after it is all there.
    """
    sqs = installation.sqs()
    url = new_queue(sqs, **{"Penstock.Acks": "none"})
    path = f"/v1/queues/{url.rpartition('/')[2]}/messages"
    leader, epoch = leader_of_newest(installation)
    answered: dict[str, set[str]] = {"before": set(), "after": set()}
    refused: set[str] = set()
    phase = ["before"]

    def produce(producer: int) -> None:
        with installation.rest() as rest:
            for number in range(2_000):
                body, now = f"{producer} {number}", phase[0]
                try:
                    ok = rest.post(path, json={"messages": [{"body": body}]}).status_code == 200
                except httpx2.HTTPError:
                    ok = False
                (answered[now] if ok else refused).add(body)
                if now == "after" and number % 100 == 99:
                    return
                time.sleep(0.0 if ok else 0.1)

    def kill(_: int) -> None:
        try:
            wait_until(lambda: len(answered["before"]) >= 300, 30, 0.001)
            installation.kill("storage-node", leader)
            wait_until(lambda: leader_of_newest(installation)[1] > epoch, 30, 0.2)
        finally:
            phase[0] = "after"  # the producers end

    in_parallel(lambda work: work[0](work[1]), [(kill, 0), *((produce, number) for number in range(1, 5))])
    assert answered["before"] and answered["after"] and leader_of_newest(installation)[1] > epoch
    done: Counter[str] = Counter()
    for message in leases(sqs, url, visibility_s=30, most=10):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        done[message["Body"]] += 1
    assert set(done.values()) == {1}, [body for body, count in done.items() if count > 1]
    assert answered["after"] <= set(done) <= answered["before"] | answered["after"] | refused
    installation.wait_healthy()


def test_at_most_once_works_once_at_most_when_the_leader_of_a_fifo_queue_dies(
    installation: RunningInstallation,
) -> None:
    """The consumer deletes, waits for the answer, and works where its lease held; the node that leases to it is killed
    in between."""
    sqs = installation.sqs()
    url = new_queue(sqs, ".fifo", ContentBasedDeduplication="true", VisibilityTimeout="2")
    bodies = [f"order {number}" for number in range(60)]
    for at in range(0, len(bodies), 10):
        entries = [{"Id": str(n), "MessageBody": bodies[at + n], "MessageGroupId": f"g{n}"} for n in range(10)]
        assert not sqs.send_message_batch(QueueUrl=url, Entries=entries).get("Failed")
    leader, epoch = leader_of_newest(installation)
    done: Counter[str] = Counter()
    refused: set[str] = set()
    received = 0
    for message, held_until_s in timed_leases(sqs, url, idle_s=6.0, visibility_s=2):
        received += 1
        if received == 20:
            installation.kill("storage-node", leader)  # while this message is held
        try:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        except (BotoCoreError, ClientError):
            refused.add(message["Body"])
            continue
        if time.monotonic() >= held_until_s:
            refused.add(message["Body"])
            continue
        done[message["Body"]] += 1
    assert leader_of_newest(installation)[1] > epoch, "the kill hit no leader: the test proved nothing"
    assert set(done.values()) == {1}, "nothing is worked on twice"
    assert set(bodies) - set(done) <= refused, "what was not worked on was deleted without an answer"
    installation.wait_healthy()


def test_delete_that_is_answered_after_the_lease_gives_no_right_to_work(installation: RunningInstallation) -> None:
    """Of a message that is gone each delete is answered as done, as SQS does: who had it last cannot be told then."""
    sqs = installation.sqs()
    url = new_queue(sqs, ".fifo", ContentBasedDeduplication="true", VisibilityTimeout="5")
    sqs.send_message(QueueUrl=url, MessageBody="pay once", MessageGroupId="g")
    (first, first_until_s), (second, second_until_s) = itertools.islice(timed_leases(sqs, url, 20.0, 5), 2)
    assert first["MessageId"] == second["MessageId"]
    with pytest.raises(ClientError, match="expired"):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    works = []
    for who, message, until_s in (("second", second, second_until_s), ("first", first, first_until_s)):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        works += [who] if time.monotonic() < until_s else []
    assert works == ["second"]


def leader_of_newest(installation: RunningInstallation) -> tuple[int, int]:
    """(node, epoch) of the partition that was made last."""
    newest = max(installation.status()["partitions"], key=lambda row: row["partition"])
    return newest["leader"], newest["epoch"]


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
