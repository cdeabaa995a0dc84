"""Why no mail tells of an event of a budget."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0014_titles_on_invoices")]

    operations = [
        migrations.AddField("budgetevent", "not_mailed", models.CharField(default="", max_length=40)),
    ]
