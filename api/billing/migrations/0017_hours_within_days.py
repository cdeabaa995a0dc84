"""Settled hours are kept within a row of their day, whose sums a merge writes with them. `hourly_usage` is a view.

A row for each hour in which a queue is used, or stores something, would be 149 million a month for 200,000 queues. The
hours of a day are two texts (decision 0055): what was counted in single hours, and levels that were kept for hours.
"""

from django.db import migrations, models

COUNTERS = (
    "messages_sent", "messages_delivered", "messages_deleted", "messages_moved", "messages_dead_lettered",
    "messages_scheduled", "sent_bytes", "delivered_bytes", "sent_units", "delivered_units", "stored_byte_ms",
    "requests", "empty_receives",
)  # fmt: skip
_KEY = "account_id, day, queue_uuid, partition_id, origin"
_NAMES = ", ".join(COUNTERS)
_SUMS = ", ".join(f"sum({name}) AS {name}" for name in COUNTERS)
_DAY = "date_trunc('day', hour, 'UTC')"
# The first field is the hour of the day; figures at the end that are left out are 0.
_COUNTED = ", ".join(f"coalesce(f[{place}]::numeric, 0) AS {name}" for place, name in enumerate(COUNTERS, 2))
_KEPT = ", ".join("f[3]::numeric" if name == "stored_byte_ms" else "0" for name in COUNTERS)
_TYPES = {name: "numeric" if name == "stored_byte_ms" else "bigint" for name in COUNTERS}
UNPACK = f"""
CREATE FUNCTION usage_hours_of(hours text, levels text)
RETURNS TABLE (number integer, {", ".join(f"{name} numeric" for name in COUNTERS)})
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT e.number, {", ".join(f"sum(e.{name})" for name in COUNTERS)}
      FROM (SELECT f[1]::integer AS number, {_COUNTED}
              FROM string_to_table(hours, ';') line, string_to_array(line, ',') f
             UNION ALL
            SELECT n, {_KEPT}
              FROM string_to_table(levels, ';') line, string_to_array(line, ',') f,
                   generate_series(f[1]::integer, f[1]::integer + f[2]::integer - 1) n) e
     GROUP BY e.number
$$;
"""
VIEW = f"""
CREATE VIEW hourly_usage AS
SELECT u.account_id, u.day, u.day + h.number * interval '1 hour' AS hour, u.queue_uuid, u.partition_id, u.origin,
       {", ".join(f"h.{name}::{kind} AS {name}" for name, kind in _TYPES.items())}
  FROM usage_hours u CROSS JOIN LATERAL usage_hours_of(u.hours, u.levels) h;
"""
_OLD_TRIGGERS = ("daily_insert", "daily_update", "daily_delete", "late_insert", "late_update", "late_delete")
SET_ASIDE = (
    "".join(f"DROP TRIGGER {name} ON hourly_usage;" for name in _OLD_TRIGGERS)
    + """
DROP FUNCTION usage_daily_insert();
DROP FUNCTION usage_daily_update();
DROP FUNCTION usage_daily_delete();
ALTER TABLE hourly_usage RENAME TO hourly_usage_rows;
DROP TABLE daily_usage;
"""
)
_NOTE = """
    INSERT INTO late_usage (account_id, period_start, changed_at)
    SELECT m.account_id, m.month, clock_timestamp()
      FROM (SELECT DISTINCT account_id, date_trunc('month', {time}, 'UTC') AS month FROM {rows}) m
      LEFT JOIN account_life l ON l.account_id = m.account_id AND l.state = 'closed'
     WHERE m.month < date_trunc('month', now(), 'UTC') OR l.account_id IS NOT NULL
     ORDER BY 1, 2
        ON CONFLICT (account_id, period_start) DO UPDATE SET changed_at = excluded.changed_at;
    RETURN NULL;"""
_LATE = """
CREATE OR REPLACE FUNCTION billing_late_new() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {new} END $$;
CREATE OR REPLACE FUNCTION billing_late_old() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {old} END $$;
CREATE TRIGGER late_insert AFTER INSERT ON {table}
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION billing_late_new();
CREATE TRIGGER late_update AFTER UPDATE ON {table}
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION billing_late_new();
CREATE TRIGGER late_delete AFTER DELETE ON {table}
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION billing_late_old();
"""


def _late(table: str, time: str) -> str:
    said = {name: _NOTE.format(time=time, rows=f"{name}_rows") for name in ("new", "old")}
    return _LATE.format(table=table, **said)


