"""While a seed runs, nothing may ask the machine for time, chance or threads: the run would not be the same again."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import structlog
from prometheus_client import Counter, Gauge
from prometheus_client import metrics as prometheus_metrics
from prometheus_client.metrics import MetricWrapperBase

FORBIDDEN: list[tuple[Any, str]] = [
    (time, "time"), (time, "time_ns"), (time, "monotonic"), (time, "monotonic_ns"), (time, "perf_counter"),
    (time, "sleep"), (os, "urandom"), (os, "open"), (uuid, "uuid4"), (random, "random"), (random, "randrange"),
    (random, "choice"), (threading.Thread, "start"),
]  # fmt: skip


class NotDeterministic(AssertionError):
    """Something in the run asked the machine."""


@contextmanager
def guarded() -> Iterator[None]:
    with ExitStack() as stack:
        for module, name in FORBIDDEN:
            stack.enter_context(mock.patch.object(module, name, _refusal(name)))
        # A metric notes when a label of it was first used; nothing of the run reads that, nor what was counted.
        stack.enter_context(mock.patch.object(prometheus_metrics, "time", SimpleNamespace(time=lambda: 0.0)))
        stack.enter_context(mock.patch.object(MetricWrapperBase, "labels", _labels))
        stack.enter_context(mock.patch.object(Gauge, "set", _set))
        stack.enter_context(mock.patch.object(Counter, "inc", _inc))
        # asyncio's set of all tasks has the order of their addresses: nobody may ask for it, so it stays empty.
        all_tasks: Any = vars(asyncio.tasks)["_all_tasks"]
        stack.enter_context(mock.patch.object(all_tasks, "add", lambda task: None))
        stack.enter_context(mock.patch.object(asyncio, "all_tasks", _refusal("all_tasks")))
        before = structlog.get_config()
        quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
        structlog.configure(processors=[_drop], wrapper_class=quiet, cache_logger_on_first_use=False)
        stack.callback(lambda: structlog.configure(**before))
        yield


# Why nodes said they stopped something, newest last; the oracle quotes it.
complaints: deque[str] = deque(maxlen=10)


# What the code under test says of an error while it goes on must not hide that the simulation found something.
NEVER_CONTAINED: list[type[BaseException]] = [NotDeterministic]


def _drop(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> NoReturn:
    error = sys.exc_info()[1]
    if error is not None and isinstance(error, tuple(NEVER_CONTAINED)):
        raise error
    complaints.append(f"{event.get('event')} {sys.exc_info()[1]!r}")
    raise structlog.DropEvent


_real_labels = MetricWrapperBase.labels
_labelled: dict[tuple[MetricWrapperBase, tuple[object, ...]], MetricWrapperBase] = {}


def _labels(self: MetricWrapperBase, *values: object) -> MetricWrapperBase:
    """Nothing is counted: a metric refuses what the real one refuses, and that is all."""
    found = _labelled.get((self, values))
    if found is None:
        found = _labelled[self, values] = _real_labels(self, *values)
    return found


def _set(self: Gauge, value: float) -> None:
    if self._labelnames and not self._labelvalues:
        self._raise_if_not_observable()
    float(value)


def _inc(self: Counter, amount: float = 1) -> None:
    if self._labelnames and not self._labelvalues:
        self._raise_if_not_observable()
    if amount < 0:
        raise ValueError("a counter only grows")


def _refusal(name: str) -> Any:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotDeterministic(f"{name} was called during a simulated run")

    return refuse
