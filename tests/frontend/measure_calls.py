"""What each hot call costs the front end, from the bytes of the request to the bytes of the answer.

    python -m tests.frontend.measure_calls [--time SECONDS | --functions] [--connections N] [CALL ...]

Everything of the front end runs: the connection's protocol, the express lane, the storage client and its frames.
Clients and the storage node are stand-ins in the same process, whose own work is not counted. Prints the bytecodes and
calls of one call, and where they are: by file, or by function with the calls of what is not Python; with several
connections, calls at the same time share what they share (`--connections`). `--time` tells
microseconds of CPU instead, in a closed loop of 32 connections, stand-ins included, the least and the median of many
rounds of 500 calls: the least is what other work on the machine disturbs least. For pairs with another commit.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FrameType
from typing import Any

import msgspec
import uvloop
from uvicorn.server import ServerState
from websockets.frames import Frame
from websockets.frames import Opcode as SocketOpcode

from frontend.crypto.envelope import Content, seal_all
from frontend.express.protocol import ExpressProtocol, express_config
from frontend.limits import BULK_MESSAGES_MAX, COLLECTOR_GENERATIONS
from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import RATE_PER_S_MAX, account_limits
from frontend.metadata.client import MetadataClient
from frontend.metering.meters import Meters
from frontend.queues.names import Address
from frontend.routing.guarded import GuardedStorage, Guards
from storage_nodes.client.connection import ClientConnection
from storage_nodes.client.storage_client import StorageClient
from storage_nodes.model import NodeAddress
from storage_nodes.protocol.frames import FLAG_ANSWER, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import (
    AcquiredMessage,
    AcquireReply,
    AcquireRequest,
    CodesReply,
    Opcode,
    SendReply,
    encode_message,
)
from storage_nodes.protocol.records import encode_body
from storage_nodes.protocol.usage import Origin, size_field, usage_key
from tests.support.frontend_plane import ACCOUNT, HOST, QUEUE_URL, Installation, sign

CONNECTIONS = 32
BODY = "x" * 1024
COUNTED_AFTER = 200
COUNTED = 20
BATCH = 10
CALLS = (
    "send", "receive", "delete", "visibility", "send10", "receive10", "delete10", "visibility10", "empty",
    "publish500", "deliver500",
)  # fmt: skip


class StandIns:
    """Whether one of them is at work: that is not counted."""

    at_work = 0


class Node:
    """The transport of a connection to a storage node, which answers in the next turn of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stored: list[AcquiredMessage]) -> None:
        self._loop = loop
        self._decoder = FrameDecoder()
        self._offset = 0
        self._answered: list[bytes] = []
        self.stored = stored
        self.replies: dict[int, bytes] = {}
        self.connection: Any = None

    def write(self, data: bytes) -> None:
        StandIns.at_work += 1
        for opcode, _, number, payload in self._decoder.feed(data):
            if opcode == Opcode.CANCEL:
                continue
            if not self._answered:
                self._loop.call_soon(self._answer)
            self._answered.append(encode_frame(opcode, FLAG_ANSWER, number, self._reply(opcode, payload)))
        StandIns.at_work -= 1

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def _reply(self, opcode: int, payload: bytes) -> bytes:
        if opcode == Opcode.SEND:
            self._offset += 1
            return encode_message(SendReply(self._offset, 1))
        if opcode == Opcode.ACQUIRE:
            asked = msgspec.msgpack.decode(payload, type=AcquireRequest).max_messages
            reply = self.replies.get(asked)
            if reply is None:
                reply = self.replies[asked] = encode_message(AcquireReply(3, self.stored[:asked]))
            return reply
        count = len(msgspec.msgpack.decode(payload)[1])
        reply = self.replies.get(-count)
        if reply is None:
            reply = self.replies[-count] = encode_message(CodesReply([0] * count))
        return reply

    def _answer(self) -> None:
        answered, self._answered = b"".join(self._answered), []
        self.connection.data_received(answered)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None: ...