_HOUR_OF_DAY = "extract(hour FROM hour AT TIME ZONE 'UTC')::integer"
MOVE = f"""
INSERT INTO usage_hours ({_KEY}, hours, levels)
SELECT account_id, {_DAY}, queue_uuid, partition_id, origin,
       string_agg(concat_ws(',', {_HOUR_OF_DAY}, {_NAMES}), ';' ORDER BY hour), ''
  FROM hourly_usage_rows GROUP BY 1, 2, 3, 4, 5;
INSERT INTO daily_usage ({_KEY}, hour_bits, {_NAMES})
SELECT account_id, {_DAY}, queue_uuid, partition_id, origin, bit_or(1 << {_HOUR_OF_DAY}), {_SUMS}
  FROM hourly_usage_rows GROUP BY 1, 2, 3, 4, 5;
DROP TABLE hourly_usage_rows;
{UNPACK}{VIEW}{_late("daily_usage", "day")}
"""
_OLD_KEY = "account_id, hour, queue_uuid, partition_id, origin"
_OLD_DAY_KEY = "account_id, day, queue_uuid, origin"
MOVE_BACK = f"""
DROP TRIGGER late_insert ON daily_usage;
DROP TRIGGER late_update ON daily_usage;
DROP TRIGGER late_delete ON daily_usage;
CREATE TABLE hourly_usage_rows AS
SELECT {_OLD_KEY}, {_NAMES}, '00000000-0000-0000-0000-000000000000'::uuid AS run FROM hourly_usage;
DROP VIEW hourly_usage;
DROP FUNCTION usage_hours_of(text, text);
"""


def _set_back() -> str:
    """The table of hours and that of days' sums as they were before, with what migrations 0004 and 0013 had on them."""
    from importlib import import_module

    daily = import_module("api.billing.migrations.0004_daily_usage")
    bigints = ", ".join(f"{name} {kind} NOT NULL" for name, kind in _TYPES.items())
    sums = ", ".join(f"{name} numeric(60, 0) NOT NULL" for name in COUNTERS)
    return f"""
CREATE TABLE daily_usage (account_id varchar(12) NOT NULL, day timestamptz NOT NULL, queue_uuid uuid NOT NULL,
    origin varchar(8) NOT NULL, rows bigint NOT NULL, {sums}, PRIMARY KEY ({_OLD_DAY_KEY}));
CREATE INDEX daily_usage_day ON daily_usage (day);
CREATE TABLE hourly_usage (account_id varchar(12) NOT NULL, hour timestamptz NOT NULL, queue_uuid uuid NOT NULL,
    partition_id bigint NOT NULL, origin varchar(8) NOT NULL, {bigints}, run uuid NOT NULL, PRIMARY KEY ({_OLD_KEY}));
CREATE INDEX hourly_usage_hour ON hourly_usage (hour);
INSERT INTO hourly_usage ({_OLD_KEY}, {_NAMES}, run) SELECT {_OLD_KEY}, {_NAMES}, run FROM hourly_usage_rows;
DROP TABLE hourly_usage_rows;
{daily.MAKE}{_late("hourly_usage", "hour")}
"""


def _key() -> list[tuple[str, models.Field]]:
    key = models.CompositePrimaryKey(
        "account_id", "day", "queue_uuid", "partition_id", "origin",
        blank=True, editable=False, primary_key=True, serialize=False,
    )  # fmt: skip
    return [
        ("pk", key),
        ("account_id", models.CharField(max_length=12)),
        ("day", models.DateTimeField()),
        ("queue_uuid", models.UUIDField()),
        ("partition_id", models.BigIntegerField()),
        ("origin", models.CharField(max_length=8)),
    ]


def _hour_key() -> list[tuple[str, models.Field]]:
    key = models.CompositePrimaryKey(
        "account_id", "hour", "queue_uuid", "partition_id", "origin",
        blank=True, editable=False, primary_key=True, serialize=False,
    )  # fmt: skip
    return [("pk", key), *_key()[1:3], ("hour", models.DateTimeField()), *_key()[3:]]


def _counter(name: str) -> models.Field:
    if name == "stored_byte_ms":
        return models.DecimalField(decimal_places=0, default=0, max_digits=38)
    return models.BigIntegerField(default=0)


class Migration(migrations.Migration):
    dependencies = [("billing", "0016_guards_of_many_lines")]

    operations = [
        # Backwards, the last of all: what is set aside below is there again then.
        migrations.RunSQL(migrations.RunSQL.noop, _set_back()),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(SET_ASIDE, migrations.RunSQL.noop)],
            state_operations=[migrations.DeleteModel("HourlyUsage"), migrations.DeleteModel("DailyUsage")],
        ),
        migrations.CreateModel(
            name="DailyUsage",
            fields=[
                *_key(),
                ("hour_bits", models.IntegerField()),
                *((name, models.DecimalField(decimal_places=0, default=0, max_digits=60)) for name in COUNTERS),
            ],
            options={"db_table": "daily_usage", "indexes": [models.Index(fields=["day"], name="daily_usage_day")]},
        ),
        migrations.CreateModel(
            name="UsageHours",
            fields=[*_key(), ("hours", models.TextField()), ("levels", models.TextField())],
            options={"db_table": "usage_hours"},
        ),
        migrations.CreateModel(
            name="HourlyUsage",
            fields=[*_hour_key(), *((name, _counter(name)) for name in COUNTERS)],
            options={"db_table": "hourly_usage", "managed": False},
        ),
        migrations.RunSQL(MOVE, MOVE_BACK),
    ]
