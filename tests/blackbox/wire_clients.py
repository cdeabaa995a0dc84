"""Clients of the SQS wire, each with connections of its own to one front end: one attempt a call, all of it noted."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from tests.blackbox.raw_http import LOST, Answer
from tests.blackbox.signed_sqs import SqsEndpoint
from tests.blackbox.wire_history import Outcome, Received, Sent, Settled, WireHistory

PAUSE_S = 0.2
BATCH = 10
GROUPS = 16
WAIT_S = 2
CALL_S_MAX = 40.0
LARGE_BYTES = (100_000, 240_000)
LARGE_PART = 0.03
POISON = "poison"
LETTERS = "letters"
# Of receives, each with those before: messages are forgotten, handed back, kept for longer and deleted late.
FORGOTTEN_PART, HANDED_BACK_PART, KEPT_PART = 0.03, 0.08, 0.12


def outcome_of(answer: Answer) -> Outcome:
    if answer.status == 200:
        return Outcome.OK
    return Outcome.REFUSED if LOST != answer.status < 500 else Outcome.UNKNOWN


class WireClient:
    def __init__(self, endpoint: SqsEndpoint, queue: str, history: WireHistory, seed: int) -> None:
        self._endpoint, self._queue, self._history = endpoint, queue, history
        self._random = random.Random(seed)
        self._url = endpoint.queue_url(queue)

    async def call(self, action: str, **params: Any) -> Answer:
        return await self._endpoint.sqs(action, {"QueueUrl": self._url, **params}, CALL_S_MAX)


class Producer(WireClient):
    """Sends batches until it is told to stop. Of a FIFO queue it alone sends to its groups, one message of each at a
    time, and repeats what it does not know of until it does, as the deduplication id allows."""

    def __init__(
        self,
        endpoint: SqsEndpoint,
        queue: str,
        history: WireHistory,
        seed: int,
        pause_s: float,
        poison_part: float = 0.0,
    ) -> None:
        super().__init__(endpoint, queue, history, seed)
        self._pause_s, self._poison_part = pause_s, poison_part
        self._name = f"p{seed}"
        self._count = 0
        self._numbers: dict[str, int] = {}

    async def run(self, stopped: asyncio.Event) -> None:
        is_fifo = self._queue.endswith(".fifo")
        while not stopped.is_set():
            groups = self._random.sample(range(GROUPS), BATCH)
            entries = [self._entry(place, groups[place] if is_fifo else -1) for place in range(BATCH)]
            while entries:
                entries = await self._send(entries, is_fifo)
                if entries:
                    await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(self._pause_s)

    def _entry(self, place: int, group_number: int) -> dict[str, Any]:
        self._count += 1
        key = f"{self._name}-{self._count}"
        if self._random.random() < self._poison_part:
            key = f"{POISON}-{key}"
        padding = "x" * (self._random.randint(*LARGE_BYTES) if self._random.random() < LARGE_PART else 0)
        entry: dict[str, Any] = {"Id": str(place), "MessageBody": f"{key} {padding}"}
        if group_number >= 0:
            group = f"{self._name}-g{group_number}"
            number = self._numbers.get(group, 0)
            self._numbers[group] = number + 1
            entry |= {"MessageGroupId": group, "MessageDeduplicationId": key, "number": number}
        return entry

    async def _send(self, entries: list[dict[str, Any]], is_fifo: bool) -> list[dict[str, Any]]:
        """Those that are to be sent again: of a FIFO queue all from the first one on that is not known to be stored."""
        batch, rest = _within_a_call(entries)
        plain = [{name: field for name, field in entry.items() if name != "number"} for entry in batch]
        answer = await self.call("SendMessageBatch", Entries=plain)
        whole = outcome_of(answer)
        failed: dict[str, Outcome] = {}
        if whole is Outcome.OK:
            for row in answer.json().get("Failed", []):
                failed[row["Id"]] = Outcome.REFUSED if row["SenderFault"] else Outcome.UNKNOWN
        again: list[dict[str, Any]] = []
        for entry in batch:
            outcome = failed.get(entry["Id"], Outcome.OK) if whole is Outcome.OK else whole
            if is_fifo and outcome is not Outcome.OK:
                again.append(entry)
            key = entry["MessageBody"].split(" ")[0]
            fifo = (entry["MessageGroupId"], entry["number"]) if is_fifo else ("", 0)
            self._history.sent.append(Sent(self._queue, key, answer.began_s, answer.ended_s, outcome, *fifo))
        if is_fifo:
            return again + rest
        return rest


def _within_a_call(entries: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A batch has at most 1 MiB in all. What goes first, and the rest."""
    size = 0
    for count, entry in enumerate(entries):
        size += len(entry["MessageBody"]) + 1_000
        if size > 1_000_000:
            return entries[:count], entries[count:]
    return entries, []


