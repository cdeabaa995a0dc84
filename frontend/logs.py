"""Logs of this process: one JSON object a line on stderr, also for what libraries log.

Exceptions are written without the values of variables: those hold bodies and secrets.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

import structlog

from frontend.flood_log import FloodGate

SERVER_LOG = "uvicorn.error"


def configure_logging(level: str) -> None:
    structlog.configure(**structlog_settings(level, sys.stderr))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processor=structlog.processors.JSONRenderer(), foreign_pre_chain=_processors()
        )
    )
    # Libraries say what a caller did wrong at every turn (an invalid request is a warning to uvicorn).
    logging.basicConfig(handlers=[handler], level=max(_threshold(level), logging.ERROR), force=True)
    server_log = logging.getLogger(SERVER_LOG)
    server_log.filters = [FloodFilter()]


def structlog_settings(level: str, stream: TextIO) -> dict[str, Any]:
    """Arguments for `structlog.configure`."""
    return {
        "processors": [
            structlog.contextvars.merge_contextvars,
            *_processors(),
            structlog.processors.JSONRenderer(),
        ],
        "wrapper_class": structlog.make_filtering_bound_logger(_threshold(level)),
        "logger_factory": structlog.PrintLoggerFactory(stream),
        "cache_logger_on_first_use": True,
    }


def _processors() -> list[structlog.typing.Processor]:
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        _add_process,
        structlog.processors.format_exc_info,
    ]


def _add_process(logger: object, name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    event["process"] = "frontend"
    return event


def _threshold(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


class FloodFilter(logging.Filter):
    """What uvicorn says of its clients, with a trace at times, anyone who can connect may cause: of each kind one line
    in FLOOD_TOLD_EVERY_S at most, which says how many were left out before it."""

    def __init__(self, steady_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._steady_s = steady_s
        self._gates: dict[str, FloodGate] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = str(record.msg)  # a text of uvicorn's code, without what goes into it
        left_out = self._gates.setdefault(kind, FloodGate()).passes(self._steady_s())
        if left_out is None:
            return False
        if left_out:
            record.msg = f"{kind.rstrip()} (left out before: {left_out})"
        return True
