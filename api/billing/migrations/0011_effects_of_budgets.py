"""What a budget does when its limit is reached: alert, throttle or stop, for accounts and for queues."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

EFFECTS = ["alert", "throttle", "stop"]


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_rotated_keys"),
        ("billing", "0010_over_a_budget"),
    ]

    operations = [
        migrations.AddField(
            "spendingbudget",
            "effect",
            models.CharField(
                choices=[("alert", "Alert"), ("throttle", "Throttle"), ("stop", "Stop")], default="alert", max_length=8
            ),
        ),
        migrations.RunSQL(
            "UPDATE spending_budget SET effect = 'stop' WHERE stops_sending",
            "UPDATE spending_budget SET stops_sending = true WHERE effect = 'stop' AND queue_uuid IS NULL",
        ),
        migrations.RemoveConstraint("spendingbudget", "spending_budget_stops_accounts"),
        migrations.RemoveField("spendingbudget", "stops_sending"),
        migrations.AddConstraint(
            "spendingbudget", models.CheckConstraint(condition=Q(effect__in=EFFECTS), name="spending_budget_effect")
        ),
        migrations.AlterField(
            "budgetevent",
            "kind",
            models.CharField(
                choices=[("alert", "Alert"), ("throttle", "Throttle"), ("stop", "Stop"), ("resume", "Resume")],
                max_length=8,
            ),
        ),
        migrations.CreateModel(
            name="SpendingEffect",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("queue_uuid", models.UUIDField(null=True)),
                (
                    "effect",
                    models.CharField(
                        choices=[("alert", "Alert"), ("throttle", "Throttle"), ("stop", "Stop")], max_length=8
                    ),
                ),
                ("period_start", models.DateTimeField()),
                ("since", models.DateTimeField()),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="spending_effects",
                        to="accounts.account",
                    ),
                ),
                (
                    "budget",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="billing.spendingbudget"
                    ),
                ),
            ],
            options={
                "db_table": "spending_effect",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("account", "queue_uuid"), name="spending_effect_once", nulls_distinct=False
                    ),
                    models.CheckConstraint(condition=Q(effect__in=["throttle", "stop"]), name="spending_effect_holds"),
                ],
            },
        ),
        migrations.RunSQL(
            """INSERT INTO spending_effect (account_id, queue_uuid, effect, budget_id, period_start, since)
               SELECT account_id, NULL, 'stop', budget_id, period_start, since FROM spending_stop""",
            """INSERT INTO spending_stop (account_id, budget_id, period_start, since)
               SELECT account_id, budget_id, period_start, since FROM spending_effect
                WHERE queue_uuid IS NULL AND effect = 'stop'""",
        ),
        migrations.DeleteModel("SpendingStop"),
    ]
