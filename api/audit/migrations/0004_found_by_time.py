from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("audit", "0003_old_entries_go")]

    operations = [
        migrations.AddIndex("AuditEntry", models.Index(fields=["account_id", "-at"], name="audit_by_time")),
    ]
