"""Payments of issued invoices. The database refuses changes of what was recorded."""

import django.db.models.deletion
from django.db import migrations, models

MAKE = """
CREATE TRIGGER final_payment BEFORE UPDATE OR DELETE ON invoice_payment
    FOR EACH ROW EXECUTE FUNCTION billing_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0007_refused_requests")]

    operations = [
        migrations.CreateModel(
            name="InvoicePayment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("amount_minor", models.BigIntegerField()),
                ("received_on", models.DateField()),
                ("reference", models.CharField(max_length=100)),
                ("recorded_at", models.DateTimeField()),
                (
                    "invoice",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="payments",
                        to="billing.invoice",
                    ),
                ),
            ],
            options={
                "db_table": "invoice_payment",
                "constraints": [
                    models.UniqueConstraint(fields=("invoice", "reference"), name="invoice_payment_once"),
                    models.CheckConstraint(
                        condition=models.Q(("amount_minor", 0), _negated=True), name="invoice_payment_amount"
                    ),
                ],
            },
        ),
        migrations.RunSQL(MAKE, "DROP TRIGGER final_payment ON invoice_payment"),
    ]
