"""As whom the embedded servers run.

Neither should have root's rights (PostgreSQL refuses them), so under root they run as a system user of their own, who
owns their two directories and nothing else. Not as `nobody`: what other programs run as that user could read the
servers' files and memory.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

from deploy import output
from deploy.errors import CommandError
from deploy.passage import grant_passage

SERVERS_USER = "penstock-servers"
# The two servers are prepared at the same time.
_making = threading.Lock()


class Identity(NamedTuple):
    uid: int
    gid: int


def server_identity() -> Identity | None:
    """The servers' user, made where there is none yet; None = as the caller, who is not root. Raises CommandError."""
    if os.geteuid() != 0:
        return None
    with _making:
        identity = find_user()
        if identity is None:
            make_user()
            identity = find_user()
    if identity is None:
        raise CommandError(f"there is no user {SERVERS_USER!r} although it was made")
    return identity


def find_user() -> Identity | None:
    try:
        entry = pwd.getpwnam(SERVERS_USER)
    except KeyError:
        return None
    return Identity(entry.pw_uid, entry.pw_gid)


def describe_identity() -> str:
    if os.geteuid() != 0:
        return "the caller"
    identity = find_user()
    return f"{SERVERS_USER}, made at the first start" if identity is None else f"{SERVERS_USER}, uid {identity.uid}"


def make_user() -> None:
    """A system user without a home, a shell or a password. Raises CommandError."""
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    instead = f"Make a system user {SERVERS_USER!r}, or start as another user than root"
    if useradd is None:
        raise CommandError(f"there is no useradd to make a user for the embedded servers. {instead}")
    flags = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    command = [useradd, *flags, "--shell", "/usr/sbin/nologin", SERVERS_USER]
    answer = subprocess.run(command, capture_output=True, text=True)
    # Another `up` may make it in this moment.
    if answer.returncode != 0 and find_user() is None:
        raise CommandError(f"useradd failed: {answer.stderr.strip()}. {instead}")
    output.say(f"  user {SERVERS_USER} made: the embedded servers run as it, not as root")


def own_directory(directory: Path, identity: Identity | None) -> None:
    """Make a server's directory, private to it."""
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)
    if identity is None:
        return
    if directory.stat().st_uid != identity.uid:
        give(directory, identity)
    grant_passage(directory, identity.uid)


def give(directory: Path, identity: Identity) -> None:
    """All of it: after a move to another machine the user has another number."""
    for parent, _, files in os.walk(directory):
        for path in (parent, *(os.path.join(parent, name) for name in files)):
            os.chown(path, identity.uid, identity.gid, follow_symlinks=False)


def make_reachable(program: Path, identity: Identity | None) -> None:
    """Let the servers' user walk to a program."""
    if identity is not None:
        grant_passage(program, identity.uid)
