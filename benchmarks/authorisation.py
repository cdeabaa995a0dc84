"""What policies, quotas and customers' encryption keys cost the message path, side by side on one installation.

    ./penstock bench authorisation [ROUNDS]

    plain       a key without policies, in an account with the default quotas: what the others are compared with
    ruled       a key with policies and conditions on address and transport, the same on the queue, and quotas on
                account, keys, queues, this key and this queue: what was decided is remembered by origin
    weighed     the same with conditions on time and tags: what was decided holds while neither changes
    encrypted   the plain key on a queue that names an encryption key of the customer

Every round takes each of them in turn, in another order; ratios are those of a round, and their median counts. Aim: the
rate of `ruled` is at least 90 % of that of `plain`. The load generator shares the cores.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from benchmarks.http_load import HttpConnection, LoadTarget, Signer, ask_sqs, open_connections, request_rate
from benchmarks.report import Report
from benchmarks.temporary_installation import CpuUse, TemporaryInstallation

ROUNDS = 9
TURN_S = 1.5
WARM_S = 0.5
CONNECTIONS = 64
CYCLING_CONNECTIONS = 32
BODY = "x" * 1024
DISTINCT_REQUESTS = 256
RATE_RATIO_MIN = 0.90
# Above what one installation can answer, each below the level above it: every level has a bucket and refuses nothing.
RATES = {"": 400_000, "key_": 300_000, "queue_": 200_000}
BYTES_PER_MESSAGE = 4_096


class Side(NamedTuple):
    """One of those that are compared."""

    name: str
    signer: Signer
    url: str


class Measured(NamedTuple):
    """`cpu_us`: of the front ends, for each call."""

    per_s: float
    cpu_us: float


async def run(report: Report, rounds: int) -> None:
    with TemporaryInstallation() as installation:
        sides = [
            *await _own_account(installation),
            await _ruled(installation, "ruled", _by_origin),
            await _ruled(installation, "weighed", _by_time),
        ]
        connections = await open_connections(*_address(installation), CONNECTIONS)
        await _compare(report, installation, sides, rounds, "SendMessage", _send(connections))
        await _compare(report, installation, sides, rounds, "send + receive + delete", _cycle(connections))
        for connection in connections:
            connection.close()


# --- the sides ---


async def _own_account(installation: TemporaryInstallation) -> list[Side]:
    """The key that every installation begins with, on a queue as it is made, and on one with an encryption key."""
    signer = Signer(LoadTarget(**installation.target()))
    plain = Side("plain", signer, await _queue(installation, signer, "plain", {}))
    key = await asyncio.to_thread(_post, installation, "/v1/encryption-keys", {"name": "bench"})
    encrypted = await _queue(installation, signer, "encrypted", {"KmsMasterKeyId": str(key["id"])})
    return [plain, Side("encrypted", signer, encrypted)]


async def _ruled(installation: TemporaryInstallation, name: str, condition: Callable[[], dict[str, Any]]) -> Side:
    """A key of an account of its own, whose policies, and those of its queue, have conditions."""
    owner = json.loads(installation.command("keys", "create", "--account", name, "--json"))
    policy = {"Version": "2012-10-17", "Statement": [*_statements(condition), *_others()]}
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "policy.json")
        file.write_text(json.dumps(policy))
        key = json.loads(installation.command("keys", "create", "--account", name, "--policy", str(file), "--json"))
    of_owner, of_key = (
        Signer(LoadTarget(*_address(installation), one["region"], one["access_key_id"], one["secret_access_key"]))
        for one in (owner, key)
    )
    url = await _queue(installation, of_owner, name, {})
    asked = {"QueueUrl": url, "AttributeNames": ["QueueArn"]}
    arn = (await _ask(installation, of_owner, "GetQueueAttributes", asked))["Attributes"]["QueueArn"]
    of_queue = [{**one, "Principal": "*", "Resource": arn} for one in _statements(condition)]
    text = json.dumps({"Version": "2012-10-17", "Statement": of_queue})
    await _ask(installation, of_owner, "SetQueueAttributes", {"QueueUrl": url, "Attributes": {"Policy": text}})
    levels = [value for prefix, rate in RATES.items() for value in _rates(prefix, rate)]
    installation.command("quotas", "set", "--account", name, *levels)
    single = _rates("", RATES["queue_"] // 2)
    installation.command("quotas", "set", "--account", name, "--queue", name, *single)
    installation.command("quotas", "set", "--account", name, "--key", key["access_key_id"], *single)
    return Side(name, of_key, url)


def _rates(prefix: str, per_s: int) -> list[str]:
    rates = {"requests": per_s, "messages": 2 * per_s, "bytes": BYTES_PER_MESSAGE * per_s}
    return [f"{prefix}{unit}_per_s={value}" for unit, value in rates.items()]


def _statements(condition: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
    """What the calls need, allowed under the condition; and a Deny for what none of them is."""
    allowed = {"Effect": "Allow", "Action": "sqs:*", "Resource": "*", "Condition": condition()}
    elsewhere = {"NotIpAddress": {"aws:SourceIp": ["127.0.0.0/8", "10.0.0.0/8"]}}
    return [allowed, {"Effect": "Deny", "Action": "sqs:*", "Resource": "*", "Condition": elsewhere}]


def _others() -> list[dict[str, Any]]:
    """Of a policy as they grow: statements about other queues."""
    names = [f"arn:aws:sqs:*:*:team-{number}-*" for number in range(8)]
    return [{"Effect": "Allow", "Action": ["sqs:SendMessage", "sqs:Get*"], "Resource": one} for one in names]


def _by_origin() -> dict[str, Any]:
    return {"IpAddress": {"aws:SourceIp": ["127.0.0.0/8"]}, "Bool": {"aws:SecureTransport": "false"}}


def _by_time() -> dict[str, Any]:
    return {
        "DateGreaterThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"},
        "StringNotEqualsIfExists": {"aws:ResourceTag/team": "closed"},
    }


async def _queue(installation: TemporaryInstallation, signer: Signer, name: str, attributes: dict[str, str]) -> str:
    asked = {"QueueName": name, "Attributes": attributes}
    return str((await _ask(installation, signer, "CreateQueue", asked))["QueueUrl"])


async def _ask(
    installation: TemporaryInstallation, signer: Signer, action: str, parameters: dict[str, Any]
) -> dict[str, Any]:
    """On a connection of its own: commands take longer than a front end keeps an idle one."""
    (connection,) = await open_connections(*_address(installation), 1)
    try:
        return await ask_sqs(connection, signer, action, parameters)
    finally:
        connection.close()


def _post(installation: TemporaryInstallation, path: str, content: dict[str, Any]) -> Any:
    host, port = _address(installation)
    headers = {"Authorization": f"Bearer {installation.bearer_token}", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"http://{host}:{port}{path}", json.dumps(content).encode(), headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return json.loads(answer.read())


def _address(installation: TemporaryInstallation) -> tuple[str, int]:
    target = installation.target()
    return target["host"], target["port"]


# --- the work ---

Work = Callable[[Side, float], Awaitable[tuple[int, int, float]]]  # messages, calls, seconds


def _send(connections: list[HttpConnection]) -> Work:
    async def work(side: Side, seconds: float) -> tuple[int, int, float]:
        body = json.dumps({"QueueUrl": side.url, "MessageBody": BODY}).encode()
        requests = [side.signer.request("SendMessage", body) for _ in range(DISTINCT_REQUESTS)]
        count, elapsed_s = await request_rate(connections, lambda n: requests[n % DISTINCT_REQUESTS], seconds)
        return count, count, elapsed_s

    return work


def _cycle(connections: list[HttpConnection]) -> Work:
    async def work(side: Side, seconds: float) -> tuple[int, int, float]:
        began_s = time.perf_counter()
        done = calls = 0

        async def worker(connection: HttpConnection) -> None:
            nonlocal done, calls
            while time.perf_counter() < began_s + seconds:
                await ask_sqs(connection, side.signer, "SendMessage", {"QueueUrl": side.url, "MessageBody": BODY})
                got = await ask_sqs(connection, side.signer, "ReceiveMessage", {"QueueUrl": side.url})
                calls += 2
                for message in got.get("Messages", ()):
                    asked = {"QueueUrl": side.url, "ReceiptHandle": message["ReceiptHandle"]}
                    await ask_sqs(connection, side.signer, "DeleteMessage", asked)
                    done, calls = done + 1, calls + 1

        await asyncio.gather(*map(worker, connections[:CYCLING_CONNECTIONS]))
        return done, calls, time.perf_counter() - began_s

    return work


async def _compare(
    report: Report, installation: TemporaryInstallation, sides: list[Side], rounds: int, what: str, work: Work
) -> None:
    found: dict[str, list[Measured]] = {side.name: [] for side in sides}
    processes = {name: each for name, each in installation.processes().items() if name.startswith("frontend")}
    for side in sides:
        await work(side, WARM_S)
    for number in range(rounds):
        turn = number % len(sides)
        for side in sides[turn:] + sides[:turn]:
            cpu = CpuUse(processes)
            count, calls, elapsed_s = await work(side, TURN_S)
            cpu.stop()
            spent_s = sum(seconds for name, seconds in cpu.spent.items() if name in processes)
            found[side.name].append(Measured(count / elapsed_s, spent_s / calls * 1e6))
    for side in sides:
        _tell(report, what, side.name, found[side.name], found["plain"])


def _tell(report: Report, what: str, name: str, found: list[Measured], plain: list[Measured]) -> None:
    report.add(f"{what}, {name}", statistics.median(one.per_s for one in found), "msg/s")
    report.add("  CPU of the front end for one call", statistics.median(one.cpu_us for one in found), "us")
    if name != "plain":
        rates = [one.per_s / other.per_s for one, other in zip(found, plain, strict=True)]
        times = [one.cpu_us / other.cpu_us for one, other in zip(found, plain, strict=True)]
        report.add(f"ratio of rates: {what}, {name}", statistics.median(rates), f"of {', '.join(map(_short, rates))}")
        report.add("  ratio of CPU", statistics.median(times), f"of {', '.join(map(_short, times))}")


def _short(ratio: float) -> str:
    return f"{ratio:.2f}"


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    report = Report("authorisation")
    uvloop.run(run(report, rounds))
    report.print()
    return 0 if all(map(_is_within_aims, report.figures)) else 1


def _is_within_aims(figure: tuple[str, float, str]) -> bool:
    label, value, _ = figure
    return not (label.startswith("ratio of rates") and label.endswith("ruled")) or value >= RATE_RATIO_MIN


if __name__ == "__main__":
    sys.exit(main())
