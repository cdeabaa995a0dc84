"""The supervisor's own behaviour with small stand-in processes: restarts, back-off, stopping, its own death."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import child as child_module
from deploy import limits
from deploy.child import Backoff, Child, ChildSpec, StartFailed
from deploy.installation import ROOT

# Listens like a server does; says when it was asked to stop.
SERVER = """
import signal, socket, sys, time
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen()
def stop(number, frame):
    print("asked to stop", flush=True)
    if len(sys.argv) < 3:
        sys.exit(0)
signal.signal(signal.SIGTERM, stop)
while True:
    time.sleep(60)
"""


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server(tmp_path: Path, *flags: str) -> Child:
    port = free_port()
    command = [sys.executable, "-S", "-c", SERVER, str(port), *flags]
    return Child(ChildSpec(role="server", command=command, address=("127.0.0.1", port)), dict(os.environ), tmp_path)


async def test_words_of_the_log_begin_with_the_life_that_ended(tmp_path: Path) -> None:
    """Of a child that crashes: with the crash, not with what stood in the log before its start."""
    (tmp_path / "server.log").write_text("of another day\n")
    command = [sys.executable, "-S", "-c", "print('own words'); raise SystemExit(1)"]
    child = Child(ChildSpec(role="server", command=command), dict(os.environ), tmp_path)
    child.start()
    await until(lambda: child.restarts >= 2)
    await child.stop()
    words = child.log_path.read_text()[child.own_words_from() :]
    assert words.startswith("own words\n") and "of another day" not in words


async def until(condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "the condition never came true"
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return False


def test_backoff_deaths_in_a_row_double_up_to_the_bound() -> None:
    backoff = Backoff()
    delays = [backoff.after_death(1.0) for _ in range(8)]
    assert delays[:4] == [0.2, 0.4, 0.8, 1.6]
    assert delays[-1] == limits.RESTART_DELAY_S_MAX
    assert delays == sorted(delays)


def test_backoff_child_that_lived_starts_over() -> None:
    backoff = Backoff()
    for _ in range(6):
        backoff.after_death(1.0)
    assert backoff.after_death(limits.RESTART_RESET_S) == limits.RESTART_DELAY_S_MIN


async def test_child_killed_comes_back_with_a_new_pid(tmp_path: Path) -> None:
    child = server(tmp_path)
    child.start()
    await child.ready(10)
    first = child.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    killed = time.monotonic()
    await until(lambda: child.pid not in (None, first))
    assert time.monotonic() - killed >= limits.RESTART_DELAY_S_MIN
    await child.ready(10)
    assert child.restarts == 1
    assert "signal SIGKILL" in child.log_path.read_text()
    await child.stop()


async def test_child_that_dies_again_and_again_fails_although_it_answers_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESTART_DELAY_S_MIN", 0.01)
    monkeypatch.setattr(limits, "RESTART_DELAY_FACTOR", 1.0)
    child = server(tmp_path)
    child.start()
    await child.ready(10)
    for deaths in range(1, limits.FAILING_CRASHES + 1):
        assert child.pid is not None and child.restarts == deaths - 1
        os.kill(child.pid, signal.SIGKILL)
        await until(lambda deaths=deaths: child.restarts == deaths and child.pid is not None)  # type: ignore[misc]
    while not await child._serves():
        await asyncio.sleep(0.01)
    assert await child.health() == "failing"
    assert child.not_up_since is not None and child.last_end == "ended with signal SIGKILL"
    monkeypatch.setattr(limits, "CRASH_LIFE_S", 0.0)  # as if it had lived long enough
    await child.ready(10)
    assert await child.health() == "healthy" and child.not_up_since is None and child.last_end == ""
    await child.stop()


async def test_child_that_answers_no_more_is_unhealthy_since_then(tmp_path: Path) -> None:
    answers = True

    async def probe() -> bool:
        return answers

    child = server(tmp_path)
    child.spec.probe = probe
    child.start()
    await child.ready(10)
    assert (await child.health(), child.not_up_since) == ("healthy", None)
    answers = False
    assert await child.health() == "unhealthy"
    since = child.not_up_since
    assert since is not None and await child.health() == "unhealthy" and child.not_up_since == since
    answers = True
    assert (await child.health(), child.not_up_since) == ("healthy", None)
    await child.stop()


async def test_child_stopped_stays_down_until_started(tmp_path: Path) -> None:
    child = server(tmp_path)
    child.start()
    await child.ready(10)
    pid = child.pid
    assert pid is not None
    await child.stop()
    assert not is_alive(pid) and child.pid is None
    assert await child.health() == "stopped"
    assert child.restarts == 0, "a wanted end is no crash"
    assert "asked to stop" in child.log_path.read_text()
    child.start()
    await child.ready(10)
    assert child.pid != pid and await child.health() == "healthy"
    await child.stop()


async def test_child_that_keeps_dying_is_tried_at_once_by_a_start_and_judged_by_that_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cause is mended in the middle of a long wait: the deaths before that count no more."""
    monkeypatch.setattr(limits, "RESTART_DELAY_S_MIN", 0.01)
    child = server(tmp_path)
    mended = tmp_path / "mended"
    broken = f"import os\nif not os.path.exists({str(mended)!r}): raise SystemExit('is broken')\n"
    child.spec.command[3] = broken + SERVER
    child.start()
    await until(lambda: child.restarts >= limits.START_ATTEMPTS_MAX)
    monkeypatch.setattr(Backoff, "after_death", lambda backoff, lived_s: 60.0)
    restarts = child.restarts
    await until(lambda: child.restarts > restarts and child.pid is None)
    mended.touch()
    child.start()
    await child.ready(10)
    assert await child.health() == "healthy" and child.last_end == ""
    assert "is broken" not in child.log_path.read_text()[child.own_words_from() :]
    await child.stop()


