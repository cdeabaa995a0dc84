"""Logs and metrics of a storage node: one JSON object a line on stderr, Prometheus on an operators' port."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog
from prometheus_client import start_http_server

from storage_nodes.config import split_listen
from storage_nodes.ids import node_name

# What lines call a node by its id.
_NODE_KEYS = frozenset(("node", "peer", "leader", "sender", "target", "voters", "learners"))
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure_logging(process: str, level: str) -> None:
    """JSON lines with `ts`, `level`, `event`, `process`. Unknown levels count as info."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _with_node_names,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS.get(level, logging.INFO)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)


def _with_node_names(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Nodes as people name them, as in metrics and in names of logs."""
    for key in _NODE_KEYS & event.keys():
        value = event[key]
        if isinstance(value, int):
            event[key] = node_name(value)
        elif isinstance(value, list | tuple):
            event[key] = [node_name(one) for one in value]
    return event


def serve_metrics(listen: str) -> None:
    """Prometheus on `host:port`; an empty setting serves none."""
    if listen:
        host, port = split_listen(listen)
        start_http_server(port, host)
