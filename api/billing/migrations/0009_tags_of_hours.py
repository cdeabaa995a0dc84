"""The history of queues' tags, which the database keeps with every change; a queue's lines of an invoice by its tags.

A change counts from the next full hour on; within the hour in which the queue was made, from that hour on. Queues that
are there have had their tags since they were made.
"""

from django.db import migrations, models

MAKE = """
CREATE FUNCTION billing_note_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.tags = OLD.tags THEN
        RETURN NULL;
    END IF;
    INSERT INTO queue_tags (account_id, queue_uuid, since, tags)
    VALUES (NEW.account_id, NEW.uuid,
            CASE WHEN TG_OP = 'INSERT' OR
                      date_trunc('hour', NEW.created_at, 'UTC') = date_trunc('hour', clock_timestamp(), 'UTC')
                 THEN date_trunc('hour', NEW.created_at, 'UTC')
                 ELSE date_trunc('hour', clock_timestamp() + interval '1 hour' - interval '1 microsecond', 'UTC') END,
            NEW.tags)
    ON CONFLICT (account_id, queue_uuid, since) DO UPDATE SET tags = excluded.tags;
    RETURN NULL;
END $$;
CREATE TRIGGER note_tags AFTER INSERT OR UPDATE OF tags ON queue
    FOR EACH ROW EXECUTE FUNCTION billing_note_tags();
INSERT INTO queue_tags (account_id, queue_uuid, since, tags)
SELECT account_id, uuid, date_trunc('hour', created_at, 'UTC'), tags FROM queue;
"""
UNMAKE = """
DROP TRIGGER note_tags ON queue;
DROP FUNCTION billing_note_tags();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0008_payments"), ("queues", "0009_queue_counts")]

    operations = [
        migrations.CreateModel(
            name="QueueTags",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "account_id",
                        "queue_uuid",
                        "since",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("account_id", models.CharField(max_length=12)),
                ("queue_uuid", models.UUIDField()),
                ("since", models.DateTimeField()),
                ("tags", models.JSONField()),
            ],
            options={"db_table": "queue_tags"},
        ),
        migrations.RunSQL(MAKE, UNMAKE),
        migrations.AddField("invoicequeueline", "part", models.IntegerField(default=0)),
        migrations.RemoveConstraint("invoicequeueline", "invoice_queue_meter"),
        migrations.AddConstraint(
            "invoicequeueline",
            models.UniqueConstraint(fields=["invoice", "queue_uuid", "meter", "part"], name="invoice_queue_meter"),
        ),
    ]
