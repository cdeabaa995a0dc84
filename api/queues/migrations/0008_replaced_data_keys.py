from django.db import migrations, models

# Replaced before that was noted: as if it were now.
_NOTE = """
UPDATE queue_data_key k SET replaced_at = now()
 WHERE EXISTS (SELECT FROM queue_data_key o WHERE o.queue_id = k.queue_id AND o.version > k.version)
"""


class Migration(migrations.Migration):
    dependencies = [
        ("queues", "0007_messages_of_data_keys"),
    ]

    operations = [
        migrations.AddField(model_name="queuedatakey", name="replaced_at", field=models.DateTimeField(null=True)),
        migrations.RunSQL(_NOTE, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="queuedatakey",
            index=models.Index(
                condition=models.Q(("replaced_at__isnull", False)),
                fields=["replaced_at"],
                name="queue_data_key_replaced",
            ),
        ),
    ]
