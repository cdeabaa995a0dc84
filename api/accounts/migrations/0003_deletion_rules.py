from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_auto_creation"),
    ]

    operations = [
        migrations.AddField(model_name="account", name="deletion_protection", field=models.BooleanField(default=False)),
        migrations.AddField(
            model_name="account", name="deletion_grace_days", field=models.SmallIntegerField(default=0)
        ),
    ]
