import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_rotated_keys"),
        ("queues", "0008_replaced_data_keys"),
        ("quotas", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="QueueQuotas",
            fields=[
                (
                    "queue",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="own_quotas",
                        serialize=False,
                        to="queues.queue",
                    ),
                ),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="queue_quotas",
                        to="accounts.account",
                    ),
                ),
                ("given", models.JSONField()),
            ],
            options={"db_table": "quota_queue"},
        ),
        migrations.CreateModel(
            name="KeyQuotas",
            fields=[
                (
                    "key",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="own_quotas",
                        serialize=False,
                        to="accounts.accesskey",
                    ),
                ),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="key_quotas",
                        to="accounts.account",
                    ),
                ),
                ("given", models.JSONField()),
            ],
            options={"db_table": "quota_key"},
        ),
    ]
