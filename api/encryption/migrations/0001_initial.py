import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0002_auto_creation"),
    ]

    operations = [
        migrations.RunSQL("CREATE SEQUENCE penstock_encryption_key", "DROP SEQUENCE penstock_encryption_key"),
        migrations.CreateModel(
            name="EncryptionKey",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("name", models.CharField(db_collation="C", max_length=64)),
                ("description", models.CharField(default="", max_length=256)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("enabled", "Enabled"),
                            ("disabled", "Disabled"),
                            ("pending_deletion", "Pending Deletion"),
                            ("deleted", "Deleted"),
                        ],
                        default="enabled",
                        max_length=16,
                    ),
                ),
                ("shared_accounts", models.JSONField(default=list)),
                ("created_at", models.DateTimeField()),
                ("rotated_at", models.DateTimeField(null=True)),
                ("deletes_at", models.DateTimeField(null=True)),
                ("version", models.BigIntegerField()),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="encryption_keys",
                        to="accounts.account",
                    ),
                ),
            ],
            options={"db_table": "encryption_key"},
        ),
        migrations.CreateModel(
            name="EncryptionKeyVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.IntegerField(unique=True)),
                ("wrapped", models.BinaryField()),
                ("created_at", models.DateTimeField()),
                (
                    "key",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="encryption.encryptionkey",
                    ),
                ),
            ],
            options={"db_table": "encryption_key_version"},
        ),
        migrations.CreateModel(
            name="EncryptionKeyUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("hour", models.DateTimeField()),
                ("sealed", models.BigIntegerField(default=0)),
                ("opened", models.BigIntegerField(default=0)),
                ("last_told_at", models.DateTimeField()),
                (
                    "key",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="uses",
                        to="encryption.encryptionkey",
                    ),
                ),
            ],
            options={"db_table": "encryption_key_use"},
        ),
        migrations.AddConstraint(
            model_name="encryptionkey",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "deleted"), _negated=True),
                fields=("account", "name"),
                name="encryption_key_name",
            ),
        ),
        migrations.AddIndex(
            model_name="encryptionkey",
            index=models.Index(
                condition=models.Q(("state", "pending_deletion")), fields=["deletes_at"], name="encryption_key_due"
            ),
        ),
        migrations.AddIndex(
            model_name="encryptionkeyversion",
            index=models.Index(fields=["key", "number"], name="encryption_key_versions"),
        ),
        migrations.AddConstraint(
            model_name="encryptionkeyuse",
            constraint=models.UniqueConstraint(fields=("key", "hour"), name="encryption_key_use_hour"),
        ),
    ]
