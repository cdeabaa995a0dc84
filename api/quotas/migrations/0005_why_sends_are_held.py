"""Who may send a few messages a second is told why."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("quotas", "0004_held_sends")]

    operations = [
        migrations.AddField("quotaholder", "held_reason", models.CharField(default="", max_length=200)),
        migrations.AddField("queuesending", "held_reason", models.CharField(default="", max_length=200)),
    ]
