"""What is done after the answer: mail, and all work that depends on whether an address is known.

A caller leaves an errand and answers at once, so that neither the answer nor its time tells what the errand finds. One
thread does them in order. An errand that fails is logged and not repeated, and those that wait are lost with the
process: what they do can always be asked for again. Where too many wait, the caller is refused.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import structlog
from django.db import connections

from api.people import limits
from api.people.errors import PeopleError

_log = structlog.get_logger(__name__)


class Errands:
    """A bounded queue of calls, and the thread that makes them. The thread starts with the first one."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue(limits.ERRANDS_WAITING_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def leave(self, errand: Callable[[], None]) -> None:
        """Never waits. Raises PeopleError where too many wait."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_forever, name="errands", daemon=True)
                self._thread.start()
        try:
            self._waiting.put_nowait(errand)
        except queue.Full:
            raise PeopleError("service-busy", "Too much waits to be done. Try again.", retry_after_s=5) from None

    def join(self) -> None:
        """Returns when all that was left is done."""
        self._waiting.join()

    def _run_forever(self) -> None:
        while True:
            errand = self._waiting.get()
            try:
                errand()
            except Exception as error:
                # No traceback: it might show an address or a token.
                _log.error("errand_failed", error=type(error).__name__)
            finally:
                connections.close_all()
                self._waiting.task_done()


_errands = Errands()


def leave(errand: Callable[[], None]) -> None:
    _errands.leave(errand)
