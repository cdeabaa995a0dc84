"""The surface of the front end: modules that other planes may import say so, and pyproject.toml lists the same."""

from __future__ import annotations

import ast
import tomllib

from tests.tidy.repository import ROOT, python_files, text

MARK = "Surface: other planes may import this module."


def test_modules_that_other_planes_may_import_are_those_marked_as_surface() -> None:
    contracts = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (surface,) = [contract for contract in contracts if contract["id"] == "frontend-surface"]
    listed = {line.partition(" -> ")[2] for line in surface["ignore_imports"]}
    marked = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in python_files("frontend")
        if MARK in (ast.get_docstring(ast.parse((ROOT / name).read_text())) or "")
    }
    assert listed == marked, "a module of the surface is marked in its docstring and listed in pyproject.toml"
