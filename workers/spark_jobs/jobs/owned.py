"""A job that a worker started ends with that worker, however the worker ends: its standard input is closed then."""

from __future__ import annotations

import os
import signal
import threading

OWNED = "PENSTOCK_JOB_OWNED"
_STDIN = 0


def end_with_owner() -> None:
    """Watches standard input from now on, where a worker asked for it."""
    if os.environ.pop(OWNED, ""):
        threading.Thread(target=_watch, name="owner-watch", daemon=True).start()


def _watch() -> None:
    # Not through sys.stdin: an interpreter that ends while a thread waits in its buffer aborts (-6), done or not.
    while os.read(_STDIN, 1):
        pass
    # The session's: the JVM and its Python workers belong to the same one.
    os.killpg(os.getpgrp(), signal.SIGTERM)
