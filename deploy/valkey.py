"""The embedded Valkey: Celery's broker, with its log on disk so that hints survive a crash.

Beside its files stands what wrote them (WRITER_FILE), so that files are never opened by another
product or an older version. A newer version is noted there once it serves: until then it may have
written nothing, and the one before may still be needed.
"""

from __future__ import annotations

import os
from pathlib import Path

from deploy import probes
from deploy.binaries import FoundBroker, Version, broker_version, find_valkey, parse_version
from deploy.child import ChildSpec
from deploy.errors import CommandError
from deploy.identity import make_reachable, own_directory, server_identity
from deploy.installation import Installation
from deploy.make_secrets import write_private
from deploy.ports import LOOPBACK
from deploy.state import State

WRITER_FILE = "written-by"
FILES_DIRECTORY = "appendonlydir"  # the servers' own name of it

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


def way_out(installation: Installation) -> str:
    """What to do where its files cannot be read."""
    return (
        f"If no server reads its files, move {valkey_directory(installation)} away and start again: it holds hints "
        "only. What there is to do stands in the database, and nothing is lost."
    )


def writer_of(installation: Installation) -> Version | None:
    """What wrote the files; None where there are none yet. Raises CommandError where nothing says it."""
    directory = valkey_directory(installation)
    if not (directory / FILES_DIRECTORY).exists():
        return None
    note = directory / WRITER_FILE
    version = parse_version(note.read_text()) if note.exists() else None
    if version is None:
        told = f"{note} does not say which server wrote the broker's files: another one might damage them."
        raise CommandError(f"{told} {way_out(installation)}")
    return version


def choose_valkey(installation: Installation) -> FoundBroker:
    """The program for the files that are there. Raises CommandError, which says what to do."""
    files = writer_of(installation)
    try:
        return find_valkey(files)
    except CommandError as error:
        raise error if files is None else CommandError(f"{error} {way_out(installation)}") from None


def _note_writer(installation: Installation, version: Version) -> None:
    write_private(valkey_directory(installation) / WRITER_FILE, f"{version}\n")


def serves(installation: Installation, spec: ChildSpec) -> None:
    """The server answered: from now on the files are its own."""
    version = broker_version(Path(spec.command[0]))
    if version is not None and version != writer_of(installation):
        _note_writer(installation, version)


def prepare_valkey(installation: Installation, state: State) -> ChildSpec:
    """Write the configuration (the password must not stand in a command line) and say how to run the server."""
    found = choose_valkey(installation)
    identity = server_identity()
    directory = valkey_directory(installation)
    own_directory(directory, identity)
    if writer_of(installation) is None:
        _note_writer(installation, found.version)
    make_reachable(found.path, identity)
    file = directory / "valkey.conf"
    address, password = (LOOPBACK, state.ports["valkey"]), installation.secret("valkey.password")
    text = CONFIGURATION.format(
        host=LOOPBACK,
        port=state.ports["valkey"],
        password=password,
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
        address=address,
        probe=lambda: probes.answers_ping(address, password),
        identity=identity,
        cwd=str(directory),
    )
