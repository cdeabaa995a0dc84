"""What the control plane asks of the usage pipeline. Closing open metering windows is not possible yet: the answer says
so, and from which hour on usage is missing."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from api.billing.pricing.periods import Interval

NOT_ANSWERING = (
    "Open metering windows cannot be closed from here yet: usage is complete up to `settled_up_to`; what was counted "
    "since is missing."
)


class NowAnswer(NamedTuple):
    """`complete`: everything acknowledged before the call is in. Else `missing_from` to the end is not, and why."""

    complete: bool
    missing_from: datetime | None
    reason: str


def settle_now(interval: Interval, settled: datetime | None, now: datetime) -> NowAnswer:
    """Asks that usage up to this moment is settled. A period that is settled whole is complete without that."""
    if settled is not None and settled >= interval.end:
        return NowAnswer(True, None, "")
    begins = interval.start if settled is None else max(interval.start, settled)
    if begins >= now:
        return NowAnswer(True, None, "")
    return NowAnswer(False, begins, NOT_ANSWERING)
