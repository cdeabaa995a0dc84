"""Fixtures of the front end's tests."""

from __future__ import annotations

import pytest

from tests.support.frontend_plane import Installation


@pytest.fixture
async def front() -> Installation:
    """An account with the queue `orders`, and another account with the queue `secret`."""
    return Installation()
