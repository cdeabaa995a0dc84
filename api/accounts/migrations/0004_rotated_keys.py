from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_deletion_rules"),
    ]

    operations = [
        migrations.AddField(model_name="accesskey", name="rotated", field=models.BooleanField(default=False)),
        migrations.AddField(model_name="accesskey", name="planned_expires_at", field=models.DateTimeField(null=True)),
    ]
