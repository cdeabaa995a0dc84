"""What is told of what is not there: the same of what never was, what is gone, and what is another account's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.limits import ABSENT_NAME_CHARACTERS_MAX

# Of refusals that do not know the path: the handler of problems tells `nothing_with` in its place.
NOTHING_HERE = "There is nothing here."


def nothing_with(path: Mapping[str, Any]) -> str:
    """Names what the path names, and tells nothing else."""
    named = " and ".join(f"{name} {str(value)[:ABSENT_NAME_CHARACTERS_MAX]!r}" for name, value in path.items())
    what = f"There is nothing with {named} here" if named else "What the request names is not here"
    return f"{what}: it does not exist, was deleted, or belongs to another account."
