"""Accounts that were open before the month of the tests."""

from __future__ import annotations

import pytest

from tests.api.billing.usage import open_since
from tests.support.control_plane import Caller


@pytest.fixture
def account(caller: Caller) -> str:
    open_since(caller.account_id)
    return caller.account_id
