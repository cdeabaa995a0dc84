"""Requests that were throttled, and that failed, of hours that are not settled: for the series of metrics."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0006_merges_of_drafts")]

    operations = [
        migrations.AddField("provisionalusage", name, models.BigIntegerField(default=0))
        for name in ("throttled", "errors")
    ]
