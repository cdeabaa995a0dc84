"""A class name has one meaning over all planes."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict

from tests.tidy.repository import PACKAGES, python_files, text

# Names that a framework asks for.
OF_FRAMEWORKS = {"Command", "Config", "Meta", "Migration"}
# Names that the storage plane gives twice within itself: those of two machines, or of the client and the node.
TWICE_IN_STORAGE = {
    "Answer",
    "CheckpointError",
    "Connection",
    "Group",
    "Position",
    "Propose",
    "Refuse",
}


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
    wrong = {
        name: places
        for name, places in twice.items()
        if name not in TWICE_IN_STORAGE or any(not place.startswith("storage_nodes/") for place in places)
    }
    assert not wrong, f"a name that says which of them it is: {wrong}"


def test_exceptions_are_still_needed() -> None:
    classes = classes_by_name()
    assert all(len(classes[name]) > 1 for name in TWICE_IN_STORAGE), "take it from TWICE_IN_STORAGE"
