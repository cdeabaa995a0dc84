from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("queues", "0004_several_partitions"),
    ]

    operations = [
        migrations.AddField(
            model_name="queue", name="encryption_key", field=models.CharField(default="", max_length=36)
        ),
        migrations.AddField(model_name="queue", name="encryption_keys", field=models.JSONField(default=list)),
    ]
