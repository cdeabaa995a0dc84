from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("queues", "0003_redrive"),
    ]

    operations = [
        migrations.AddField(model_name="queue", name="layout", field=models.JSONField(default=list)),
        migrations.AddField(model_name="queue", name="retired", field=models.JSONField(default=list)),
        migrations.AddField(model_name="queue", name="number_end", field=models.IntegerField(default=1)),
    ]
