from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies: list[tuple[str, str]] = []

    operations = [
        migrations.CreateModel(
            name="IdempotentOutcome",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("account_id", models.CharField(max_length=12)),
                ("actor", models.CharField(max_length=64)),
                ("key_hash", models.BinaryField(max_length=32)),
                ("request_hash", models.BinaryField(max_length=32)),
                ("status", models.SmallIntegerField()),
                ("sealed", models.BinaryField(default=b"")),
                ("holds_secret", models.BooleanField()),
                ("at", models.DateTimeField()),
            ],
            options={
                "db_table": "idempotent_outcome",
                "indexes": [models.Index(fields=["at"], name="idempotent_outcome_at")],
                "constraints": [
                    models.UniqueConstraint(fields=("account_id", "actor", "key_hash"), name="idempotent_outcome_key")
                ],
            },
        ),
    ]
