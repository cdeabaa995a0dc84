"""Asks whether the cluster that `SPARK_MASTER` names answers.

That is done before Java starts: Spark itself tries for a minute, and says why it gave up in stack traces.
"""

from __future__ import annotations

import socket

from workers.spark_jobs.limits import MASTER_CONNECT_S_MAX

MASTER = "SPARK_MASTER"
NEXT_STEP = (
    f"Start the cluster, or correct {MASTER} (unset, Spark runs on this machine), and run the job again: nothing was"
    " changed. A usage worker tries again by itself."
)
# Spark has no better word for it than that it was stopped.
GAVE_UP = "a master takes connections, but does not answer"
_SCHEME = "spark://"


class MasterAway(Exception):
    """The text says in two lines what does not answer, and what to do next."""


def is_local(master: str) -> bool:
    """Spark runs within this machine's own process."""
    return master.startswith("local")


def require_master(master: str) -> None:
    """One of the masters that a standalone cluster names takes a connection. Other kinds are not looked at, nor what
    is no address: Spark says so itself. Raises MasterAway, within MASTER_CONNECT_S_MAX for each address."""
    if not master.startswith(_SCHEME):
        return
    reasons: list[str] = []
    for place in master.removeprefix(_SCHEME).split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isascii() or not port.isdigit():
            return
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=MASTER_CONNECT_S_MAX):
                return
        except (OSError, OverflowError, UnicodeError) as error:
            reasons.append(f"{place}: {getattr(error, 'strerror', None) or error}")
    raise MasterAway(f"{MASTER}: no master of {master} answers: {'; '.join(reasons)}\n{NEXT_STEP}")


def took_no_job(master: str, reason: str) -> MasterAway:
    return MasterAway(f"{MASTER}: {master} took no job: {reason}\n{NEXT_STEP}")
