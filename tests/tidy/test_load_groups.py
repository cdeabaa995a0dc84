"""How the suite is shared by workers: the table of groups is true, and what runs beside what."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.failures import failure_line
from tests.support.load_groups import DATABASE, GROUPS, LONG_FILES, check_groups, fixtures_of, group_of, is_heavy
from tests.support.scheduler import next_group
from tests.tidy.repository import files

NODES, SPARK = "storage-nodes", "spark"


def test_every_prefix_and_long_file_is_there() -> None:
    named = [prefix for group in GROUPS for prefix in group.prefixes] + list(LONG_FILES)
    gone = [prefix for prefix in named if not any(name.startswith(prefix) for name in files())]
    assert not gone, f"take them out of tests/support/load_groups.py: {gone}"


def test_longest_prefix_names_the_group_and_other_files_are_their_own() -> None:
    assert group_of("tests/workers/test_cron.py::test_x[a@b]") == "database"
    assert group_of("tests/workers/spark_jobs/test_rollups.py::test_x") == SPARK
    assert group_of("tests/frontend/test_rest.py::test_x[::]") == "tests/frontend/test_rest.py"
    assert is_heavy(SPARK) and not is_heavy("database") and not is_heavy("tests/frontend/test_rest.py")


def test_heavy_groups_begin_first_and_not_beside_each_other() -> None:
    waiting = ["tests/a.py", SPARK, "database", "tests/tidy/test_tools.py", NODES]
    assert next_group(waiting, heavy_company=False) == NODES
    assert next_group(waiting, heavy_company=True) == "database"
    assert next_group(["tests/a.py", SPARK, "tests/tidy/test_tools.py"], heavy_company=True) == LONG_FILES[0]
    assert next_group(["tests/b.py", "tests/a.py"], heavy_company=False) == "tests/b.py", "as they were collected"
    assert next_group([SPARK, NODES], heavy_company=True) == NODES, "nothing light is left"


def test_shared_fixture_outside_of_its_group_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.load_groups.fixtures_of", lambda item: {DATABASE, "tests.x.other"})
    check_groups([SimpleNamespace(nodeid="tests/api/test_x.py::test_y")])  # type: ignore[list-item]
    with pytest.raises(pytest.UsageError, match="load_groups"):
        check_groups([SimpleNamespace(nodeid="tests/frontend/test_x.py::test_y")])  # type: ignore[list-item]


def test_fixtures_are_told_apart_by_their_modules(request: pytest.FixtureRequest, tmp_path: object) -> None:
    assert "_pytest.tmpdir.tmp_path" in fixtures_of(request.node)


def test_failure_is_told_in_one_line() -> None:
    crash = SimpleNamespace(message="AssertionError: one\nassert 1 == 2")
    report: Any = SimpleNamespace(
        nodeid="tests/x.py::test_y", when="setup", longrepr=SimpleNamespace(reprcrash=crash), longreprtext=""
    )
    assert failure_line(report) == "FAILED tests/x.py::test_y (setup) - AssertionError: one"
    report = SimpleNamespace(nodeid="tests/x.py::test_y", when="call", longrepr="torn", longreprtext="torn")
    assert failure_line(report) == "FAILED tests/x.py::test_y - torn"
