from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("encryption", "0001_initial"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="encryptionkeyuse", index=models.Index(fields=["hour"], name="encryption_key_use_by_hour")
        ),
    ]