class Client:
    """The transport of a client's connection. Asks again in the turn after each answer, as often as it is to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_answer: Callable[[Client, bytes], None]) -> None:
        self._loop = loop
        self._on_answer = on_answer
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        StandIns.at_work += 1
        try:
            self._on_answer(self, data)
        finally:
            StandIns.at_work -= 1

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def say(self, data: bytes) -> None:
        self._loop.call_soon(self._say, data)

    def _say(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 40_000), "sockname": ("127.0.0.1", 9324)}.get(name, default)

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class Scene:
    """A front end with one node, and connections to it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        front = Installation(quotas=QuotaTree(lambda _: account_limits(
            {"requests_per_s": RATE_PER_S_MAX, "messages_per_s": RATE_PER_S_MAX, "bytes_per_s": 10**12}
        )))  # fmt: skip
        self.front = front
        metadata = MetadataClient("localhost", 1, "test")
        for key in front.metadata.keys.values():
            metadata._keys._put(key.access_key_id, key)
        for name, record in front.metadata.queues.items():
            metadata._queues._put(name, record)
        front.plane.authenticator._metadata = metadata
        front.plane.queues._metadata = metadata
        client = StorageClient("test", [NodeAddress(1, "localhost", 1, "")])
        client._links.start(self.loop)
        connection = ClientConnection(self.loop)
        self.node = Node(self.loop, self._stored())
        self.node.connection = connection
        connection.connection_made(self.node)  # type: ignore[arg-type]
        client._links._connections[1] = connection
        guarded = GuardedStorage(client, Guards(client.leader_of))
        guarded.add_gauges(Meters())
        front.plane.storage = guarded
        front.plane.steady_s = time.monotonic
        self._client = client
        self.config = express_config(front.plane, "127.0.0.1", 0)
        self.config.load()
        self.state = ServerState()
        self.state.default_headers = [(b"date", b"Mon, 23 Nov 2026 00:00:00 GMT")]
        self.left = self._under_way = 0
        self._idle: asyncio.Future[None] | None = None

    def _stored(self) -> list[AcquiredMessage]:
        queue = self.front.plane.queues.cached(Address(ACCOUNT, "orders"))
        assert queue is not None
        key = usage_key(int(Origin.CLIENT), len(BODY))
        contents = [(Content(BODY), size_field(key))] * BULK_MESSAGES_MAX
        sealed = seal_all(queue.sealing_key(0.0), self.front.key.access_key_id.encode(), contents)
        bodies = [encode_body(envelope, key) for envelope in sealed[1]]
        return [AcquiredMessage(at, 1, 1_700_000_000_000, 1_700_000_000_000, body) for at, body in enumerate(bodies)]

    def handles(self, count: int) -> list[str]:
        queue = self.front.plane.queues.cached(Address(ACCOUNT, "orders"))
        assert queue is not None
        receipts, now_s = self.front.plane.receipts, int(self.front.clock.now_s)
        return [receipts.make(queue.owner, 1, at, 1, 3, now_s) for at in range(count)]

    def connect(self, on_answer: Callable[[Client, bytes], None]) -> Client:
        client = Client(self.loop, on_answer)
        protocol = ExpressProtocol(self.config, self.state, {}, self.loop)
        client.protocol = protocol
        protocol.connection_made(client)  # type: ignore[arg-type]
        return client

    def request(self, call: str) -> bytes:
        action, params = self._asked(call)
        body = json.dumps(params).encode()
        headers = sign(self.front.key, "POST", "/", body, f"AmazonSQS.{action}", self.front.clock.now_s)
        sdk = {"user-agent": "sdk", "accept-encoding": "identity", "content-length": str(len(body))}
        lines = ["POST / HTTP/1.1", *(f"{name}: {value}" for name, value in (headers | sdk).items())]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def _asked(self, call: str) -> tuple[str, dict[str, Any]]:
        queue = {"QueueUrl": QUEUE_URL}
        handles = self.handles(BATCH)
        entries = [{"Id": str(at), "ReceiptHandle": handle} for at, handle in enumerate(handles)]
        messages = [{"Id": str(at), "MessageBody": BODY} for at in range(BATCH)]
        return {
            "send": ("SendMessage", queue | {"MessageBody": BODY}),
            "send10": ("SendMessageBatch", queue | {"Entries": messages}),
            "receive": ("ReceiveMessage", queue | {"MaxNumberOfMessages": 1}),
            "receive10": ("ReceiveMessage", queue | {"MaxNumberOfMessages": 10}),
            "empty": ("ReceiveMessage", queue | {"MaxNumberOfMessages": 2}),
            "delete": ("DeleteMessage", queue | {"ReceiptHandle": handles[0]}),
            "delete10": ("DeleteMessageBatch", queue | {"Entries": entries}),
            "visibility": ("ChangeMessageVisibility", queue | {"ReceiptHandle": handles[0], "VisibilityTimeout": 30}),
            "visibility10": (
                "ChangeMessageVisibilityBatch",
                queue | {"Entries": [entry | {"VisibilityTimeout": 30} for entry in entries]},
            ),
        }[call]

    async def run(self, call: str, times: int, connections: int) -> None:
        """So many calls, from so many connections at once."""
        self.node.replies[2] = encode_message(AcquireReply(3, []))
        self.left, self._idle = times, self.loop.create_future()
        if call.endswith("500"):
            await self._run_socket(call)
            return
        raw = self.request(call)
        self._under_way = connections
        told = BODY.encode() if call in ("receive", "receive10") else b""

        def answered(client: Client, data: bytes) -> None:
            assert data.startswith(b"HTTP/1.1 200 "), data
            assert b'"Failed"' not in data
            assert told in data, "the message was not opened"
            self._next(client, raw)

        for _ in range(connections):
            self.connect(answered).say(raw)
        await self._idle

    def _next(self, client: Client, raw: bytes) -> None:
        self.left -= 1
        if self.left >= self._under_way:
            client.say(raw)
        elif self.left <= 0 and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _run_socket(self, call: str) -> None:
        """One bulk socket, one frame after the other."""
        self._under_way = 1
        self.node.replies[BULK_MESSAGES_MAX] = encode_message(AcquireReply(3, self.node.stored))
        publish = {"type": "publish", "seq": 1, "messages": [{"body": BODY}] * BULK_MESSAGES_MAX}
        credit = {"type": "credit", "n": BULK_MESSAGES_MAX}
        delivered = 0

        def masked(frame: Any) -> bytes:
            return Frame(SocketOpcode.BINARY, msgspec.msgpack.encode(frame)).serialize(mask=True)

        def answered(client: Client, data: bytes) -> None:
            nonlocal delivered
            if data.startswith(b"HTTP/1.1 101"):
                data = data.partition(b"\r\n\r\n")[2]  # what follows comes with it
            if b"ready" in data[:40]:
                client.say(masked(publish if call == "publish500" else credit))
            elif call == "publish500":
                assert b"confirm" in data[:40], data
                self._next(client, masked(publish))
            elif b"messages" in data[:40]:
                ack = {"type": "ack", "ranges": [[delivered + 1, delivered + BULK_MESSAGES_MAX]]}
                delivered += BULK_MESSAGES_MAX
                client.say(masked(ack))
                self._next(client, masked(credit))

        upgrade = (
            f"GET /v1/queues/orders/bulk HTTP/1.1\r\nHost: {HOST}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Sec-WebSocket-Protocol: penstock.bulk.msgpack\r\n"
            f"Authorization: Bearer {self.front.key.bearer_token}\r\n\r\n"
        )
        client = self.connect(answered)
        client.say(upgrade.encode())
        assert self._idle is not None
        await self._idle
        client.protocol.connection_lost(None)
        await asyncio.sleep(0)


