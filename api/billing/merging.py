"""The statements of a merge: rows of hours, or of days with their hours, into `usage_hours` and `daily_usage`.

Rows of days come from the usage pipeline, many at once (`merge_days`). What is plainly to be billed, and does not touch
hours that are there, goes in as it is. The hours of all other days, and rows of hours (`merge_hours`), are judged one
by one and then written into their days.

    usage_days      rows of days as they came, up to STAGED_BYTES of them at once
    usage_fates     of each: `new`, `append` (other hours of a day that is there), `same` (there already), `other`
    usage_staging   rows of hours: as they came, or of days of the fate `other`
    usage_judged    each of these once, with the reason why it is not billed
    usage_touched   the days that these are written into, with `usage_old` and `usage_new`: their hours before and after
    usage_seen      days that this merge has rows of: in a recount the others of its hours go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from api import clock
from api.billing import limits
from api.billing.pricing.meters import COUNTER_NAMES, UsageOrigin
from api.billing.pricing.periods import Interval

ALL_PARTITIONS, OF_FRONT_ENDS = 0, -1
HOUR_KEY = ("account_id", "hour", "queue_uuid", "partition_id", "origin")
DAY_KEY = ("account_id", "day", "queue_uuid", "partition_id", "origin")
# Of the text of days: tabs between the columns. `hours` and `levels` as `UsageHours` has them.
DAY_COLUMNS = (*DAY_KEY, "hour_bits", *COUNTER_NAMES, "hours", "levels")
COUNTED_TWICE = "counted_twice"
_BIGINT_MAX = 2**63 - 1


class BadLine(Exception):
    """The text of days has a line that is none."""


class MergeOptions(NamedTuple):
    """`recount`: other rows of the hours go. `is_partial`: the greater figures stay."""

    run: UUID
    hours: Interval
    recount: bool
    is_partial: bool


class Merged(NamedTuple):
    """Hours that are new or changed, hours that went, rows that were quarantined."""

    merged: int = 0
    removed: int = 0
    quarantined: int = 0

    def plus(self, other: Merged) -> Merged:
        return Merged(*(one + another for one, another in zip(self, other, strict=True)))


def merge_hours(cursor: Any, options: MergeOptions, rows: Iterable[Sequence[Any]]) -> Merged:
    """Rows as `settling.UsageRow`, within a transaction."""
    cursor.execute(_MAKE_TABLES)
    has_before = _has_before(cursor, options.hours)
    with cursor.copy(sql.SQL(_COPY_HOURS)) as copy:
        for row in rows:
            copy.write_row(_printable(row))
    done = _write_staged(cursor, options)
    if options.recount and has_before:
        done = done.plus(_remove_unseen(cursor, options))
    cursor.execute(_DROP_TABLES)
    return done


def merge_days(cursor: Any, options: MergeOptions, files: Iterable[Iterable[bytes]]) -> Merged:
    """Text of DAY_COLUMNS in pieces of any size, within a transaction. Raises BadLine."""
    cursor.execute(_MAKE_TABLES)
    has_before, has_quarantined = _has_before(cursor, options.hours), _has_quarantined(cursor, options.hours)
    done = Merged()
    remaining = iter(files)
    while _stage_days(cursor, remaining):
        given = {"start": options.hours.start, "end": options.hours.end, "origins": _ORIGINS}
        cursor.execute(_FATES_BESIDE if has_before else _FATES_OF_NEW, given)
        cursor.execute("ANALYZE usage_fates")
        for statement in _WRITE_DAYS if has_before else _WRITE_NEW_DAYS:
            cursor.execute(statement)
        if has_quarantined:
            cursor.execute(_RESOLVE_DAYS)
        cursor.execute(_COUNT_DAYS)
        merged, others = cursor.fetchone()
        done = done.plus(Merged(merged))
        if others:
            cursor.execute(_STAGE_OTHERS)
            done = done.plus(_write_staged(cursor, options))
        cursor.execute("DROP TABLE usage_fates")
    if options.recount and has_before:
        done = done.plus(_remove_unseen(cursor, options))
    cursor.execute(_DROP_TABLES)
    return done


def _stage_days(cursor: Any, files: Iterator[Iterable[bytes]]) -> bool:
    """Whole files until they are enough for one slice. False: there is none left."""
    cursor.execute("TRUNCATE usage_days, usage_staging")
    staged, is_any = 0, False
    try:
        with cursor.copy(sql.SQL(_COPY_DAYS)) as copy:
            for file in files:
                is_any = True
                for piece in file:
                    copy.write(piece)
                    staged += len(piece)
                if staged >= limits.STAGED_BYTES:
                    break
    except psycopg.DataError as error:
        raise BadLine(str(error)) from None
    cursor.execute("ANALYZE usage_days")
    return is_any


def _write_staged(cursor: Any, options: MergeOptions) -> Merged:
    """Judges the hours in `usage_staging` and writes them into their days."""
    cursor.execute("ANALYZE usage_staging")
    ahead = clock.now() + timedelta(seconds=limits.USAGE_AHEAD_S_MAX)
    cursor.execute(_JUDGE, (_ORIGINS, ahead))
    given = {"start": options.hours.start, "end": options.hours.end, "recount": options.recount, "run": options.run}
    cursor.execute(_JUDGE_BESIDE_STORED, given)
    cursor.execute(_QUARANTINE, {**given, "now": clock.now()})
    quarantined = int(cursor.rowcount)
    cursor.execute(_TOUCH_JUDGED)
    done = _write_touched(cursor, options)
    cursor.execute(_RESOLVE)
    cursor.execute("DROP TABLE usage_judged")
    return done._replace(quarantined=quarantined)


def _remove_unseen(cursor: Any, options: MergeOptions) -> Merged:
    given = {"start": options.hours.start, "end": options.hours.end}
    cursor.execute("TRUNCATE usage_staging; ANALYZE usage_seen")
    cursor.execute(_JUDGE, (_ORIGINS, clock.now()))
    cursor.execute(_TOUCH_UNSEEN, given)
    done = _write_touched(cursor, options)
    cursor.execute("DROP TABLE usage_judged")
    return done


def _write_touched(cursor: Any, options: MergeOptions) -> Merged:
    given = {"start": options.hours.start, "end": options.hours.end, "recount": options.recount}
    cursor.execute("ANALYZE usage_touched")
    cursor.execute(_READ_OLD)
    if options.is_partial:
        cursor.execute(_KEEP_GREATEST)
    for statement in (_MAKE_NEW, _COMPARE, *_WRITE_CHANGED):
        cursor.execute(statement, given if statement is _MAKE_NEW else None)
    cursor.execute("SELECT coalesce(sum(merged), 0), coalesce(sum(removed), 0) FROM usage_changed")
    merged, removed = cursor.fetchone()
    cursor.execute("DROP TABLE usage_touched, usage_old, usage_new, usage_changed")
    return Merged(int(merged), int(removed))


def _has_before(cursor: Any, hours: Interval) -> bool:
    """Is there anything of the days of these hours?"""
    cursor.execute(_ANY_BEFORE, {"start": hours.start, "end": hours.end})
    return bool(cursor.fetchone()[0])


def _has_quarantined(cursor: Any, hours: Interval) -> bool:
    cursor.execute(_ANY_QUARANTINED, {"start": hours.start, "end": hours.end})
    return bool(cursor.fetchone()[0])


def _printable(row: Sequence[Any]) -> Sequence[Any]:
    """PostgreSQL takes no NUL in a text; an account id or an origin with one is unknown in any case."""
    if any(isinstance(value, str) and "\0" in value for value in row):
        return [value.replace("\0", "?") if isinstance(value, str) else value for value in row]
    return row


# --- the statements ---

_ORIGINS = [origin.value for origin in UsageOrigin]


def _list(names: Iterable[str], pattern: str = "{}", between: str = ", ") -> str:
    return between.join(pattern.format(name, name=name) for name in names)


def _same(one: str, other: str, key: Sequence[str] = DAY_KEY) -> str:
    return _list(key, f"{one}.{{name}} = {other}.{{name}}", " AND ")


_COUNTERS = _list(COUNTER_NAMES)
_HOURS = _list(HOUR_KEY)
_DAYS = _list(DAY_KEY)
_DAY_OF = "date_trunc('day', {}.hour, 'UTC')"
_HOUR_OF_DAY = "extract(hour FROM {}.hour AT TIME ZONE 'UTC')::integer"
# What the rows of a queue and hour share that are summed.
_TOGETHER = ("account_id", "hour", "queue_uuid", "origin")
_LARGE_NAMES = [name for name in COUNTER_NAMES if name != "stored_byte_ms"]
_LARGE = _list(_LARGE_NAMES)
_NUMERIC = _list(COUNTER_NAMES, "{} numeric")
_MAKE_TABLES = f"""
CREATE TEMP TABLE usage_staging (account_id text, hour timestamptz, queue_uuid uuid, partition_id numeric, origin text,
                                 {_NUMERIC}) ON COMMIT DROP;
