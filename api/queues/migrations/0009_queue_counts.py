import django.db.models.deletion
from django.db import migrations, models

# Nobody makes a queue between the first count and the triggers.
MAKE = """
LOCK TABLE queue IN SHARE ROW EXCLUSIVE MODE;
CREATE FUNCTION queue_count_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO queue_count (account_id, count)
         SELECT account_id, count(*) FROM new_rows WHERE state <> 'deleted' GROUP BY 1 ORDER BY 1
             ON CONFLICT (account_id) DO UPDATE SET count = queue_count.count + excluded.count;
    RETURN NULL;
END $$;
CREATE FUNCTION queue_count_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE queue_count SET count = count + CASE WHEN NEW.state = 'deleted' THEN -1 ELSE 1 END
     WHERE account_id = NEW.account_id;
    RETURN NULL;
END $$;
CREATE FUNCTION queue_count_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE queue_count c SET count = c.count - gone.count
      FROM (SELECT account_id, count(*) AS count FROM old_rows WHERE state <> 'deleted' GROUP BY 1) gone
     WHERE c.account_id = gone.account_id;
    RETURN NULL;
END $$;
CREATE TRIGGER queue_count_insert AFTER INSERT ON queue
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION queue_count_insert();
CREATE TRIGGER queue_count_update AFTER UPDATE OF state ON queue FOR EACH ROW
    WHEN ((OLD.state = 'deleted') <> (NEW.state = 'deleted')) EXECUTE FUNCTION queue_count_update();
CREATE TRIGGER queue_count_delete AFTER DELETE ON queue
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION queue_count_delete();
INSERT INTO queue_count (account_id, count)
     SELECT account_id, count(*) FROM queue WHERE state <> 'deleted' GROUP BY 1;
"""
UNMAKE = """
DROP TRIGGER queue_count_insert ON queue;
DROP TRIGGER queue_count_update ON queue;
DROP TRIGGER queue_count_delete ON queue;
DROP FUNCTION queue_count_insert();
DROP FUNCTION queue_count_update();
DROP FUNCTION queue_count_delete();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_rotated_keys"),
        ("queues", "0008_replaced_data_keys"),
    ]

    operations = [
        migrations.CreateModel(
            name="QueueCount",
            fields=[
                (
                    "account",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="accounts.account",
                    ),
                ),
                ("count", models.IntegerField()),
            ],
            options={"db_table": "queue_count"},
        ),
        migrations.RunSQL(MAKE, UNMAKE),
    ]
