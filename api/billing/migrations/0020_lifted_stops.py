"""An operator who lifts the stop of a budget leaves an event."""

from django.db import migrations, models

_KINDS = [("alert", "Alert"), ("throttle", "Throttle"), ("stop", "Stop"), ("resume", "Resume"), ("lift", "Lift")]


class Migration(migrations.Migration):
    dependencies = [("billing", "0019_longer_sources")]

    operations = [migrations.AlterField("budgetevent", "kind", models.CharField(choices=_KINDS, max_length=8))]