CREATE TEMP TABLE usage_days (line bigint GENERATED ALWAYS AS IDENTITY, account_id text, day timestamptz,
                              queue_uuid uuid, partition_id bigint, origin text, hour_bits integer, {_NUMERIC},
                              hours text, levels text) ON COMMIT DROP;
CREATE TEMP TABLE usage_seen (account_id text, day timestamptz, queue_uuid uuid, partition_id bigint, origin text)
    ON COMMIT DROP
"""
_DROP_TABLES = "DROP TABLE usage_staging, usage_days, usage_seen"
_COPY_HOURS = f"COPY usage_staging ({_HOURS}, {_COUNTERS}) FROM STDIN"
_COPY_DAYS = f"COPY usage_days ({_list(DAY_COLUMNS)}) FROM STDIN"
_WITHIN_DAYS = "{name}.day >= date_trunc('day', %(start)s::timestamptz, 'UTC') AND {name}.day < %(end)s"
_ANY_BEFORE = f"SELECT EXISTS (SELECT FROM daily_usage d WHERE {_WITHIN_DAYS.format(name='d')})"
_ANY_QUARANTINED = """
SELECT EXISTS (SELECT FROM quarantined_usage WHERE resolved_at IS NULL AND hour >= %(start)s AND hour < %(end)s)
"""

# --- rows of hours ---

# Each row once, with the reason why it is not billed. Rows of one key that differ contradict each other.
_JUDGE = f"""
CREATE TEMP TABLE usage_judged ON COMMIT DROP AS
SELECT j.*, CASE WHEN j.reason IS NOT NULL THEN j.reason
                 WHEN count(*) OVER (PARTITION BY {_HOURS}, j.reason IS NULL) > 1 THEN 'conflicting_duplicate'
                 WHEN j.partition_id >= {ALL_PARTITIONS} AND bool_or(j.partition_id = {ALL_PARTITIONS}) OVER together
                  AND bool_or(j.partition_id > {ALL_PARTITIONS}) OVER together THEN '{COUNTED_TWICE}' END AS verdict
  FROM (SELECT s.*, CASE
          WHEN least({_COUNTERS}) < 0 THEN 'negative_counter'
          WHEN greatest({_LARGE}) > {limits.HOUR_COUNTER_MAX} OR s.stored_byte_ms > {limits.HOUR_STORED_BYTE_MS_MAX}
          THEN 'counter_too_large'
          WHEN s.partition_id NOT BETWEEN {OF_FRONT_ENDS} AND {_BIGINT_MAX} THEN 'bad_partition'
          WHEN s.origin <> ALL (%s) THEN 'unknown_origin'
          WHEN s.hour <> date_trunc('hour', s.hour, 'UTC') THEN 'hour_not_whole'
          WHEN s.hour > %s THEN 'hour_in_future'
          WHEN a.id IS NULL THEN 'unknown_account'
          WHEN q.account_id <> s.account_id THEN 'queue_of_another_account'
          WHEN s.hour < date_trunc('hour', a.created_at, 'UTC') THEN 'hour_before_account'
          WHEN l.state_since <= s.hour THEN 'account_closed'
          END AS reason
          FROM (SELECT DISTINCT * FROM usage_staging) s
          LEFT JOIN account a ON a.id = s.account_id
          LEFT JOIN account_life l ON l.account_id = s.account_id AND l.state = 'closed'
          LEFT JOIN queue q ON q.uuid = s.queue_uuid) j
