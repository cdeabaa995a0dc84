"""The control socket: question and answer, refusals, no supervisor, long paths."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deploy import control
from deploy.errors import EXIT_NOT_RUNNING, CommandError
from deploy.supervisor import take_lock


async def echo(request: dict[str, Any]) -> dict[str, Any]:
    return {"error": "refused"} if request["command"] == "refuse" else {"asked": request["command"]}


async def test_control_question_gets_its_answer(tmp_path: Path) -> None:
    server = await control.serve(tmp_path, echo)
    answer = await asyncio.to_thread(control.ask, tmp_path, {"command": "status"})
    assert answer == {"asked": "status"}
    with pytest.raises(CommandError, match="refused"):
        await asyncio.to_thread(control.ask, tmp_path, {"command": "refuse"})
    server.close()


async def test_control_path_longer_than_a_socket_address_works(tmp_path: Path) -> None:
    run = tmp_path / ("d" * 120) / "run"
    run.mkdir(parents=True)
    server = await control.serve(run, echo)
    assert await asyncio.to_thread(control.ask, run, {"command": "x"}) == {"asked": "x"}
    server.close()


async def test_control_socket_of_a_killed_supervisor_is_replaced(tmp_path: Path) -> None:
    (tmp_path / control.SOCKET_NAME).write_text("stale")
    server = await control.serve(tmp_path, echo)
    assert await asyncio.to_thread(control.ask, tmp_path, {"command": "x"}) == {"asked": "x"}
    assert (tmp_path / control.SOCKET_NAME).stat().st_mode & 0o077 == 0
    server.close()


async def test_control_garbage_closes_only_its_connection(tmp_path: Path) -> None:
    server = await control.serve(tmp_path, echo)

    def send_garbage() -> bytes:
        connection = control.connect(tmp_path)
        assert connection is not None
        with connection:
            connection.sendall(b"not json\n")
            return connection.recv(100)

    assert await asyncio.to_thread(send_garbage) == b""
    assert await asyncio.to_thread(control.ask, tmp_path, {"command": "x"}) == {"asked": "x"}
    server.close()


def test_control_without_supervisor_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="nothing is running") as refused:
        control.ask(tmp_path, {"command": "status"})
    assert refused.value.exit_code == EXIT_NOT_RUNNING


def test_lock_second_supervisor_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    from deploy.installation import Installation

    installation = Installation(tmp_path)
    installation.prepare()
    first = take_lock(installation)
    assert first is not None
    assert take_lock(installation) is None
    first.close()
    again = take_lock(installation)
    assert again is not None
    again.close()
