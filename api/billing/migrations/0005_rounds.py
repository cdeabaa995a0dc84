"""Runs that settle usage, and rounds of work on the schedule with what failed in them: read by operators."""

from django.db import migrations, models

_STATES = [("started", "Started"), ("done", "Done"), ("failed", "Failed"), ("overtaken", "Overtaken")]


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_daily_usage")]

    operations = [
        migrations.CreateModel(
            name="UsageRun",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("hour_from", models.DateTimeField()),
                ("hour_to", models.DateTimeField()),
                ("state", models.CharField(choices=_STATES, max_length=9)),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("merged", models.BigIntegerField(default=0)),
                ("removed", models.BigIntegerField(default=0)),
                ("quarantined", models.BigIntegerField(default=0)),
                ("note", models.CharField(default="", max_length=500)),
            ],
            options={
                "db_table": "usage_run",
                "indexes": [models.Index(fields=["-started_at"], name="usage_run_latest")],
            },
        ),
        migrations.CreateModel(
            name="WorkRound",
            fields=[
                ("work", models.CharField(max_length=80, primary_key=True, serialize=False)),
                ("ended_at", models.DateTimeField()),
                ("took_ms", models.BigIntegerField()),
                ("done", models.BigIntegerField()),
                ("troubled_rounds", models.BigIntegerField(default=0)),
                ("trouble", models.CharField(default="", max_length=500)),
            ],
            options={"db_table": "work_round"},
        ),
        migrations.CreateModel(
            name="WorkFailure",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("work", models.CharField(max_length=80)),
                ("subject", models.CharField(max_length=80)),
                ("account_id", models.CharField(default="", max_length=12)),
                ("period_start", models.DateTimeField(null=True)),
                ("failures", models.BigIntegerField()),
                ("error", models.CharField(max_length=500)),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
            ],
            options={
                "db_table": "work_failure",
                "constraints": [models.UniqueConstraint(fields=("work", "subject"), name="work_failure_once")],
            },
        ),
    ]
