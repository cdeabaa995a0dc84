"""One whole installation for the short versions of trials that change nothing but accounts of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.blackbox.stage import Stage, staged

# In this order, so that it is started once, and ends before the tests that need nothing of it.
SHARING = (
    "test_short_one_account.py", "test_short_quotas.py", "test_short_refusals.py", "test_short_revocation.py",
    "test_short_versions.py", "test_short_wire.py",
)  # fmt: skip
_OPEN = ExitStack()
_STAGES: list[Stage] = []


@pytest.fixture
def stage() -> Iterator[Stage]:
    if not _STAGES:
        _STAGES.append(_OPEN.enter_context(staged()))
    yield _STAGES[0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if _STAGES and (nextitem is None or nextitem.path.name not in SHARING):
        _STAGES.clear()
        _OPEN.close()
