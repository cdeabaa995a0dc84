"""The lock files: hashed, in step with what they were compiled from, free of any registry's address."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.repository import text

LOCKS = ["base", "test", "reports"]


def wanted(name: str) -> list[Requirement]:
    """Requirements of an .in file, with those it includes."""
    found: list[Requirement] = []
    for line in text(f"requirements/{name}.in").splitlines():
        stripped = line.split("#")[0].strip()
        if stripped.startswith("-r "):
            found += wanted(stripped[3:].strip().removesuffix(".in"))
        elif stripped and not stripped.startswith("-c"):
            found.append(Requirement(stripped))
    return found


def locked(name: str) -> dict[str, str]:
    pins = re.findall(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^ ;\\]+)", text(f"requirements/{name}.txt"), re.MULTILINE)
    return {canonicalize_name(package): version for package, version in pins}


@pytest.mark.parametrize("name", LOCKS)
def test_lock_holds_everything_its_source_wants(name: str) -> None:
    pins = locked(name)
    missing = [
        str(want)
        for want in wanted(name)
        if canonicalize_name(want.name) not in pins or pins[canonicalize_name(want.name)] not in want.specifier
    ]
    options = "--generate-hashes --no-header --python-version 3.11 -c requirements/base.txt"
    advice = f"uv pip compile {options} requirements/{name}.in -o requirements/{name}.txt"
    assert not missing, f"{missing} not in the lock; compile it again: {advice}"


@pytest.mark.parametrize("name", LOCKS)
def test_lock_has_a_hash_for_every_package(name: str) -> None:
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text(f"requirements/{name}.txt"))
    bare = [block.split()[0] for block in blocks if "==" in block.split("\n")[0] and "--hash=sha256:" not in block]
    assert not bare, f"compile with --generate-hashes: {bare}"


@pytest.mark.parametrize("name", LOCKS)
def test_lock_names_no_registry(name: str) -> None:
    for suffix in ("in", "txt"):
        found = re.findall(r".*(?:https?://|--index|--find|--extra).*", text(f"requirements/{name}.{suffix}"))
        assert not found, f"take these lines out; uv pip compile writes none unless it is told to: {found}"


@pytest.mark.parametrize("name", ["test", "reports"])
def test_locks_agree_on_versions(name: str) -> None:
    base = locked("base")
    differing = {package for package, version in locked(name).items() if base.get(package, version) != version}
    assert not differing, f"compile {name} with -c requirements/base.txt: {differing}"


def test_project_names_the_same_dependencies() -> None:
    project = tomllib.loads(text("pyproject.toml"))["project"]
    declared = {str(Requirement(line)) for line in project["dependencies"]}
    advice = "keep [project.dependencies] and requirements/base.in equal"
    assert declared == {str(want) for want in wanted("base")}, advice
