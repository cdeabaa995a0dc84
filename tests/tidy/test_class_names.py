"""A class name has one meaning over all planes."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict

from tests.tidy.repository import PACKAGES, python_files, text

# Names that a framework asks for.
OF_FRAMEWORKS = {"Command", "Config", "Meta", "Migration"}


@functools.cache
def classes_by_name() -> dict[str, list[str]]:
    """Public classes at the top of a module: the files that define the name."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in python_files(*PACKAGES):
        for node in ast.parse(text(name)).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in OF_FRAMEWORKS:
                found[node.name].append(name)
    return found


def test_class_names_are_given_once() -> None:
    twice = {name: places for name, places in classes_by_name().items() if len(places) > 1}
    assert not twice, f"a name that says which of them it is: {twice}"
