"""Who was refused, and why: counted by reason, and told in the log, but not so often that a flood fills it."""

from __future__ import annotations

import time

import structlog
from prometheus_client import Counter

from storage_nodes.limits import REFUSALS_TOLD_PER_S_MAX

NOT_TLS, HANDSHAKE, DEADLINE, CROWDED = "not_tls", "handshake", "deadline", "crowded"
CLUSTER, NAME, MODE, ROLE, NODE, LEVEL = "cluster", "name", "mode", "role", "node", "level"
REASONS = (NOT_TLS, HANDSHAKE, DEADLINE, CROWDED, CLUSTER, NAME, MODE, ROLE, NODE, LEVEL)

REFUSED = Counter("penstock_inner_connections_refused", "Connections of other processes that were refused", ["reason"])
OPERATIONS_REFUSED = Counter("penstock_inner_operations_refused", "Calls that the caller's role may not make", ["role"])
# All from the start: a series that is not there until it counts for the first time is no use to an alarm.
_COUNTS = {reason: REFUSED.labels(reason) for reason in REASONS}

_log = structlog.get_logger()


class _Gate:
    """So many lines in a second; the next one says how many were left out."""

    def __init__(self) -> None:
        self._second = 0
        self._told = self._left_out = 0

    def passes(self, now_s: float) -> int | None:
        """How many were left out before this one; None: it is left out."""
        if int(now_s) != self._second:
            self._second, self._told = int(now_s), 0
        if self._told >= REFUSALS_TOLD_PER_S_MAX:
            self._left_out += 1
            return None
        self._told += 1
        left_out, self._left_out = self._left_out, 0
        return left_out


_gate = _Gate()


def connection_refused(reason: str, text: str, source: str, name: object = "") -> None:
    """`reason` is one of REASONS; `name` is what a good certificate said, "" where there was none."""
    _COUNTS[reason].inc()
    left_out = _gate.passes(time.monotonic())
    if left_out is not None:
        _log.warning(
            "refusing a connection", reason=reason, text=text, source=source, name=str(name), left_out=left_out
        )


def operation_refused(operation: str, source: str, name: object, role: str) -> None:
    OPERATIONS_REFUSED.labels(role).inc()
    left_out = _gate.passes(time.monotonic())
    if left_out is not None:
        _log.warning("refusing a call", operation=operation, source=source, name=str(name), left_out=left_out)
