from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("queues", "0006_deleted_queues_are_kept"),
    ]

    operations = [
        migrations.AddField(model_name="queuedatakey", name="sealed", field=models.BigIntegerField(default=0)),
    ]
