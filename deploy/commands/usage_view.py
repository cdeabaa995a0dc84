"""What the last round of the usage worker said, which is what counts: it may see another Java than this shell."""

from __future__ import annotations

from typing import Any, TypedDict

from deploy.commands.cluster_view import when
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.java import look_for_spark
from deploy.postgres import ask_database
from deploy.state import State

# As `api.billing.work_notes` writes it.
_LAST = "SELECT extract(epoch FROM ended_at), troubled_rounds, trouble FROM work_round WHERE work = 'usage'"
NOT_KNOWN = "what the last round of the usage worker said is not known: the database does not answer"


class UsageRoundNote(TypedDict):
    """`ended_at`: seconds since the epoch; None: no round has ended yet. `trouble`: why nothing was settled."""

    ended_at: float | None
    troubled_rounds: int
    trouble: str


def last_round(installation: Installation, state: State) -> UsageRoundNote | None:
    """None: the database does not answer."""
    return ask_database(installation, state, round_by)


def round_by(cursor: Any) -> UsageRoundNote:
    cursor.execute(_LAST)
    ended_at, troubled_rounds, trouble = cursor.fetchone() or (None, 0, "")
    return {
        "ended_at": None if ended_at is None else float(ended_at),
        "troubled_rounds": troubled_rounds,
        "trouble": trouble,
    }


def round_finding(note: UsageRoundNote) -> str:
    """Of a round that has ended."""
    ended = when(note["ended_at"])
    if not note["trouble"]:
        return f"the last round of the usage worker went well, {ended}"
    times = f", as {note['troubled_rounds'] - 1:,} before it" if note["troubled_rounds"] > 1 else ""
    said = "; ".join(line.strip() for line in note["trouble"].splitlines() if line.strip())
    return f"usage is not settled; the last round of the usage worker, {ended}{times}, said: {said}"


def spark_finding() -> str:
    """Before the first round: what this shell has. Raises CommandError."""
    found = look_for_spark()
    if found.ready:
        return f"Spark is ready, with Java {found.java}"
    return f"Spark is not ready, so no usage is settled: {'; '.join(found.missing)}"


def usage_line(note: UsageRoundNote | None) -> str:
    """For `status`."""
    if note is None:
        return NOT_KNOWN
    if note["ended_at"] is not None:
        return round_finding(note)
    try:
        return f"no round of the usage worker has ended yet; as this shell sees it, {spark_finding()}"
    except CommandError as error:
        return str(error)
