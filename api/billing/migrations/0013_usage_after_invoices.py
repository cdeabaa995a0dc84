"""Months whose usage changed after they were over, which the database itself notes; invoices that usage disagrees with.

Invoices whose hours were settled again after they were issued are looked at once.
"""

import django.db.models.deletion
from django.db import migrations, models

_NOTE = """
    INSERT INTO late_usage (account_id, period_start, changed_at)
    SELECT m.account_id, m.month, clock_timestamp()
      FROM (SELECT DISTINCT account_id, date_trunc('month', hour, 'UTC') AS month FROM {rows}) m
      LEFT JOIN account_life l ON l.account_id = m.account_id AND l.state = 'closed'
     WHERE m.month < date_trunc('month', now(), 'UTC') OR l.account_id IS NOT NULL
     ORDER BY 1, 2
        ON CONFLICT (account_id, period_start) DO UPDATE SET changed_at = excluded.changed_at;
    RETURN NULL;"""
_NEW, _OLD = _NOTE.format(rows="new_rows"), _NOTE.format(rows="old_rows")
MAKE = f"""
CREATE FUNCTION billing_late_new() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {_NEW} END $$;
CREATE FUNCTION billing_late_old() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {_OLD} END $$;
CREATE TRIGGER late_insert AFTER INSERT ON hourly_usage
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION billing_late_new();
CREATE TRIGGER late_update AFTER UPDATE ON hourly_usage
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION billing_late_new();
CREATE TRIGGER late_delete AFTER DELETE ON hourly_usage
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION billing_late_old();
INSERT INTO late_usage (account_id, period_start, changed_at)
SELECT i.account_id, i.period_start, clock_timestamp() FROM invoice i WHERE i.state = 'issued' AND EXISTS (
    SELECT FROM fill_ledger f WHERE f.hour >= i.open_start AND f.hour < i.open_end AND f.done_at > i.issued_at);
"""
UNMAKE = """
DROP TRIGGER late_insert ON hourly_usage;
DROP TRIGGER late_update ON hourly_usage;
DROP TRIGGER late_delete ON hourly_usage;
DROP FUNCTION billing_late_new();
DROP FUNCTION billing_late_old();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0012_looks_at_months")]

    operations = [
        migrations.CreateModel(
            name="LateUsage",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "account_id", "period_start", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("account_id", models.CharField(max_length=12)),
                ("period_start", models.DateTimeField()),
                ("changed_at", models.DateTimeField()),
            ],
            options={"db_table": "late_usage"},
        ),
        migrations.CreateModel(
            name="InvoiceDifference",
            fields=[
                (
                    "invoice",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="difference",
                        serialize=False,
                        to="billing.invoice",
                    ),
                ),
                ("charges_minor", models.BigIntegerField()),
                ("tax_minor", models.BigIntegerField()),
                ("total_minor", models.BigIntegerField()),
                ("found_at", models.DateTimeField()),
            ],
            options={
                "db_table": "invoice_difference",
                "indexes": [models.Index(fields=["found_at"], name="invoice_difference_found")],
            },
        ),
        migrations.RunSQL(MAKE, UNMAKE),
    ]
