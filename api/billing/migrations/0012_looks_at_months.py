"""When a month that is over was looked at for invoices that it lacks."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0011_effects_of_budgets")]

    operations = [
        migrations.CreateModel(
            name="MonthLook",
            fields=[
                ("period_start", models.DateTimeField(primary_key=True, serialize=False)),
                ("looked_at", models.DateTimeField()),
                ("to_issue", models.IntegerField()),
                ("failing", models.IntegerField()),
            ],
            options={"db_table": "month_look"},
        ),
    ]
