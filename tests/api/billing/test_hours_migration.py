"""Hours that were settled before they were kept within days are the same after the migration, and on the way back."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from api.billing.models import DailyUsage, HourlyUsage, LateUsage
from tests.api.billing.usage import MONTH, QUEUE, month_hour, open_since, row, settle_rows
from tests.support.control_plane import new_caller

pytestmark = pytest.mark.django_db(transaction=True)
_HOURS = "SELECT account_id, hour, queue_uuid, partition_id, origin, sent_units, stored_byte_ms FROM hourly_usage"
_DAYS = "SELECT day, origin, rows, sent_units FROM daily_usage ORDER BY day, origin"


def migrate(name: str) -> None:
    MigrationExecutor(connection).migrate([("billing", name)])


def read(statement: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def test_hours_and_days_are_the_same_before_and_after() -> None:
    account = new_caller().account_id
    open_since(account)
    ((_, last),) = MigrationExecutor(connection).loader.graph.leaf_nodes("billing")
    stored = 7 * 10**20
    settle_rows([row(account, hour, sent_units=hour, stored_byte_ms=stored) for hour in (0, 5, 23, 24)], 0, 30)
    settle_rows([row(account, 25, origin="cron", sent_units=4), row(account, 25, partition_id=13, sent_units=1)], 25, 1)
    found = sorted(read(_HOURS))
    assert len(found) == 6
    migrate("0016_guards_of_many_lines")
    try:
        assert sorted(read(_HOURS)) == found
        assert [row[2:] for row in read(_DAYS)] == [(3, 28), (2, 25), (1, 4)]
        with connection.cursor() as cursor:
            cursor.execute("UPDATE hourly_usage SET sent_units = 9 WHERE sent_units = 5")
        assert [row[2:] for row in read(_DAYS)] == [(3, 32), (2, 25), (1, 4)], "the database sums the days there"
    finally:
        migrate(last)
    expected = sorted((*one[:5], 9 if one[5] == 5 else one[5], one[6]) for one in found)
    assert sorted(read(_HOURS)) == expected
    bits = DailyUsage.objects.order_by("day", "origin", "partition_id").values_list("hour_bits", "sent_units")
    assert list(bits) == [(1 | 1 << 5 | 1 << 23, 32), (1, 24), (2, 1), (2, 4)]
    LateUsage.objects.all().delete()
    assert settle_rows([row(account, 5, sent_units=10)], 5, 1).merged == 1
    assert HourlyUsage.objects.get(day=MONTH, hour=month_hour(5)).sent_units == 10
    assert LateUsage.objects.filter(account_id=account, period_start=MONTH).exists() and QUEUE.int == 7