WINDOW together AS (PARTITION BY {_list(_TOGETHER)}, j.reason IS NULL)
"""
# A row of all partitions beside one of a single partition, which another run left there and a recount does not remove.
_JUDGE_BESIDE_STORED = f"""
UPDATE usage_judged j SET verdict = '{COUNTED_TWICE}'
  FROM daily_usage u
 WHERE j.verdict IS NULL AND {_same("u", "j", ("account_id", "queue_uuid", "origin"))}
   AND u.day = {_DAY_OF.format("j")} AND (u.hour_bits >> {_HOUR_OF_DAY.format("j")}) & 1 = 1
   AND least(j.partition_id, u.partition_id) = {ALL_PARTITIONS}
   AND greatest(j.partition_id, u.partition_id) > {ALL_PARTITIONS}
   AND NOT (%(recount)s AND j.hour >= %(start)s AND j.hour < %(end)s)
"""
_RECORD = "to_jsonb(j) - ARRAY['reason', 'verdict']"
_QUARANTINE = f"""
INSERT INTO quarantined_usage (fingerprint, run, reason, detail, account_id, hour, record, seen_at)
SELECT md5(j.verdict || ({_RECORD})::text), %(run)s, j.verdict, '', left(j.account_id, 64), j.hour, {_RECORD}, %(now)s
  FROM usage_judged j WHERE j.verdict IS NOT NULL
    ON CONFLICT (fingerprint) DO UPDATE SET run = excluded.run, seen_at = excluded.seen_at, resolved_at = NULL
