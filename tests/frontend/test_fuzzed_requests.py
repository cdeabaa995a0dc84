"""Requests that nobody would send, to every data route and SQS action: answered in the form of the protocol, never with
a 500. tests/api/test_fuzzed_requests.py asks the control plane; the trial `fuzz` a whole installation."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any

import httpx2

from tests.blackbox.fuzz_inputs import Inputs
from tests.blackbox.fuzzing import why_odd
from tests.blackbox.raw_http import Answer
from tests.frontend.compat.control import ControlPlaneInMemory
from tests.support.frontend_plane import HOST, Installation

REQUESTS = int(os.environ.get("PENSTOCK_FUZZED_REQUESTS", "1500"))
SEED = int(os.environ.get("PENSTOCK_FUZZED_SEED", "1"))
ANSWER_S_MAX = 10.0


async def test_request_of_any_kind_is_answered(front: Installation) -> None:
    queues = ControlPlaneInMemory(front)

    def answer(request: httpx2.Request) -> httpx2.Response:
        """What is not about queues is taken note of."""
        about_queues = hasattr(queues, "_" + request.url.path.rpartition("/")[2])
        return queues.answer(request) if about_queues else httpx2.Response(200, json={})

    front.control_answer = answer
    front.plane.drain()  # polls answer at once
    inputs, statuses, operations = Inputs(SEED), Counter[int](), Counter[str]()
    inputs.kept_out = {front.key.access_key_id}
    wrong: list[str] = []
    while sum(statuses.values()) < REQUESTS:
        asked = inputs.next()
        if asked.plane not in ("data", "sqs"):
            continue
        front.clock.now_s += 1  # the bucket of requests is full again
        for name in ("orders", "dead", "line.fifo"):
            front.add_queue(name, (1 + len(name),))
        headers = {"host": HOST, "authorization": f"Bearer {front.key.bearer_token}", **dict(asked.headers)}
        async with asyncio.timeout(ANSWER_S_MAX):
            reply: Any = await front.call(asked.method, asked.target, headers, asked.body)
        statuses[reply.status] += 1
        operations[asked.operation] += 1
        sent = b"" if asked.method == "HEAD" else reply.body  # the server leaves it out
        told = f"{asked.operation}: {reply.status} to {asked.method} {asked.target[:200]} {asked.body[:300]!r}"
        if reply.status in (500, 502, 504):
            wrong.append(f"{told}: {reply.body[:200]!r}")
        elif why := why_odd(asked, Answer(reply.status, reply.headers, sent, 0.0, 0.0)):
            wrong.append(f"{told}: {why}")
        elif reply.status < 300 and reply.body.startswith(b"{"):
            inputs.remember(reply.json)
    assert not wrong, "\n\n".join(wrong)
    assert {200, 400, 404} <= statuses.keys() and statuses[200] > REQUESTS / 20, statuses
    assert all(operations[name] for name in inputs.operations if name.startswith("SQS")) and len(operations) >= 40