class Consumer(WireClient):
    """Receives and deletes until it is told to stop, and until nothing is left where it drains. Some messages it hands
    back, some it keeps for longer and says so, some it forgets. Poison it deletes among the dead letters only."""

    def __init__(
        self, endpoint: SqsEndpoint, queue: str, history: WireHistory, seed: int, visibility_s: int, is_moody: bool
    ) -> None:
        super().__init__(endpoint, queue, history, seed)
        self._visibility_s, self.is_moody = visibility_s, is_moody
        self.slow_s = 0.0  # so long it works on what it received
        self.last_found_s = time.monotonic()

    async def run(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            if not await self._consume():
                await asyncio.sleep(PAUSE_S)

    async def _consume(self) -> bool:
        asked = {"MaxNumberOfMessages": BATCH, "WaitTimeSeconds": WAIT_S, "VisibilityTimeout": self._visibility_s}
        answer = await self.call("ReceiveMessage", **asked)
        if answer.status != 200:
            return False
        messages = answer.json().get("Messages", [])
        number = self._history.next_answer()
        for place, message in enumerate(messages):
            key = message["Body"].split(" ")[0]
            times = (answer.began_s, answer.ended_s, float(self._visibility_s))
            self._history.received.append(Received(self._queue, key, message["MessageId"], *times, number, place))
        if not messages:
            return True
        self.last_found_s = time.monotonic()
        await asyncio.sleep(self.slow_s)
        await self._settle([(message["Body"].split(" ")[0], message["ReceiptHandle"]) for message in messages])
        return True

    async def _settle(self, messages: list[tuple[str, str]]) -> None:
        keeps_all = self._queue == LETTERS
        kept = [message for message in messages if keeps_all or not message[0].startswith(POISON)]
        mood = self._random.random() if self.is_moody else 1.0
        if mood < FORGOTTEN_PART:
            return  # they come back when their visibility is over
        if mood < HANDED_BACK_PART:
            await self._change(kept, 0)
            return
        if mood < KEPT_PART:
            await self._change(kept, 2 * self._visibility_s)
            await asyncio.sleep(self._visibility_s)
        await self._delete(kept)

    async def _change(self, messages: list[tuple[str, str]], visibility_s: int) -> None:
        await self._batch(messages, "ChangeMessageVisibilityBatch", float(visibility_s), VisibilityTimeout=visibility_s)

    async def _delete(self, messages: list[tuple[str, str]]) -> None:
        await self._batch(messages, "DeleteMessageBatch", -1.0)

    async def _batch(self, messages: list[tuple[str, str]], action: str, visibility_s: float, **more: Any) -> None:
        if not messages:
            return
        entries = [{"Id": str(place), "ReceiptHandle": receipt, **more} for place, (_, receipt) in enumerate(messages)]
        answer = await self.call(action, Entries=entries)
        whole = outcome_of(answer)
        failed = {row["Id"]: row for row in answer.json().get("Failed", [])} if whole is Outcome.OK else {}
        for place, (key, _) in enumerate(messages):
            outcome = whole
            if str(place) in failed:
                outcome = Outcome.REFUSED if failed[str(place)]["SenderFault"] else Outcome.UNKNOWN
            times = (answer.began_s, answer.ended_s)
            self._history.settled.append(Settled(self._queue, key, *times, outcome, visibility_s))
