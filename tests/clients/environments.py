"""Environments of the clients under test: each its own, from a pinned and hashed lock, made once and kept.

    DIRECTORY/
      awscli-1f0c2e94/           a virtual environment; the number is of its lock, so a changed lock makes a new one
      node-77ab01c2/
      javascript-0d5e7712/       our programs, and node_modules from package-lock.json

All of it can be deleted at any time; what was left half made lacks its mark `.whole` and is made again. Nothing here
knows an address of a registry: pip and npm use what the machine is set up with.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCKS = HERE / "locks"
JAVASCRIPT = HERE / "javascript"
INSTALL_TIMEOUT_S = 600
# Enough of a failed installer's words to see why.
LAST_WORDS_CHARACTERS = 600

Tell = Callable[[str], None]


class NotInstallable(Exception):
    """An environment could not be made here: no registry, no disk, a package that does not build."""


class Environments:
    """Paths of environments, which are made when first asked for."""

    def __init__(self, directory: Path, tell: Tell) -> None:
        self._directory = directory
        self._tell = tell

    def python(self, name: str) -> Path:
        """The interpreter of the environment of `locks/NAME.txt`."""
        lock = LOCKS / f"{name}.txt"
        return self._made(name, lock.read_bytes(), lambda target: self._install_python(target, lock)) / "bin" / "python"

    def program(self, name: str, program: str) -> Path:
        """A command that the environment of this name brings."""
        return self.python(name).parent / program

    def javascript(self) -> Path:
        """A directory with node_modules beside copies of our programs, because Node looks for packages beside them."""
        sources = [JAVASCRIPT / "package.json", JAVASCRIPT / "package-lock.json", *sorted(JAVASCRIPT.glob("*.mjs"))]
        content = b"".join(path.read_bytes() for path in sources)
        return self._made("javascript", content, lambda target: self._install_javascript(target, sources))

    def _made(self, name: str, content: bytes, install: Callable[[Path], None]) -> Path:
        # A virtual environment belongs to one interpreter and one place.
        fingerprint = hashlib.sha256(content + sys.version.encode() + bytes(self._directory)).hexdigest()[:8]
        target = self._directory / f"{name}-{fingerprint}"
        whole = target / ".whole"
        if not whole.exists():
            self._tell(f"installing {name} in {target}")
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            install(target)
            whole.touch()
        return target

    def _install_python(self, target: Path, lock: Path) -> None:
        venv.create(target, with_pip=True)
        pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run_installer([*pip, "--no-input", "--require-hashes", "-r", str(lock)], target)

    def _install_javascript(self, target: Path, sources: list[Path]) -> None:
        for source in sources:
            shutil.copy(source, target)
        npm = [str(self.program("node", "npm")), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        run_installer(npm, target, {"PATH": f"{self.program('node', 'npm').parent}{os.pathsep}{os.environ['PATH']}"})


def run_installer(command: list[str], directory: Path, environment: dict[str, str] | None = None) -> None:
    try:
        answer = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstallable(f"{Path(command[0]).name}: {error}") from None
    if answer.returncode != 0:
        words = (answer.stdout + answer.stderr).strip()[-LAST_WORDS_CHARACTERS:]
        raise NotInstallable(f"{' '.join([Path(command[0]).name, *command[1:3]])} failed: {words}")
