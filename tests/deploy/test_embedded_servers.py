"""The embedded PostgreSQL and Valkey, really started: passwords asked for, durable, back after kill -9."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from deploy import binaries, identity, passage, postgres, valkey
from deploy.child import Child, ChildSpec, StartFailed
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.leftovers import find_leftovers
from deploy.ports import choose_port
from deploy.state import State


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Installation, State]]:
    for name in ("DATABASE_URL", "CELERY_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)
    made = Installation(tmp_path / "data")
    made.prepare()
    yield made, made.settle_state(None, choose_port(set()), 1)
    assert find_leftovers(made.data) == [], "a server outlived its test"


async def start(installation: Installation, state: State, spec: ChildSpec) -> Child:
    child = Child(spec, installation.environment(state, spec.role), installation.logs)
    child.start()
    await child.ready(30)
    return child


def query(url: str, text: str) -> str:
    """One value; the port opens a moment before logins are taken, so refusals to start are asked again."""
    for _ in range(200):
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                cursor = connection.execute(text.encode())
                row = cursor.fetchone() if cursor.description else None
                return str(row[0]) if row else ""
        except psycopg.OperationalError as error:
            if "starting up" not in str(error) and "recovery" not in str(error):
                raise
            time.sleep(0.02)
    raise AssertionError("the server never took a login")


async def test_postgres_is_durable_private_and_survives_kill(installation: tuple[Installation, State]) -> None:
    made, state = installation
    url = made.database_url(state)
    child = await start(made, state, postgres.prepare_postgres(made, state))
    owner = postgres.administrator_url(made, state)
    query(owner.removesuffix("penstock") + "postgres", "SELECT 1")
    postgres.create_database(made, state)
    postgres.create_database(made, state)  # every later start does it again
    settings = {name: query(url, f"SHOW {name}") for name in ("fsync", "full_page_writes", "synchronous_commit")}
    assert set(settings.values()) == {"on"}
    assert query(url, "SHOW data_checksums") == "on"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        query(url.replace(made.secret("postgres.password"), "wrong"), "SELECT 1")
    assert query(url, "SELECT rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = user") == "False"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        query(url, "CREATE TABLE own AS SELECT 1")
    query(owner, "CREATE TABLE kept AS SELECT 42 AS answer; GRANT SELECT ON kept TO penstock")
    assert child.pid is not None
    if os.geteuid() == 0:
        assert os.stat(f"/proc/{child.pid}").st_uid == pwd.getpwnam(identity.SERVERS_USER).pw_uid
    told = Path(f"/proc/{child.pid}/environ").read_bytes()
    assert b"PENSTOCK_INSTALLATION" in told and made.secret("postgres.password").encode() not in told
    first = child.pid
    os.kill(first, signal.SIGKILL)
    while child.pid in (None, first):
        await asyncio.sleep(0.01)
    await child.ready(30)
    assert query(url, "SELECT answer FROM kept") == "42"
    await child.stop()
    # The next start finds the cluster and does not make it again.
    again = await start(made, state, postgres.prepare_postgres(made, state))
    assert query(url, "SELECT answer FROM kept") == "42"
    await again.stop()


async def test_valkey_asks_for_its_password_and_keeps_hints(installation: tuple[Installation, State]) -> None:
    made, state = installation
    spec = valkey.prepare_valkey(made, state)
    assert made.secret("valkey.password") not in " ".join(spec.command), "command lines are public"
    child = await start(made, state, spec)
    with redis.Redis(port=state.ports["valkey"]) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    with redis.Redis.from_url(made.broker_url(state)) as client:
        client.lpush("celery", "hint")
    await child.stop()
    again = await start(made, state, valkey.prepare_valkey(made, state))
    with redis.Redis.from_url(made.broker_url(state)) as client:
        assert client.lrange("celery", 0, -1) == [b"hint"]
    await again.stop()


def test_postgres_lock_of_a_dead_server_is_cleared(tmp_path: Path) -> None:
    lock = tmp_path / "postmaster.pid"
    lock.write_text(f"{os.getpid()}\n")  # alive, but another program: its number was given out anew
    postgres.clear_stale_lock(tmp_path)
    assert not lock.exists()
    lock.write_text("damaged")
    postgres.clear_stale_lock(tmp_path)
    assert not lock.exists()


def test_postgres_named_directory_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = binaries.find_postgres()
    monkeypatch.setenv("PENSTOCK_PG_BIN", str(usual.path))
    assert binaries.find_postgres().why == "named by PENSTOCK_PG_BIN"
    monkeypatch.setenv("PENSTOCK_PG_BIN", str(tmp_path))
    with pytest.raises(CommandError, match=r"not usable.*DATABASE_URL"):
        binaries.find_postgres()


def test_postgres_wheel_is_found_without_any_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries.shutil, "which", lambda name: None)
    candidates = [found for found in binaries.postgres_candidates() if "wheel" in found.why]
    assert candidates and binaries.postgres_major(candidates[0].path) == 18


def test_postgres_of_another_major_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_PG_BIN", raising=False)
    assert binaries.postgres_major(binaries.find_postgres(18).path) == 18
    with pytest.raises(CommandError, match="PostgreSQL 3, which made this data directory"):
        binaries.find_postgres(3)


def test_valkey_wheel_is_found_without_any_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_VALKEY_BIN", raising=False)
    monkeypatch.setattr(binaries.shutil, "which", lambda name: None)
    found = binaries.find_valkey()
    assert "wheel" in found.why and os.access(found.path, os.X_OK)


def program(path: Path, version: str) -> Path:
    """Says that it is this server."""
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)
    return path


VALKEY = "Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1"
REDIS = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1"


def test_redis_that_was_installed_later_is_not_taken_for_the_embedded_valkey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_VALKEY_BIN", raising=False)
    monkeypatch.setenv("PATH", str(program(tmp_path / "redis-server", REDIS).parent), prepend=os.pathsep)
    assert "wheel" in binaries.find_valkey().why
    monkeypatch.setattr(binaries.sysconfig, "get_path", lambda name: str(tmp_path))
    assert binaries.find_valkey().path == tmp_path / "redis-server", "without the wheel it serves a fresh directory"


@pytest.mark.parametrize(
    ("program", "files", "reads"),
    [
        ("Valkey 9.1.2", "Valkey 9.1.5", True),
        ("Valkey 9.2.0", "Valkey 9.1.5", True),
        ("Valkey 9.0.9", "Valkey 9.1.0", False),
        ("Redis 9.9.9", "Valkey 9.1.0", False),
        ("Valkey 9.1.0", "Redis 7.0.15", False),
    ],
)
def test_server_reads_what_its_family_wrote_before(program: str, files: str, reads: bool) -> None:
    one, other = binaries.parse_version(program), binaries.parse_version(files)
    assert one is not None and other is not None and str(one) == program
    assert one.reads(other) is reads


def test_valkey_of_another_family_is_refused_with_what_to_do(
    installation: tuple[Installation, State], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, state = installation
    valkey.prepare_valkey(made, state)
    assert valkey.writer_of(made) is None, "it has written nothing yet"
    (made.data / "valkey" / valkey.FILES_DIRECTORY).mkdir()
    wrote = valkey.writer_of(made)
    assert wrote is not None and wrote.family == "Valkey"
    monkeypatch.setenv("PENSTOCK_VALKEY_BIN", str(program(tmp_path / "redis-server", REDIS)))
    with pytest.raises(CommandError, match=rf"which {wrote} wrote.*Redis 7\.0\.15.*move .*valkey away"):
        valkey.prepare_valkey(made, state)
    assert valkey.writer_of(made) == wrote
    monkeypatch.setenv("PENSTOCK_VALKEY_BIN", str(tmp_path / "absent"))
    with pytest.raises(CommandError, match="not usable"):
        valkey.prepare_valkey(made, state)


def test_newer_valkey_is_noted_once_it_serves(
    installation: tuple[Installation, State], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that never served may have changed nothing, and the one before is taken again."""
    made, state = installation
    first = str(program(tmp_path / "first", VALKEY))
    monkeypatch.setenv("PENSTOCK_VALKEY_BIN", first)
    valkey.prepare_valkey(made, state)
    (made.data / "valkey" / valkey.FILES_DIRECTORY).mkdir()
    newer = str(program(tmp_path / "newer", VALKEY.replace("9.1.2", "9.2.0")))
    monkeypatch.setenv("PENSTOCK_VALKEY_BIN", newer)
    spec = valkey.prepare_valkey(made, state)
    assert str(valkey.writer_of(made)) == "Valkey 9.1.2"
    valkey.serves(made, spec)
    assert str(valkey.writer_of(made)) == "Valkey 9.2.0"
    monkeypatch.setenv("PENSTOCK_VALKEY_BIN", first)
    with pytest.raises(CommandError, match=r"which Valkey 9\.2\.0 wrote"):
        valkey.prepare_valkey(made, state)


