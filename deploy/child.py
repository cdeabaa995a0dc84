"""One supervised process: started, watched, started again when it dies, stopped.

A child runs in a session of its own (the terminal's Ctrl-C reaches only the supervisor, which then stops everything in
order) and asks the kernel to be signalled when the supervisor dies, so that `kill -9` of the supervisor leaves nothing.
Death is learnt from a pidfd: no polling, no thread a child.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from deploy import limits, probes
from deploy.identity import Identity
from deploy.installation import ROOT
from deploy.last_words import SUPERVISORS

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class ChildSpec:
    """What to run, and how to tell that it serves."""

    role: str
    command: list[str]
    number: int = 1
    address: tuple[str, int] | None = None
    http_path: str | None = None  # asked on `address` for readiness and health; None = a TCP connection is enough
    probe: probes.Probe | None = None  # asked instead
    environment: dict[str, str] = field(default_factory=dict)
    identity: Identity | None = None
    stop_signal: str = "SIGTERM"
    before_start: Callable[[], None] | None = None
    cwd: str = str(ROOT)
    log_name: str = ""

    @property
    def name(self) -> str:
        return self.log_name or self.role


class Backoff:
    """The wait before the next start of a child that keeps dying."""

    __slots__ = ("_next_s",)

    def __init__(self) -> None:
        self._next_s = limits.RESTART_DELAY_S_MIN

    def after_death(self, lived_s: float) -> float:
        if lived_s >= limits.RESTART_RESET_S:
            self._next_s = limits.RESTART_DELAY_S_MIN
        delay_s = self._next_s
        self._next_s = min(delay_s * limits.RESTART_DELAY_FACTOR, limits.RESTART_DELAY_S_MAX)
        return delay_s


class StartFailed(Exception):
    """A child died again and again before it ever served, or did not serve in time."""


class Child:
    """Keeps one process alive from `start` to `stop`."""

    def __init__(self, spec: ChildSpec, environment: dict[str, str], logs: Path) -> None:
        self.spec = spec
        self.log_path = logs / f"{spec.name}.log"
        self.restarts = 0
        self.started_at: float | None = None
        self.pid: int | None = None
        self.wanted = False
        self._environment = {**environment, **spec.environment}
        self._keeper: asyncio.Task[None] | None = None
        self._stop_asked = asyncio.Event()
        self._try_now = asyncio.Event()  # ends the wait for the next start
        self._backoff = Backoff()
        self._deaths_before_ready = 0
        self._was_ready = False
        self._crashes = 0  # short lives, one after the other
        self._born_s = 0.0
        self.last_end = ""  # how its last life ended
        self._log_marks = (0, 0)  # where in its log the life before this one began, and this one
        self.not_up_since: float | None = None

    def start(self) -> None:
        """Of one that keeps dying: try now, and judge by this try alone, because the cause may have been mended."""
        if self.pid is None:
            end = self.log_path.stat().st_size if self.log_path.exists() else 0
            self._log_marks = (end, end)
            self.last_end = ""
        else:
            self._log_marks = (self._log_marks[1], self._log_marks[1])
        self._crashes = self._deaths_before_ready = 0
        self._backoff = Backoff()
        self._try_now.set()
        if not self.wanted:
            self.wanted = True
            self._stop_asked.clear()
            self._keeper = asyncio.create_task(self._keep_alive())

    async def stop(self) -> None:
        """End the process and stay down; returns when it is gone."""
        self.wanted = False
        self._stop_asked.set()
        self._try_now.set()
        if self._keeper is not None:
            await self._keeper
            self._keeper = None

    async def ready(self, deadline_s: float) -> None:
        """Return once the process serves; raise StartFailed with the end of its log when it will not."""
        end = time.monotonic() + deadline_s
        while not (self.pid is not None and await self._serves() and self._is_steady()):
            deaths = max(self._deaths_before_ready, self._crashes)
            if deaths >= limits.START_ATTEMPTS_MAX:
                raise StartFailed(f"{self.spec.name} died {deaths} times while starting ({self.last_end})")
            if time.monotonic() > end:
                raise StartFailed(f"{self.spec.name} did not serve within {deadline_s:.0f} s")
            await asyncio.sleep(limits.READY_PROBE_INTERVAL_S)
        self._was_ready = True

    async def health(self) -> str:
        """healthy; stopped (asked for); starting, unhealthy (it lives and does not answer), restarting, failing (it
        dies again and again as soon as it is started)."""
        health = await self._look()
        if health in ("healthy", "stopped"):
            self.not_up_since = None
            self.last_end = ""  # of a time of trouble that is over
        elif self.not_up_since is None:
            self.not_up_since = time.time()
        return health

    async def _look(self) -> str:
        if not self.wanted:
            return "stopped"
        if self._crashes >= limits.FAILING_CRASHES and not self._is_steady():
            return "failing"
        if self.pid is None:
            return "restarting"
        if await self._serves():
            return "healthy"
        return "unhealthy" if self._was_ready else "starting"

    async def _serves(self) -> bool:
        return await probes.serves(self.spec.address, self.spec.http_path, self.spec.probe)

    def _is_steady(self) -> bool:
        """It does not crash again and again: a process that does may answer in between."""
        return self._crashes < 2 or (self.pid is not None and time.monotonic() - self._born_s >= limits.CRASH_LIFE_S)

    def respecify(self, spec: ChildSpec, environment: dict[str, str]) -> None:
        """From its next start on it gets these settings."""
        self.spec = spec
        self._environment = {**environment, **spec.environment}

    def own_words_from(self) -> int:
        """Where in the log begins what it said itself: of the life before this one, where that ended by itself."""
        return self._log_marks[0]

    def bound_log(self) -> None:
        """Keep the log file within its bound: the older half moves aside, the child goes on appending."""
        with contextlib.suppress(FileNotFoundError):
            if self.log_path.stat().st_size > limits.LOG_FILE_BYTES_MAX:
                rotate(self.log_path)
                self._log_marks = (0, 0)

    # --- the keeper -------------------------------------------------------------------------------------

    async def _keep_alive(self) -> None:
        while self.wanted:
            self._try_now.clear()
            born = self._born_s = time.monotonic()
            try:
                process = self._spawn()
            except OSError as error:
                self.last_end = f"could not be started: {error}"
                append_line(self.log_path, self.last_end)
            else:
                await self._until_exit(process)
            if not self.wanted:
                return
            lived_s = time.monotonic() - born
            self._crashes = self._crashes + 1 if lived_s < limits.CRASH_LIFE_S else 0
            self._deaths_before_ready += not self._was_ready
            self.restarts += 1
            self.not_up_since = self.not_up_since or time.time()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._try_now.wait(), self._backoff.after_death(lived_s))

    def _spawn(self) -> subprocess.Popen[bytes]:
        spec = self.spec
        if spec.before_start is not None:
            spec.before_start()
        supervisor = os.getpid()
        # On the supervisor's death PostgreSQL shall not wait for its clients either.
        death_signal = signal.Signals[spec.stop_signal]

        def in_child() -> None:
            become(spec.identity)
            follow_in_death(death_signal, supervisor)

        log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        self._log_marks = (self._log_marks[1], os.fstat(log).st_size)
        try:
            process = subprocess.Popen(
                spec.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment, cwd=spec.cwd,
                start_new_session=True, preexec_fn=in_child,
            )  # fmt: skip
        finally:
            os.close(log)
        self.pid, self.started_at = process.pid, time.time()
        return process

    async def _until_exit(self, process: subprocess.Popen[bytes]) -> None:
        exited = asyncio.ensure_future(wait_exit(process.pid))
        asked = asyncio.ensure_future(self._stop_asked.wait())
        await asyncio.wait({exited, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not exited.done():
            process.send_signal(signal.Signals[self.spec.stop_signal])
            await asyncio.wait({exited}, timeout=limits.STOP_DEADLINE_S)
        if not exited.done():
            append_line(self.log_path, f"did not stop within {limits.STOP_DEADLINE_S:.0f} s; killed")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await exited
        asked.cancel()
        status = process.wait()
        self.pid = None
        if self.wanted:
            self.last_end = f"ended with {describe_exit(status)}"
            append_line(self.log_path, f"{self.last_end}; will be started again")


async def wait_exit(pid: int) -> None:
    """Wait for a child's end without reaping it."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    descriptor = os.pidfd_open(pid)
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def describe_exit(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def append_line(path: Path, text: str) -> None:
    """The supervisor's own word in a child's log, marked as such; lost where the disk takes nothing more, which must
    not end the keeper."""
    with contextlib.suppress(OSError), open(path, "a") as file:
        file.write(f"{SUPERVISORS}{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}] {text}\n")


def rotate(path: Path) -> None:
    """Copy and truncate: the child holds the file open for appending, so its next line starts the file anew."""
    previous = path.with_suffix(".log.1")
    with open(path, "rb") as source, open(previous, "wb") as copy:
        copy.write(source.read())
    os.truncate(path, 0)


# --- between fork and exec ----------------------------------------------------------------------------------


def become(identity: Identity | None) -> None:
    if identity is not None:
        os.setgroups([])
        os.setgid(identity.gid)
        os.setuid(identity.uid)


def follow_in_death(number: int, parent: int) -> None:
    """Ask for a signal when the supervisor dies. Set after any change of user, which would clear it."""
    _libc.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:  # it died between fork and here
        os._exit(1)
