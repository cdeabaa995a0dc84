"""Dead modules: a module that nobody imports and nothing starts is taken out."""

from __future__ import annotations

import ast
import functools
from pathlib import PurePosixPath

from tests.tidy.repository import PACKAGES, files, python_files, statements, text

# Started by name: by an interpreter, by Django, by Celery, by the launcher.
# `transitions` is a machine's table, walked by a test.
STARTED_NAMES = {
    "__main__", "__init__", "apps", "give_up", "manage", "conftest", "make_secrets", "models", "transitions",
}  # fmt: skip
STARTED_FOLDERS = ("deploy/commands/", "benchmarks/")


def module_of(name: str) -> str:
    return str(PurePosixPath(name).with_suffix("")).replace("/", ".").removesuffix(".__init__")


@functools.cache
def imported_by(name: str) -> set[str]:
    """Every module and every `module.name` that a file imports."""
    found: set[str] = set()
    for node in statements(ast.parse(text(name))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_every_module_is_imported_or_started() -> None:
    sources = python_files(*PACKAGES)
    imported = set().union(*(imported_by(name) for name in sources))
    # Settings, Celery's include list, Django's app list name modules in strings.
    named = "\n".join(text(name) for name in files() if name.endswith((".py", ".toml", ".yml")))
    dead = [
        name
        for name in sources
        if PurePosixPath(name).stem not in STARTED_NAMES
        and not name.startswith(STARTED_FOLDERS)
        and "/management/commands/" not in name
        and "/templatetags/" not in name
        and module_of(name) not in imported
        and f'"{module_of(name)}' not in named
    ]
    assert not dead, f"nobody imports or starts these; take them out, or wire them in: {dead}"


def test_planes_are_not_imported_by_tests_only() -> None:
    """What only tests import belongs under tests/."""
    assert "tests" not in {module.split(".")[0] for name in python_files(*PACKAGES) for module in imported_by(name)}
