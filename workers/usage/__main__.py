"""`python -m workers.usage [--wait-s N]`: what `./penstock report ... --now` runs before it reads the figures.

Closes the open windows, reads them into the live meter, judges the budgets of those that used more, and settles the
hours that are over where Spark is there. Tells what it does on stderr, a line each; one JSON object on stdout: `asked`,
`missing` (empty: all that was acknowledged before `asked` is counted), `settled_hours`, `not_settled` (why). Without a
database it ends with os.EX_UNAVAILABLE and one line on stderr, as `manage.py` does.
"""

from __future__ import annotations

import argparse
import sys

from workers.usage.asked import answer_asked, say


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.usage", description="Usage up to this moment.")
    parser.add_argument("--wait-s", type=float, default=0.0, help="for a round that is under way")
    options = parser.parse_args(arguments)
    return answer_asked(lambda: bring_up_to_now(options.wait_s))


def bring_up_to_now(wait_s: float) -> dict[str, object]:
    from workers.storage import close_storage, storage
    from workers.usage.meter_round import judge_spending, look
    from workers.usage.running import run_round

    say("closing open windows")
    try:
        found = look(storage(), say)
    finally:
        close_storage()
    # What this look has read is no news to the next one of the worker.
    judge_spending(found.accounts, lambda: False)
    done = run_round(say, wait_s, is_asked=True)
    asked = found.as_of.isoformat()
    return {
        "asked": asked, "missing": found.missing, "settled_hours": done.settled_hours, "not_settled": done.why_not,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
