import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("people", "0005_guest_role")]

    operations = [
        migrations.CreateModel(
            name="FamiliarSource",
            fields=[
                ("key", models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                ("last_used_at", models.DateTimeField(db_index=True)),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="familiar_sources", to="people.person"
                    ),
                ),
            ],
            options={"db_table": "person_familiar_source"},
        ),
    ]
