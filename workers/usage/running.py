"""A round of usage: for the usage worker on its schedule, and for a report that wants the hours settled now.

One at a time, by a claim in the database that is renewed while a job of Spark runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple
from uuid import uuid4

import structlog

from api import clock
from api.billing.provisional import first_provisional_hour
from api.billing.selectors import first_account_opened, settled_up_to
from api.billing.settling import SettlingError, settle
from api.settings.environment import environment
from api.settings.server_urls import DATABASE_URL, server_url
from storage_nodes.model import format_node_list
from storage_nodes.protocol.errors import StorageError
from workers import limits
from workers.schedule import ScheduleLock
from workers.spark_jobs.java import missing_parts
from workers.spark_jobs.lake.manifest import Lake, LakeError
from workers.spark_jobs.limits import HOUR_MS
from workers.spark_jobs.source.stream_reading import USAGE_TAG_PREFIX, StreamReading
from workers.usage.jobs import ClaimLost, JobFailed, run_job
from workers.usage.lake_losses import noted_entries
from workers.usage.open_windows import Say
from workers.usage.rounds import (
    JobRunner,
    UsageRound,
    ingest_and_settle,
    is_round_due,
    note_watermarks,
    pieces,
    read_watermarks,
    roll_up_days,
    span_to_settle,
)
from workers.usage.settling import DatabaseSettlements, SettlementError, interval_of

_log = structlog.get_logger(__name__)
NO_LAKE = "PENSTOCK_USAGE_LAKE names no folder: usage is not settled here"
# Of the key of a usage record (docs/usage_records.md): hours since the epoch.
_HOUR_OF_KEY = slice(8, 12)
BUSY = "another round is under way"


class RoundDone(NamedTuple):
    """`why_not`: why nothing was settled; empty where it was, or nothing was due."""

    settled_hours: int
    why_not: str


def missing_for_rounds() -> str:
    """What Spark lacks, as one text; empty: nothing. Packages that were installed since this process began count."""
    importlib.invalidate_caches()
    return "; ".join(missing_parts())


def run_round(say: Say = lambda text: None, wait_s: float = 0.0, is_asked: bool = False) -> RoundDone:
    """What is due. Where another one holds the claim, that one is waited for. Never raises for what a job can do.
    `is_asked`: somebody wants all that there is, also what came late for hours that are settled."""
    lake_dir = environment().usage_lake
    if not lake_dir:
        return RoundDone(0, NO_LAKE)
    missing = missing_for_rounds()
    if missing:
        return RoundDone(0, missing)
    try:
        with round_claim(say, wait_s) as holds_claim:
            if holds_claim is None:
                return RoundDone(0, BUSY)
            return _settle(Lake(Path(lake_dir)), holds_claim, say, is_asked)
    except (JobFailed, ClaimLost, SettlementError, SettlingError, LakeError, StorageError, OSError) as error:
        _log.warning("usage_not_settled", error=str(error))
        return RoundDone(0, str(error))


@contextmanager
def round_claim(say: Say, wait_s: float) -> Iterator[Callable[[], bool] | None]:
    """The claim of a round, as the question whether it is still held, which renews it. None: another round has held it
    for `wait_s`."""
    claim = ScheduleLock(server_url(DATABASE_URL), limits.USAGE_CLAIM_KEY)
    try:
        ends_s = monotonic() + wait_s
        while not claim.hold():
            if monotonic() > ends_s:
                yield None
                return
            say("the usage worker settles; waiting for it")
            sleep(limits.USAGE_CLAIM_WAIT_S)
        yield claim.hold
    finally:
        claim.release()


def _settle(lake: Lake, holds_claim: Callable[[], bool], say: Say, is_asked: bool = False) -> RoundDone:
    nodes = format_node_list(environment().nodes())
    now_ms = int(clock.now().timestamp() * 1000)
    watermarks = _watermarks(nodes)
    settled_end = settled_up_to()
    begins, known = settled_end or first_provisional_hour() or first_account_opened(), read_watermarks(lake)
    is_late = is_asked and settled_end is not None and has_late_records(nodes, known, watermarks, settled_end)
    is_new = settled_end is not None and has_new_entries(lake, settled_end)
    is_quiet = watermarks == known and not is_asked
    if not is_late and not is_new and not is_round_due(begins, is_quiet, now_ms):
        return RoundDone(0, "")  # Java is not started for nothing
    if not watermarks and not lake.entries():
        return RoundDone(settle_nothing(now_ms), "")
    run = told_job(say)
    removed = environment().usage_removed_records
    work = UsageRound(lake, environment().cluster_id, nodes, holds_claim, run, DatabaseSettlements(), removed)
    settled = ingest_and_settle(work, now_ms)
    note_watermarks(lake, watermarks)
    roll_up_days(work, settled)
    return RoundDone(sum(span.to_ms - span.from_ms for span in settled) // HOUR_MS, "")


def settle_nothing(now_ms: int) -> int:
    """Nothing was ever metered: the hours that are over are settled without rows, and without Spark. How many."""
    span = span_to_settle([], set(), settled_up_to(), now_ms, first_account_opened())
    spans = pieces(span) if span else []
    for piece in spans:
        settle(uuid4(), interval_of(piece), [])
    return sum(piece.to_ms - piece.from_ms for piece in spans) // HOUR_MS


def told_job(say: Say) -> JobRunner:
    """`run_job`, which says what it begins."""

    def run(name: str, arguments: list[str], holds_claim: Callable[[], bool], time_s_max: float) -> dict[str, Any]:
        say(f"Spark: {name}")
        return run_job(name, arguments, holds_claim, time_s_max)

    return run


def has_new_entries(lake: Lake, settled_end: datetime) -> bool:
    """Does the lake hold something of hours that are settled which was not settled yet: files from elsewhere, or all of
    it, where `settled.json` was taken away?"""
    end_ms, noted = int(settled_end.timestamp()) * 1000, noted_entries(lake)
    new = (entry.hours() for entry in lake.entries() if entry.name not in noted)
    return any(hours is not None and hours[1] + HOUR_MS <= end_ms for hours in new)


def has_late_records(nodes: str, begins: dict[str, int], ends: dict[str, int], settled_end: datetime) -> bool:
    """Does the stream say something, from `begins` of each partition on, of an hour that is settled already? The live
    meter leaves that to the next round: without one it would be in neither of the two."""
    first_open = int(settled_end.timestamp()) * 1000 // HOUR_MS
    with StreamReading(environment().cluster_id, nodes) as reading:
        return any(
            key is not None and int.from_bytes(key[_HOUR_OF_KEY], "big") < first_open
            for partition, end in ends.items()
            for _, _, key, _ in reading.records(int(partition), begins.get(partition, 0), end, skip_removed=True)
        )


def _watermarks(nodes: str) -> dict[str, int]:
    """Up to where each partition of the usage stream goes; none where nothing meters."""
    with StreamReading(environment().cluster_id, nodes) as reading:
        return {
            str(partition): reading.bounds(partition).high_watermark
            for partition in reading.partitions_tagged(USAGE_TAG_PREFIX)
        }
