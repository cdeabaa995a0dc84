"""Who sells and who buys, on invoices and notes. Documents that are issued already name neither, as before."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0005_first_account"), ("billing", "0020_lifted_stops")]

    operations = [
        migrations.CreateModel(
            "BillingParty",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100)),
                ("address", models.JSONField(default=list)),
                ("tax_id", models.CharField(default="", max_length=100)),
                ("payment", models.JSONField(default=list)),
                ("payment_days", models.IntegerField(null=True)),
                ("updated_at", models.DateTimeField()),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
            ],
            options={
                "db_table": "billing_party",
                "constraints": [
                    models.UniqueConstraint(fields=("account",), name="billing_party_once", nulls_distinct=False),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("account", None), models.Q(("payment", []), ("payment_days", None)), _connector="OR"
                        ),
                        name="billing_party_payment_of_seller",
                    ),
                ],
            },
        ),
        migrations.AddField("invoice", "seller", models.JSONField(default=dict)),
        migrations.AddField("invoice", "buyer", models.JSONField(default=dict)),
        migrations.AddField("creditnote", "seller", models.JSONField(default=dict)),
        migrations.AddField("creditnote", "buyer", models.JSONField(default=dict)),
    ]
