"""Clients of the usage proof: each sends, receives and deletes on its own queue, one attempt each, and notes all.

An answer of 200 is certain, a refusal of the 4xx kind and a connection that was refused are, too. All else is unknown:
what was asked for may have happened.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any, NamedTuple

import httpx2

from tests.blackbox.usage_ledger import DELETED, DELIVERED, UsageLedger, size_counts

BATCH = 10
RECEIVED_MAX = 10
PAUSE_S = 0.1
TIMEOUT_S = 20.0
BODY_BYTES = (10, 3_000)
LARGE_BYTES = 70_000
LARGE_PART = 0.02
VISIBILITY_S = 600


class ClientQueue(NamedTuple):
    account: str
    name: str
    token: str
    endpoint: str

    @property
    def is_fifo(self) -> bool:
        return self.name.endswith(".fifo")


class UsageClient:
    """Runs in a thread of its own until `operations` messages were sent, and what it can receive was deleted; with
    `leaves_some` the last ones stay."""

    def __init__(
        self,
        queue: ClientQueue,
        ledger: UsageLedger,
        operations: int,
        seed: int,
        lasts_s: float = 0.0,
        leaves_some: bool = False,
    ) -> None:
        self._leaves_some = leaves_some
        self._queue, self._ledger, self._left = queue, ledger, operations
        # Between batches, so that a short load goes on for as long as there is harm to be done.
        self._pause_s = lasts_s * BATCH / operations
        self._random = random.Random(seed)
        self._number = 0
        self._http = httpx2.Client(
            base_url=queue.endpoint, headers={"Authorization": f"Bearer {queue.token}"}, timeout=TIMEOUT_S
        )
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=f"usage-{queue.name}", daemon=True)

    def _run(self) -> None:
        try:
            while self._left > 0:
                self._send()
                if not self._leaves_some or self._left > 0:
                    self._consume()
                time.sleep(self._pause_s)
            for _ in range(0 if self._leaves_some else 3):
                while self._consume():
                    pass
        except BaseException as error:
            self.failure = error
        finally:
            self._http.close()

    def _send(self) -> None:
        bodies = [self._body() for _ in range(min(BATCH, self._left))]
        messages = [self._message(body) for body in bodies]
        said, why = self._call("", {"messages": messages})
        if said is None:
            if why:
                self._ledger.doubt(self._queue.account, self._queue.name, f"send: {why}", **size_counts(bodies))
                self._left -= len(bodies)
            return
        outcomes = said["messages"]
        taken = [body for body, outcome in zip(bodies, outcomes, strict=True) if "id" in outcome]
        doubted = [
            body
            for body, outcome in zip(bodies, outcomes, strict=True)
            if "id" not in outcome and not outcome.get("sender_fault", False)
        ]
        if taken:
            self._ledger.know(self._queue.account, self._queue.name, **size_counts(taken))
        if doubted:
            self._ledger.doubt(self._queue.account, self._queue.name, "send: entry", **size_counts(doubted))
        self._left -= len(bodies)

    def _consume(self) -> bool:
        """Receives and deletes once. Was there anything?"""
        asked = {"max_messages": RECEIVED_MAX, "visibility_seconds": VISIBILITY_S}
        said, why = self._call("/receive", asked)
        account, name = self._queue.account, self._queue.name
        if said is None:
            if why:
                self._ledger.doubt(account, name, f"receive: {why}", **{DELIVERED: RECEIVED_MAX})
            return bool(why)
        receipts = [message["receipt"] for message in said["messages"]]
        if not receipts:
            return False
        self._ledger.know(account, name, **{DELIVERED: len(receipts)})
        if not self._queue.is_fifo:
            self._ledger.leased(account, name, len(receipts), time.monotonic())
        done, why = self._call("/ack", {"receipts": receipts})
        if done is not None:
            self._ledger.know(account, name, **{DELETED: done["done"]})
        elif why:
            self._ledger.doubt(account, name, f"delete: {why}", **{DELETED: len(receipts)})
        return True

    def _call(self, path: str, asked: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """The answer of a call that was done; else why its outcome is unknown: empty where nothing happened."""
        try:
            answer = self._http.post(f"/v1/queues/{self._queue.name}/messages{path}", json=asked)
        except httpx2.ConnectError:
            time.sleep(PAUSE_S)
            return None, ""
        except httpx2.HTTPError as error:
            time.sleep(PAUSE_S)
            return None, type(error).__name__
        if answer.status_code == 200:
            return answer.json(), ""
        time.sleep(PAUSE_S)
        return None, "" if answer.status_code < 500 else f"{answer.status_code} {answer.text[:120]}"

    def _body(self) -> str:
        size = LARGE_BYTES if self._random.random() < LARGE_PART else self._random.randint(*BODY_BYTES)
        return "x" * size

    def _message(self, body: str) -> dict[str, Any]:
        if not self._queue.is_fifo:
            return {"body": body}
        self._number += 1
        return {"body": body, "group": f"g{self._number % 7}", "deduplication_id": f"d{self._number}"}