class Counts:
    """What the interpreter executes while it is entered, by function: bytecodes, and calls of Python functions and of
    others."""

    def __init__(self) -> None:
        self.bytecodes: Counter[CodeType] = Counter()
        self.calls: Counter[CodeType] = Counter()
        self.foreign: Counter[str] = Counter()

    def __enter__(self) -> None:
        self._before = sys.getprofile(), sys.gettrace()
        sys.setprofile(self._profiled)
        sys.settrace(self._traced)

    def __exit__(self, *_: object) -> None:
        profile, trace = self._before
        sys.settrace(trace)
        sys.setprofile(profile)

    def _profiled(self, frame: FrameType, event: str, argument: Any) -> None:
        if StandIns.at_work or frame.f_code.co_filename == __file__:
            return
        if event == "call":
            self.calls[frame.f_code] += 1
        elif event == "c_call":
            self.foreign[getattr(argument, "__qualname__", str(argument))] += 1

    def _traced(self, frame: FrameType, event: str, argument: Any) -> Any:
        if StandIns.at_work or frame.f_code.co_filename == __file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.bytecodes[frame.f_code] += 1
        return self._traced


def short(code: CodeType) -> str:
    name = code.co_filename
    for part in ("/site-packages/", "/python3.11/", f"{os.getcwd()}/"):
        name = name.rpartition(part)[2] or name
    return name


def report(call: str, counts: Counts, times: int, by_function: bool) -> None:
    total, calls = counts.bytecodes.total() / times, counts.calls.total() / times
    foreign = counts.foreign.total() / times
    print(f"{call:<14} {total:>9.0f} bytecodes  {calls:>7.1f} calls  {foreign:>7.1f} calls into C")
    names: Counter[str] = Counter()
    for code, count in counts.bytecodes.items():
        names[f"{short(code)}:{code.co_qualname}" if by_function else short(code)] += count
    for name, count in names.most_common(70 if by_function else 12):
        print(f"    {count / times:>9.1f}  {name}")
    if by_function:
        for name, count in counts.foreign.most_common(40):
            print(f"    {count / times:>9.1f}  C {name}")


async def measure(calls: Sequence[str], seconds: float, by_function: bool, connections: int) -> None:
    for call in calls:
        if seconds:
            await measure_time(call, seconds)
        else:
            await measure_counts(call, by_function, 1 if call.endswith("500") else connections)


async def measure_time(call: str, seconds: float) -> None:
    scene = Scene()
    connections, times = (1, 4) if call.endswith("500") else (CONNECTIONS, 500)
    await scene.run(call, times, connections)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_GENERATIONS)  # as the front end does
    ends_s, rounds_s = time.process_time() + seconds, []
    while not rounds_s or time.process_time() < ends_s:
        began_s = time.process_time()
        await scene.run(call, times, connections)
        rounds_s.append((time.process_time() - began_s) / times)
    gc.unfreeze()
    print(f"{call} {min(rounds_s) * 1e6:.2f} {statistics.median(rounds_s) * 1e6:.2f}", flush=True)


async def measure_counts(call: str, by_function: bool, connections: int) -> None:
    scene = Scene()
    before, times = (4, 2) if call.endswith("500") else (COUNTED_AFTER, COUNTED)
    times *= connections
    await scene.run(call, before, connections)  # caches are full
    counts = Counts()
    with counts:
        await scene.run(call, times, connections)
    report(call, counts, times, by_function)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--time", type=float, default=0.0)
    parser.add_argument("--functions", action="store_true")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("calls", nargs="*", default=CALLS)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(given.calls, given.time, given.functions, given.connections))


if __name__ == "__main__":
    main()
