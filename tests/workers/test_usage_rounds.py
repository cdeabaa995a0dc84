"""Rounds of usage (docs/usage.md): a crash at any step recounts hours and doubles nothing; late records; the claim."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from api.billing.models import FillLedger, HourlyUsage, QuarantinedUsage, UsageRun
from api.billing.selectors import first_account_opened, settled_up_to
from api.billing.settling import RunOvertaken, SettlingError, UsageRow, settle
from tests.api.billing.usage import open_since
from tests.support.control_plane import Caller
from workers import limits
from workers.spark_jobs.lake.manifest import CORRUPT_FILE, MANIFEST_VERSION, Lake, LakeEntry, LakeFile, RefusedFile
from workers.spark_jobs.lake.shown import show_quarantine
from workers.spark_jobs.limits import CLOSE_GRACE_MS, DAY_MS, HOUR_MS
from workers.spark_jobs.spans import HourSpan
from workers.usage import rounds, running
from workers.usage.jobs import ClaimLost
from workers.usage.left_out import note_left_out
from workers.usage.rounds import (
    UsageRound,
    ingest_and_settle,
    is_round_due,
    pieces,
    roll_up_days,
    span_to_settle,
    whole_days,
)
from workers.usage.settling import (
    LISTED,
    SettlementError,
    begin_settlement,
    files_of,
    interval_of,
    last_merged_at,
    merge_settlement,
    note_settlement,
)

QUEUE = UUID(int=1)
FIRST_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC


def hour(number: int) -> int:
    return FIRST_MS + number * HOUR_MS


def entry(name: str, first: int, last: int) -> LakeEntry:
    file = LakeFile(f"windows/{name}/x.parquet", 1, 1, "", hour(first), hour(last))
    return LakeEntry(MANIFEST_VERSION, name, 0, {"windows": [file]})


def refused(path: str) -> dict[str, str]:
    """As the job `settle` names a file that it had to leave out."""
    return {"path": path, "reason": CORRUPT_FILE, "detail": "torn"}


class Crash(Exception):
    """The worker dies here."""


def write_days(directory: Path, account_id: str, figures: dict[int, int]) -> None:
    """{hour: messages sent} as the job writes them."""
    days: dict[int, dict[int, int]] = {}
    for number, sent in figures.items():
        days.setdefault(hour(number) // DAY_MS, {})[hour(number) % DAY_MS // HOUR_MS] = sent
    lines = []
    for day, hours in days.items():
        begins = datetime.fromtimestamp(day * DAY_MS / 1000, UTC).isoformat()
        bits, texts = sum(1 << number for number in hours), [f"{number},{sent}" for number, sent in hours.items()]
        key = (account_id, begins, QUEUE, 0, "client", bits, sum(hours.values()))
        lines.append("\t".join([*map(str, key), *["0"] * 12, ";".join(texts), ""]) + "\n")
    (directory / "days-0.tsv").write_text("".join(lines))
    (directory / LISTED).write_text('["days-0.tsv"]')


class Spark:
    """In the place of the jobs: `figures` are what the lake holds, {hour: messages sent}."""

    def __init__(self, lake: Lake, account_id: str) -> None:
        self.lake, self.account_id = lake, account_id
        self.figures: dict[int, int] = {}
        self.crash_at = ""
        self.left_out: list[dict[str, str]] = []
        self.settled: list[tuple[int, int]] = []

    def arrive(self, name: str, figures: dict[int, int]) -> None:
        self.figures.update(figures)
        self.lake.add(entry(name, min(figures), max(figures)))

    def run_job(
        self, name: str, arguments: list[str], holds_claim: Callable[[], bool], time_s_max: float
    ) -> dict[str, Any]:
        self.crash(f"before {name}")
        answer: dict[str, Any] = {}
        if name == "settle":
            given = dict(zip(arguments[::2], arguments[1::2], strict=True))
            span = HourSpan(int(given["--from"]), int(given["--to"]))
            self.settled.append(((span.from_ms - FIRST_MS) // HOUR_MS, (span.to_ms - FIRST_MS) // HOUR_MS))
            answer = {"directory": str(self.write(span, given["--run"])), "refused_files": self.left_out}
        self.crash(f"after {name}")
        return answer

    def write(self, span: HourSpan, run: str) -> Path:
        directory = self.lake.root / "settlements" / run
        directory.mkdir(parents=True)
        figures = {number: sent for number, sent in self.figures.items() if span.from_ms <= hour(number) < span.to_ms}
        write_days(directory, self.account_id, figures)
        return directory

    def begin(self, run: UUID, span: HourSpan) -> None:
        begin_settlement(run, span)

    def merge(self, directory: Path, run: UUID, span: HourSpan, is_partial: bool) -> object:
        self.crash("before merge")
        merged = merge_settlement(directory, run, span, is_partial)
        self.crash("after merge")
        return merged

    def note(self, run: UUID, note: str, is_lost: bool) -> None:
        note_settlement(run, note, is_lost)

    def note_left_out(self, lake: Lake, entries: list[str]) -> object:
        return note_left_out(lake, entries)

    def settled_up_to(self) -> datetime | None:
        return settled_up_to()

    def last_merged_at(self) -> datetime | None:
        return last_merged_at()

    def first_hour(self) -> datetime | None:
        return first_account_opened()

    def crash(self, place: str) -> None:
        if place == self.crash_at:
            self.crash_at = ""
            raise Crash


@pytest.fixture
def spark(caller: Caller, tmp_path: Path) -> Spark:
    open_since(caller.account_id, datetime.fromtimestamp(FIRST_MS / 1000, UTC))
    return Spark(Lake(tmp_path), caller.account_id)


def run_round(spark: Spark, now_ms: int, holds_claim: Callable[[], bool] = lambda: True) -> list[HourSpan]:
    work = UsageRound(spark.lake, "one", "1=a:1", holds_claim, spark.run_job, spark)
    return ingest_and_settle(work, now_ms)


def settled_figures() -> dict[int, int]:
    rows = HourlyUsage.objects.values_list("hour", "messages_sent")
    return {(int(at.timestamp()) * 1000 - FIRST_MS) // HOUR_MS: sent for at, sent in rows}


@pytest.mark.parametrize(
    "place", ["before ingest", "after ingest", "before settle", "after settle", "before merge", "after merge"]
)
def test_crash_at_any_step_recounts_and_doubles_nothing(spark: Spark, place: str) -> None:
    spark.arrive("a", {0: 5, 1: 6, 2: 7})
    spark.crash_at = place
    with pytest.raises(Crash):
        run_round(spark, hour(3) + CLOSE_GRACE_MS)
    run_round(spark, hour(3) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 5, 1: 6, 2: 7}
    assert not FillLedger.objects.exclude(state="done").exists()


def test_round_without_its_claim_merges_nothing(spark: Spark) -> None:
    """Another one may have merged later figures since these were counted."""
    spark.arrive("a", {0: 5})
    with pytest.raises(ClaimLost):
        run_round(spark, hour(1) + CLOSE_GRACE_MS, lambda: False)
    assert settled_figures() == {} and settled_up_to() is None
    run_round(spark, hour(1) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 5}


def test_run_that_stood_still_while_another_one_began_is_not_merged(spark: Spark) -> None:
    """Its claim was lost between the last look and the commit: the later run counted more."""
    old, later, span = UUID(int=7), UUID(int=8), HourSpan(hour(0), hour(1))
    spark.figures = {0: 5}
    begin_settlement(old, span)
    counted_before = spark.write(span, str(old))
    spark.figures = {0: 8}
    begin_settlement(later, span)
    merge_settlement(spark.write(span, str(later)), later, span)
    with pytest.raises(RunOvertaken):
        merge_settlement(counted_before, old, span)
    assert settled_figures() == {0: 8}
    assert dict(UsageRun.objects.values_list("pk", "state")) == {old: "overtaken", later: "done"}


def test_run_begins_before_its_job_reads_the_lake(spark: Spark) -> None:
    spark.arrive("a", {0: 5})
    spark.crash_at = "before settle"
    with pytest.raises(Crash):
        run_round(spark, hour(1) + CLOSE_GRACE_MS)
    assert UsageRun.objects.get().state == "failed"


def test_file_that_is_damaged_after_its_hours_were_settled_makes_no_figure_smaller(spark: Spark) -> None:
    spark.arrive("a", {0: 5, 1: 6, 2: 7})
    run_round(spark, hour(3) + CLOSE_GRACE_MS)
    spark.left_out = [refused("windows/a/x.parquet")]
    spark.figures = {0: 3, 1: 9}  # hour 2 was in the damaged file alone, hour 0 has an earlier record elsewhere
    spark.lake.add(entry("late", 0, 1))
    run_round(spark, hour(3) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 5, 1: 9, 2: 7}
    assert "refused files: 1" in UsageRun.objects.order_by("-started_at")[0].note
    spark.left_out, spark.figures = [], {0: 4, 1: 9}
    spark.lake.add(entry("whole", 0, 1))
    run_round(spark, hour(3) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 4, 1: 9}, "what all files say counts"


def test_file_that_can_be_read_again_has_its_hours_counted_again(spark: Spark) -> None:
    """It was damaged before they were settled: they are done without it, and no later record speaks of them."""
    whole = b"all of it"
    file = LakeFile("windows/a/x.parquet", len(whole), 1, hashlib.sha256(whole).hexdigest(), hour(0), hour(1))
    spark.lake.add(LakeEntry(MANIFEST_VERSION, "a", 0, {"windows": [file]}))
    path = spark.lake.root / file.path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"torn")
    spark.left_out, spark.figures = [refused(file.path)], {0: 3}
    run_round(spark, hour(3) + CLOSE_GRACE_MS)
    run_round(spark, hour(3) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 3} and spark.settled == [(0, 3)], "it is not read in vain"
    path.write_bytes(whole)
    spark.left_out, spark.figures = [], {0: 5, 1: 6}
    spark.crash_at = "before merge"
    with pytest.raises(Crash):
        run_round(spark, hour(3) + CLOSE_GRACE_MS)
    run_round(spark, hour(3) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 5, 1: 6}
    run_round(spark, hour(3) + CLOSE_GRACE_MS)
    assert spark.settled == [(0, 3)] * 3, "once it is counted there is nothing left to do"


def test_record_of_a_clock_decades_behind_settles_no_decades(spark: Spark) -> None:
    spark.lake.add(entry("ancient", -50 * 365 * 24, 1))
    spark.arrive("a", {0: 5, 1: 6})
    with capture_logs() as logs:
        run_round(spark, hour(2) + CLOSE_GRACE_MS)
        assert spark.settled == [(0, 2)] and settled_figures() == {0: 5, 1: 6}
        spark.arrive("b", {2: 7})
        run_round(spark, hour(3) + CLOSE_GRACE_MS)
    assert [line["before_accounts"] for line in logs if "before_accounts" in line] == [["ancient"]], "it is told once"


def test_round_without_its_claim_removes_no_files_of_another(spark: Spark) -> None:
    spark.arrive("a", {0: 5})
    of_another = spark.write(HourSpan(hour(0), hour(1)), str(UUID(int=7)))
    with pytest.raises(ClaimLost):
        run_round(spark, hour(1) + CLOSE_GRACE_MS, lambda: False)
    assert (of_another / LISTED).exists() and spark.settled == []


@pytest.mark.parametrize("chosen", ["fail", "skip"])
def test_worker_says_what_an_ingestion_does_about_records_that_were_removed_unread(spark: Spark, chosen: str) -> None:
    given: list[list[str]] = []

    def run(name: str, arguments: list[str], holds_claim: Callable[[], bool], time_s_max: float) -> dict[str, Any]:
        given.append([name, *arguments])
        return spark.run_job(name, arguments, holds_claim, time_s_max)

    ingest_and_settle(UsageRound(spark.lake, "one", "1=a:1", lambda: True, run, spark, chosen), hour(1))
    assert given[0][0] == "ingest" and given[0][-4:] == ["--removed-records", chosen, "--now", str(hour(1))]


def test_files_that_a_settlement_had_to_leave_out_are_logged(spark: Spark) -> None:
    spark.arrive("a", {0: 5})
    spark.left_out = [refused("windows/a/x.parquet")]
    with capture_logs() as logs:
        run_round(spark, hour(1) + CLOSE_GRACE_MS)
    (told,) = [line for line in logs if line["event"] == "usage_left_out"]
    assert told["refused_files"] == spark.left_out and told["log_level"] == "warning"


def test_round_tells_of_what_spark_could_not_take(spark: Spark) -> None:
    spark.arrive("a", {0: 5})
    row = {"reason": "malformed", "detail": "no array", "stream_partition": 3, "stream_offset": 1, "value": b"x"}
    show_quarantine(spark.lake, "a", [row])
    spark.lake.refuse(RefusedFile("windows/a/y.parquet", CORRUPT_FILE, "torn", hour(0)))
    run_round(spark, hour(1) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 5}, "the rest is billed"
    assert sorted(QuarantinedUsage.objects.values_list("reason", flat=True)) == [CORRUPT_FILE, "malformed"]


def test_merge_that_is_cut_off_leaves_nothing_of_itself(spark: Spark) -> None:
    spark.figures = {0: 5}
    span = HourSpan(hour(0), hour(2))
    begin_settlement(UUID(int=7), span)
    directory = spark.write(span, str(UUID(int=7)))
    (directory / "days-1.tsv").write_text("half a line")
    (directory / LISTED).write_text('["days-0.tsv", "days-1.tsv"]')
    with pytest.raises(SettlingError, match="half a line"):
        merge_settlement(directory, UUID(int=7), span)
    assert settled_figures() == {} and settled_up_to() is None


def test_settlement_whose_job_did_not_end_is_not_merged(tmp_path: Path) -> None:
    with pytest.raises(SettlementError, match="did not end"):
        list(files_of(tmp_path))


def test_late_record_settles_its_hours_again(spark: Spark) -> None:
    spark.arrive("a", {0: 5, 1: 6, 4: 9})
    run_round(spark, hour(5) + CLOSE_GRACE_MS)
    spark.arrive("late", {1: 8})
    run_round(spark, hour(6) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 5, 1: 8, 4: 9}
    assert spark.settled == [(0, 5), (1, 6)]
    assert settled_up_to() == datetime.fromtimestamp(hour(6) / 1000, UTC)


def test_lake_without_its_note_is_counted_again(spark: Spark) -> None:
    """What docs/billing_steps.md says to operators who want a month counted again."""
    spark.arrive("a", {0: 5, 1: 6})
    run_round(spark, hour(2) + CLOSE_GRACE_MS)
    wrong = UsageRow(spark.account_id, datetime.fromtimestamp(hour(0) / 1000, UTC), QUEUE, 0, "client", 50)
    settle(UUID(int=5), interval_of(HourSpan(hour(0), hour(1))), [wrong])
    run_round(spark, hour(3) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 50, 1: 6}
    (spark.lake.root / "settled.json").unlink()
    run_round(spark, hour(4) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 5, 1: 6} and settled_up_to() == datetime.fromtimestamp(hour(4) / 1000, UTC)


def test_hour_that_is_open_is_left_for_later(spark: Spark) -> None:
    spark.arrive("a", {0: 5, 1: 6})
    run_round(spark, hour(2) + CLOSE_GRACE_MS - 1)
    assert settled_figures() == {0: 5}
    run_round(spark, hour(2) + CLOSE_GRACE_MS)
    assert settled_figures() == {0: 5, 1: 6}


def test_hours_without_records_are_settled_too(spark: Spark) -> None:
    """What is stored goes on, and the settled hours have no gap."""
    spark.arrive("a", {0: 5})
    run_round(spark, hour(1) + CLOSE_GRACE_MS)
    assert run_round(spark, hour(1) + CLOSE_GRACE_MS) == []
    assert run_round(spark, hour(3) + CLOSE_GRACE_MS) == [HourSpan(hour(1), hour(3))]


def test_hours_before_the_first_record_are_settled_from_the_first_account_on(spark: Spark) -> None:
    """Fees are of all months."""
    spark.arrive("a", {4: 5})
    assert run_round(spark, hour(6) + CLOSE_GRACE_MS) == [HourSpan(hour(0), hour(6))]
    assert settled_figures() == {4: 5}


def test_where_nothing_was_ever_metered_hours_are_settled_without_spark(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = hour(limits.USAGE_QUIET_HOURS) + CLOSE_GRACE_MS
    monkeypatch.setattr(running, "_watermarks", lambda _: {})
    monkeypatch.setattr(running, "run_job", spark.run_job)
    monkeypatch.setattr(running.clock, "now", lambda: datetime.fromtimestamp(now_ms / 1000, UTC))
    claim: Any = None
    assert running._settle(Lake(tmp_path), claim, lambda _: None) == (limits.USAGE_QUIET_HOURS, "")
    assert settled_up_to() == datetime.fromtimestamp(hour(limits.USAGE_QUIET_HOURS) / 1000, UTC)
    assert running._settle(Lake(tmp_path), claim, lambda _: None) == (0, "") and spark.settled == []
    now_ms -= HOUR_MS
    assert running.settle_nothing(now_ms) == 0


def test_nothing_is_settled_where_there_is_no_account() -> None:
    assert span_to_settle([], set(), None, hour(3), None) is None


def test_long_backfill_is_cut_into_pieces() -> None:
    span = HourSpan(hour(0), hour(2 * rounds.SPAN_HOURS_MAX + 1))
    cuts = [((one.from_ms - FIRST_MS) // HOUR_MS, (one.to_ms - FIRST_MS) // HOUR_MS) for one in pieces(span)]
    assert cuts == [(0, 744), (744, 1488), (1488, 1489)]


def test_round_is_due_once_an_hour_has_ended_and_where_nothing_was_used_now_and_then() -> None:
    settled = datetime.fromtimestamp(hour(5) / 1000, UTC)
    assert not is_round_due(settled, False, hour(6) + CLOSE_GRACE_MS - 1)
    assert is_round_due(settled, False, hour(6) + CLOSE_GRACE_MS)
    quiet_end = hour(5 + limits.USAGE_QUIET_HOURS) + CLOSE_GRACE_MS
    assert not is_round_due(settled, True, quiet_end - 1) and is_round_due(settled, True, quiet_end)
    assert is_round_due(None, False, hour(0)) and not is_round_due(None, True, hour(0)), "nothing meters at all"


def test_days_that_ended_are_rolled_up(spark: Spark) -> None:
    day = 24
    assert whole_days(HourSpan(hour(3), hour(day - 1))) is None
    assert whole_days(HourSpan(hour(day - 1), hour(day))) == HourSpan(hour(0), hour(day))
    rolled: list[list[str]] = []

    def run(name: str, arguments: list[str], holds_claim: Callable[[], bool], time_s_max: float) -> dict[str, Any]:
        rolled.append([name, *arguments[2:]])
        return {}

    work = UsageRound(spark.lake, "one", "1=a:1", lambda: True, run, spark)
    roll_up_days(work, [HourSpan(hour(0), hour(1)), HourSpan(hour(30), hour(3 * day + 2))])
    assert rolled == [["rollup", "--from", str(hour(day)), "--to", str(hour(3 * day))]]


def test_days_whose_rollup_failed_are_rolled_up_by_the_next_round(spark: Spark) -> None:
    rolled: list[list[str]] = []

    def run(name: str, arguments: list[str], holds_claim: Callable[[], bool], time_s_max: float) -> dict[str, Any]:
        spark.crash("before rollup")
        rolled.append(arguments[2:])
        return {}

    work = UsageRound(spark.lake, "one", "1=a:1", lambda: True, run, spark)
    spark.crash_at = "before rollup"
    with pytest.raises(Crash):
        roll_up_days(work, [HourSpan(hour(20), hour(24))])
    roll_up_days(work, [HourSpan(hour(24), hour(25))])
    assert rolled == [["--from", str(hour(0)), "--to", str(hour(24))]]
    assert roll_up_days(work, []) == [] and len(rolled) == 1
