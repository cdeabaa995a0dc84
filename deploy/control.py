"""The supervisor's control socket: one JSON line asked, one answered, over a unix socket only the owner may open.

The socket is reached through a descriptor of its directory (/proc/self/fd/N/control.sock), so that data directories
with paths longer than a socket address holds work too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from deploy import limits
from deploy.errors import EXIT_NOT_RUNNING, CommandError

SOCKET_NAME = "control.sock"
Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


@contextlib.contextmanager
def short_path(run: Path) -> Iterator[str]:
    descriptor = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


# --- the supervisor's side ----------------------------------------------------------------------------------


async def serve(run: Path, handler: Handler) -> asyncio.Server:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    (run / SOCKET_NAME).unlink(missing_ok=True)
    with short_path(run) as path:
        listener.bind(path)
    (run / SOCKET_NAME).chmod(0o600)

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), limits.CONTROL_TIMEOUT_S)
            answer = await handler(json.loads(line))
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
            await reader.read()  # the caller hangs up; one that waits for our end sees it when we exit
        except (TimeoutError, ValueError, OSError):
            pass
        finally:
            writer.close()

    return await asyncio.start_unix_server(on_connection, sock=listener, limit=limits.CONTROL_LINE_BYTES_MAX)


# --- the commands' side -------------------------------------------------------------------------------------


def connect(run: Path, timeout_s: float = limits.CONTROL_TIMEOUT_S) -> socket.socket | None:
    """A connection to the running supervisor; None where none runs."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        with short_path(run) as path:
            connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def ask(run: Path, request: dict[str, Any], timeout_s: float = limits.CONTROL_TIMEOUT_S) -> dict[str, Any]:
    """Ask the supervisor; a CommandError says when none runs or it refuses."""
    connection = connect(run, timeout_s)
    if connection is None:
        raise not_running(run)
    with connection:
        return exchange(connection, request)


def not_running(run: Path) -> CommandError:
    start = f"./penstock up --data-dir {shlex.quote(str(run.parent))}"
    return CommandError(f"nothing is running in {run.parent}. Start it with: {start}", EXIT_NOT_RUNNING)


def exchange(connection: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    connection.sendall(json.dumps(request).encode() + b"\n")
    with connection.makefile("rb") as stream:
        line = stream.readline(limits.CONTROL_LINE_BYTES_MAX)
    if not line:
        raise CommandError("the supervisor closed the connection without an answer; see its log in the logs folder")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise CommandError(answer["error"])
    return answer