"""
_RESOLVE = """
UPDATE quarantined_usage k SET resolved_at = clock_timestamp()
  FROM usage_judged j
 WHERE j.verdict IS NULL AND k.resolved_at IS NULL AND k.account_id = j.account_id AND k.hour = j.hour
   AND k.record->>'queue_uuid' = j.queue_uuid::text AND k.record->>'origin' = j.origin
   AND k.record->>'partition_id' = j.partition_id::text
"""

# --- hours into their days ---

_TOUCH_JUDGED = f"""
CREATE TEMP TABLE usage_touched ON COMMIT DROP AS
SELECT DISTINCT account_id, {_DAY_OF.format("j")} AS day, queue_uuid, partition_id::bigint AS partition_id, origin
  FROM usage_judged j WHERE verdict IS NULL;
INSERT INTO usage_seen ({_DAYS}) SELECT {_DAYS} FROM usage_touched
"""


def _bits(day: str) -> str:
    """The hours of a day that the merge settles."""
    start, end = (
        f"least(24, greatest(0, extract(epoch FROM %({name})s::timestamptz - {day}) / 3600))::integer"
        for name in ("start", "end")
    )
    return f"(((1 << {end}) - 1) & ~((1 << {start}) - 1))"


_TOUCH_UNSEEN = f"""
CREATE TEMP TABLE usage_touched ON COMMIT DROP AS
SELECT {_DAYS} FROM daily_usage d
 WHERE {_WITHIN_DAYS.format(name="d")} AND d.hour_bits & {_bits("d.day")} <> 0
   AND NOT EXISTS (SELECT FROM usage_seen s WHERE {_same("s", "d")})
"""
_READ_OLD = f"""
CREATE TEMP TABLE usage_old ON COMMIT DROP AS
SELECT h.hour, {_list(DAY_KEY, "h.{}")}, {_list(COUNTER_NAMES, "h.{}")}
  FROM usage_touched t JOIN hourly_usage h ON {_same("h", "t")};
ANALYZE usage_old
"""
# Of what is there already and what was read now the greater figures, where part of the records cannot be read.
_KEEP_GREATEST = f"""
UPDATE usage_judged j SET ({_COUNTERS}) = ROW ({_list(COUNTER_NAMES, "greatest(j.{name}, u.{name})")})
  FROM usage_old u WHERE j.verdict IS NULL AND {_same("u", "j", HOUR_KEY)}
"""
_MAKE_NEW = f"""
CREATE TEMP TABLE usage_new ON COMMIT DROP AS
SELECT j.hour, account_id, {_DAY_OF.format("j")} AS day, queue_uuid, partition_id::bigint AS partition_id, origin,
       {_COUNTERS}
  FROM usage_judged j WHERE verdict IS NULL
 UNION ALL
