"""A whole installation for tests: `./penstock up --detach` on a temporary data directory, once a session.

Tests reach it as users do: boto3, REST, websockets, the launcher's commands; and pick processes to kill from `status`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from deploy.commands.status import status_of
from deploy.installation import Installation
from deploy.ports import choose_port
from storage_nodes.ids import CLUSTER_NUMBER_MAX
from tests.support.webhook_receiver import WebhookReceiver

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-P", "-m", "deploy"]
UP_TIMEOUT_S = 180
RECOVERY_TIMEOUT_S = 60
# Ticks that tests wait for come often.
QUICK = {"PENSTOCK_BILLING_INTERVAL_S": "5"}
# The last one, so that what carries ids is seen to carry all of their bits.
CLUSTER_NUMBER = CLUSTER_NUMBER_MAX
# The tests' own servers must not be taken for the installation's.
NOT_INHERITED = ("DATABASE_URL", "CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE")


class RunningInstallation:
    """Handles of one installation. `printed` is what `up` wrote on stdout; `settings` are PENSTOCK_ variables."""

    def __init__(
        self,
        data: Path,
        node_count: int = 3,
        settings: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        trusted: Path | None = None,
    ) -> None:
        """`options` are more words of `up`; `trusted` is what clients trust, where the installation speaks TLS."""
        self.data = data
        self._options = options
        self._trusted = trusted
        self._settings = dict(settings or {})
        self.node_count = node_count
        self.port = free_port()
        self.printed = ""

    # --- commands ---------------------------------------------------------------------------------------

    def command(
        self, *arguments: str, input_bytes: bytes | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        environment = {name: value for name, value in environment.items() if not name.startswith("PENSTOCK_")}
        path = os.pathsep.join(filter(None, [str(ROOT), self._settings.get("PYTHONPATH", "")]))
        environment |= self._settings | {"PENSTOCK_DATA_DIR": str(self.data), "PYTHONPATH": path}
        answer = subprocess.run(
            [*COMMAND, *arguments], input=input_bytes, capture_output=True, env=environment, timeout=UP_TIMEOUT_S
        )
        if check and answer.returncode != 0:
            pytest.fail(f"penstock {' '.join(arguments)}: {answer.stderr.decode()[-4000:]}")
        return answer

    def manage(self, *arguments: str, text: str = "") -> Any:
        """A command of manage.py with the settings that the launcher gives one. Its JSON."""
        known = Installation(self.data)
        with patch.dict(os.environ):
            for name in NOT_INHERITED:
                os.environ.pop(name, None)
            environment = known.environment(known.load_state(), "manage")
        command = [sys.executable, str(ROOT / "manage.py"), *arguments]
        answer = subprocess.run(
            command, input=text.encode(), capture_output=True, env=environment, cwd=ROOT, timeout=UP_TIMEOUT_S
        )
        assert answer.returncode == 0, answer.stderr.decode()[-3000:]
        return json.loads(answer.stdout)

    def up(self) -> str:
        arguments = ["up", "--detach", "--port", str(self.port), "--nodes", str(self.node_count)]
        self.printed = self.command(*arguments, *self._options).stdout.decode()
        return self.printed

    def down(self) -> None:
        self.command("down")

    def status(self) -> dict[str, Any]:
        """Without a process for each question: tests ask until something is so."""
        known = Installation(self.data)
        return status_of(known, known.load_state())

    @functools.cached_property
    def key(self) -> dict[str, Any]:
        """A key of an account of the tests' own."""
        key: dict[str, Any] = json.loads(self.command("keys", "create", "--account", "tests", "--json").stdout)
        return key

    # --- ways in ----------------------------------------------------------------------------------------

    def sqs(self, **options: Any) -> Any:
        import boto3
        from botocore.config import Config

        config = Config(retries={"mode": "standard", "max_attempts": 10}, max_pool_connections=20, **options)
        return boto3.client(
            "sqs",
            endpoint_url=self.key["endpoint"],
            region_name=self.key["region"],
            aws_access_key_id=self.key["access_key_id"],
            aws_secret_access_key=self.key["secret_access_key"],
            verify=None if self._trusted is None else str(self._trusted),
            config=config,
        )

    def rest(self) -> Any:
        """An HTTP client of the REST API; paths begin with /v1."""
        import httpx2

        headers = {"Authorization": f"Bearer {self.key['bearer_token']}"}
        return httpx2.Client(base_url=self.key["endpoint"], headers=headers, timeout=30)

    def new_queue(self, **attributes: str) -> tuple[str, str]:
        """Name and URL of a queue nobody used yet."""
        name = f"q-{uuid.uuid4().hex[:12]}"
        return name, self.sqs().create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    # --- processes --------------------------------------------------------------------------------------

    def processes(self, role: str | None = None) -> list[dict[str, Any]]:
        return [row for row in self.status()["processes"] if role in (None, row["role"])]

    def kill(self, role: str, number: int = 1) -> int:
        """kill -9; its process number. Storage nodes are numbered by their ids."""
        pid = next(row["pid"] for row in self.processes(role) if row["id"] == number)
        os.kill(pid, signal.SIGKILL)
        return int(pid)

    def kill_everything(self) -> None:
        """kill -9 of every process at once, the supervisor first so that it restarts nothing."""
        pids = [row["pid"] for row in self.processes() if row["pid"]]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() and is_running(pid) for pid in pids))

    def node_ids(self) -> list[int]:
        return Installation(self.data).load_state().node_ids()

    def leader_of(self, partition_tag_part: str) -> int:
        """The node that leads a partition whose tag holds this text."""
        rows = [row for row in self.status()["partitions"] if partition_tag_part in row["tag"] and row["leader"]]
        return int(rows[0]["leader"])

    def wait_healthy(self) -> None:
        def healthy() -> bool:
            status = self.status()
            processes_well = all(row["health"] == "healthy" for row in status["processes"])
            nodes_well = len(status["nodes"]) == self.node_count and all(node["alive"] for node in status["nodes"])
            return processes_well and nodes_well

        wait_until(healthy, RECOVERY_TIMEOUT_S, 0.3)


def is_running(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0, interval_s: float = 0.02) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not so within {timeout_s} s"
        time.sleep(interval_s)


def free_port() -> int:
    """Not among those that the system gives to connections: one of them could be taken before anybody listens."""
    return choose_port(set())


@contextlib.contextmanager
def running(
    node_count: int = 3,
    settings: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    trusted: Path | None = None,
) -> Iterator[RunningInstallation]:
    directory = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    made = RunningInstallation(directory / "data", node_count, settings, options, trusted)
    try:
        made.up()
        yield made
    finally:
        made.command("down", check=False)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def webhook_receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookReceiver]:
    """What the workers of `installation` may call. It answers while a test has it serving."""
    receiver = WebhookReceiver(tmp_path_factory.mktemp("webhook-receiver"))
    yield receiver
    receiver.close()


@pytest.fixture(scope="session")
def installation(webhook_receiver: WebhookReceiver) -> Iterator[RunningInstallation]:
    options = ("--cluster-number", str(CLUSTER_NUMBER))
    with running(settings=QUICK | webhook_receiver.settings, options=options) as made:
        yield made
