"""From the log to the quantities that are billed, in a running installation: what clients were told, through kills."""

from __future__ import annotations

import pytest

from tests.blackbox.usage import lines, prove
from tests.blackbox.usage_changes import DELETED_QUEUES
from tests.support.installation import RunningInstallation
from tests.support.java import OF_JVMS
from workers.spark_jobs.java import missing_parts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.skipif(bool(missing_parts()), reason="; ".join(missing_parts())),
]
OPERATIONS = 2_000


def test_quantities_of_the_month_are_what_clients_were_told(
    installation: RunningInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in OF_JVMS.items():
        monkeypatch.setenv(name, value)
    proof = prove(installation, OPERATIONS, kills=2)
    told = "\n".join(lines(proof))
    assert proof.kills == 2 and not proof.wrong and not proof.meter_differs, told
    sends = [finding for finding in proof.findings if finding.meter.startswith("sent")]
    assert sum(finding.billed for finding in sends) > 0 and proof.operations >= OPERATIONS * 0.9, told
    gone = [finding for finding in sends if finding.queue.startswith("gone-")]
    assert proof.deleted == DELETED_QUEUES and all(finding.billed for finding in gone), told
