from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("quotas", "0002_single_quotas")]

    operations = [
        migrations.AddField(
            model_name="quotanotice",
            name="subject",
            field=models.CharField(default="", max_length=96),
        ),
        migrations.RemoveConstraint(model_name="quotanotice", name="quota_notice_once"),
        migrations.AddConstraint(
            model_name="quotanotice",
            constraint=models.UniqueConstraint(
                fields=["account", "subject", "name", "level"], name="quota_notice_once"
            ),
        ),
    ]
