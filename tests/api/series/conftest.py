"""Accounts that are older than the hours that tests of the series meter."""

from __future__ import annotations

import pytest

from api.accounts.models import Account
from tests.api.series.scene import LONG_AGO
from tests.support.control_plane import Caller


@pytest.fixture
def caller(caller: Caller) -> Caller:
    """The live meter leaves out what was used before an account was made."""
    Account.objects.filter(id=caller.account_id).update(created_at=LONG_AGO)
    return caller
