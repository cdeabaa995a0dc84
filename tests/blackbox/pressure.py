"""Nemesis of the trial `wire`: little memory at one storage node that leads queues, then at another.

Others hold its memory budget for a while (docs/backpressure.md), its disk is slow, producers send large messages,
consumers are slow. The node has to refuse (OVERLOADED with a pause, and the front end 503 with Retry-After where that
lasts longer than its own deadline), peers are asked not to feed it; nobody is killed and nothing is lost.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from tests.blackbox.raw_http import Answer, Endpoint
from tests.blackbox.signed_sqs import SqsEndpoint
from tests.blackbox.stage import Stage
from tests.blackbox.wire_clients import LARGE_BYTES, Consumer, Producer
from tests.blackbox.wire_history import WireHistory

SYNC_S = 0.2
# Of each share, and for how long. The first node has no room for longer than a front end repeats a call that is refused
# (CALL_TIMEOUT_S), the other one half a MiB for sends for a shorter time.
PRESSED = ((1.0, 18.0), (0.99, 6.0))
SHORT_PRESSED = ((1.0, 3.0), (0.99, 3.0))
SLOW_S = 1.0
QUEUES = ("standard", "standard", "standard", "fifo.fifo", "fifo.fifo")
PAUSE_S = 0.02
REFUSALS = "penstock_node_requests_refused_for_room_total"


class LargeProducer(Producer):
    """All of its messages are large."""

    unavailable = 0  # answers of 503 that say when to come again

    def _entry(self, place: int, group_number: int) -> dict[str, Any]:
        entry = super()._entry(place, group_number)
        key = entry["MessageBody"].split(" ")[0]
        return entry | {"MessageBody": f"{key} {'x' * self._random.randint(*LARGE_BYTES)}"}

    async def call(self, action: str, **params: Any) -> Answer:
        answer = await super().call(action, **params)
        self.unavailable += answer.status == 503 and "retry-after" in answer.headers
        return answer


class Pressure:
    """Counts what it came to over a trial."""

    def __init__(
        self,
        stage: Stage,
        endpoint: Callable[[int], SqsEndpoint],
        history: WireHistory,
        consumers: Sequence[Consumer],
        first_seed: int,
        is_short: bool,
    ) -> None:
        self._stage, self._endpoint, self._history, self._consumers = stage, endpoint, history, consumers
        self._seed = first_seed
        self._pressed = SHORT_PRESSED if is_short else PRESSED
        self.refused = 0  # by nodes, for want of memory
        self.unavailable = 0
        self.never_bit: list[str] = []

    async def press(self, chance: random.Random) -> None:
        leaders = await self._leaders()
        chance.shuffle(leaders)
        before = self.refused
        for node, (part, seconds) in zip(leaders, self._pressed, strict=False):
            await self._press_one(node, part, seconds)
        if self.refused == before:
            self.never_bit.append(f"nodes {leaders} refused nothing with little memory")

    async def _press_one(self, node: int, part: float, seconds: float) -> None:
        before = await self._refusals(node)
        stopped = asyncio.Event()
        producers = [self._producer(queue) for queue in QUEUES]
        for one in self._consumers:
            one.slow_s = SLOW_S
        tasks = [asyncio.create_task(producer.run(stopped)) for producer in producers]
        harm = self._stage.harm.nodes[node]
        harm.memory_is_held(part)
        harm.syncs_take(SYNC_S)
        try:
            await asyncio.sleep(seconds)
        finally:
            harm.memory_is_held(0.0)
            harm.syncs_take(0.0)
            stopped.set()
            for one in self._consumers:
                one.slow_s = 0.0
        await asyncio.gather(*tasks)
        self.refused += await self._refusals(node) - before
        self.unavailable += sum(producer.unavailable for producer in producers)

    def _producer(self, queue: str) -> LargeProducer:
        self._seed += 1
        return LargeProducer(self._endpoint(self._seed), queue, self._history, self._seed, PAUSE_S)

    async def _leaders(self) -> list[int]:
        """Nodes that lead the queues that are sent to."""
        found = [await self._stage.endpoint().call("GET", f"/v1/queues/{name}") for name in set(QUEUES)]
        tags = {f"queue:{UUID(answer.json()['queue_id']).hex}:0" for answer in found}
        status = await asyncio.to_thread(self._stage.installation.status)
        return sorted({int(row["leader"]) for row in status["partitions"] if row["tag"] in tags and row["leader"]})

    async def _refusals(self, node: int) -> int:
        state = json.loads((self._stage.installation.data / "run" / "state.json").read_text())
        answer = await Endpoint(state["ports"][f"node-{node}-metrics"], "").call("GET", "/metrics")
        found = re.search(rf"^{REFUSALS} ([0-9.e+]+)$", answer.body.decode(), re.MULTILINE)
        return int(float(found[1])) if found else 0
