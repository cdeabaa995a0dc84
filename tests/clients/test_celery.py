"""Celery on an installation: tasks, countdown and ETA, retry, a worker killed with kill -9.

The rest of the checks, and the query protocol, are run by `python -m tests.clients celery celery-query`.
"""

from __future__ import annotations

import sys

import pytest

from tests.clients.__main__ import client_environment
from tests.clients.outcome import run_program
from tests.support.installation import ROOT, RunningInstallation

pytestmark = pytest.mark.slow

TIMEOUT_S = 240


def test_celery_short_run_passes(installation: RunningInstallation) -> None:
    command = [sys.executable, "-m", "tests.clients.programs.celery_runs", "--short"]
    outcome = run_program("Celery", command, client_environment(installation), ROOT, TIMEOUT_S)
    assert outcome.passed, "\n".join(f"{failed.title}\n{failed.detail}" for failed in outcome.failures)