async def test_child_that_is_still_broken_fails_a_start_by_its_new_deaths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESTART_DELAY_S_MIN", 0.01)
    child = Child(
        ChildSpec(role="broken", command=["/bin/false"], address=("127.0.0.1", 1)), dict(os.environ), tmp_path
    )
    child.start()
    await until(lambda: child.restarts > limits.START_ATTEMPTS_MAX and child.pid is None)
    restarts = child.restarts
    child.start()
    with pytest.raises(StartFailed, match=f"died {limits.START_ATTEMPTS_MAX} times"):
        await child.ready(10)
    assert child.restarts >= restarts + limits.START_ATTEMPTS_MAX
    await child.stop()


async def test_child_deaf_to_term_is_killed_at_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module.limits, "STOP_DEADLINE_S", 0.3)
    child = server(tmp_path, "deaf")
    child.start()
    await child.ready(10)
    pid = child.pid
    assert pid is not None
    await child.stop()
    assert not is_alive(pid)
    assert "did not stop within" in child.log_path.read_text()


async def test_child_that_dies_at_once_fails_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module.limits, "RESTART_DELAY_S_MIN", 0.01)
    command = [sys.executable, "-S", "-c", "raise SystemExit(7)"]
    child = Child(ChildSpec(role="broken", command=command, address=("127.0.0.1", 1)), dict(os.environ), tmp_path)
    child.start()
    with pytest.raises(StartFailed, match="broken died 4 times"):
        await child.ready(10)
    assert "status 7" in child.log_path.read_text()
    await child.stop()


async def test_child_without_program_fails_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module.limits, "RESTART_DELAY_S_MIN", 0.01)
    child = Child(ChildSpec(role="absent", command=["/nowhere/program"]), dict(os.environ), tmp_path)
    child.start()
    with pytest.raises(StartFailed):
        await child.ready(10)
    assert "could not be started" in child.log_path.read_text()
    await child.stop()


async def test_child_is_started_again_although_the_disk_takes_no_word_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESTART_DELAY_S_MIN", 0.01)
    child = server(tmp_path)
    child.log_path = Path("/dev/full")
    child.start()
    await child.ready(10)
    for restarts in (1, 2):
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        await until(lambda restarts=restarts: child.restarts == restarts and child.pid is not None)  # type: ignore[misc]
    assert child.last_end == "ended with signal SIGKILL"
    await child.stop()


async def test_child_that_never_serves_fails_the_start(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    child = Child(ChildSpec(role="mute", command=command, address=("127.0.0.1", 1)), dict(os.environ), tmp_path)
    child.start()
    with pytest.raises(StartFailed, match="did not serve"):
        await child.ready(0.3)
    await child.stop()


async def test_child_stop_during_backoff_returns_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module.limits, "RESTART_DELAY_S_MIN", 60.0)
    child = Child(ChildSpec(role="broken", command=["/bin/false"]), dict(os.environ), tmp_path)
    child.start()
    await until(lambda: child.restarts == 1)
    began = time.monotonic()
    await child.stop()
    assert time.monotonic() - began < 5


def test_child_of_a_killed_supervisor_dies_with_it(tmp_path: Path) -> None:
    """kill -9 of the supervisor must leave nothing that holds ports or files."""
    program = f"""
import asyncio, os, sys
from pathlib import Path
from deploy.child import Child, ChildSpec
async def main():
    spec = ChildSpec(role="sleeper", command=[sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    child = Child(spec, dict(os.environ), Path({str(tmp_path)!r}))
    child.start()
    await child.ready(10)
    while child.pid is None:
        await asyncio.sleep(0.01)
    print(child.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        assert is_alive(pid)
        supervisor.kill()
    end = time.monotonic() + 5
    while is_alive(pid):
        assert time.monotonic() < end, "the child outlived its supervisor"
        time.sleep(0.01)


def test_log_beyond_its_bound_moves_aside_while_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with open(path, "ab", buffering=0) as held_open:
        held_open.write(b"old\n")
        child_module.rotate(path)
        held_open.write(b"new\n")
    assert path.read_bytes() == b"new\n"
    assert (tmp_path / "server.log.1").read_bytes() == b"old\n"


def test_log_within_its_bound_stays(tmp_path: Path) -> None:
    child = Child(ChildSpec(role="server", command=["true"]), {}, tmp_path)
    child.bound_log()  # no file yet
    child.log_path.write_text("line\n")
    child.bound_log()
    assert child.log_path.read_text() == "line\n"
