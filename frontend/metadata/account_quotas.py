"""The limits of accounts, keys and queues as the tree of quotas asks for them: from the cache, without waiting.

An account that is not cached has the defaults until its record is there, which is asked for at once. So a front end
that knows no account yet, or cannot reach the metadata service, serves under the defaults instead of not at all.
"""

from __future__ import annotations

import asyncio

from frontend.limits.quotas import (
    DEFAULT_LIMITS,
    INSTALLATION,
    AccountLimits,
    Rates,
    account_limits,
    given_rates,
)
from frontend.metadata.interface import MISS, MetadataService, MetadataUnavailable
from frontend.metadata.limits import ACCOUNTS_CACHED_MAX
from frontend.metadata.records import AccountRecord


class AccountQuotas:
    """Limits by account, made once for each version of its record."""

    def __init__(self, metadata: MetadataService) -> None:
        self._metadata = metadata
        self._made: dict[str, tuple[AccountRecord, AccountLimits]] = {}
        self._asked: dict[str, asyncio.Task[object]] = {}
        self._installation = Rates()

    def limits_of(self, account_id: str) -> AccountLimits:
        record = self._record(account_id)
        made = self._made.get(account_id)
        if record is None:
            # Not known now: what was known last holds until it is.
            return DEFAULT_LIMITS if made is None else made[1]
        if made is None or made[0] is not record:
            if made is None and len(self._made) >= ACCOUNTS_CACHED_MAX:
                del self._made[next(iter(self._made))]
            made = self._made[account_id] = (record, _limits_in(record))
        return made[1]

    def installation(self) -> Rates:
        record = self._record(INSTALLATION)
        if record is not None:
            self._installation = given_rates(record.quotas)
        return self._installation

    def key_rates_of(self, access_key_id: str) -> Rates | None:
        """Of this key alone. None: not known now, or no such key."""
        record = self._metadata.cached_key(access_key_id)
        return None if record is None or record is MISS else given_rates(record.quotas)

    def queue_rates_of(self, account_id: str, name: str) -> Rates | None:
        """Of this queue alone. None: not known now, or no such queue."""
        record = self._metadata.cached_queue(account_id, name)
        return None if record is None or record is MISS else given_rates(record.quotas)

    def _record(self, account_id: str) -> AccountRecord | None:
        record = self._metadata.cached_account(account_id)
        if record is not MISS:
            return record
        if account_id not in self._asked and len(self._asked) < ACCOUNTS_CACHED_MAX:
            task = asyncio.ensure_future(self._ask(account_id))
            self._asked[account_id] = task
            task.add_done_callback(lambda _: self._asked.pop(account_id, None))
        return None

    async def _ask(self, account_id: str) -> None:
        try:
            await self._metadata.get_account(account_id)
        except MetadataUnavailable:
            return  # asked again when the account is looked at next


def _limits_in(record: AccountRecord) -> AccountLimits:
    return account_limits(
        record.quotas, record.sending_stopped, record.queues_differ, record.sends_per_s, record.held_reason
    )