@pytest.mark.parametrize("note", [None, "", "something 3\n"])
def test_files_of_which_nobody_says_who_wrote_them_are_opened_by_no_server(
    installation: tuple[Installation, State], note: str | None
) -> None:
    made, state = installation
    directory = made.data / "valkey"
    (directory / valkey.FILES_DIRECTORY).mkdir(parents=True)
    if note is not None:
        (directory / valkey.WRITER_FILE).write_text(note)
    with pytest.raises(CommandError, match=r"does not say which server wrote.*move .*valkey away"):
        valkey.prepare_valkey(made, state)


async def test_valkey_that_cannot_read_its_files_is_not_ready_though_its_port_opens(
    installation: tuple[Installation, State],
) -> None:
    made, state = installation
    child = await start(made, state, valkey.prepare_valkey(made, state))
    await child.stop()
    with open(made.data / "valkey" / "appendonlydir" / "appendonly.aof.manifest", "a") as manifest:
        manifest.write("garbage\n")
    spec = valkey.prepare_valkey(made, state)
    child = Child(spec, made.environment(state, spec.role), made.logs)
    child.start()
    with pytest.raises(StartFailed, match=r"valkey died 4 times while starting .ended with status 1"):
        await child.ready(30)
    assert await child.health() == "failing" and child.not_up_since is not None
    await child.stop()


