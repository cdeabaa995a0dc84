"""`bench [NAME]`: run `benchmarks.NAME`, or all of them one after the other; each prints a table and JSON."""

from __future__ import annotations

import os
import subprocess
import sys

from deploy import output
from deploy.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from deploy.installation import PYTHON_CLIENT, ROOT


def run(arguments: list[str]) -> int:
    # Modules without a main part are what the benchmarks share.
    files = (ROOT / "benchmarks").glob("*.py")
    known = sorted(path.stem for path in files if 'if __name__ == "__main__"' in path.read_text())
    wanted = [name.replace("-", "_") for name in arguments[:1]]
    if wanted and wanted[0] not in known:
        raise CommandError(f"there is no benchmark {arguments[0]!r}; there are: {', '.join(known)}", EXIT_USAGE)
    failed = []
    environment = {**os.environ, "PYTHONPATH": str(PYTHON_CLIENT)}
    for name in wanted or known:
        output.say(f"--- {name}")
        command = [sys.executable, "-m", f"benchmarks.{name}", *arguments[1:]]
        if subprocess.run(command, cwd=ROOT, env=environment).returncode != 0:
            failed.append(name)
    if failed:
        raise CommandError(f"failed: {', '.join(failed)}", EXIT_FAILED)
    return 0
