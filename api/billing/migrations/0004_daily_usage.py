"""The sums of hourly usage by day, which the database keeps with every row that is written: a month is read from them.

Beside it requests by key, which no hourly row tells.
"""

from django.db import migrations, models

COUNTERS = (
    "messages_sent", "messages_delivered", "messages_deleted", "messages_moved", "messages_dead_lettered",
    "messages_scheduled", "sent_bytes", "delivered_bytes", "sent_units", "delivered_units", "stored_byte_ms",
    "requests", "empty_receives",
)  # fmt: skip
_KEY = "account_id, day, queue_uuid, origin"
_DAY = "date_trunc('day', hour, 'UTC')"
_NAMES = ", ".join(COUNTERS)


def _add(source: str) -> str:
    """`source`: rows of hourly usage, each with a `sign`. In the order of the key: no two merges wait crosswise."""
    sums = ", ".join(f"sum(sign * {name}::numeric)" for name in COUNTERS)
    added = ", ".join(f"{name} = d.{name} + excluded.{name}" for name in ("rows", *COUNTERS))
    return f"""
        INSERT INTO daily_usage AS d ({_KEY}, rows, {_NAMES})
        SELECT account_id, {_DAY} AS day, queue_uuid, origin, sum(sign), {sums}
          FROM ({source}) changed GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
            ON CONFLICT ({_KEY}) DO UPDATE SET {added};"""


_NEW, _OLD = "SELECT 1 AS sign, n.* FROM new_rows n", "SELECT -1 AS sign, o.* FROM old_rows o"
MAKE = f"""
CREATE FUNCTION usage_daily_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN {_add(_NEW)}
    RETURN NULL;
END $$;
CREATE FUNCTION usage_daily_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN {_add(f"{_NEW} UNION ALL {_OLD}")}
    RETURN NULL;
END $$;
CREATE FUNCTION usage_daily_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN {_add(_OLD)}
    DELETE FROM daily_usage d WHERE d.rows = 0 AND ({", ".join(f"d.{name}" for name in _KEY.split(", "))}) IN
        (SELECT account_id, {_DAY}, queue_uuid, origin FROM old_rows);
    RETURN NULL;
END $$;
CREATE TRIGGER daily_insert AFTER INSERT ON hourly_usage
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION usage_daily_insert();
CREATE TRIGGER daily_update AFTER UPDATE ON hourly_usage
    REFERENCING NEW TABLE AS new_rows OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION usage_daily_update();
CREATE TRIGGER daily_delete AFTER DELETE ON hourly_usage
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION usage_daily_delete();
{_add("SELECT 1 AS sign, h.* FROM hourly_usage h")}
"""
UNMAKE = """
DROP TRIGGER daily_insert ON hourly_usage;
DROP TRIGGER daily_update ON hourly_usage;
DROP TRIGGER daily_delete ON hourly_usage;
DROP FUNCTION usage_daily_insert();
DROP FUNCTION usage_daily_update();
DROP FUNCTION usage_daily_delete();
"""
_KEY_FIELDS = [
    ("pk", models.CompositePrimaryKey(
        "account_id", "day", "queue_uuid", "origin", blank=True, editable=False, primary_key=True, serialize=False
    )),
    ("account_id", models.CharField(max_length=12)),
    ("day", models.DateTimeField()),
    ("queue_uuid", models.UUIDField()),
    ("origin", models.CharField(max_length=8)),
    ("rows", models.BigIntegerField()),
]  # fmt: skip


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_live_meter")]

    operations = [
        migrations.CreateModel(
            name="DailyUsage",
            fields=[
                *_KEY_FIELDS,
                *((name, models.DecimalField(decimal_places=0, default=0, max_digits=60)) for name in COUNTERS),
            ],
            options={
                "db_table": "daily_usage",
                "indexes": [models.Index(fields=["day"], name="daily_usage_day")],
            },
        ),
        migrations.RunSQL(MAKE, UNMAKE),
        migrations.CreateModel(
            name="KeyUsage",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "account_id",
                        "day",
                        "access_key_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("account_id", models.CharField(max_length=12)),
                ("day", models.DateTimeField()),
                ("access_key_id", models.CharField(max_length=120)),
                ("requests", models.DecimalField(decimal_places=0, max_digits=60)),
                ("empty_receives", models.DecimalField(decimal_places=0, max_digits=60)),
            ],
            options={"db_table": "key_usage"},
        ),
    ]
