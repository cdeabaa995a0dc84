"""What a test has committed is gone after it, guarded rows too, and the rows of the schema stay."""

from __future__ import annotations

import pytest
from django.contrib.contenttypes.models import ContentType

from api.accounts.models import Account
from api.audit.models import AuditEntry
from tests.support.control_plane import new_caller
from tests.support.emptying import empty_tables


@pytest.mark.django_db(transaction=True)
def test_committed_rows_are_taken_away_and_those_of_the_schema_stay() -> None:
    new_caller()
    assert Account.objects.exists() and AuditEntry.objects.exists()
    empty_tables(None)
    assert not Account.objects.exists() and not AuditEntry.objects.exists()
    assert ContentType.objects.exists()
    empty_tables(None)  # nothing is left to take away
