"""Hints to the workers: "look at this row". Losing one costs seconds, because the reconcile tick sends it again.

The control plane knows the tasks by name only: it imports nothing of the workers. Messages go straight through kombu in
Celery's message protocol, which keeps Celery itself out of this process.
"""

from __future__ import annotations

import enum
import threading
import time
import uuid

import structlog
from kombu import Connection, Exchange, Producer
from kombu import Queue as BrokerQueue

from api import limits
from api.settings.environment import environment

LIFECYCLE_QUEUE = "lifecycle"
_log = structlog.get_logger(__name__)
_lock = threading.Lock()
_producer: Producer | None = None
_silent_until_s = 0.0


class Hint(enum.StrEnum):
    """Names of tasks in `workers/lifecycle/tasks.py` and `workers/moves/tasks.py`."""

    PROVISION_QUEUE = "workers.lifecycle.provision_queue"
    CONFIGURE_QUEUE = "workers.lifecycle.configure_queue"
    DELETE_QUEUE = "workers.lifecycle.delete_queue"
    MOVE_MESSAGES = "workers.moves.move_messages"


def send_hint(hint: Hint, row_id: int) -> bool:
    """Never raises: the wish is in the database already."""
    global _producer, _silent_until_s
    with _lock:
        if time.monotonic() < _silent_until_s:
            return False
        try:
            if _producer is None:
                _producer = _connect()
            _publish(_producer, hint, row_id)
        except Exception as error:  # whatever the broker's client raises: the hint is optional
            _log.warning("hint_not_sent", hint=hint.value, row_id=row_id, error=type(error).__name__)
            _drop()
            # A broker that does not answer must not slow every request down by a time-out.
            _silent_until_s = time.monotonic() + limits.HINT_PAUSE_MS / 1000
            return False
    return True


def _publish(producer: Producer, hint: Hint, row_id: int) -> None:
    task_id = str(uuid.uuid4())
    producer.publish(
        ([row_id], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}),
        routing_key=LIFECYCLE_QUEUE,
        exchange=Exchange(LIFECYCLE_QUEUE, type="direct"),
        headers={"lang": "py", "task": hint.value, "id": task_id, "root_id": task_id, "parent_id": None, "group": None},
        correlation_id=task_id,
        serializer="json",
        retry=False,
    )


def _connect() -> Producer:
    timeout_s = limits.HINT_TIMEOUT_MS / 1000
    connection = Connection(
        environment().celery_broker_url,
        connect_timeout=timeout_s,
        transport_options={"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s},
    )
    # Without this kombu waits two seconds and tries again: a request is waiting.
    connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, interval_max=0)
    channel = connection.channel()
    BrokerQueue(LIFECYCLE_QUEUE, Exchange(LIFECYCLE_QUEUE, type="direct"), LIFECYCLE_QUEUE)(channel).declare()
    return Producer(channel)


def _drop() -> None:
    global _producer
    producer, _producer = _producer, None
    if producer is not None:
        try:
            producer.connection.release()
        except Exception as error:
            _log.debug("broker_connection_close_failed", error=type(error).__name__)
