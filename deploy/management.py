"""Calls of `manage.py`: migrations, keys, reports. Each runs as a process of its own: none here imports Django."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from deploy import limits
from deploy.errors import CommandError
from deploy.installation import ROOT, Installation
from deploy.postgres import APPLICATION, administrator_url
from deploy.state import State

# Distributions whose migrations are ours to run too.
MIGRATING_DISTRIBUTIONS = ("django", "django-celery-beat")
_running: set[subprocess.Popen[str]] = set()


def run_manage(
    installation: Installation, state: State, arguments: list[str], deadline_s: float, database_url: str = ""
) -> str:
    """Run one management command and return what it printed; its error's last lines go into the sentence.
    `database_url`: to connect as somebody else than the application."""
    environment = installation.environment(state, "manage")
    if database_url:
        environment["DATABASE_URL"] = database_url
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    ) as process:
        _running.add(process)
        try:
            output, errors = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise CommandError(f"manage.py {arguments[0]} did not end within {deadline_s:.0f} s") from None
        finally:
            _running.discard(process)
    if process.returncode != 0:
        tail = "\n".join(errors.strip().splitlines()[-limits.LOG_TAIL_LINES :])
        raise CommandError(f"manage.py {arguments[0]} failed:\n{tail}")
    return output


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
    owner_url = "" if os.environ.get("DATABASE_URL") else administrator_url(installation, state)
    run_manage(installation, state, ["migrate", "--no-input", "-v", "0"], limits.MIGRATE_DEADLINE_S, owner_url)
    if owner_url:
        run_manage(installation, state, ["grant_application", APPLICATION], limits.MIGRATE_DEADLINE_S, owner_url)
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
) -> dict[str, Any]:
    """A new key (and the account, if it is not there): the fields the command contract names. `policy` is the text of
    an identity policy; scopes stand for one."""
    arguments = ["create_key", f"--account={account}", "--json"]
    if policy is not None:
        arguments.append(f"--policy={policy}")
    arguments += [f"--scope={scope}" for scope in scopes] + [f"--queue={queue}" for queue in queues]
    key: dict[str, Any] = run_manage_json(installation, state, arguments, limits.DEMO_KEY_DEADLINE_S)
    return key
