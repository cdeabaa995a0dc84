"""`python -m workers.usage.recount --period 2026-11 [--account NAME] [--wait-s N]`: what `./penstock billing recount`
runs. A month that is over is counted again from the lake, and compared with its issued invoices, to the cent.

Nothing is changed: no figure, invoice or note. Tells what it does on stderr, a line each; one JSON object on stdout.
Ends with 1 and a line on stderr where nothing could be counted. No round of usage runs meanwhile.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django.core.management import CommandError

from workers.usage.asked import answer_asked, say

if TYPE_CHECKING:
    from api.billing.pricing.periods import BillingPeriod
    from api.billing.recounting import MonthRecount
    from workers.spark_jobs.lake.manifest import Lake
    from workers.usage.rounds import JobRunner


class RecountRefused(Exception):
    """The text says why nothing was counted."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.usage.recount", description="A closed month again.")
    parser.add_argument("--period", required=True, metavar="YYYY-MM")
    parser.add_argument("--account", default="", metavar="NAME", help="name or id (default: all)")
    parser.add_argument("--wait-s", type=float, default=0.0, help="for a round that is under way")
    options = parser.parse_args(arguments)
    try:
        return answer_asked(lambda: recount(options.period, options.account, options.wait_s))
    except (RecountRefused, CommandError) as error:
        # A line as those of the log, which is no step.
        say(json.dumps({"refused": str(error)}, ensure_ascii=False))
        return 1


def recount(period_name: str, account_name: str, wait_s: float) -> dict[str, Any]:
    """Raises RecountRefused, or CommandError for an account that is not there."""
    from api.accounts.selectors import account_named
    from api.billing.pricing.periods import parse_period
    from api.billing.settling import SettlingError
    from api.settings.environment import environment
    from workers.spark_jobs.lake.manifest import Lake, LakeError
    from workers.usage.jobs import ClaimLost, JobFailed
    from workers.usage.running import BUSY, NO_LAKE, missing_for_rounds, round_claim, told_job
    from workers.usage.settling import SettlementError

    try:
        period = parse_period(period_name)
    except ValueError as error:
        raise RecountRefused(str(error)) from None
    account_id = account_named(account_name).pk if account_name else None
    why_not = NO_LAKE if not environment().usage_lake else missing_for_rounds()
    if why_not:
        raise RecountRefused(why_not)
    try:
        with round_claim(say, wait_s) as holds_claim:
            if holds_claim is None:
                raise RecountRefused(BUSY)
            return count_again(Lake(Path(environment().usage_lake)), period, account_id, told_job(say), holds_claim)
    except (JobFailed, ClaimLost, SettlementError, SettlingError, LakeError, OSError) as error:
        raise RecountRefused(str(error)) from None


def count_again(
    lake: Lake, period: BillingPeriod, account_id: str | None, run_job: JobRunner, holds_claim: Callable[[], bool]
) -> dict[str, Any]:
    """Raises RecountRefused, and what a job and a merge raise."""
    from api import clock
    from api.billing.recounting import recount_month
    from workers import limits
    from workers.spark_jobs.limits import HOUR_MS
    from workers.usage.lake_losses import may_have_lost
    from workers.usage.settling import files_of

    if period.end > clock.now():
        raise RecountRefused(f"{period.name} is not over")
    from_ms, to_ms = (int(at.timestamp()) * 1000 for at in period)
    entries = lake.entries()
    spans = [hours for entry in entries if (hours := entry.hours()) is not None]
    if not any(first < to_ms and last + HOUR_MS > from_ms for first, last in spans):
        raise RecountRefused(f"the lake {lake.root} holds nothing of {period.name}")
    span = ["--from", str(from_ms), "--to", str(to_ms), "--run", str(uuid4())]
    answer = run_job("settle", ["--lake", str(lake.root), *span], holds_claim, limits.USAGE_JOB_S_MAX)
    directory = Path(answer["directory"])
    left_out = [one["path"] for one in answer.get("refused_files", ())]
    is_partial = bool(left_out) or may_have_lost(lake, entries, from_ms)
    say("comparing with the invoices")
    try:
        found = recount_month(period, files_of(directory), is_partial, account_id)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return {**told(period, found), "is_partial": is_partial, "left_out": left_out}


def told(period: BillingPeriod, found: MonthRecount) -> dict[str, Any]:
    """`note`: which one would correct a difference; None is made."""
    from api.billing.pricing.money import format_minor

    differences = [
        {
            "account_id": one.invoice.account_id,
            "account": one.invoice.account.name,
            "invoice": one.invoice.number,
            "currency": one.invoice.currency,
            "billed_minor": one.billed_minor,
            "billed": format_minor(one.billed_minor, one.invoice.currency),
            "charges_minor": one.charges_minor,
            "tax_minor": one.tax_minor,
            "total_minor": one.total_minor,
            "total": format_minor(one.total_minor, one.invoice.currency),
            "note": "debit" if one.charges_minor > 0 or one.tax_minor > 0 else "credit",
            "is_settled": one.is_settled,
        }
        for one in found.differences
    ]
    not_invoiced = [
        {
            "account_id": one.account.pk,
            "account": one.account.name,
            "currency": one.currency,
            "total_minor": one.total_minor,
            "total": format_minor(one.total_minor, one.currency),
        }
        for one in found.not_invoiced
    ]
    return {
        "period": period.name, "invoices": found.invoices, "equal": found.is_equal, "differences": differences,
        "not_invoiced": not_invoiced, "hours": found.run._asdict(),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
