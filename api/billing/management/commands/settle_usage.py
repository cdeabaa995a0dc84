"""`manage.py settle_usage --from HOUR --to HOUR [--run UUID] [--recount] < rows.csv`: settles rollups from a file.

CSV with a header: the columns of `hourly_usage` (docs/billing.md); counters that are left out are 0. Each row's hour is
one of those that are settled. For backfills, and for installations whose usage is counted by a program of their own.
Prints one JSON object.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.periods import Interval
from api.billing.settling import SettlingError, UsageRow, settle
from api.clock import WRITTEN_TIME, parse_time

_WHOLE = re.compile(r"-?[0-9]+")
_KEY = ("account_id", "hour", "queue_uuid", "partition_id", "origin")


class Command(BaseCommand):
    help = "Settle hourly usage from CSV on standard input."
    # Callers within the process give their lines as `rows`.
    stealth_options = ("rows",)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--from", dest="start", required=True, metavar="HOUR", help="the first hour")
        parser.add_argument("--to", dest="end", required=True, metavar="HOUR", help="the end of the last one")
        parser.add_argument("--run", type=uuid.UUID, default=None, help="id of the run; a new one if not given")
        parser.add_argument("--recount", action="store_true", help="the rows are all there is for these hours")

    def handle(self, *args: Any, **options: Any) -> None:
        run = options["run"] or uuid.uuid4()
        try:
            hours = Interval(parse_time(options["start"]), parse_time(options["end"]))
        except ValueError:
            raise CommandError(f"--from and --to are each {WRITTEN_TIME}") from None
        try:
            rows = _within(hours, read_rows(options.get("rows") or sys.stdin))
            done = settle(run, hours, rows, options["recount"])
        except SettlingError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(json.dumps({"run": str(run), **done._asdict()}))


def read_rows(lines: Iterable[str]) -> Iterator[UsageRow]:
    """Raises SettlingError for what is no row; nothing of the file is settled then."""
    table = csv.DictReader(lines, strict=True)
    names = table.fieldnames or []
    unknown = set(names) - set(UsageRow._fields)
    if unknown or not set(_KEY) <= set(names):
        raise SettlingError(f"the header must name {', '.join(_KEY)} and counters, and nothing else")
    counters = [name for name in names if name in set(UsageMeter)]
    try:
        for row in table:
            if len(row) != len(names):
                raise ValueError("it has more cells than the header")
            yield UsageRow(
                row["account_id"], _hour(row["hour"]), uuid.UUID(row["queue_uuid"]), _whole(row["partition_id"]),
                row["origin"], **{name: _whole(row[name]) for name in counters},
            )  # fmt: skip
    except (csv.Error, ValueError, TypeError, AttributeError) as error:
        raise SettlingError(f"line {table.line_num} is no row of usage: {error}") from None


def _hour(text: str) -> datetime:
    """Raises ValueError."""
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"{text!r} has no offset")
    return parse_time(text)


def _whole(text: str) -> int:
    """Python takes more for a number than a program that reads the same file. Raises ValueError."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def _within(hours: Interval, rows: Iterable[UsageRow]) -> Iterator[UsageRow]:
    """A row of another hour would be billed without its hour being noted as settled, and counted again later. Raises
    SettlingError."""
    for row in rows:
        if not hours.start <= row.hour < hours.end:
            raise SettlingError(f"a row is of {row.hour}, which is not from {hours.start} up to {hours.end}")
        yield row
