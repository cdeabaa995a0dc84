"""A job that is done ends well while the worker that started it lives."""

from __future__ import annotations

import os
import subprocess
import sys

from deploy.installation import ROOT
from workers.spark_jobs.jobs.owned import OWNED

JOB = "import time; from workers.spark_jobs.jobs.owned import end_with_owner; end_with_owner(); time.sleep(0.2)"
ENDS_S_MAX = 30


def test_job_that_is_done_ends_well_while_its_owner_lives() -> None:
    environment = {**os.environ, OWNED: "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", JOB]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, cwd=ROOT, start_new_session=True) as job:
        assert job.wait(ENDS_S_MAX) == 0
