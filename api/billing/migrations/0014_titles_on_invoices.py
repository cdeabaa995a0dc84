"""What people call the account, on its invoices. Issued ones keep the account's name: they never change."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0013_usage_after_invoices")]

    operations = [
        migrations.AddField("invoice", "account_title", models.CharField(default="", max_length=100)),
    ]
