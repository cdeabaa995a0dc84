"""What each process of a running installation can read and do, seen from outside: its environment, its user, its rights
in the database."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import socket
from pathlib import Path

import psycopg
import pytest

from deploy.identity import SERVERS_USER
from deploy.installation import Installation
from storage_nodes.client import StorageClient
from storage_nodes.model import NodeState
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import encode_frame
from storage_nodes.protocol.messages import Hello, Opcode, encode_message
from storage_nodes.trust.credentials import credentials_of
from tests.support.installation import CLUSTER_NUMBER, RunningInstallation

pytestmark = pytest.mark.slow

# Roles that may know how to reach rows and broker.
OF_ROWS = {"control-plane", "worker", "usage-worker", "schedule"}


def test_environments_hold_no_secret_that_the_role_has_no_use_for(installation: RunningInstallation) -> None:
    made = Installation(installation.data)
    passwords = {name: made.secret(name).encode() for name in ("postgres.password", "valkey.password")}
    administrator = made.secret("postgres-admin.password").encode()
    seen = set()
    for process in installation.status()["processes"]:
        role, pid = process["role"], process["pid"]
        if role == "supervisor" or pid is None:
            continue
        seen.add(role)
        told = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
        allowed = set(passwords) if role in OF_ROWS else {"postgres.password"} if role == "metadata" else set()
        assert {name for name, password in passwords.items() if password in told} == allowed, role
        assert administrator not in told, role
    assert seen == {*OF_ROWS, "metadata", "frontend", "storage-node", "postgres", "valkey"}


@pytest.mark.parametrize("name", [f"node-{CLUSTER_NUMBER}.1", "metadata", "control"])
def test_caller_without_a_certificate_is_not_answered(installation: RunningInstallation, name: str) -> None:
    """Though it knows the cluster id."""
    state = Installation(installation.data).load_state()
    greeting = encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello(state.cluster_id, "stranger")))
    said = b"GET /internal/alive HTTP/1.1\r\nHost: x\r\n\r\n" if name == "control" else greeting
    with socket.create_connection(("127.0.0.1", state.ports[name]), 5) as caller:
        caller.sendall(said)
        with contextlib.suppress(ConnectionResetError):
            assert caller.recv(1024) == b""


def test_front_end_that_was_broken_into_cannot_take_a_node_out(installation: RunningInstallation) -> None:
    """With all that a front end has: its certificate and the cluster id."""
    made = Installation(installation.data)
    state = made.load_state()
    credentials = credentials_of(state.cluster_id, made.environment(state, "frontend"))

    async def attack() -> StorageError:
        client = StorageClient(state.cluster_id, made.nodes(state), "attacker", 5.0, credentials=credentials)
        await client.start()
        try:
            assert (await client.describe([])).nodes
            with pytest.raises(StorageError) as caught:
                await client.set_node_state(state.node_ids()[0], NodeState.LEAVING)
            return caught.value
        finally:
            await client.close()

    assert asyncio.run(attack()).code is ErrorCode.FORBIDDEN


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run servers as another user")
def test_embedded_servers_run_as_a_user_of_their_own_who_reads_nothing_else(installation: RunningInstallation) -> None:
    user = pwd.getpwnam(SERVERS_USER).pw_uid
    uids = {row["role"]: os.stat(f"/proc/{row['pid']}").st_uid for row in installation.status()["processes"]}
    assert {role for role, uid in uids.items() if uid == user} == {"postgres", "valkey"}
    for folder in ("secrets", "admin", "certificates", "nodes", "run"):
        assert (Path(installation.data) / folder).stat().st_mode & 0o077 == 0, folder


def test_application_may_only_add_to_the_audit_trail(installation: RunningInstallation) -> None:
    made = Installation(installation.data)
    installation.new_queue()
    with psycopg.connect(made.database_url(made.load_state()), autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM audit_entry").fetchone()
        assert row is not None and row[0] > 0
        for statement in (
            "UPDATE audit_entry SET actor = 'nobody'",
            "DELETE FROM audit_entry",
            "TRUNCATE audit_entry",
            "ALTER TABLE audit_entry ADD own integer",
            "CREATE TABLE own (a integer)",
            "CREATE ROLE own SUPERUSER",
            "COPY audit_entry TO PROGRAM 'true'",
            "SELECT pg_read_file('PG_VERSION')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
