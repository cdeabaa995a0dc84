from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_rotated_keys"),
    ]

    operations = [
        migrations.AddIndex(model_name="account", index=models.Index(fields=["created_at"], name="account_created")),
    ]
