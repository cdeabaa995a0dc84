from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [
        ("queues", "0005_encryption_keys"),
    ]

    operations = [
        migrations.AlterField(
            model_name="queue",
            name="state",
            field=models.CharField(
                choices=[
                    ("creating", "Creating"),
                    ("active", "Active"),
                    ("kept", "Kept"),
                    ("deleting", "Deleting"),
                    ("deleted", "Deleted"),
                ],
                max_length=8,
            ),
        ),
        migrations.AddField(model_name="queue", name="kept_until", field=models.DateTimeField(null=True)),
        migrations.AddField(model_name="queue", name="shreds", field=models.BooleanField(default=False)),
        migrations.AddField(model_name="queue", name="retention_extra_ms", field=models.BigIntegerField(default=0)),
        migrations.AddField(model_name="queue", name="retention_extra_until", field=models.DateTimeField(null=True)),
        migrations.RemoveConstraint(model_name="queue", name="queue_name_live"),
        migrations.AddConstraint(
            model_name="queue",
            constraint=models.UniqueConstraint(
                condition=Q(Q(("state", "deleted"), _negated=True), ("kept_until__isnull", True)),
                fields=("account", "name"),
                name="queue_name_live",
            ),
        ),
        migrations.AddIndex(
            model_name="queue",
            index=models.Index(condition=Q(("state", "kept")), fields=["kept_until"], name="queue_kept"),
        ),
        migrations.AddIndex(
            model_name="queue",
            index=models.Index(
                condition=Q(("retention_extra_until__isnull", False)),
                fields=["retention_extra_until"],
                name="queue_restored",
            ),
        ),
    ]
