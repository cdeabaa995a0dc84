"""What a record must be to be counted, and why another one is not: rules as columns, the first that is broken counts.

The same rules judge records of the stream and of files.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType

from storage_nodes.protocol.usage import Origin
from workers.spark_jobs.limits import (
    CLOCK_AHEAD_MS_MAX,
    COUNTER_MAX,
    HOUR_MS,
    STORED_BYTE_MS_MAX,
    STORED_BYTES_MAX,
)
from workers.spark_jobs.schemas.frames import (
    ACCOUNTS,
    COUNTERS,
    QUARANTINE,
    REQUEST_COUNTERS,
    REQUESTS,
    WINDOWS,
    conform,
)
from workers.spark_jobs.schemas.usage_record import ACCOUNT_ID_DIGITS, UUID_BYTES

UNKNOWN_ACCOUNT = "unknown_account"
_STORED = ("stored_byte_ms", "stored_bytes")


def judged_windows(windows: DataFrame, now_ms: int) -> DataFrame:
    """The windows with a column `reason`: null, or the rule that the row breaks."""
    stored_elsewhere = (F.col("origin") != int(Origin.CLIENT)) & ((F.col("stored_byte_ms") + F.col("stored_bytes")) > 0)
    rules = [
        ("malformed", _any_null(WINDOWS.fieldNames()) | _bad_names()),
        ("unknown_origin", ~F.col("origin").isin([int(origin) for origin in Origin])),
        ("negative_counter", _any_of([F.col(name) < 0 for name in (*COUNTERS, *_STORED)])),
        ("bad_hour", (F.col("hour_ms") % HOUR_MS != 0) | (F.col("hour_ms") < 0) | ~_until_within_hour()),
        ("clock_ahead", F.col("hour_ms") > now_ms + CLOCK_AHEAD_MS_MAX),
        ("implausible", _any_of([F.col(name) > COUNTER_MAX for name in COUNTERS]) | _stored_too_much()),
        ("malformed", stored_elsewhere),
    ]
    return windows.withColumn("reason", _first_broken(rules))


def judged_requests(requests: DataFrame, now_ms: int) -> DataFrame:
    """The request rows with a column `reason`."""
    rules = [
        ("malformed", _any_null(REQUESTS.fieldNames()) | _bad_names()),
        ("negative_counter", _any_of([F.col(name) < 0 for name in (*REQUEST_COUNTERS, "sequence")])),
        ("bad_hour", (F.col("hour_ms") % HOUR_MS != 0) | (F.col("hour_ms") < 0)),
        ("clock_ahead", F.col("hour_ms") > now_ms + CLOCK_AHEAD_MS_MAX),
        ("implausible", _any_of([F.col(name) > COUNTER_MAX for name in REQUEST_COUNTERS])),
    ]
    return requests.withColumn("reason", _first_broken(rules))


def accepted(judged: DataFrame) -> DataFrame:
    """Rows without a reason against them."""
    return judged.where(F.col("reason").isNull()).drop("reason")


def any_refused(judged: DataFrame) -> bool:
    """Looks at all rows: where there is none, as nearly always, a first one cannot be found sooner."""
    return judged.where(F.col("reason").isNotNull()).count() > 0


def refused(judged: DataFrame) -> DataFrame:
    """The others as QUARANTINE, each as JSON, with its place where it came from a stream."""
    placed = set(judged.columns)
    said = [name for name in judged.columns if name not in ("reason", "detail", "value")]
    rows = judged.where(F.col("reason").isNotNull()).select(
        "reason",
        F.to_json(F.struct(*[_printable(judged, name) for name in said])).alias("detail"),
        *[
            (F.col(name) if name in placed else F.lit(None)).cast(LongType()).alias(name)
            for name in ("stream_partition", "stream_offset")
        ],
        F.lit(None).cast(BinaryType()).alias("value"),
    )
    return conform(rows, QUARANTINE, "refused rows")


def of_known_accounts(rows: DataFrame, accounts: DataFrame) -> tuple[DataFrame, DataFrame]:
    """(rows of accounts that exist, QUARANTINE of the others)."""
    known = F.broadcast(conform(accounts, ACCOUNTS, "accounts").distinct())
    kept = rows.join(known, "account_id", how="left_semi").select(*rows.columns)
    unknown = rows.join(known, "account_id", how="left_anti").select(*rows.columns)
    return kept, refused(unknown.withColumn("reason", F.lit(UNKNOWN_ACCOUNT)))


def _first_broken(rules: list[tuple[str, Column]]) -> Column:
    return F.coalesce(*[F.when(broken, F.lit(reason)) for reason, broken in rules])


def _any_of(conditions: list[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions)


def _any_null(names: list[str]) -> Column:
    return _any_of([F.col(name).isNull() for name in names])


def _bad_names() -> Column:
    account = ~F.col("account_id").rlike(f"^[0-9]{{{ACCOUNT_ID_DIGITS}}}$")
    return account | (F.octet_length("queue_uuid") != UUID_BYTES)


def _until_within_hour() -> Column:
    """Of an hour that is not negative: by the difference, for the end of the last hour of 64 bits is beyond them."""
    return (F.col("until_ms") >= F.col("hour_ms")) & (F.col("until_ms") - F.col("hour_ms") <= HOUR_MS)


def _stored_too_much() -> Column:
    return (F.col("stored_byte_ms") > STORED_BYTE_MS_MAX) | (F.col("stored_bytes") > STORED_BYTES_MAX)


def _printable(rows: DataFrame, name: str) -> Column:
    binary = isinstance(rows.schema[name].dataType, BinaryType)
    return (F.lower(F.hex(name)) if binary else F.col(name)).alias(name)
