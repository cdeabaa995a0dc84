"""How much an account or a queue may send, and queues to which nothing may be sent."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_rotated_keys"),
        ("queues", "0008_replaced_data_keys"),
        ("quotas", "0003_single_notices"),
    ]

    operations = [
        migrations.AddField("quotaholder", "sends_per_s", models.IntegerField(default=0)),
        migrations.CreateModel(
            name="QueueSending",
            fields=[
                (
                    "queue",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="sending",
                        serialize=False,
                        to="queues.queue",
                    ),
                ),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="queue_sending",
                        to="accounts.account",
                    ),
                ),
                ("sending_stopped", models.CharField(default="", max_length=200)),
                ("sends_per_s", models.IntegerField(default=0)),
            ],
            options={"db_table": "quota_queue_sending"},
        ),
    ]
