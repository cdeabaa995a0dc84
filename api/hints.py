"""Hints to the workers: "look at this row". A hint may be lost: workers find the row by themselves a moment later.

A request never waits for the broker. It leaves its hint with a thread of this process, which talks to the broker and
gives up quickly; while the broker is away, hints are dropped. The control plane knows the tasks by name only: messages
go straight through kombu in Celery's message protocol, which keeps Celery itself out of this process.
"""

from __future__ import annotations

import enum
import queue
import random
import threading
import time
import uuid

import structlog
from kombu import Connection, Exchange, Producer
from kombu import Queue as BrokerQueue

from api import limits
from api.settings.environment import environment

LIFECYCLE_QUEUE, MOVES_QUEUE = "lifecycle", "moves"
_log = structlog.get_logger(__name__)


class Hint(enum.StrEnum):
    """Names of tasks in `workers/tasks.py`."""

    PROVISION_QUEUE = "workers.lifecycle.provision_queue"
    CONFIGURE_QUEUE = "workers.lifecycle.configure_queue"
    DELETE_QUEUE = "workers.lifecycle.delete_queue"
    MOVE_MESSAGES = "workers.moves.move_messages"


class HintSender:
    """A bounded queue of hints, and the thread that publishes them. The thread starts with the first hint."""

    def __init__(self, broker_url: str) -> None:
        self._broker_url = broker_url
        self._waiting: queue.Queue[tuple[Hint, int]] = queue.Queue(limits.HINTS_WAITING_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._producer: Producer | None = None
        self._pause_ms = 0
        self._silent_until_s = 0.0

    def send(self, hint: Hint, row_id: int) -> bool:
        """False: it was dropped. Never raises, never waits."""
        if time.monotonic() < self._silent_until_s:
            return False
        self._start_once()
        try:
            self._waiting.put_nowait((hint, row_id))
        except queue.Full:
            return False
        return True

    def _start_once(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._publish_forever, name="hints", daemon=True)
                self._thread.start()

    def _publish_forever(self) -> None:
        while True:
            self.publish(*self._waiting.get())

    def publish(self, hint: Hint, row_id: int) -> bool:
        """On the thread. False: the broker did not take it, and is left alone for a while."""
        if time.monotonic() < self._silent_until_s:
            return False
        try:
            if self._producer is None:
                self._producer = _connect(self._broker_url)
            _publish(self._producer, hint, row_id)
        except Exception as error:  # whatever the broker's client raises: the hint is optional
            self._drop()
            if not self._pause_ms:
                _log.warning("broker_away", error=type(error).__name__)
            self._pause_ms = min(max(self._pause_ms * 2, limits.HINT_PAUSE_MS_MIN), limits.HINT_PAUSE_MS_MAX)
            self._silent_until_s = time.monotonic() + self._pause_ms * random.uniform(0.5, 1.0) / 1000
            return False
        if self._pause_ms:
            _log.info("broker_back")
            self._pause_ms = 0
        return True

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.connection.release()
            except Exception as error:
                _log.debug("broker_connection_close_failed", error=type(error).__name__)


_lock = threading.Lock()
_sender: HintSender | None = None


def send_hint(hint: Hint, row_id: int) -> bool:
    """Call after the commit of the row. Never raises, never waits. False: the workers find the row without it."""
    global _sender
    broker_url = environment().celery_broker_url
    if not broker_url:
        return False
    with _lock:
        if _sender is None:
            _sender = HintSender(broker_url)
        sender = _sender
    return sender.send(hint, row_id)


def _publish(producer: Producer, hint: Hint, row_id: int) -> None:
    task_id = str(uuid.uuid4())
    broker_queue = MOVES_QUEUE if hint is Hint.MOVE_MESSAGES else LIFECYCLE_QUEUE
    producer.publish(
        ([row_id], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}),
        routing_key=broker_queue,
        exchange=Exchange(broker_queue, type="direct"),
        headers={"lang": "py", "task": hint.value, "id": task_id, "root_id": task_id, "parent_id": None, "group": None},
        correlation_id=task_id,
        serializer="json",
        retry=False,
    )


def _connect(broker_url: str) -> Producer:
    timeout_s = limits.HINT_TIMEOUT_MS / 1000
    connection = Connection(
        broker_url,
        connect_timeout=timeout_s,
        transport_options={"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s},
    )
    # Without this kombu waits two seconds and tries again.
    connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, interval_max=0)
    channel = connection.channel()
    for name in (LIFECYCLE_QUEUE, MOVES_QUEUE):
        BrokerQueue(name, Exchange(name, type="direct"), name)(channel).declare()
    return Producer(channel)
