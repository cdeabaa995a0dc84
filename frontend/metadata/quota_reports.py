"""What accounts asked this front end for goes to the metadata service once a second; shares of their rates come back.
So it does for keys and queues with rates of their own.

Without an answer the shares stay as they are. `note` tells of an account, key or queue that comes near a
quota, or over it, counting all front ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import structlog

from frontend.limits import (
    QUOTA_NOTED_EVERY_S,
    QUOTA_REPORT_S,
    QUOTA_REPORTED_ACCOUNTS_MAX,
    QUOTA_REPORTED_FROM,
    QUOTA_SINGLE_NOTES_MAX,
    RATE_BUCKETS_MAX,
)
from frontend.limits.quota_tree import AccountShare, AskedFor, LimitsOf, QuotaTree
from frontend.limits.quotas import SOFT_LEVEL_PERCENT, Rates
from frontend.metadata.interface import MetadataUnavailable
from frontend.metadata.messages import AccountUse, UseReport, UseShares

Report = Callable[[UseReport], Awaitable[UseShares]]
# The account, the quota, the level and the per cent of it, and whose it is: `queue:NAME`, `key:ID`, "" of the account.
Note = Callable[[str, str, str, int, str], Awaitable[None]]

_log = structlog.get_logger("frontend.quotas")


class HolderUse(NamedTuple):
    """What an account, or a key or queue of it, was asked for. `prefix` is that of the names of its quotas."""

    use: AccountUse
    account_id: str
    prefix: str
    subject: str


class QuotaReporter:
    """Run beside the server; `step` is one report."""

    def __init__(
        self, tree: QuotaTree, limits_of: LimitsOf, report: Report, note: Note, now_s: Callable[[], float]
    ) -> None:
        self._tree = tree
        self._limits_of = limits_of
        self._report = report
        self._note = note
        self._now_s = now_s
        self._reported_at_s = now_s()
        self._noted_at_s: dict[tuple[str, str, str, str], float] = {}
        self._telling: asyncio.Task[None] | None = None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(QUOTA_REPORT_S)
            try:
                await self.step()
            except Exception:  # our own bug: shares stay as they are, and requests go on
                _log.exception("quota_report_failed")

    async def step(self) -> None:
        now_s = self._now_s()
        elapsed_s = max(now_s - self._reported_at_s, QUOTA_REPORT_S / 2)
        self._reported_at_s = now_s
        used = self._busiest(elapsed_s)
        try:
            answer = await self._report(UseReport([one.use for one in used]))
        except MetadataUnavailable:
            return
        shares = {one.account_id: AccountShare(one.requests, one.messages, one.bytes) for one in answer.shares}
        self._tree.share_out(answer.front_ends, shares)
        near = [
            (one, share.total)
            for one, share in zip(used, answer.shares, strict=True)
            if share.total * 100 >= SOFT_LEVEL_PERCENT
        ]
        # Beside the reports: a front end whose reports wait for the audit trail would lose its shares.
        if near and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell_all(near, now_s), name="quota-notes")

    def _busiest(self, elapsed_s: float) -> list[HolderUse]:
        found = []
        for holder, asked in self._tree.take_asked().items():
            rates = asked.rates or self._limits_of(holder).account
            use = use_of(holder, asked, rates, elapsed_s)
            if use.total >= QUOTA_REPORTED_FROM:
                found.append(_holder(use, asked))
        found.sort(key=lambda one: one.use.total, reverse=True)
        return found[:QUOTA_REPORTED_ACCOUNTS_MAX]

    async def _tell_all(self, near: Sequence[tuple[HolderUse, float]], now_s: float) -> None:
        """Accounts first, and a few queues and keys of each: those of one do not stand in front of another."""
        told: Counter[str] = Counter()
        for one, total in sorted(near, key=lambda found: found[0].subject != ""):
            if told[one.account_id] < QUOTA_SINGLE_NOTES_MAX:
                told[one.account_id] += await self._tell(one, total, now_s) and one.subject != ""

    async def _tell(self, one: HolderUse, total: float, now_s: float) -> bool:
        """False: it was told a while ago."""
        use, account_id = one.use, one.account_id
        kinds = dict(zip(Rates._fields, (use.requests, use.messages, use.bytes), strict=True))
        name = one.prefix + max(kinds, key=kinds.__getitem__)
        level = "exceeded" if total > 1 else "warning"
        noted = (account_id, one.subject, name, level)
        told_s = self._noted_at_s.get(noted)
        if told_s is not None and now_s - told_s < QUOTA_NOTED_EVERY_S:
            return False
        if len(self._noted_at_s) >= RATE_BUCKETS_MAX:
            self._noted_at_s.clear()
        self._noted_at_s[noted] = now_s
        percent = round(total * 100)
        _log.warning("quota_" + level, account_id=account_id, quota=name, percent=percent, subject=one.subject)
        await self._note(account_id, name, level, percent, one.subject)
        return True


def _holder(use: AccountUse, asked: AskedFor) -> HolderUse:
    """By how the tree of quotas names it."""
    if asked.rates is None:
        return HolderUse(use, use.account_id, "", "")
    if asked.account_id:
        return HolderUse(use, asked.account_id, "key_", f"key:{use.account_id}")
    account_id, _, queue = use.account_id.partition("/")
    return HolderUse(use, account_id, "queue_", f"queue:{queue}")


def use_of(holder: str, asked: AskedFor, rates: Rates, elapsed_s: float) -> AccountUse:
    """What was asked for, in parts of the holder's rates."""
    counts = (asked.requests, asked.messages, asked.bytes)
    requests, messages, size = (
        0.0 if rate is None else count / elapsed_s / rate for count, rate in zip(counts, rates, strict=True)
    )
    return AccountUse(holder, requests, messages, size, max(requests, messages, size))
