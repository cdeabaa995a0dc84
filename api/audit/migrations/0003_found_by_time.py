from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("audit", "0002_refused_calls")]

    operations = [
        migrations.AddIndex("AuditEntry", models.Index(fields=["account_id", "-at"], name="audit_by_time")),
    ]
