"""`python -m workers.usage.recount`: a closed month from the lake, against its invoices. Spark is played here."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.billing.actions.invoices import BILLING, issue_invoice
from api.billing.pricing.periods import BillingPeriod
from api.billing.settling import UsageRow
from api.settings.environment import environment
from tests.api.billing.test_invoices import plan
from tests.api.billing.test_merged_days import lines_of
from tests.api.billing.usage import MONTH, NOW, PERIOD, open_since, row, settle_month
from tests.support.control_plane import new_caller
from workers.spark_jobs.lake.manifest import Lake, LakeEntry
from workers.spark_jobs.limits import HOUR_MS
from workers.usage import running
from workers.usage.recount import RecountRefused, count_again, main

pytestmark = pytest.mark.django_db
MONTH_MS = int(MONTH.timestamp()) * 1000


class ScriptedLake(Lake):
    """Of one entry, which has the hours from `first_ms` on."""

    first_ms = MONTH_MS

    def entries(self) -> list[LakeEntry]:
        return [ScriptedEntry(self.first_ms)]  # type: ignore[list-item]


class ScriptedEntry:
    name = "stream-1"

    def __init__(self, first_ms: int) -> None:
        self._first_ms = first_ms

    def hours(self) -> tuple[int, int]:
        return self._first_ms, self._first_ms + 700 * HOUR_MS


class ScriptedSpark:
    """`workers.usage.jobs.run_job`: the settlement has these rows."""

    def __init__(self, directory: Path, rows: Sequence[UsageRow], refused: Sequence[str] = ()) -> None:
        self.directory, self._rows, self._refused = directory, rows, refused
        self.asked: list[list[str]] = []

    def __call__(
        self, name: str, arguments: list[str], holds_claim: Callable[[], bool], s_max: float
    ) -> dict[str, Any]:
        self.asked.append([name, *arguments])
        self.directory.mkdir()
        (self.directory / "days-0.tsv").write_bytes(lines_of(self._rows))
        (self.directory / "files.json").write_bytes(msgspec.json.encode(["days-0.tsv"]))
        return {"directory": str(self.directory), "refused_files": [{"path": path} for path in self._refused]}


@pytest.fixture
def account() -> str:
    """Billed 10.00."""
    found = new_caller().account_id
    open_since(found)
    plan(found)
    settle_month([row(found, 5, partition_id=0, sent_units=10_100)])
    assert issue_invoice(BILLING, found, PERIOD) is not None
    return found


def counted(tmp_path: Path, spark: ScriptedSpark, period: BillingPeriod = PERIOD, **lake: int) -> dict[str, Any]:
    made = ScriptedLake(tmp_path / "lake")
    made.first_ms = lake.get("first_ms", MONTH_MS)
    return count_again(made, period, None, spark, lambda: True)


def test_month_is_counted_whole_and_said_to_be_equal(tmp_path: Path, account: str) -> None:
    spark = ScriptedSpark(tmp_path / "run", [row(account, 5, partition_id=0, sent_units=10_100)])
    found = counted(tmp_path, spark)
    assert (found["equal"], found["invoices"], found["differences"], found["is_partial"]) == (True, 1, [], False)
    (asked,) = spark.asked
    assert asked[:3] == ["settle", "--lake", str(tmp_path / "lake")]
    ends = [asked[asked.index(name) + 1] for name in ("--from", "--to")]
    assert ends == [str(int(at.timestamp()) * 1000) for at in PERIOD]
    assert not spark.directory.exists() and json.dumps(found)


def test_difference_names_the_account_and_the_note_that_would_correct_it(tmp_path: Path, account: str) -> None:
    spark = ScriptedSpark(tmp_path / "run", [row(account, 5, partition_id=0, sent_units=9_100)])
    (one,) = counted(tmp_path, spark)["differences"]
    assert (one["account_id"], one["billed"], one["total"], one["note"]) == (account, "10.00", "-1.00", "credit")
    assert one["is_settled"] is False


def test_damaged_file_makes_no_bill_smaller_and_is_named(tmp_path: Path, account: str) -> None:
    spark = ScriptedSpark(tmp_path / "run", [row(account, 5, partition_id=0, sent_units=9_100)], ["windows/a.parquet"])
    found = counted(tmp_path, spark)
    assert found["equal"] and found["is_partial"] and found["left_out"] == ["windows/a.parquet"]


def test_entry_that_is_gone_makes_no_bill_smaller(tmp_path: Path, account: str) -> None:
    spark = ScriptedSpark(tmp_path / "run", [row(account, 5, partition_id=0, sent_units=9_100)])
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "settled.json").write_text('["stream-0", "stream-1"]')
    found = counted(tmp_path, spark)
    assert found["equal"] and found["is_partial"]


def test_process_answers_with_json_or_says_in_a_line_why_not(
    tmp_path: Path, account: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--period", PERIOD.name]) == 1 and running.NO_LAKE in capsys.readouterr().err
    lake = environment().model_copy(update={"usage_lake": str(tmp_path / "lake")})
    monkeypatch.setattr("api.settings.environment.environment", lambda: lake)
    monkeypatch.setattr(running, "missing_for_rounds", lambda: "Java 17 or newer is missing")
    assert main(["--period", PERIOD.name]) == 1
    assert json.loads(capsys.readouterr().err) == {"refused": "Java 17 or newer is missing"}
    monkeypatch.setattr(running, "missing_for_rounds", lambda: "")
    for wrong in (["--period", "2026-13"], ["--period", PERIOD.name, "--account", "absent"]):
        assert main(wrong) == 1 and "Traceback" not in capsys.readouterr().err
    spark = ScriptedSpark(tmp_path / "run", [row(account, 5, partition_id=0, sent_units=10_100)])
    monkeypatch.setattr(running, "told_job", lambda _: spark)
    monkeypatch.setattr("workers.spark_jobs.lake.manifest.Lake", ScriptedLake)
    assert main(["--period", PERIOD.name, "--account", account]) == 0
    assert json.loads(capsys.readouterr().out)["equal"] is True


def test_month_that_is_not_over_or_not_in_the_lake_is_not_counted(tmp_path: Path, account: str) -> None:
    spark = ScriptedSpark(tmp_path / "run", [])
    with pytest.raises(RecountRefused, match="is not over"):
        counted(tmp_path, spark, NOW)
    with pytest.raises(RecountRefused, match=f"holds nothing of {PERIOD.name}"):
        counted(tmp_path, spark, first_ms=MONTH_MS - 2_000 * HOUR_MS)
    assert not spark.asked
