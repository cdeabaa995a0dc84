"""What the live meter reads: usage of hours that are not settled, and how far it has read."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_guards")]

    operations = [
        migrations.CreateModel(
            name="MeterReading",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("as_of", models.DateTimeField(null=True)),
                ("took_ms", models.BigIntegerField(default=0)),
                ("ended_at", models.DateTimeField(null=True)),
                ("missing", models.CharField(default="", max_length=500)),
            ],
            options={
                "db_table": "meter_reading",
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="meter_reading_once")],
            },
        ),
        migrations.CreateModel(
            name="UsageStreamPosition",
            fields=[
                ("partition", models.CharField(max_length=120, primary_key=True, serialize=False)),
                ("next_offset", models.BigIntegerField(default=0)),
            ],
            options={"db_table": "usage_stream_position"},
        ),
        migrations.CreateModel(
            name="ProvisionalUsage",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "hour",
                        "account_id",
                        "queue_uuid",
                        "source",
                        "origin",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("account_id", models.CharField(max_length=12)),
                ("queue_uuid", models.UUIDField()),
                ("source", models.CharField(max_length=120)),
                ("origin", models.CharField(max_length=8)),
                ("messages_sent", models.BigIntegerField(default=0)),
                ("messages_delivered", models.BigIntegerField(default=0)),
                ("messages_deleted", models.BigIntegerField(default=0)),
                ("messages_moved", models.BigIntegerField(default=0)),
                ("messages_dead_lettered", models.BigIntegerField(default=0)),
                ("messages_scheduled", models.BigIntegerField(default=0)),
                ("sent_bytes", models.BigIntegerField(default=0)),
                ("delivered_bytes", models.BigIntegerField(default=0)),
                ("sent_units", models.BigIntegerField(default=0)),
                ("delivered_units", models.BigIntegerField(default=0)),
                ("stored_byte_ms", models.DecimalField(decimal_places=0, default=0, max_digits=38)),
                ("requests", models.BigIntegerField(default=0)),
                ("empty_receives", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "provisional_usage",
                "indexes": [models.Index(fields=["account_id", "hour"], name="provisional_by_account")],
            },
        ),
    ]
