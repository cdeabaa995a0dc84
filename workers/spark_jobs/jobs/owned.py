"""A job that a worker started ends with that worker, however the worker ends: its standard input is closed then."""

from __future__ import annotations

import os
import signal
import sys
import threading

OWNED = "PENSTOCK_JOB_OWNED"


def end_with_owner() -> None:
    """Watches standard input from now on, where a worker asked for it."""
    if os.environ.pop(OWNED, ""):
        threading.Thread(target=_watch, name="owner-watch", daemon=True).start()


def _watch() -> None:
    while sys.stdin.buffer.read(1):
        pass
    # The session's: the JVM and its Python workers belong to the same one.
    os.killpg(os.getpgrp(), signal.SIGTERM)
