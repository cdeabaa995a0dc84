"""Tests that read logs see them, whichever configuration a worker's earlier tests have used."""

from __future__ import annotations

import structlog
from structlog.testing import capture_logs


def test_logger_that_was_used_under_one_configuration_is_captured_under_the_next() -> None:
    log = structlog.get_logger()
    log.info("under what the settings of Django configured")
    structlog.reset_defaults()
    with capture_logs() as lines:
        log.info("under the defaults")
    assert [line["event"] for line in lines] == ["under the defaults"]
