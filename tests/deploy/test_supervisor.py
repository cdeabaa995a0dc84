"""The supervisor's order and refusals, with stand-in processes; the real ones run in tests/e2e."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy import limits, roles
from deploy.child import ChildSpec, StartFailed
from deploy.commands.status import not_up_lines
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.ports import choose_port
from deploy.supervisor import STOP_ORDER, Supervisor, first_failure
from frontend.limits import SHUTDOWN_GRACE_S
from storage_nodes.client.storage_client import CALL_TIMEOUT_S

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


def sleeper(role: str) -> ChildSpec:
    return ChildSpec(role=role, command=SLEEP)


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """Outside servers and a schema in place, so that only the planes' processes are started; those are sleepers."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setattr("deploy.management.migrate", lambda installation, state: False)
    monkeypatch.setattr("deploy.supervisor.ensure_demo_key", lambda installation, state: {"access_key_id": "x"})
    # "control" is no role that STOP_ORDER names: it must be stopped all the same.
    for name in ("metadata", "control", "worker"):
        monkeypatch.setattr(roles, f"{name}_spec", lambda *_, name=name: sleeper(name))
    monkeypatch.setattr(roles, "schedule_spec", lambda state: sleeper("schedule"))
    monkeypatch.setattr(roles, "usage_worker_spec", lambda state: sleeper("usage-worker"))
    monkeypatch.setattr(roles, "frontend_specs", lambda state: [sleeper("frontend")])
    monkeypatch.setattr(roles, "storage_node_specs", lambda installation, state: [sleeper("storage-node")])
    installation = Installation(tmp_path / "data")
    installation.prepare()
    return Supervisor(installation, installation.settle_state(None, choose_port(set()), 1), lambda text: None)


async def run_until_ready(supervisor: Supervisor) -> tuple[asyncio.Task[None], asyncio.Event]:
    ready = asyncio.Event()
    task = asyncio.create_task(supervisor.run(lambda _: ready.set()))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    waiting.cancel()
    return task, ready


async def test_supervisor_stop_over_the_socket_leaves_nothing(supervisor: Supervisor) -> None:
    task, ready = await run_until_ready(supervisor)
    assert ready.is_set() and supervisor.demo_key
    status = await supervisor.handle({"command": "status"})
    pids = [row["pid"] for row in status["processes"] if row["role"] != "supervisor"]
    assert len(pids) == 7 and all(pids)
    assert await supervisor.handle({"command": "stop"}) == {"stopping": True}
    await asyncio.wait_for(task, 20)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not (supervisor.installation.run / "control.sock").exists()


