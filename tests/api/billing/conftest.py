"""Accounts that were open before the month of the tests."""

from __future__ import annotations

import pytest

from tests.api.billing.usage import open_since
from tests.support.control_plane import Caller, new_caller


@pytest.fixture
def caller(db: None) -> Caller:
    made = new_caller()
    open_since(made.account_id)
    return made


@pytest.fixture
def account(caller: Caller) -> str:
    return caller.account_id
