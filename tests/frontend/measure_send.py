"""What one signed SendMessage of 1 KiB costs in the front end's own code; storage answers at once.

python -m tests.frontend.measure_send [--profile | --count] [--policy plain|conditional]

With `--policy` the key has one: of two statements, or with a condition on the address as well. `--count` tells
bytecodes and calls instead of times: what else the machine does makes no difference to them.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
import sys
import time
from types import FrameType
from typing import Any

import uvloop

from frontend.authn.tokens import MintedKey
from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import RATE_PER_S_MAX, account_limits
from frontend.metadata.records import PolicyRecord
from storage_nodes.protocol.messages import SendReply
from tests.support.frontend_plane import ACCOUNT, QUEUE_URL, Installation, sign

ROUNDS = 5
SENDS_PER_ROUND = 20_000
COUNTED_AFTER = 100


def key_of(front: Installation, policy: str) -> MintedKey:
    if not policy:
        return front.key
    statement: dict[str, Any] = {"Effect": "Allow", "Action": ["sqs:SendMessage", "sqs:ReceiveMessage"]}
    arn = f"arn:aws:sqs:*:{ACCOUNT}:ord*"
    if policy == "conditional":
        statement["Condition"] = {"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}
    statements = [{**statement, "Resource": arn}, {"Effect": "Deny", "Action": "sqs:DeleteQueue", "Resource": "*"}]
    text = json.dumps({"Version": "2012-10-17", "Statement": statements})
    return front.add_key(ACCOUNT, policies=[PolicyRecord("key", text)])


class Counts:
    """What the interpreter executes while it is entered: bytecodes, and calls of Python functions and of others."""

    def __init__(self) -> None:
        self.bytecodes = self.calls = 0

    def __enter__(self) -> None:
        sys.setprofile(self._profiled)
        sys.settrace(self._traced)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _profiled(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")

    def _traced(self, frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.bytecodes += event == "opcode"
        return self._traced


async def measure(profiled: bool, counted: bool, policy: str) -> None:
    front = Installation(quotas=QuotaTree(lambda _: account_limits({"requests_per_s": RATE_PER_S_MAX})))
    key = key_of(front, policy)

    async def store(*_: Any, **__: Any) -> SendReply:
        return SendReply(0, 0)

    front.storage.send = store  # type: ignore[method-assign]
    body = json.dumps({"QueueUrl": QUEUE_URL, "MessageBody": "x" * 1024}).encode()
    signed = sign(key, "POST", "/", body, "AmazonSQS.SendMessage", front.clock.now_s)
    sdk = {"user-agent": "sdk", "accept-encoding": "identity", "content-length": str(len(body))}
    headers = [(name.lower().encode(), value.encode()) for name, value in (signed | sdk).items()]
    scope = {
        "type": "http", "method": "POST", "scheme": "http", "path": "/", "raw_path": b"/", "query_string": b"",
        "headers": headers, "client": (front.client_host, 40_000),
    }  # fmt: skip
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if "status" in message:
            statuses.append(message["status"])

    if counted:
        for _ in range(COUNTED_AFTER):  # caches are full
            await front.application(scope, receive, send)
        counts = Counts()
        with counts:
            await front.application(scope, receive, send)
        print(f"{counts.bytecodes} bytecodes and {counts.calls} calls per SendMessage")
        assert set(statuses) == {200}
        return
    profile = cProfile.Profile()
    for _ in range(ROUNDS):
        started_s = time.perf_counter()
        if profiled:
            profile.enable()
        for _ in range(SENDS_PER_ROUND):
            await front.application(scope, receive, send)
        profile.disable()
        print(f"{(time.perf_counter() - started_s) / SENDS_PER_ROUND * 1e6:6.1f} us per SendMessage")
    assert set(statuses) == {200}
    if profiled:
        pstats.Stats(profile).sort_stats("tottime").print_stats(20)


if __name__ == "__main__":
    chosen = sys.argv[-1] if "--policy" in sys.argv else ""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure("--profile" in sys.argv, "--count" in sys.argv, chosen))
