"""Logs of a storage node name nodes as people do."""

from __future__ import annotations

import json

import pytest
import structlog

from storage_nodes.ids import make_node_id
from storage_nodes.telemetry import configure_logging


def test_lines_name_nodes_and_leave_other_numbers_alone(capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    try:
        configure_logging("node-7.1", "info")
        one, two = make_node_id(7, 1), make_node_id(7, 2)
        log = structlog.get_logger().bind()
        log.info("x", leader=one, voters=(one, two), learners=[], partition=one, peer="7.9")
    finally:
        structlog.configure(**before)
        structlog.contextvars.clear_contextvars()
    line = json.loads(capsys.readouterr().err)
    assert (line["leader"], line["voters"], line["learners"]) == ("7.1", ["7.1", "7.2"], [])
    assert line["partition"] == one and line["peer"] == "7.9"
