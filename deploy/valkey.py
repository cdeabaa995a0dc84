"""The embedded Valkey: Celery's broker, with its log on disk so that hints survive a crash."""

from __future__ import annotations

import os
from pathlib import Path

from deploy.binaries import find_valkey, make_reachable, own_directory, server_identity
from deploy.child import ChildSpec
from deploy.installation import LOOPBACK, Installation, State

# hz 1: one housekeeping round a second instead of ten. A broker has no keys that must expire on the millisecond.
CONFIGURATION = """\
bind {host}
port {port}
protected-mode yes
requirepass {password}
dir "{directory}"
appendonly yes
appendfsync everysec
save ""
hz 1
dynamic-hz no
io-threads 1
maxmemory-policy noeviction
set-proc-title no
always-show-logo no
daemonize no
loglevel warning
tcp-backlog 128
"""


def valkey_directory(installation: Installation) -> Path:
    return installation.data / "valkey"


def prepare_valkey(installation: Installation, state: State) -> ChildSpec:
    """Write the configuration (the password must not stand in a command line) and say how to run the server."""
    found = find_valkey()
    identity = server_identity()
    directory = valkey_directory(installation)
    own_directory(directory, identity)
    make_reachable(found.path, identity)
    file = directory / "valkey.conf"
    text = CONFIGURATION.format(
        host=LOOPBACK,
        port=state.ports["valkey"],
        password=installation.secret("valkey.password"),
        directory=directory,
    )
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
    if identity is not None:
        os.chown(file, identity.uid, identity.gid)
    return ChildSpec(
        role="valkey",
        command=[str(found.path), str(file)],
        address=(LOOPBACK, state.ports["valkey"]),
        identity=identity,
        cwd=str(directory),
    )
