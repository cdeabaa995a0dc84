"""Programs that tests drive and no Python package brings: installed where that is allowed, named where it is not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import NamedTuple

from deploy import output

INSTALL_S_MAX = 600
Run = Callable[[Sequence[str]], bool]


class SystemPackage(NamedTuple):
    """`programs`: any of them will do. `packages` are Debian's."""

    programs: tuple[str, ...]
    packages: tuple[str, ...]
    use: str


# The browser tests; a font, so that pictures have letters.
CHROMIUM = SystemPackage(("chromium", "chromium-browser"), ("chromium", "fonts-dejavu-core"), "browser tests")
OF_TESTS = (CHROMIUM,)


def ensure(wanted: Sequence[SystemPackage], run: Run | None = None) -> list[SystemPackage]:
    """Installs what is missing; returns what is missing still, which it has told."""
    run = run or _run
    missing = [one for one in wanted if not is_there(one)]
    if not missing:
        return []
    names = [name for one in missing for name in one.packages]
    root = _as_root()
    if root is not None and shutil.which("apt-get"):
        output.say(f"penstock: installing {', '.join(names)} for {missing[0].use}")
        install = [*root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *names]
        if run(install) or (run([*root, "apt-get", "update", "-qq"]) and run(install)):
            return [one for one in missing if not is_there(one)]
    output.say(f"penstock: missing for {missing[0].use}; install it with: sudo apt-get install -y {' '.join(names)}")
    return missing


def is_there(wanted: SystemPackage) -> bool:
    return any(shutil.which(name) for name in wanted.programs)


def _as_root() -> list[str] | None:
    """What to put before a command; None where this user may not install."""
    if os.geteuid() == 0:
        return []
    return ["sudo", "-n"] if shutil.which("sudo") and _run(["sudo", "-n", "true"]) else None


def _run(command: Sequence[str]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        answer = subprocess.run(command, capture_output=True, env=environment, timeout=INSTALL_S_MAX)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0
