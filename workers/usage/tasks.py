"""The task of a usage round. Outside late acknowledgements: a round takes minutes, the broker's visibility is 60 s.

What lets one worker work is a claim in the database that is renewed while a job runs (`ScheduleLock`), not the message:
a message that is lost, doubled or late costs nothing, the next round does what is due.
"""

from __future__ import annotations

import structlog

from workers.application import app

_log = structlog.get_logger(__name__)
_told = ""


def _tell_once(why_not: str) -> None:
    """A reason that stays is a line of the log, and not one every five minutes."""
    global _told
    if why_not and why_not != _told:
        _log.warning("usage_not_settled", why=why_not)
    _told = why_not


@app.task(name="workers.usage.settle_usage", acks_late=False, reject_on_worker_lost=False)
def settle_usage() -> None:
    from django.db import close_old_connections

    from workers.billing.noted import noted_round
    from workers.usage.running import BUSY, run_round

    why_not = ""

    def work() -> int:
        nonlocal why_not
        done = run_round()
        why_not = "" if done.why_not == BUSY else done.why_not
        return done.settled_hours

    try:
        noted_round("usage", work, lambda: why_not)
        _tell_once(why_not)
    finally:
        close_old_connections()
