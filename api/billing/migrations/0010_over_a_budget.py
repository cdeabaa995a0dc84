"""How far a month went beyond a budget that stops sending."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0009_tags_of_hours")]

    operations = [migrations.AddField("budgetevent", "over_minor", models.BigIntegerField(default=0))]
