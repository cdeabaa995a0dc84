"""What front ends are asked for, and their shares of it. Pure; the clock is a parameter.

Every front end reports once a second, also that there is nothing to report: so this service knows how many there are.
Only front ends that report to the same service share; an installation runs one.
"""

from __future__ import annotations

from collections.abc import Hashable

from api import limits
from frontend.limits.sharing import divide
from frontend.metadata.messages import AccountUse, UseReport, UseShares


class DemandTable:
    """The latest report of each front end."""

    def __init__(self) -> None:
        self._reports: dict[Hashable, tuple[float, dict[str, tuple[float, float, float]]]] = {}

    def __len__(self) -> int:
        return len(self._reports)

    def report(self, reporter: Hashable, use: UseReport, now_s: float) -> UseShares:
        """The shares of this reporter, of the accounts that it names."""
        asked = {one.account_id: (one.requests, one.messages, one.bytes) for one in use.accounts}
        self._reports[reporter] = (now_s, asked)
        stale_s = now_s - limits.QUOTA_REPORT_STALE_S
        for other in [other for other, (at_s, _) in self._reports.items() if at_s < stale_s]:
            del self._reports[other]
        return UseShares(len(self._reports), [self._shares(reporter, one.account_id) for one in use.accounts])

    def forget(self, reporter: Hashable) -> None:
        self._reports.pop(reporter, None)

    def _shares(self, reporter: Hashable, account_id: str) -> AccountUse:
        nothing = (0.0, 0.0, 0.0)
        place = list(self._reports).index(reporter)
        asked = [report.get(account_id, nothing) for _, report in self._reports.values()]
        requests, messages, size = (divide([one[kind] for one in asked])[place] for kind in range(3))
        total = max(sum(one[kind] for one in asked) for kind in range(3))
        return AccountUse(account_id, requests, messages, size, total)
