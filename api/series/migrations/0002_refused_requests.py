"""Requests that were throttled, and that failed, among the flows."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("series", "0001_initial")]

    operations = [
        migrations.AddField(model, name, models.BigIntegerField(default=0))
        for model in ("seriesmark", "seriesqueue", "seriesminute", "seriesrollup")
        for name in ("throttled", "errors")
    ]
