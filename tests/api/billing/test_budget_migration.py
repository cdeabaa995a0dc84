"""Budgets that stopped sending, and the stops that stood, are the same after their migration."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from api.billing.models import SpendingBudget, SpendingEffect
from tests.api.billing.usage import NOW
from tests.support.control_plane import new_caller

pytestmark = pytest.mark.django_db(transaction=True)
_BUDGET = """INSERT INTO spending_budget (account_id, name, limit_minor, alert_percents, stops_sending, mail_to,
                                          generation, created_at, modified_at)
             VALUES (%s, %s, 5, '[]', %s, '[]', 1, now(), now()) RETURNING id"""


def migrate(name: str) -> None:
    MigrationExecutor(connection).migrate([("billing", name)])


def test_budgets_and_stops_keep_what_they_do() -> None:
    account = new_caller().account_id
    migrate("0010_over_a_budget")
    try:
        with connection.cursor() as cursor:
            cursor.execute(_BUDGET, (account, "alerts", False))
            cursor.execute(_BUDGET, (account, "stops", True))
            stops = cursor.fetchone()[0]
            cursor.execute("INSERT INTO spending_stop VALUES (%s, %s, now(), %s)", (account, NOW.start, stops))
    finally:
        migrate("0011_effects_of_budgets")
        ((_, last),) = MigrationExecutor(connection).loader.graph.leaf_nodes("billing")
        migrate(last)
    budgets = SpendingBudget.objects.order_by("name").values_list("name", "effect")
    assert list(budgets) == [("alerts", "alert"), ("stops", "stop")]
    one = SpendingEffect.objects.get()
    assert (one.account_id, one.queue_uuid, one.effect, one.budget.name) == (account, None, "stop", "stops")
    assert one.period_start == NOW.start