SELECT o.hour, {_list(DAY_KEY, "o.{}")}, {_list(COUNTER_NAMES, "o.{}")} FROM usage_old o
 WHERE NOT (%(recount)s AND o.hour >= %(start)s AND o.hour < %(end)s)
   AND NOT EXISTS (SELECT FROM usage_judged j WHERE j.verdict IS NULL AND {_same("j", "o", HOUR_KEY)});
ANALYZE usage_new
"""
# The days that are not as they were.
_COMPARE = f"""
CREATE TEMP TABLE usage_changed ON COMMIT DROP AS
SELECT {_DAYS}, count(n.messages_sent) AS merged, count(*) - count(n.messages_sent) AS removed
  FROM usage_new n FULL JOIN usage_old o USING ({_DAYS}, hour)
 WHERE n.messages_sent IS NULL
    OR ({_list(COUNTER_NAMES, "n.{}")}) IS DISTINCT FROM ({_list(COUNTER_NAMES, "o.{}")})
 GROUP BY {_DAYS};
ANALYZE usage_changed
"""
_GONE = (
    f"USING usage_changed c WHERE {_same('u', 'c')} AND NOT EXISTS (SELECT FROM usage_new n WHERE {_same('n', 'c')})"
)
_OF_CHANGED = f"FROM usage_new n JOIN usage_changed c USING ({_DAYS}) GROUP BY {_DAYS} ORDER BY {_DAYS}"
_WRITE_CHANGED = (
    f"DELETE FROM usage_hours u {_GONE}",
    f"DELETE FROM daily_usage u {_GONE}",
    f"""
INSERT INTO usage_hours ({_DAYS}, hours, levels)
SELECT {_DAYS}, string_agg(concat_ws(',', {_HOUR_OF_DAY.format("n")}, {_list(COUNTER_NAMES, "n.{}")}), ';'
                           ORDER BY n.hour), '' {_OF_CHANGED}
    ON CONFLICT ({_DAYS}) DO UPDATE SET hours = excluded.hours, levels = excluded.levels
""",
    f"""
INSERT INTO daily_usage ({_DAYS}, hour_bits, {_COUNTERS})
SELECT {_DAYS}, bit_or(1 << {_HOUR_OF_DAY.format("n")}), {_list(COUNTER_NAMES, "sum(n.{})")} {_OF_CHANGED}
    ON CONFLICT ({_DAYS}) DO UPDATE
   SET (hour_bits, {_COUNTERS}) = ROW (excluded.hour_bits, {_list(COUNTER_NAMES, "excluded.{}")})
""",
)

# --- rows of days ---

# Whether all hours of a day are to be billed, as `_JUDGE` says; where that takes a look at each of them: no. So it
# is for a day whose sums are more than an hour may have.
_PLAIN = f"""
coalesce(least({_list(COUNTER_NAMES, "s.{}")}) >= 0
    AND greatest({_list(_LARGE_NAMES, "s.{}")}) <= {limits.HOUR_COUNTER_MAX}
    AND s.stored_byte_ms <= {limits.HOUR_STORED_BYTE_MS_MAX} AND s.partition_id IN ({ALL_PARTITIONS}, {OF_FRONT_ENDS})
    AND s.origin = ANY (%(origins)s) AND date_trunc('hour', a.created_at, 'UTC') <= s.day
    AND s.day = date_trunc('day', s.day, 'UTC')
    AND (q.account_id IS NULL OR q.account_id = s.account_id)
    AND (l.state_since IS NULL OR l.state_since >= s.day + interval '24 hours'), false)"""
_OF_ACCOUNTS = """
  LEFT JOIN account a ON a.id = s.account_id
  LEFT JOIN account_life l ON l.account_id = s.account_id AND l.state = 'closed'
  LEFT JOIN queue q ON q.uuid = s.queue_uuid"""
_FATES = "CREATE TEMP TABLE usage_fates ON COMMIT DROP AS SELECT s.line, CASE WHEN NOT {plain} THEN 'other' {more} END"
_ALL_NEW = " ELSE 'new'"
_FATES_OF_NEW = f"{_FATES.format(plain=_PLAIN, more=_ALL_NEW)} AS fate FROM usage_days s {_OF_ACCOUNTS}"
_BESIDE = f"""
    WHEN EXISTS (SELECT FROM daily_usage o
                  WHERE {_same("o", "s", ("account_id", "day", "queue_uuid", "origin"))}
                    AND least(o.partition_id, s.partition_id) = {ALL_PARTITIONS}
                    AND greatest(o.partition_id, s.partition_id) > {ALL_PARTITIONS}) THEN 'other'
    WHEN d.account_id IS NULL THEN 'new'
    WHEN d.hour_bits & ({_bits("s.day")} | s.hour_bits) = 0 THEN 'append'
    WHEN h.hours = s.hours AND h.levels = s.levels THEN 'same'
    ELSE 'other'"""
_FATES_BESIDE = f"""{_FATES.format(plain=_PLAIN, more=_BESIDE)} AS fate FROM usage_days s {_OF_ACCOUNTS}
  LEFT JOIN daily_usage d ON {_same("d", "s")}
  LEFT JOIN usage_hours h ON {_same("h", "s")}"""
_OF_FATE = "usage_days s JOIN usage_fates f ON f.line = s.line AND f.fate"
_WRITE_NEW_DAYS = (
    f"""
