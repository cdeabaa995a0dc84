"""The embedded PostgreSQL: made once in the data directory, tuned to cost nothing while idle.

Durability is PostgreSQL's default (fsync, full-page writes, synchronous commit) plus data checksums. It listens on
loopback only and asks everybody for a SCRAM password.

Two roles. ADMINISTRATOR owns the server and the schema; no process that runs for long is told its password (one of the
same user could look for it). APPLICATION is what the processes connect as: it reads and writes rows, and may only add
to the audit trail (`manage.py grant_application`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from deploy import limits, probes
from deploy.binaries import (
    Found,
    find_postgres,
    postgres_major,
)
from deploy.child import ChildSpec, become
from deploy.errors import CommandError
from deploy.identity import Identity, make_reachable, own_directory, server_identity
from deploy.installation import Installation
from deploy.leftovers import is_alive_in
from deploy.ports import LOOPBACK
from deploy.state import State

T = TypeVar("T")
ADMINISTRATOR = "penstock_admin"
ADMINISTRATOR_SECRET = "postgres-admin.password"
APPLICATION = "penstock"
APPLICATION_SECRET = "postgres.password"
DATABASE = "penstock"
# What to do where the files are of a cluster with other roles or passwords than the secrets are for.
OTHER_ROLES = (
    "The database in this data directory was not made with its secrets: one of the two comes from a copy, or from a "
    "version before the first release. Put back the folder secrets/ that belongs to it, or start in another --data-dir."
)
# Unix socket paths are bounded by the kernel (108 bytes); beyond it only loopback TCP is offered.
SOCKET_DIRECTORY_BYTES_MAX = 85

# Small and quiet: 32 MB of shared memory, no parallel workers, housekeeping in minutes instead of seconds. Nothing
# here weakens durability. wal_level=minimal and max_wal_senders=0 go together: there is no replica to feed.
SERVER_OPTIONS = {
    "shared_buffers": "32MB",
    "max_connections": "60",
    "jit": "off",
    "max_worker_processes": "2",
    "max_parallel_workers": "0",
    "max_logical_replication_workers": "0",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "checkpoint_timeout": "15min",
    "bgwriter_delay": "10s",
    "wal_writer_delay": "10s",
    "autovacuum_naptime": "5min",
    "autovacuum_max_workers": "1",
    "huge_pages": "off",
    "password_encryption": "scram-sha-256",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_autovacuum_min_duration": "-1",
    "timezone": "UTC",
}
# PostgreSQL 18 starts separate IO workers by default; a small catalogue of queues has no use for them.
OPTIONS_SINCE = {18: {"io_method": "sync"}}


def postgres_directory(installation: Installation) -> Path:
    return installation.data / "postgres"


def prepare_postgres(installation: Installation, state: State) -> ChildSpec:
    """Make the cluster if there is none, clear what a killed server left, and say how to run it. Blocks for initdb."""
    directory = postgres_directory(installation)
    identity = server_identity()
    major = major_of(directory)
    found = find_postgres(major)
    make_reachable(found.path / "postgres", identity)
    own_directory(directory, identity)
    if major is None:
        initialise(found, directory, identity, installation.secret(ADMINISTRATOR_SECRET))
    clear_stale_lock(directory)
    return server_spec(found, directory, identity, state.ports["postgres"])


def major_of(directory: Path) -> int | None:
    """The major version that wrote this directory; None where there is none. Raises CommandError."""
    try:
        return int((directory / "PG_VERSION").read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise CommandError(
            f"{directory / 'PG_VERSION'} does not say which PostgreSQL wrote this directory: it is damaged. "
            "Restore the directory from a backup."
        ) from None


def initialise(found: Found, directory: Path, identity: Identity | None, password: str) -> None:
    """initdb in a directory beside it, renamed when complete: a half-made cluster is never taken for one."""
    fresh = directory.with_name("postgres.new")
    shutil.rmtree(fresh, ignore_errors=True)
    own_directory(fresh, identity)
    read_end, write_end = os.pipe()
    os.write(write_end, password.encode())
    os.close(write_end)
    command = [
        str(found.path / "initdb"), "-D", str(fresh), "-U", ADMINISTRATOR, "-E", "UTF8", "--no-locale",
        "--data-checksums", "--auth=scram-sha-256", f"--pwfile=/proc/self/fd/{read_end}",
    ]  # fmt: skip
    environment = {"PATH": os.defpath, "LC_ALL": "C", "HOME": str(fresh)}
    answer = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd="/", pass_fds=(read_end,),
        preexec_fn=lambda: open_to(read_end, identity),
    )  # fmt: skip
    os.close(read_end)
    if answer.returncode != 0:
        raise CommandError(f"initdb failed: {answer.stderr.strip() or answer.stdout.strip()}")
    directory.rmdir()
    os.replace(fresh, directory)


def open_to(descriptor: int, identity: Identity | None) -> None:
    """In the child: a pipe made by root is reopened through /proc, which asks its owner; hand it over first."""
    if identity is not None:
        os.fchown(descriptor, identity.uid, identity.gid)
    become(identity)


def clear_stale_lock(directory: Path) -> None:
    """Remove the lock files of a server that is gone (or whose number was given to somebody else).

    There are two kinds: postmaster.pid, and one beside each socket. PostgreSQL takes the number in them for a server
    that runs as long as any process has it, one that was killed and not yet reaped included.
    """
    for lock in (directory / "postmaster.pid", *directory.glob(".s.PGSQL.*.lock")):
        try:
            pid = int(lock.read_text().split("\n", 1)[0])
        except FileNotFoundError:
            continue
        except ValueError:
            lock.unlink(missing_ok=True)
            continue
        if not is_alive_in(pid, directory):
            lock.unlink(missing_ok=True)


def server_spec(found: Found, directory: Path, identity: Identity | None, port: int) -> ChildSpec:
    major = postgres_major(found.path) or 0
    options = dict(SERVER_OPTIONS)
    for since, extra in OPTIONS_SINCE.items():
        if major >= since:
            options |= extra
    options |= {"listen_addresses": LOOPBACK, "port": str(port)}
    short = len(os.fsencode(directory)) <= SOCKET_DIRECTORY_BYTES_MAX
    options["unix_socket_directories"] = str(directory) if short else ""
    flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    return ChildSpec(
        role="postgres",
        command=[str(found.path / "postgres"), "-D", str(directory), *flags],
        address=(LOOPBACK, port),
        probe=lambda: probes.answers_postgres((LOOPBACK, port)),
        identity=identity,
        # SIGINT is the fast shutdown: connections are closed, everything is checkpointed. SIGTERM would wait for them.
        stop_signal="SIGINT",
        before_start=lambda: clear_stale_lock(directory),
        cwd=str(directory),
    )


def administrator_url(installation: Installation, state: State) -> str:
    password = installation.secret(ADMINISTRATOR_SECRET)
    return f"postgresql://{ADMINISTRATOR}:{password}@{LOOPBACK}:{state.ports['postgres']}/{DATABASE}"


def create_database(installation: Installation, state: State) -> None:
    """Make database and application role once the server answers. On later starts they are there, and the role is given
    the password that stands in the secrets now."""
    import psycopg
    from psycopg import sql

    url = administrator_url(installation, state).rsplit("/", 1)[0] + "/postgres"
    password = sql.Literal(installation.secret(APPLICATION_SECRET))
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (APPLICATION,)).fetchone()
        statement = "CREATE ROLE {} LOGIN PASSWORD {}" if found is None else "ALTER ROLE {} PASSWORD {}"
        connection.execute(sql.SQL(statement).format(sql.Identifier(APPLICATION), password))
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


def ask_database(installation: Installation, state: State, read: Callable[[Any], T]) -> T | None:
    """For small questions of `status` and `doctor`: without Django, whose start takes seconds. What `read` makes of a
    cursor. None: the database does not answer within DATABASE_LOOK_DEADLINE_S."""
    import psycopg

    deadline_s = limits.DATABASE_LOOK_DEADLINE_S
    try:
        with psycopg.connect(
            installation.settings(state)["DATABASE_URL"],
            connect_timeout=deadline_s,
            options=f"-c statement_timeout={deadline_s * 1_000}",
        ) as connection:
            return read(connection.cursor())
    except psycopg.Error:
        return None
