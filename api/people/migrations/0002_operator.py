import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("people", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Operator",
            fields=[
                (
                    "person",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="operator",
                        serialize=False,
                        to="people.person",
                    ),
                ),
                ("created_at", models.DateTimeField()),
            ],
            options={"db_table": "operator"},
        ),
    ]