INSERT INTO usage_hours ({_DAYS}, hours, levels)
SELECT {_list(DAY_KEY, "s.{}")}, s.hours, s.levels FROM {_OF_FATE} = 'new'
""",
    f"""
INSERT INTO daily_usage ({_DAYS}, hour_bits, {_COUNTERS})
SELECT {_list(DAY_KEY, "s.{}")}, s.hour_bits, {_list(COUNTER_NAMES, "s.{}")} FROM {_OF_FATE} = 'new'
""",
)
_JOINED = "concat_ws(';', nullif(u.{name}, ''), nullif(s.{name}, ''))"
_WRITE_DAYS = (
    *_WRITE_NEW_DAYS,
    f"""
UPDATE usage_hours u SET hours = {_JOINED.format(name="hours")}, levels = {_JOINED.format(name="levels")}
  FROM {_OF_FATE} = 'append' WHERE {_same("u", "s")}
""",
    f"""
UPDATE daily_usage u SET hour_bits = u.hour_bits | s.hour_bits, {_list(COUNTER_NAMES, "{name} = u.{name} + s.{name}")}
  FROM {_OF_FATE} = 'append' WHERE {_same("u", "s")}
""",
    f"INSERT INTO usage_seen ({_DAYS}) SELECT {_list(DAY_KEY, 's.{}')} FROM {_OF_FATE} <> 'other'",
)
_COUNT_DAYS = """
SELECT coalesce(sum(bit_count(s.hour_bits::bit(24))) FILTER (WHERE f.fate IN ('new', 'append')), 0)::bigint,
       count(*) FILTER (WHERE f.fate = 'other')
  FROM usage_days s JOIN usage_fates f USING (line)
"""
_STAGE_OTHERS = f"""
INSERT INTO usage_staging ({_HOURS}, {_COUNTERS})
SELECT s.account_id, s.day + h.number * interval '1 hour', s.queue_uuid, s.partition_id, s.origin,
       {_list(COUNTER_NAMES, "h.{}")}
  FROM {_OF_FATE} = 'other' CROSS JOIN LATERAL usage_hours_of(s.hours, s.levels) h
"""
_RESOLVE_DAYS = f"""
UPDATE quarantined_usage k SET resolved_at = clock_timestamp()
  FROM {_OF_FATE} <> 'other'
 WHERE k.resolved_at IS NULL AND k.account_id = s.account_id AND {_DAY_OF.format("k")} = s.day
   AND (s.hour_bits >> {_HOUR_OF_DAY.format("k")}) & 1 = 1 AND k.hour = date_trunc('hour', k.hour, 'UTC')
   AND k.record->>'queue_uuid' = s.queue_uuid::text AND k.record->>'origin' = s.origin
   AND k.record->>'partition_id' = s.partition_id::text
"""
