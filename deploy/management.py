"""Calls of `manage.py`: migrations, keys, reports. Each runs as a process of its own: none here imports Django."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from deploy import control, limits
from deploy.errors import EXIT_USAGE, CommandError
from deploy.installation import ROOT, Installation
from deploy.outside_servers import DATABASE_URL, is_outside
from deploy.postgres import APPLICATION, administrator_url
from deploy.state import State

# Distributions whose migrations are ours to run too.
MIGRATING_DISTRIBUTIONS = ("django", "django-celery-beat")
# Django writes this before what a command refuses.
REFUSAL = "CommandError: "
_running: set[subprocess.Popen[str]] = set()


def run_manage(
    installation: Installation, state: State, arguments: list[str], deadline_s: float, database_url: str = ""
) -> str:
    """Run one management command and return what it printed. Raises CommandError: the sentence of a refusal, that the
    database is away, or the last lines of what went wrong otherwise.
    `database_url`: to connect as somebody else than the application."""
    with _process(installation, state, arguments, database_url) as process:
        _running.add(process)
        try:
            output, errors = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise _too_slow(arguments[0], deadline_s) from None
        finally:
            _running.discard(process)
    if process.returncode != 0:
        raise failure_of(installation, arguments[0], process.returncode, errors.strip())
    return output


def _too_slow(command: str, deadline_s: float) -> CommandError:
    return CommandError(f"manage.py {command} did not end within {deadline_s:.0f} s")


def _process(
    installation: Installation, state: State, arguments: list[str], database_url: str = "", **more: Any
) -> subprocess.Popen[str]:
    for argument in arguments:
        # Bytes of a command line that are no UTF-8: no name in the database has any.
        if not argument.isascii() and any("\ud800" <= one <= "\udfff" for one in argument):
            raise CommandError(f"{argument!a} is no text in UTF-8", EXIT_USAGE)
    environment = installation.environment(state, "manage")
    if database_url:
        environment.pop(f"{DATABASE_URL}_FILE", None)
        environment[DATABASE_URL] = database_url
    # Django's checks import every page and every view: nearly half of the time of a command. The suite runs them.
    command = [sys.executable, str(ROOT / "manage.py"), arguments[0], "--skip-checks", *arguments[1:]]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT, **more
    )


@contextmanager
def conversing(installation: Installation, state: State, *arguments: str) -> Iterator[Callable[[str], None]]:
    """A management command that prints a line when it is ready and ends with the line that it is told: yields what
    tells it. Raises CommandError where it fails before or after. Ctrl-C does not reach it."""
    process = _process(installation, state, list(arguments), stdin=subprocess.PIPE, start_new_session=True)
    _running.add(process)
    deadline_s = limits.DEMO_KEY_DEADLINE_S
    deadline = threading.Timer(deadline_s, process.kill)

    def end(line: str) -> None:
        try:
            _, errors = process.communicate(line, deadline_s)
        except subprocess.TimeoutExpired:
            raise _too_slow(arguments[0], deadline_s) from None
        if process.returncode != 0:
            raise failure_of(installation, arguments[0], process.returncode, errors.strip())

    try:
        deadline.start()
        assert process.stdout is not None
        is_ready = bool(process.stdout.readline())
        deadline.cancel()
        if not is_ready:
            end("")
            raise failure_of(installation, arguments[0], process.returncode, "")
        yield lambda line: end(line + "\n")
    finally:
        deadline.cancel()
        _running.discard(process)
        with process:
            process.kill()


def failure_of(installation: Installation, command: str, status: int, errors: str) -> CommandError:
    """What to tell of a management command that ended with this status and these words."""
    lines = errors.splitlines() or ["(it said nothing)"]
    if status == os.EX_UNAVAILABLE:
        supervisor = control.connect(installation.run)
        if supervisor is None and not is_outside(DATABASE_URL):
            return control.not_running(installation.run)
        if supervisor is not None:
            supervisor.close()
        return CommandError(f"{lines[-1]}. See ./penstock status")
    refusals = [number for number, line in enumerate(lines) if line.startswith(REFUSAL)]
    if refusals:
        return CommandError("\n".join(lines[refusals[-1] :]).removeprefix(REFUSAL))
    tail = "\n".join(lines[-limits.LOG_TAIL_LINES :])
    return CommandError(f"manage.py {command} failed:\n{tail}")


def stop_running() -> None:
    """End the calls under way in other threads: with their database going away they would only wait for it."""
    for process in list(_running):
        process.kill()


def migrate(installation: Installation, state: State) -> bool:
    """Bring the schema up to date; False when this code already did so for this database."""
    stamp = installation.run / "migrated"
    wanted = schema_fingerprint(installation.settings(state)["DATABASE_URL"])
    if stamp.exists() and stamp.read_text() == wanted:
        return False
    # A server of the operator's own has one role, who is named in DATABASE_URL, or others made ready by the operator.
    owner_url = "" if is_outside(DATABASE_URL) else administrator_url(installation, state)
    if owner_url:
        grant = ["grant_application", APPLICATION, "--migrate"]
        run_manage(installation, state, grant, limits.MIGRATE_DEADLINE_S, owner_url)
    else:
        run_manage(installation, state, ["migrate", "--no-input", "-v", "0"], limits.MIGRATE_DEADLINE_S)
    stamp.write_text(wanted)
    return True


def schema_fingerprint(database_url: str) -> str:
    """Changes with any migration file, any migrating distribution, and with the database."""
    digest = hashlib.sha256(database_url.encode())
    grants = Path(ROOT) / "api/management/commands/grant_application.py"
    for path in (*sorted(Path(ROOT).glob("api/**/migrations/*.py")), grants):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    for name in MIGRATING_DISTRIBUTIONS:
        digest.update(metadata.version(name).encode())
    return digest.hexdigest()


def run_manage_json(installation: Installation, state: State, arguments: list[str], deadline_s: float) -> Any:
    """The same of a command that prints one JSON value."""
    return json.loads(run_manage(installation, state, arguments, deadline_s))


def operate(installation: Installation, state: State, *arguments: str) -> Any:
    """What a command of operators says, which is JSON."""
    return run_manage_json(installation, state, list(arguments), limits.DEMO_KEY_DEADLINE_S)


def create_key(
    installation: Installation,
    state: State,
    account: str,
    policy: str | None = None,
    scopes: Sequence[str] = (),
    queues: Sequence[str] = (),
    more: Sequence[str] = (),
) -> dict[str, Any]:
    """A new key (and the account, if it is not there, which `account_created` says): the fields the command contract
    names. `policy` is the text of an identity policy; scopes stand for one; `more` are arguments as they are."""
    arguments = ["create_key", f"--account={account}", "--json"]
    if policy is not None:
        arguments.append(f"--policy={policy}")
    arguments += [f"--scope={scope}" for scope in scopes] + [f"--queue={queue}" for queue in queues]
    key: dict[str, Any] = run_manage_json(installation, state, [*arguments, *more], limits.DEMO_KEY_DEADLINE_S)
    return key
