"""One round: what the stream has since the last one goes into the lake, and the hours that it touches are settled.

    ingest   the stream -> the lake                   a process of Spark; after a crash it makes the same entry
    begin    the run in the fill ledger               from here on no run that began before is merged
    settle   hours of the lake -> a settlement        a process of Spark; only reads the lake
    merge    the settlement -> PostgreSQL             one transaction, with the fill ledger
    note     the lake's entries that are settled      a file; without it the hours are counted again, to the same rows
    roll up  whole days among the hours               a process of Spark; reports of operators read these

Hours to settle: from the first one that is not settled, or that an entry speaks of which was not settled yet (records
that came late, files that had to be left out and can be read again), up to the last one that has been over for
CLOSE_GRACE_MS.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import UUID, uuid4

import msgspec
import structlog

from workers import limits
from workers.spark_jobs.lake.manifest import Lake, LakeEntry, what_is_wrong
from workers.spark_jobs.limits import CLOSE_GRACE_MS, DAY_MS, HOUR_MS
from workers.spark_jobs.spans import HourSpan
from workers.usage.jobs import ClaimLost
from workers.usage.lake_losses import forget_refused, note_entries, noted_entries, read_note, take_losses

_log = structlog.get_logger(__name__)
# Hours of one settlement: the control plane takes a year in one run, a month keeps a run short.
SPAN_HOURS_MAX = 31 * 24


class JobRunner(Protocol):
    """`workers.usage.jobs.run_job`."""

    def __call__(
        self, name: str, arguments: list[str], holds_claim: Callable[[], bool], time_s_max: float
    ) -> dict[str, Any]: ...


class Settlements(Protocol):
    """`workers.usage.settling`, and what is known of settled hours."""

    def begin(self, run: UUID, span: HourSpan) -> None: ...

    def merge(self, directory: Path, run: UUID, span: HourSpan, is_partial: bool) -> object: ...

    def note(self, run: UUID, note: str, is_lost: bool) -> None: ...

    def settled_up_to(self) -> datetime | None: ...

    def last_merged_at(self) -> datetime | None: ...

    def note_left_out(self, lake: Lake, entries: list[str]) -> object: ...

    def first_hour(self) -> datetime | None:
        """The first one in which an account was open. None: there is no account."""


class UsageRound(NamedTuple):
    """What a round works with."""

    lake: Lake
    cluster_id: str
    nodes: str
    holds_claim: Callable[[], bool]
    run_job: JobRunner
    settlements: Settlements
    # What the stream has lost unread: `fail` or `skip`.
    removed_records: str = "fail"


def ingest_and_settle(work: UsageRound, now_ms: int) -> list[HourSpan]:
    """The spans that were settled."""
    place = ["--lake", str(work.lake.root)]
    stream = ["--cluster-id", work.cluster_id, "--nodes", work.nodes]
    removed = ["--removed-records", work.removed_records]
    # What lies too far ahead is judged by the clock that hours are settled by, and not by that of Spark's machine.
    now = ["--now", str(now_ms)]
    work.run_job("ingest", [*place, *stream, *removed, *now], work.holds_claim, limits.USAGE_JOB_S_MAX)
    return settle_due(work, now_ms)


def settle_due(work: UsageRound, now_ms: int) -> list[HourSpan]:
    entries = work.lake.entries()
    healed = readable_again(work.lake, entries)
    noted = noted_entries(work.lake) - {entry.name for entry in entries if healed & set(_paths(entry))}
    known, first_hour = work.settlements, work.settlements.first_hour()
    settled = known.settled_up_to()
    require_claim(work)
    lost_until_ms = take_losses(work.lake, entries, _ms(settled), _ms(known.last_merged_at()))
    span = span_to_settle(entries, noted, settled, now_ms, first_hour)
    spans = pieces(span) if span else []
    known.note_left_out(work.lake, [entry.name for entry in entries if entry.name not in noted])
    _tell_of_early([entry for entry in entries if entry.name not in noted], first_hour)
    require_claim(work)
    # Of rounds that were cut off: this one holds the claim, so nothing reads them.
    shutil.rmtree(work.lake.root / "settlements", ignore_errors=True)
    for piece in spans:
        settle_span(work, piece, is_partial=piece.from_ms < lost_until_ms)
    whole = healed & readable_again(work.lake, entries)
    forget_refused(work.lake, whole)
    note_left_out_files(work.lake, left_out_files(work.lake) - whole)
    known.note_left_out(work.lake, [])  # files that were found damaged just now, and those that count again
    note_entries(work.lake, {entry.name for entry in entries if _is_over(entry, now_ms)})
    return spans


def roll_up_days(work: UsageRound, settled: list[HourSpan]) -> list[HourSpan]:
    """Days that ended within what was settled, late records included, and those that an earlier round could not roll
    up: the spans that were rolled up."""
    days = [whole_days(span) for span in settled]
    due = [*_days_left(work.lake), *(span for span in days if span is not None)]
    if not due:
        return []
    whole = HourSpan(min(span.from_ms for span in due), max(span.to_ms for span in due))
    _note_days_left(work.lake, [whole])
    spans = pieces(whole)
    for span in spans:
        place = ["--lake", str(work.lake.root), "--from", str(span.from_ms), "--to", str(span.to_ms)]
        work.run_job("rollup", place, work.holds_claim, limits.USAGE_JOB_S_MAX)
    _note_days_left(work.lake, [])
    return spans


def _days_left(lake: Lake) -> list[HourSpan]:
    return read_note(lake.root / "days_left.json", list[HourSpan]) or []


def _note_days_left(lake: Lake, spans: list[HourSpan]) -> None:
    lake.note(lake.root / "days_left.json", msgspec.json.encode(spans))


def whole_days(span: HourSpan) -> HourSpan | None:
    """From the day in which it begins to the last one that is over with it."""
    begin, end = span.from_ms // DAY_MS * DAY_MS, span.to_ms // DAY_MS * DAY_MS
    return HourSpan(begin, end) if begin < end else None


def is_round_due(begins: datetime | None, is_quiet: bool, now_ms: int) -> bool:
    """An hour has ended since `begins`, the first one that is not settled; where nothing was used (`is_quiet`),
    several. None: no hour is known."""
    if begins is None:
        return not is_quiet
    lacking = (now_ms - CLOSE_GRACE_MS) // HOUR_MS - int(begins.timestamp()) * 1000 // HOUR_MS
    return lacking >= (limits.USAGE_QUIET_HOURS if is_quiet else 1)


def read_watermarks(lake: Lake) -> dict[str, int]:
    """Up to where the stream went when the last whole round began."""
    return read_note(lake.root / "watermarks.json", dict[str, int]) or {}


def note_watermarks(lake: Lake, watermarks: dict[str, int]) -> None:
    lake.note(lake.root / "watermarks.json", msgspec.json.encode(watermarks))


def settle_span(work: UsageRound, span: HourSpan, is_partial: bool = False) -> None:
    """Count and merge. What counts is the lake as it is when the job reads it: at least the entries known before.
    `is_partial`: it may have lost some of what it held of these hours."""
    run = uuid4()
    # Before the lake is read: of two runs the one that began later has the later figures, and only that one is merged.
    require_claim(work)
    work.settlements.begin(run, span)
    try:
        merged = _count_and_merge(work, run, span, is_partial)
    except Exception as error:
        work.settlements.note(run, str(error), is_lost=True)
        raise
    _log.info("usage_settled", run=str(run), from_ms=span.from_ms, to_ms=span.to_ms, merged=str(merged))


def _count_and_merge(work: UsageRound, run: UUID, span: HourSpan, is_partial: bool) -> object:
    arguments = ["--lake", str(work.lake.root), "--from", str(span.from_ms), "--to", str(span.to_ms), "--run", str(run)]
    answer = work.run_job("settle", arguments, work.holds_claim, limits.USAGE_JOB_S_MAX)
    require_claim(work)
    left_out = {name: answer[name] for name in ("refused_files", "conflicts") if answer.get(name)}
    if left_out:
        _log.warning("usage_left_out", run=str(run), from_ms=span.from_ms, to_ms=span.to_ms, **left_out)
        counts = ", ".join(f"{name.replace('_', ' ')}: {len(found)}" for name, found in left_out.items())
        work.settlements.note(run, f"Left out: {counts}. {msgspec.json.encode(left_out).decode()}", is_lost=False)
    elif is_partial:
        work.settlements.note(run, "The lake lost some of what it held: no figure of before becomes smaller.", False)
    # Before the hours are done: whoever settles them later knows that something was missing.
    missing = {file["path"] for file in answer.get("refused_files", ())}
    note_left_out_files(work.lake, left_out_files(work.lake) | missing)
    directory = Path(answer["directory"])
    merged = work.settlements.merge(directory, run, span, is_partial or bool(answer.get("refused_files")))
    shutil.rmtree(directory, ignore_errors=True)
    return merged


def _tell_of_early(entries: list[LakeEntry], first_hour: datetime | None) -> None:
    if first_hour is not None:
        first_ms = int(first_hour.timestamp() * 1000) // HOUR_MS * HOUR_MS
        early = [entry.name for entry in entries if (hours := entry.hours()) and hours[0] < first_ms]
        if early:
            _log.warning("usage_left_out", before_accounts=early)


def require_claim(work: UsageRound) -> None:
    """Before what would harm another round: its files, or later figures that it has merged. Raises ClaimLost."""
    if not work.holds_claim():
        raise ClaimLost("the claim of the usage run is lost")


def span_to_settle(
    entries: list[LakeEntry], noted: set[str], settled_up_to: datetime | None, now_ms: int, first_hour: datetime | None
) -> HourSpan | None:
    """None: nothing is to be settled. It begins with the first account, also where that used nothing for long: fees are
    of all months. Hours before it are left out: a record of a clock that was decades behind would otherwise have all of
    them counted."""
    end = (now_ms - CLOSE_GRACE_MS) // HOUR_MS * HOUR_MS
    begins = [hours[0] for entry in entries if entry.name not in noted and (hours := entry.hours())]
    first_ms = 0 if first_hour is None else int(first_hour.timestamp() * 1000) // HOUR_MS * HOUR_MS
    if settled_up_to is not None:
        begins.append(int(settled_up_to.timestamp()) * 1000)
    elif first_hour is not None:
        begins.append(first_ms)
    begin = max(min(begins, default=end), first_ms)
    return HourSpan(begin, end).checked() if begin < end else None


def pieces(span: HourSpan) -> list[HourSpan]:
    step = SPAN_HOURS_MAX * HOUR_MS
    return [HourSpan(at, min(at + step, span.to_ms)) for at in range(span.from_ms, span.to_ms, step)]


def left_out_files(lake: Lake) -> set[str]:
    """Paths of files without which hours were settled."""
    return set(read_note(lake.root / "left_out.json", list[str]) or ())


def note_left_out_files(lake: Lake, paths: set[str]) -> None:
    if paths != left_out_files(lake):
        lake.note(lake.root / "left_out.json", msgspec.json.encode(sorted(paths)))


def readable_again(lake: Lake, entries: list[LakeEntry]) -> set[str]:
    """Of the files that were left out those that are as they were written, from a copy for instance: without a look at
    them their hours would stay as they were counted without them."""
    left_out = left_out_files(lake)
    files = [file for entry in entries for files in entry.tables.values() for file in files if file.path in left_out]
    return {file.path for file in files if not what_is_wrong(lake.root / file.path, file)}


def _paths(entry: LakeEntry) -> list[str]:
    return [file.path for files in entry.tables.values() for file in files]


def _ms(at: datetime | None) -> int:
    return 0 if at is None else int(at.timestamp() * 1000)


def _is_over(entry: LakeEntry, now_ms: int) -> bool:
    """All its hours were within the span; one that reaches beyond is settled again with its last hours."""
    hours = entry.hours()
    return hours is None or hours[1] + HOUR_MS <= (now_ms - CLOSE_GRACE_MS)
