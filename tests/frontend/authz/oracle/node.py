"""The other evaluator: a package of npm, installed from its lock and run by Node."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.clients.environments import NotInstallable, run_installer

HERE = Path(__file__).resolve().parent / "javascript"
REPOSITORY = Path(__file__).resolve().parents[4]
# Not kept in the repository, and can be deleted at any time.
STATE_DIRECTORY = Path(os.environ.get("PENSTOCK_DATA_DIR") or REPOSITORY / ".penstock")
SIMULATE_TIMEOUT_S = 600


class Node(NamedTuple):
    node: str
    npm: str

    def install(self, directory: Path = STATE_DIRECTORY) -> Path:
        """Where the package lies, which is put there once. Raises NotInstallable."""
        sources = [HERE / name for name in ("package.json", "package-lock.json", "simulate.mjs")]
        fingerprint = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:8]
        target = directory / f"policy-oracle-{fingerprint}"
        if not (target / ".whole").exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            for source in sources:
                shutil.copy(source, target)
            run_installer([self.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target)
            (target / ".whole").touch()
        return target

    def simulate(self, directory: Path, simulations: Iterable[str]) -> Iterator[str]:
        """An answer for each. All are asked at once: starting Node takes longer than a thousand of them."""
        with tempfile.TemporaryFile("w+") as asked:
            asked.writelines(f"{one}\n" for one in simulations)
            asked.seek(0)
            answer = subprocess.run(
                [self.node, "simulate.mjs"],
                cwd=directory,
                stdin=asked,
                capture_output=True,
                text=True,
                timeout=SIMULATE_TIMEOUT_S,
                check=True,
            )
        yield from answer.stdout.splitlines()


def find_node() -> Node:
    """Raises NotInstallable."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotInstallable("node and npm are not on the PATH")
    return Node(node, npm)
