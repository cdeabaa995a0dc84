"""`bench [NAME]`: run `benchmarks.NAME`, or all of them one after the other; each prints a table and JSON.

`bench --help` lists them, `bench NAME --help` says what one measures and what it takes.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy import output
from deploy.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from deploy.installation import PYTHON_CLIENT, ROOT

HELP = ("-h", "--help")


def run(arguments: list[str]) -> int:
    known = benchmarks()
    if arguments[:1] and arguments[0] in HELP:
        for name, path in known.items():
            first = " ".join(about(path).partition("\n\n")[0].split())
            output.data(f"{name.replace('_', '-'):<16} {first}")
        return 0
    wanted = [name.replace("-", "_") for name in arguments[:1]]
    if wanted and wanted[0] not in known:
        raise CommandError(f"there is no benchmark {arguments[0]!r}; there are: {', '.join(known)}", EXIT_USAGE)
    if wanted and set(HELP) & set(arguments[1:]):
        output.data(about(known[wanted[0]]))
        return 0
    failed = []
    for name in wanted or known:
        output.say(f"--- {name}")
        code = run_to_the_end([sys.executable, "-m", "benchmarks", name, *arguments[1:]])
        if code:
            failed.append(name)
        if code == 128 + signal.SIGTERM:
            break
    if failed:
        raise CommandError(f"failed: {', '.join(failed)}", EXIT_FAILED)
    return 0


def benchmarks() -> dict[str, Path]:
    """By name. Modules without a main part are what the benchmarks share; `__main__` runs one."""
    files = sorted((ROOT / "benchmarks").glob("[!_]*.py"))
    return {path.stem: path for path in files if 'if __name__ == "__main__"' in path.read_text()}


def about(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def run_to_the_end(command: Sequence[str]) -> int:
    """Its exit code. Who ends this process waits until the benchmark has taken down what it started."""
    child = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(PYTHON_CLIENT)})
    before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.wait()  # the terminal has told it, too
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
