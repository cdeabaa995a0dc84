"""What a test shows of SQS, where it does so outside of the tables of `tests/frontend/compat`.

The matrix reads the marks from the source, so their arguments are words as they stand. `"*"`: every action that
documents the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])


def covers(action: str, *, error: str = "", limit: str = "") -> Callable[[Test], Test]:
    """An error of the model by its JSON name, or a `Bound` by its name: asked at it, one below and one above."""
    assert bool(error) != bool(limit), (action, error, limit)
    return lambda test: test
