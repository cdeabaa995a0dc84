"""Logs of this process: one JSON object a line on stderr, also for what libraries log.

Exceptions are written without the values of variables: those hold bodies and secrets.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog


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