def test_postgres_directory_that_does_not_name_its_version_is_refused(tmp_path: Path) -> None:
    assert postgres.major_of(tmp_path) is None
    (tmp_path / "PG_VERSION").write_text("18\n")
    assert postgres.major_of(tmp_path) == 18
    (tmp_path / "PG_VERSION").write_text("")
    with pytest.raises(CommandError, match="damaged"):
        postgres.major_of(tmp_path)


def test_passage_is_granted_to_the_servers_user_only_where_it_lacked(tmp_path: Path) -> None:
    closed, open_already = tmp_path / "closed", tmp_path / "closed" / "open"
    open_already.mkdir(parents=True)
    open_already.chmod(0o755)
    closed.chmod(0o700)
    passage.grant_passage(open_already / "data", 65_534)
    passage.grant_passage(open_already / "data", 65_534)
    entries = passage.read_list(closed, 0)
    assert [(rights, uid) for tag, rights, uid in entries if uid == 65_534] == [(1, 65_534)], "passage, not reading"
    assert closed.stat().st_mode & 0o007 == 0, "nobody else may pass"
    closed.chmod(0o700)
    assert not passage.may_pass(passage.read_list(closed, 0), 65_534), "a change of the mode takes it back"
    passage.grant_passage(open_already / "data", 65_534)
    assert passage.may_pass(passage.read_list(closed, 0), 65_534)
    assert open_already.stat().st_mode & 0o777 == 0o755


def test_socket_lock_of_a_postgresql_that_was_killed_is_cleared(tmp_path: Path) -> None:
    """A killed server that nobody has reaped yet still has its number; it has no command line any more."""
    zombie = os.fork()
    if not zombie:
        os._exit(0)
    try:
        os.waitid(os.P_PID, zombie, os.WEXITED | os.WNOWAIT)
        lock = tmp_path / ".s.PGSQL.5432.lock"
        lock.write_text(f"{zombie}\n{tmp_path}\n")
        postgres.clear_stale_lock(tmp_path)
        assert not lock.exists()
    finally:
        os.waitpid(zombie, 0)
