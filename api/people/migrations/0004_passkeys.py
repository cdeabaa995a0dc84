import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("people", "0003_acting_visit"),
    ]

    operations = [
        migrations.CreateModel(
            name="PasskeyChallenge",
            fields=[
                ("holder_hash", models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                ("challenge", models.BinaryField(max_length=32)),
                ("expires_at", models.DateTimeField(db_index=True)),
            ],
            options={
                "db_table": "passkey_challenge",
            },
        ),
        migrations.CreateModel(
            name="Passkey",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=60)),
                ("credential_id", models.BinaryField(max_length=1023, unique=True)),
                ("public_key", models.BinaryField(max_length=2048)),
                ("sign_count", models.BigIntegerField()),
                ("created_at", models.DateTimeField()),
                ("last_used_at", models.DateTimeField(null=True)),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="passkeys", to="people.person"
                    ),
                ),
            ],
            options={
                "db_table": "person_passkey",
                "constraints": [models.UniqueConstraint(fields=("person", "name"), name="passkey_name")],
            },
        ),
    ]
