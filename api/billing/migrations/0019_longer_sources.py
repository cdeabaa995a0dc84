"""Sources of usage name partitions whose ids have up to 16 digits."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0018_throttle_beside_a_stop")]

    operations = [
        migrations.AlterField("provisionalusage", "source", models.CharField(max_length=160)),
        migrations.AlterField("keyusage", "access_key_id", models.CharField(max_length=160)),
        migrations.AlterField(
            "usagestreamposition", "partition", models.CharField(max_length=160, primary_key=True, serialize=False)
        ),
    ]
