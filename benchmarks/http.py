"""The whole service over HTTP with SigV4, beside a bare ASGI callable's rate in the same run.

    ./penstock bench http

Starts an installation of its own (three nodes, fsync on) in a temporary directory; the load generator shares the cores.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import time

import uvloop
import websockets

from benchmarks.http_load import (
    HttpConnection,
    LoadTarget,
    Signer,
    ask_sqs,
    cycle_until,
    open_connections,
    request_rate,
)
from benchmarks.report import Report, percentile
from benchmarks.temporary_installation import TemporaryInstallation

SECONDS = 5.0
CONNECTIONS = 64
DISTINCT_BODIES = 512
MESSAGE_BYTES = 1024
LONE_SENDS = 1_000
SETTLING_CONNECTIONS = 32
PUSH_MESSAGES = 1_000
PUSH_RATE_S = 200.0
PUSH_CREDIT = 100


async def run(report: Report) -> None:
    await _yardstick(report)
    with TemporaryInstallation() as installation:
        yardstick_per_s = report.figures[0][1]
        target = LoadTarget(**installation.target())
        signer = Signer(target)
        connections = await open_connections(target.host, target.port, CONNECTIONS)
        url = await _create_queue(connections[0], signer, "bench")
        await _lone_sends(report, connections[0], signer, url)
        await _sends(report, installation, connections, signer, url)
        await _receives_and_deletes(report, installation, connections, signer, url)
        await _purge_and_cycle(report, installation, connections, signer)
        await _push(report, installation, signer)
        for label, rate, unit in list(report.figures):
            if unit == "msg/s":
                report.add(f"of the yardstick: {label}", 100 * rate / yardstick_per_s, "%")
        for name, resident in installation.resident_mib().items():
            report.add(f"resident, {name}", resident, "MiB")


async def _yardstick(report: Report) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.bare_asgi", str(listener.fileno())], pass_fds=[listener.fileno()]
    )
    try:
        connections = await open_connections("127.0.0.1", port, CONNECTIONS)
        body = json.dumps({"MessageBody": "x" * MESSAGE_BYTES}).encode()
        request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        await request_rate(connections, lambda _: request, 1.0)
        count, seconds = await request_rate(connections, lambda _: request, SECONDS)
        report.add("yardstick: bare ASGI POST", count / seconds, "1/s")
        for connection in connections:
            connection.close()
    finally:
        process.terminate()
        process.wait()
        listener.close()


def _text() -> str:
    return base64.b64encode(os.urandom(MESSAGE_BYTES * 3 // 4)).decode()


async def _create_queue(connection: HttpConnection, signer: Signer, name: str) -> str:
    return str((await ask_sqs(connection, signer, "CreateQueue", {"QueueName": name}))["QueueUrl"])


async def _lone_sends(report: Report, connection: HttpConnection, signer: Signer, url: str) -> None:
    """One after the other, with nothing else going on."""
    latencies_ms: list[float] = []
    request = signer.request("SendMessage", json.dumps({"QueueUrl": url, "MessageBody": _text()}).encode())
    for _ in range(LONE_SENDS):
        started_s = time.perf_counter()
        await connection.ask(request)
        latencies_ms.append((time.perf_counter() - started_s) * 1000)
    report.add("one send at a time, p50", percentile(latencies_ms, 50), "ms")
    report.add("one send at a time, p99", percentile(latencies_ms, 99), "ms")


async def _sends(
    report: Report, installation: TemporaryInstallation, connections: list[HttpConnection], signer: Signer, url: str
) -> None:
    singles = [
        signer.request("SendMessage", json.dumps({"QueueUrl": url, "MessageBody": _text()}).encode())
        for _ in range(DISTINCT_BODIES)
    ]
    await request_rate(connections, lambda n: singles[n % DISTINCT_BODIES], 1.0)
    with installation.cpu() as cpu:
        count, seconds = await request_rate(connections, lambda n: singles[n % DISTINCT_BODIES], SECONDS)
    report.add(f"SendMessage 1 KiB, {CONNECTIONS} connections", count / seconds, "msg/s")
    cpu.report(report, count, "SendMessage")
    cpu.report_front_end(report, count, "SendMessage")
    batches = [
        signer.request(
            "SendMessageBatch",
            json.dumps(
                {"QueueUrl": url, "Entries": [{"Id": str(i), "MessageBody": _text()} for i in range(10)]}
            ).encode(),
        )
        for _ in range(DISTINCT_BODIES // 4)
    ]
    with installation.cpu() as cpu:
        count, seconds = await request_rate(connections, lambda n: batches[n % len(batches)], SECONDS)
    report.add("SendMessageBatch, ten of 1 KiB", count * 10 / seconds, "msg/s")
    cpu.report(report, count * 10, "SendMessageBatch")


async def _receives_and_deletes(
    report: Report, installation: TemporaryInstallation, connections: list[HttpConnection], signer: Signer, url: str
) -> None:
    """Of what was sent before, one at a time: first one kind of call, then the other."""
    asked = {"QueueUrl": url, "VisibilityTimeout": 600}
    receive = signer.request("ReceiveMessage", json.dumps(asked).encode())
    ends = time.perf_counter() + SECONDS
    handles: list[str] = []

    async def take(connection: HttpConnection) -> None:
        while time.perf_counter() < ends:
            _, body = await connection.ask(receive)
            handles.extend(message["ReceiptHandle"] for message in json.loads(body)["Messages"])

    async def remove(connection: HttpConnection) -> None:
        while handles:
            parameters = {"QueueUrl": url, "ReceiptHandle": handles.pop()}
            await ask_sqs(connection, signer, "DeleteMessage", parameters)

    for name, work in (("ReceiveMessage", take), ("DeleteMessage", remove)):
        started_s = time.perf_counter()
        received = len(handles)
        with installation.cpu() as cpu:
            await asyncio.gather(*map(work, connections[:SETTLING_CONNECTIONS]))
        count = received or len(handles)
        report.add(f"{name}, one at a time", count / (time.perf_counter() - started_s), "msg/s")
        cpu.report_front_end(report, count, name)


async def _purge_and_cycle(
    report: Report, installation: TemporaryInstallation, connections: list[HttpConnection], signer: Signer
) -> None:
    url = await _create_queue(connections[0], signer, "bench-cycle")
    for size in (1, 10):
        with installation.cpu() as cpu:  # a command, which takes its time
            started = time.perf_counter()
            ends = started + SECONDS
            settling = connections[:SETTLING_CONNECTIONS]
            asked = [cycle_until(connection, signer, url, size, _text, ends) for connection in settling]
            done = sum(await asyncio.gather(*asked))
        label = "one at a time" if size == 1 else "batches of ten"
        report.add(f"send + receive + delete, {label}", done / (time.perf_counter() - started), "msg/s")
        cpu.report(report, done, f"cycle, {label}")


async def _push(report: Report, installation: TemporaryInstallation, signer: Signer) -> None:
    """From the start of the send to the message on a websocket, at a steady low rate."""
    target = LoadTarget(**installation.target())
    (connection,) = await open_connections(target.host, target.port, 1)
    url = await _create_queue(connection, signer, "bench-push")
    latencies_ms: list[float] = []
    sent_at: dict[str, float] = {}
    headers = {"Authorization": f"Bearer {installation.bearer_token}"}
    address = f"ws://{target.host}:{target.port}/v1/queues/bench-push/subscribe"
    async with websockets.connect(address, additional_headers=headers) as socket_:
        await socket_.send(json.dumps({"type": "credit", "n": PUSH_CREDIT}))

        async def consume() -> None:
            while len(latencies_ms) < PUSH_MESSAGES:
                frame = json.loads(await socket_.recv())
                if frame.get("type") == "message":
                    key = frame["body"][:12]
                    latencies_ms.append((time.perf_counter() - sent_at[key]) * 1000)
                    await socket_.send(json.dumps({"type": "ack", "ids": [frame["receipt"]]}))
                    await socket_.send(json.dumps({"type": "credit", "n": 1}))
                elif frame.get("type") == "error":
                    raise RuntimeError(f"the subscription answered {frame}")

        consumer = asyncio.create_task(consume())
        for index in range(PUSH_MESSAGES):
            key = f"{index:012d}"
            body = key + _text()[12:]
            sent_at[key] = time.perf_counter()
            await asyncio.gather(
                ask_sqs(connection, signer, "SendMessage", {"QueueUrl": url, "MessageBody": body}),
                asyncio.sleep(1 / PUSH_RATE_S),
            )
        await asyncio.wait_for(consumer, 30)
    report.add("send to websocket at 200/s, p50", percentile(latencies_ms, 50), "ms")
    report.add("send to websocket at 200/s, p99", percentile(latencies_ms, 99), "ms")


def main() -> int:
    report = Report("http")
    uvloop.run(run(report))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
