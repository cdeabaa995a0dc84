"""A whole installation in a temporary directory, and what its processes cost."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import psutil

from benchmarks.report import Report

LAUNCHER = Path(__file__).resolve().parent.parent / "penstock"
UP_TIMEOUT_S = 120


class TemporaryInstallation:
    """`with TemporaryInstallation() as installation:` starts it and stops it.

    `launcher`: that of another checkout, which has a virtual environment of its own."""

    def __init__(self, launcher: Path = LAUNCHER) -> None:
        self._launcher = launcher
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-bench-")
        self._data = f"{self._directory.name}/data"
        self._key: dict[str, Any] = {}

    def __enter__(self) -> Self:
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        self.command("up", "--detach", "--port", str(port))
        self._key = json.loads(self.command("keys", "create", "--account", "bench", "--json"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.command("down")
        self._directory.cleanup()

    def command(self, *arguments: str) -> str:
        """Run one launcher command on this installation; its standard output."""
        environment = dict(os.environ, PENSTOCK_DATA_DIR=self._data)
        if self._launcher != LAUNCHER:
            for name in ("PENSTOCK_VENV", "PYTHONPATH", "VIRTUAL_ENV"):
                environment.pop(name, None)
        finished = subprocess.run(
            [str(self._launcher), *arguments], env=environment, stdout=subprocess.PIPE, timeout=UP_TIMEOUT_S, check=True
        )
        return finished.stdout.decode()

    @property
    def bearer_token(self) -> str:
        return str(self._key["bearer_token"])

    @property
    def data_directory(self) -> str:
        return self._data

    def target(self) -> dict[str, Any]:
        """Fields of `http_load.LoadTarget`."""
        address = urlsplit(self._key["endpoint"])
        return {
            "host": address.hostname,
            "port": address.port,
            "region": self._key["region"],
            "access_key_id": self._key["access_key_id"],
            "secret_access_key": self._key["secret_access_key"],
        }

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Role and id of every process of the installation, with its children (PostgreSQL has several)."""
        found: dict[str, list[psutil.Process]] = {}
        for entry in json.loads(self.command("status", "--json"))["processes"]:
            process = psutil.Process(entry["pid"])
            own = [process, *(process.children(recursive=True) if entry["role"] != "supervisor" else [])]
            found[f"{entry['role']} {entry['id']}".strip()] = own
        return found

    def resident_mib(self) -> dict[str, float]:
        return {
            name: sum(process.memory_info().rss for process in processes) / 2**20
            for name, processes in self.processes().items()
        }

    @contextlib.contextmanager
    def cpu(self) -> Iterator[CpuUse]:
        """Measures the CPU time of every process, and of ours, over a block."""
        use = CpuUse(self.processes())
        yield use
        use.stop()


class CpuUse:
    """CPU seconds per process between construction and `stop`."""

    def __init__(self, processes: dict[str, list[psutil.Process]]) -> None:
        self._processes = {**processes, "load generator": [psutil.Process()]}
        self._before = self._seconds()
        self.spent: dict[str, float] = {}

    def stop(self) -> None:
        after = self._seconds()
        self.spent = {name: after[name] - before for name, before in self._before.items()}

    def report(self, report: Report, messages: int, what: str) -> None:
        """CPU seconds per million messages, in all and per process that took a noticeable part."""
        per_million = {name: seconds / messages * 1e6 for name, seconds in self.spent.items()}
        total = sum(per_million.values())
        report.add(f"  CPU of {what}, all processes", total, "s per million")
        for name, seconds in per_million.items():
            if seconds > total / 100:
                report.add(f"    {name}", seconds, "s per million")

    def report_front_end(self, report: Report, requests: int, what: str) -> None:
        seconds = sum(spent for name, spent in self.spent.items() if name.startswith("frontend"))
        report.add(f"  CPU of the front end for one {what}", seconds / requests * 1e6, "us")

    def _seconds(self) -> dict[str, float]:
        return {
            name: sum(sum(process.cpu_times()[:2]) for process in processes if process.is_running())
            for name, processes in self._processes.items()
        }
