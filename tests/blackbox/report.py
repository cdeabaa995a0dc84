"""Outcomes as markdown: one row a run, and under the table everything that is not a count of zero."""

from __future__ import annotations

from collections.abc import Sequence

from tests.blackbox.checkers import percentile
from tests.blackbox.scenarios import Outcome

EXAMPLES = 5
COLUMNS = (
    "scenario",
    "result",
    "cycles",
    "s",
    "acked",
    "lost",
    "unexpected",
    "duplicated",
    "other breaks",
    "unknown, then seen",
    "failover p50 / p99 / worst s (n)",
    "1-s windows with an ack",
)
LOST = ("lost-prefix", "lost-middle", "lost-postfix", "unseen")
UNEXPECTED = ("unexpected", "aborted")


def header() -> list[str]:
    return ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]


def row(outcome: Outcome) -> str:
    verdicts = outcome.verdicts.values()

    def violations(names: Sequence[str]) -> int:
        return sum(len(verdict.violations.get(name, ())) for verdict in verdicts for name in names)

    def count(name: str) -> int:
        return sum(verdict.counts[name] for verdict in verdicts)

    named = (*LOST, *UNEXPECTED, "duplicated")
    others = {name for verdict in verdicts for name in verdict.violations} - set(named)
    cells = [
        outcome.name,
        "passed" if outcome.passed else "FAILED",
        outcome.cycles,
        f"{outcome.seconds:.0f}",
        count("acked"),
        violations(LOST),
        violations(UNEXPECTED),
        count("duplicated"),
        violations(sorted(others)) + len(outcome.findings),
        count("recovered"),
        failover_text(outcome.failovers_s),
        f"{outcome.windows_served} of {outcome.windows}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def failover_text(times_s: Sequence[float]) -> str:
    if not times_s:
        return "-"
    ranks = [percentile(times_s, 0.5), percentile(times_s, 0.99), max(times_s)]
    return " / ".join(f"{rank:.2f}" for rank in ranks) + f" ({len(times_s)})"


def not_run_row(name: str, reason: str) -> str:
    return f"| {name} | not run: {reason} |" + " - |" * (len(COLUMNS) - 2)


def details(outcome: Outcome) -> list[str]:
    """Lines under the table; none where there is nothing to say."""
    lines = [f"- {outcome.name} (seed {outcome.seed}): {text}: {number}" for text, number in outcome.notes.items()]
    if outcome.failure:
        lines.append(f"- {outcome.name} (seed {outcome.seed}): ended early: {outcome.failure}")
    found = {"": outcome.findings} if outcome.findings else {}
    for kind, verdict in outcome.verdicts.items():
        found |= {f"{kind} {name}": items for name, items in verdict.violations.items() if items}
        if not verdict.complete and not outcome.failure:
            lines.append(f"- {outcome.name} (seed {outcome.seed}): {kind} was not drained")
    for name, items in found.items():
        shown = "; ".join(items[:EXAMPLES])
        lines.append(f"- {outcome.name} (seed {outcome.seed}): {name} ({len(items)}): {shown}")
    return lines
