"""A whole installation on one machine for trials: harm inside its storage nodes, a second front end, memory watched."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.blackbox.faults.harm import Harm
from tests.blackbox.faults.releases import Releases
from tests.blackbox.raw_http import Answer, Endpoint
from tests.support.installation import RunningInstallation, free_port

NODES = (1, 2, 3)
STOP_TIMEOUT_S = 15.0
READY_TIMEOUT_S = 30.0
LOOK_S = 0.1
MIB = 1024 * 1024
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class FrontEnd:
    """A front end beside the installation's own: the same command and settings, another port."""

    def __init__(self, stage: Stage) -> None:
        pid = stage.pid_of("frontend")
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found = dict(pair.decode().split("=", 1) for pair in pairs if b"=" in pair)
        self.port = free_port()
        self._environment = {**found, "PENSTOCK_LISTEN": f"127.0.0.1:{self.port}"}
        self._environment.pop("PENSTOCK_METRICS_LISTEN", None)
        self._log = stage.directory / f"frontend-{self.port}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "frontend"]
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def log(self) -> str:
        return self._log.read_text(errors="replace")


class Stage:
    """Everything is taken down again by `close`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-blackbox-"))
        self.harm = Harm(self.directory, NODES)
        self.releases = Releases(self.directory)
        settings = {**self.harm.settings(), **self.releases.settings(), **(settings or {})}
        self.installation = RunningInstallation(self.directory / "data", len(NODES), settings)
        self.paused: set[int] = set()
        self._queues = 0

    def up(self) -> None:
        self.installation.up()

    def close(self) -> None:
        self.harm.none()
        for pid in list(self.paused):
            self.resume(pid)
        self.installation.command("down", check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- ways in ----------------------------------------------------------------------------------------------

    def endpoint(self, port: int = 0, key: Mapping[str, Any] | None = None) -> Endpoint:
        return Endpoint(port or self.installation.port, (key or self.installation.key)["bearer_token"])

    async def new_key(self, account: str) -> dict[str, Any]:
        """A key that may do everything in this account, which is made if it is not there."""
        made = await asyncio.to_thread(
            self.installation.command, "keys", "create", "--account", account, "--json"
        )  # fmt: skip
        found: dict[str, Any] = json.loads(made.stdout)
        return found

    async def new_queue(self, endpoint: Endpoint, **settings: object) -> str:
        """A queue that nobody used yet; its name."""
        self._queues += 1
        name = f"trial-{self._queues}"
        answer = await endpoint.post("/v1/queues", {"name": name, **settings})
        assert answer.status in (200, 201), f"create {name}: {answer.status} {answer.body[:300]!r} {answer.note}"
        return name

    async def metric(self, name: str) -> float:
        """What the installation's own front end says; 0 where it says nothing of it."""
        state = json.loads((self.installation.data / "run" / "state.json").read_text())
        answer = await Endpoint(state["ports"]["frontend-metrics"], "").call("GET", "/metrics")
        assert answer.status == 200, f"metrics: {answer.status} {answer.note}"
        found = re.search(rf"^{name} ([0-9.e+]+)$", answer.body.decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    async def counts(self, name: str) -> tuple[int, int]:
        """(there to be received, in flight), as GetQueueAttributes says."""

        def ask() -> dict[str, str]:
            sqs = self.installation.sqs()
            url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
            found: dict[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
            return found

        found = await asyncio.to_thread(ask)
        return int(found["ApproximateNumberOfMessages"]), int(found["ApproximateNumberOfMessagesNotVisible"])

    # --- processes --------------------------------------------------------------------------------------------

    def pid_of(self, role: str, number: int = 1) -> int:
        return next(int(row["pid"]) for row in self.installation.processes(role) if row["id"] == number)

    def newest_queue_leader(self) -> int:
        """Who leads the partition of the queue that was made last."""
        end = time.monotonic() + READY_TIMEOUT_S
        while True:
            rows = [row for row in self.installation.status()["partitions"] if row["tag"].startswith("queue:")]
            if rows and (leader := max(rows, key=lambda row: row["partition"])["leader"]):
                return int(leader)
            assert time.monotonic() < end, "the newest queue has no leader"
            time.sleep(LOOK_S)

    def pause(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        self.paused.add(pid)

    def resume(self, pid: int) -> None:
        self.paused.discard(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def node_log(self, node: int) -> str:
        return (self.installation.data / "logs" / f"node-{node}.log").read_text(errors="replace")

    def front_end_log(self) -> str:
        return (self.installation.data / "logs" / "frontend.log").read_text(errors="replace")


def rss_mib(pid: int) -> float:
    """Resident set of a process; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES / MIB
    except OSError:
        return 0.0


class CoreTime(NamedTuple):
    """Of a process, since it began: seconds that it ran, and that it was ready to and others ran. Its children are not
    in it. On a machine that is busy with other work the second says how much of a result is the machine's."""

    ran_s: float
    waited_s: float

    def since(self, before: CoreTime) -> CoreTime:
        return CoreTime(self.ran_s - before.ran_s, self.waited_s - before.waited_s)


def core_time(pid: int) -> CoreTime:
    ran_ns, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return CoreTime(int(ran_ns) / 1e9, int(waited_ns) / 1e9)


async def watch_memory(pids: Mapping[int, int], samples: dict[int, list[float]]) -> None:
    """Adds a sample of every process until it is cancelled."""
    while True:
        for number, pid in pids.items():
            samples.setdefault(number, []).append(rss_mib(pid))
        await asyncio.sleep(LOOK_S)


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float, what: str) -> float:
    """Seconds until it was so. Raises TimeoutError with `what` where it was not."""
    began_s = time.monotonic()
    while not await condition():
        if time.monotonic() > began_s + timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        await asyncio.sleep(LOOK_S)
    return time.monotonic() - began_s


async def serves(endpoint: Endpoint, path: str = "/healthz") -> bool:
    answer: Answer = await endpoint.call("GET", path, timeout_s=2.0)
    return answer.status == 200


@contextlib.asynccontextmanager
async def second_front_end(stage: Stage) -> AsyncIterator[FrontEnd]:
    """It serves when it is handed over, and is stopped at the end."""
    second = await asyncio.to_thread(FrontEnd, stage)  # it asks the cluster, on a loop of its own
    await asyncio.to_thread(second.start)
    try:
        await until(lambda: serves(stage.endpoint(second.port)), READY_TIMEOUT_S, "second front end")
        yield second
    finally:
        await asyncio.to_thread(second.stop)


@contextlib.contextmanager
def staged(settings: Mapping[str, str] | None = None) -> Iterator[Stage]:
    stage = Stage(settings)
    try:
        stage.up()
        yield stage
    finally:
        stage.close()
