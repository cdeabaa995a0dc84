import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("people", "0002_operator")]

    operations = [
        migrations.CreateModel(
            name="ActingVisit",
            fields=[
                (
                    "session",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="acting",
                        serialize=False,
                        to="people.personsession",
                    ),
                ),
                ("reason", models.CharField(max_length=200)),
                ("begun_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                (
                    "member",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="acting_visits",
                        to="people.accountmembership",
                    ),
                ),
            ],
            options={"db_table": "acting_visit"},
        ),
    ]
