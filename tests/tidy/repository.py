"""What the style tests look at: the repository's own files, as git knows them (also those not yet added)."""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("storage_nodes", "frontend", "api", "workers", "console", "deploy", "benchmarks")
# Generated or imported as they are.
EXCEPTED_PARTS = {"migrations", "vectors"}


@functools.cache
def files() -> tuple[str, ...]:
    """Repository paths of all files that are there; where there is no git, everything that is not hidden."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        names = answer.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        names = [str(path) for path in paths if not any(part.startswith(".") for part in path.parts[:-1])]
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def python_files(*top_levels: str) -> list[str]:
    """Python files under these top-level folders (all where none is named), without the excepted ones."""
    return [
        name
        for name in files()
        if name.endswith(".py")
        and not EXCEPTED_PARTS & set(Path(name).parts)
        and (not top_levels or name.split("/")[0] in top_levels)
    ]


@functools.cache
def text(name: str) -> str:
    return (ROOT / name).read_text()


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement, also those within others; expressions, nine tenths of a tree, are not looked at."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, field, ())
