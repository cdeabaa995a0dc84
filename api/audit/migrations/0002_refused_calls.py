from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("audit", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="RefusalTally",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("account_id", models.CharField(max_length=12)),
                ("actor", models.CharField(max_length=64)),
                ("action", models.CharField(max_length=64)),
                ("subject", models.CharField(max_length=200)),
                ("source", models.CharField(default="", max_length=45)),
                ("count", models.BigIntegerField(default=0)),
                ("opened_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
            ],
            options={
                "db_table": "audit_refusal",
                "indexes": [models.Index(fields=["opened_at"], name="audit_refusal_opened")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("account_id", "actor", "action", "subject"), name="audit_refusal_kind"
                    )
                ],
            },
        ),
    ]
