"""What happens to queues in the usage proof: some are deleted while they hold messages, and the partitions of a FIFO
queue are replaced, all of it while others are killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx2

from tests.blackbox.usage_clients import ClientQueue, UsageClient
from tests.blackbox.usage_ledger import UsageLedger
from tests.support.installation import RunningInstallation, wait_until

DELETED_QUEUES = 4
DELETED_OPERATIONS = 40
SPREAD_QUEUE = "spread.fifo"
CALL_S_MAX = 90.0
PAUSE_S = 0.2
# The sets of partitions that were replaced go once their deduplication ids count no more.
WINDOW_S = 5
GONE_S_MAX = 180.0


class DeletedQueues:
    """One after the other is made, used for a moment, and deleted at once with what is left in it; in a thread."""

    def __init__(self, like: ClientQueue, ledger: UsageLedger, seed: int) -> None:
        self._like, self._ledger, self._seed = like, ledger, seed
        self.names: dict[str, tuple[str, str]] = {}  # (account, queue) of each queue's UUID
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="usage-deleted", daemon=True)

    def _run(self) -> None:
        try:
            for number in range(DELETED_QUEUES):
                self._use_one(number)
        except BaseException as error:
            self.failure = error

    def _use_one(self, number: int) -> None:
        queue = self._like._replace(name=f"gone-{number}" + (".fifo" if number % 2 else ""))
        known: dict[str, Any] = ask_until(
            lambda: request(queue, "POST", "/v1/queues", json={"name": queue.name}), (200, 201, 409)
        ).json()
        if "queue_id" not in known:
            known = ask_until(lambda: request(queue, "GET", f"/v1/queues/{queue.name}"), (200,)).json()
        self.names[known["queue_id"]] = (queue.account, queue.name)
        client = UsageClient(queue, self._ledger, DELETED_OPERATIONS, self._seed + number, leaves_some=True)
        client.thread.start()
        client.thread.join()
        if client.failure is not None:
            raise client.failure
        ask_until(lambda: request(queue, "DELETE", f"/v1/queues/{queue.name}"), (200, 202, 204, 404))


def make_spread_queue(key: dict[str, Any], like: ClientQueue) -> ClientQueue:
    """A FIFO queue that remembers deduplication ids for a short time, so that replaced partitions go soon."""
    attributes = {"Penstock.Partitions": "1", "Penstock.DeduplicationWindow": str(WINDOW_S)}
    fast = {"FifoQueue": "true", "FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
    _sqs(key).create_queue(QueueName=SPREAD_QUEUE, Attributes={**fast, **attributes})
    return like._replace(name=SPREAD_QUEUE)


def replace_partitions(queue: ClientQueue) -> None:
    """Its partition gives way to three others."""
    ask_until(lambda: request(queue, "PATCH", f"/v1/queues/{queue.name}", json={"partitions": 3}), (200, 202))


def wait_gone(installation: RunningInstallation, queue_ids: list[str], spread_id: str) -> None:
    """No partition of these queues is left, and none of the one that was replaced."""
    gone = [f"queue:{queue_id.replace('-', '')}:" for queue_id in queue_ids]
    gone.append(f"queue:{spread_id.replace('-', '')}:0")

    def is_gone() -> bool:
        tags = [row["tag"] for row in installation.status()["partitions"]]
        return not any(tag.startswith(start) for tag in tags for start in gone)

    wait_until(is_gone, GONE_S_MAX, 0.5)


def request(queue: ClientQueue, method: str, path: str, **given: Any) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {queue.token}"}
    return httpx2.request(method, f"{queue.endpoint}{path}", headers=headers, timeout=30, **given)


def ask_until(ask: Callable[[], httpx2.Response], taken: tuple[int, ...]) -> httpx2.Response:
    """While others are killed, calls on queues are made again until they are taken."""
    ends_s = time.monotonic() + CALL_S_MAX
    while True:
        try:
            answer = ask()
            if answer.status_code in taken:
                return answer
            assert time.monotonic() < ends_s, answer.text
        except httpx2.HTTPError:
            assert time.monotonic() < ends_s, "no answer"
        time.sleep(PAUSE_S)


def _sqs(key: dict[str, Any]) -> Any:
    import boto3

    return boto3.client(
        "sqs",
        endpoint_url=key["endpoint"],
        region_name=key["region"],
        aws_access_key_id=key["access_key_id"],
        aws_secret_access_key=key["secret_access_key"],
    )