async def test_metadata_service_waits_for_the_schema(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first question would otherwise be an error in PostgreSQL's log."""
    started: list[str] = []
    monkeypatch.setattr(
        "deploy.management.migrate",
        lambda installation, state: started.extend(c.spec.role for c in supervisor.children),
    )
    task, _ = await run_until_ready(supervisor)
    assert "metadata" not in started
    await supervisor.handle({"command": "stop"})
    await asyncio.wait_for(task, 20)


async def test_supervisor_node_stopped_and_started_by_id(supervisor: Supervisor) -> None:
    task, _ = await run_until_ready(supervisor)
    stopped = await supervisor.handle({"command": "node stop", "id": 1})
    assert stopped["health"] == "stopped" and stopped["pid"] is None
    started = await supervisor.handle({"command": "node start", "id": 1})
    assert started["health"] == "healthy" and started["pid"]
    assert "there is no storage node 9" in (await supervisor.handle({"command": "node stop", "id": 9}))["error"]
    assert "unknown command" in (await supervisor.handle({"command": "dance"}))["error"]
    await supervisor.handle({"command": "stop"})
    await asyncio.wait_for(task, 20)


async def test_start_of_a_node_that_fails_comes_with_the_next_step(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESTART_DELAY_S_MIN", 0.01)
    task, _ = await run_until_ready(supervisor)
    await supervisor.handle({"command": "node stop", "id": 1})
    (child,) = supervisor.children_of("storage-node")
    child.spec.command = [sys.executable, "-S", "-c", "raise SystemExit(73)"]
    child.spec.address = ("127.0.0.1", 1)
    told = (await supervisor.handle({"command": "node start", "id": 1}))["error"]
    assert "died 4 times while starting (ended with status 73)" in told
    assert told.splitlines()[-1].startswith("disk full: free space; the node starts by itself then")
    await supervisor.handle({"command": "stop"})
    await asyncio.wait_for(task, 20)


async def test_supervisor_adds_a_node_notes_that_it_joined_and_removes_it(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    joins: dict[int, bool] = {}

    def spec(installation: Installation, state: Any, node: Any) -> ChildSpec:
        joins[node.node_id] = node.node_id in state.joining
        return ChildSpec(role="storage-node", command=SLEEP, number=node.node_id)

    monkeypatch.setattr(roles, "storage_node_spec", spec)
    task, _ = await run_until_ready(supervisor)
    added = await supervisor.handle({"command": "node add"})
    assert added["id"] == 2 and added["health"] == "healthy" and joins == {1: False, 2: True}
    assert await supervisor.handle({"command": "node joined", "id": 2}) == {"id": 2}
    assert joins == {1: False, 2: False} and supervisor.installation.load_state().node_ids() == [1, 2]
    assert await supervisor.handle({"command": "node remove", "id": 1}) == {"id": 1}
    assert supervisor.installation.load_state().node_ids() == [2]
    numbers = [child.spec.number for child in supervisor.children if child.spec.role == "storage-node"]
    assert numbers == [2]
    assert "there is no storage node 1" in (await supervisor.handle({"command": "node remove", "id": 1}))["error"]
    await supervisor.handle({"command": "stop"})
    await asyncio.wait_for(task, 20)


async def test_supervisor_failed_part_stops_the_others_and_says_which(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(installation: Any, state: Any) -> bool:
        raise CommandError("manage.py migrate failed: no such table")

    monkeypatch.setattr("deploy.management.migrate", refuse)
    with pytest.raises(CommandError, match="no such table"):
        await asyncio.wait_for(supervisor.run(lambda _: None), 20)
    assert all(child.pid is None for child in supervisor.children)


async def test_supervisor_dying_process_is_named_with_its_log(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.limits.RESTART_DELAY_S_MIN", 0.01)
    program = [sys.executable, "-S", "-c", "import sys; sys.exit('port of the front end is on fire')"]
    broken = ChildSpec("frontend", program, address=("127.0.0.1", 1))
    monkeypatch.setattr(roles, "frontend_specs", lambda state: [broken])
    with pytest.raises(CommandError, match=r"(?s)frontend died.*on fire"):
        await asyncio.wait_for(supervisor.run(lambda _: None), 20)


async def test_supervisor_process_that_dies_after_it_was_ready_fails_the_start(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ready when it is looked at, and dead when everything else is there."""
    monkeypatch.setattr("deploy.limits.RESTART_DELAY_S_MIN", 0.01)
    monkeypatch.setattr("deploy.limits.RESTART_DELAY_FACTOR", 1.0)
    program = [sys.executable, "-S", "-c", "import sys, time; time.sleep(0.15); sys.exit('the wrong files')"]
    monkeypatch.setattr(roles, "metadata_spec", lambda state: ChildSpec("metadata", program))
    honest = supervisor._check_whole

    async def later() -> None:
        await asyncio.sleep(1.0)
        await honest()

    monkeypatch.setattr(supervisor, "_check_whole", later)
    with pytest.raises(CommandError, match=r"(?s)metadata died.*the wrong files"):
        await asyncio.wait_for(supervisor.run(lambda _: None), 20)


async def test_supervisor_tells_the_last_words_of_a_process_that_is_not_up(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, _ = await run_until_ready(supervisor)
    child = supervisor.children_of("worker")[0]
    secret = supervisor.installation.secret("valkey.password")
    child.log_path.write_text(f"cannot reach redis://:{secret}@127.0.0.1\n")
    monkeypatch.setattr(child, "_serves", lambda: asyncio.sleep(0, False))
    status = await supervisor.handle({"command": "status"})
    rows = {row["role"]: row for row in status["processes"]}
    assert rows["worker"]["health"] == "unhealthy" and rows["frontend"]["not_up"] is None
    not_up = rows["worker"]["not_up"]
    assert not_up["last_words"] == ["cannot reach redis://:***@127.0.0.1"] and not_up["since"]
    lines = not_up_lines(status["processes"])
    assert "worker 1 does not answer, 0 restarts, not up since" in lines[1] and lines[-1].endswith("@127.0.0.1")
    assert status["started"] and not status["ready"], "it came up, and is not whole now"
    monkeypatch.setattr(child, "_serves", lambda: asyncio.sleep(0, True))
    await supervisor.handle({"command": "node stop", "id": 1})
    assert (await supervisor.handle({"command": "status"}))["ready"], "a node that was stopped on purpose is no fault"
    await supervisor.handle({"command": "stop"})
    await asyncio.wait_for(task, 20)


def test_failure_that_is_a_bug_is_shown_as_one() -> None:
    bug = ExceptionGroup("", [ZeroDivisionError()])
    assert first_failure(bug) is bug
    assert str(first_failure(ExceptionGroup("", [ZeroDivisionError(), StartFailed("why")]))) == "why"


def test_stop_order_names_every_role_once() -> None:
    names = [role for stage in STOP_ORDER for role in stage]
    known = {
        "frontend",
        "schedule",
        "worker",
        "usage-worker",
        "control-plane",
        "metadata",
        "storage-node",
        "valkey",
        "postgres",
    }
    assert sorted(names) == sorted(known)


def test_front_end_that_is_stopped_lets_its_storage_calls_end() -> None:
    assert CALL_TIMEOUT_S < SHUTDOWN_GRACE_S < limits.STOP_DEADLINE_S
    assert (len(STOP_ORDER) + 1) * limits.STOP_DEADLINE_S < limits.DOWN_DEADLINE_S


async def test_node_that_is_started_gets_the_certificate_that_it_lacks(supervisor: Supervisor) -> None:
    supervisor.state.inner_tls = "authenticate"
    task, _ = await run_until_ready(supervisor)
    await supervisor.handle({"command": "node stop", "id": 1})
    made = supervisor.installation.certificates / "node-1" / "own.pem"
    made.parent.mkdir(exist_ok=True)
    made.write_text("garbage")
    await supervisor.handle({"command": "node start", "id": 1})
    assert made.read_text().startswith("-----BEGIN CERTIFICATE")
    await supervisor.handle({"command": "stop"})
    await asyncio.wait_for(task, 20)


async def test_supervisor_renews_certificates_while_it_runs(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.limits.LOG_CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr("deploy.limits.CERTIFICATE_LOOK_S", 0.05)
    supervisor.state.inner_tls = "authenticate"
    task, _ = await run_until_ready(supervisor)
    made = supervisor.installation.certificates / "node-1" / "own.pem"
    async with asyncio.timeout(10):
        for _ in range(2):
            while not made.exists():
                await asyncio.sleep(0.01)
            await asyncio.to_thread(made.unlink)
    await supervisor.handle({"command": "stop"})
    await asyncio.wait_for(task, 20)
