"""Rates of the quota tree: requests, messages and bytes per second, in one step for all levels. Pure; the clock is a
parameter.

    installation --> account --> key --> queue      a request pays on its whole path, or, if one level refuses, nowhere

Each bucket is a generic cell rate algorithm (GCRA): it keeps, for each of the three, the theoretical arrival time,
when it would be empty again. A payment of cost c moves it c/rate later. A request is refused while that time lies a
burst or more ahead of now. So a single payment may go beyond the burst: whatever one request costs, it passes if
anything is left, and the next one waits until it is paid off. That is why what is known only afterwards (the messages
of a receive) can be paid afterwards, and the rate holds all the same.

A level without a limit of its own has no bucket: an account without special quotas costs one bucket a request. Rates of
a single key or queue (`KeyRatesOf`, `QueueRatesOf`) are looked at where its path is made, not by each request.

A front end enforces its share of each rate (`AccountShare`), 1/n of it unless told otherwise (`sharing.py`). What was
asked for, refused requests included, is counted for that purpose, by holder: an account by its id, a key that has a
bucket by its id, a queue that has one as `account/name`.

Sends to an account or a queue whose budget is used up may be held to a rate besides (`sends_per_s`): one bucket for
all who send there. Only what is held has such a bucket; each front end has an equal part of its rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from frontend.limits import QUOTA_RECHECK_S, RATE_BUCKETS_MAX, RATE_BURST_S
from frontend.limits.quotas import DEFAULT_LIMITS, AccountLimits, Rates, lower_only, lowest

LimitsOf = Callable[[str], AccountLimits]
# What was given to one key (by its id), or to one queue (by account and name); None: not known now, or no such thing.
KeyRatesOf = Callable[[str], Rates | None]
QueueRatesOf = Callable[[str, str], Rates | None]

PAYLOAD_QUOTA = "payload_bytes"
# Before `messages_per_s`: what is sent by or to an account, or to a queue, that is held to a rate.
SENDS_OF_ACCOUNT = "sending_"
SENDS_TO_QUEUE = "queue_sending_"
_UNLIMITED = Rates()
_ROUNDING_S = 1e-6


class QuotaRefusal(NamedTuple):
    """Which quota refused, what it is, and after which time the same would pass. `stopped`: why nothing may be sent."""

    quota: str
    limit_per_s: float
    wait_s: float
    stopped: str = ""


class HeldSends(NamedTuple):
    """A rate to which sends are held. `level`: SENDS_OF_ACCOUNT, where the holder is an account, or SENDS_TO_QUEUE,
    where it is `account/name`."""

    level: str
    holder: str
    sends_per_s: int


class Standing(NamedTuple):
    """The requests that an account may still make at once, of how many, and when it has them all again."""

    limit: int
    remaining: int
    full_in_s: float


class QuotaBucket:
    """One holder on one level. `*_at_s`: when it would be empty; `*_cost_s`: how far one unit moves that (0: free)."""

    __slots__ = (
        "asked", "bytes_at_s", "bytes_cost_s", "messages_at_s", "messages_cost_s", "prefix", "rates", "requests_at_s",
        "requests_cost_s",
    )  # fmt: skip

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.rates = _UNLIMITED
        # Of a queue. What an account or key was asked for stands in the path.
        self.asked: AskedFor | None = None
        self.requests_at_s = self.messages_at_s = self.bytes_at_s = 0.0
        self.requests_cost_s = self.messages_cost_s = self.bytes_cost_s = 0.0

    def set_rates(self, rates: Rates, shares: tuple[float, float, float], now_s: float) -> None:
        if rates != self.rates:
            self._pay_off_sooner(rates, now_s)
        self.rates = rates
        costs = [0.0 if rate is None else 1 / (rate * share) for rate, share in zip(rates, shares, strict=True)]
        self.requests_cost_s, self.messages_cost_s, self.bytes_cost_s = costs

    def _pay_off_sooner(self, rates: Rates, now_s: float) -> None:
        """What is owed is paid off at a raised rate from now on, at once where there is none any more. A lowered one
        makes nobody wait longer for what was granted before."""
        for unit, old, new in zip(("requests_at_s", "messages_at_s", "bytes_at_s"), self.rates, rates, strict=True):
            owed_s = getattr(self, unit) - now_s
            if owed_s > 0 and old is not None and (new is None or new > old):
                setattr(self, unit, now_s + (owed_s * old / new if new else 0.0))

    def refusal(self, latest_s: float) -> QuotaRefusal:
        """Why a request is refused now: of the three, what takes longest."""
        at_s, unit = max(zip((self.requests_at_s, self.messages_at_s, self.bytes_at_s), Rates._fields, strict=True))
        return QuotaRefusal(self.prefix + unit, getattr(self.rates, unit) or 0.0, at_s - latest_s)

    @property
    def empty_at_s(self) -> float:
        return max(self.requests_at_s, self.messages_at_s, self.bytes_at_s)


class AccountShare(NamedTuple):
    """Of the requests, messages and bytes of a holder, as much is this front end's to grant."""

    requests: float = 1.0
    messages: float = 1.0
    bytes: float = 1.0


class AskedFor:
    """What one holder was asked for since it was last looked at. `rates` None: an account, which has those of its
    limits. `account_id`: of a key, whose requests are the account's, too."""

    __slots__ = ("account_id", "bytes", "messages", "rates", "requests")

    def __init__(self, rates: Rates | None = None, account_id: str = "") -> None:
        self.rates = rates
        self.account_id = account_id
        self.requests = self.messages = self.bytes = 0

    def take(self) -> AskedFor:
        """What was counted; the count begins again."""
        taken = AskedFor(self.rates, self.account_id)
        taken.add(self)
        self.requests = self.messages = self.bytes = 0
        return taken

    def add(self, other: AskedFor) -> None:
        self.requests += other.requests
        self.messages += other.messages
        self.bytes += other.bytes


class QuotaPath:
    """The buckets that one key pays into; looked at again every QUOTA_RECHECK_S."""

    __slots__ = (
        "account_id", "asked", "buckets", "by_queue", "is_held", "key_rates", "limits", "recheck_s", "sends", "stopped",
    )  # fmt: skip

    def __init__(self, account_id: str) -> None:
        self.account_id = account_id
        self.asked = AskedFor()
        self.buckets: tuple[QuotaBucket, ...] = ()
        # With that of a queue, by its name; None where queues have no limit of their own.
        self.by_queue: dict[str, tuple[QuotaBucket, ...]] | None = None
        # Of this key alone, as they were known last.
        self.key_rates = _UNLIMITED
        self.limits = DEFAULT_LIMITS
        self.stopped = ""
        # Pays for what is sent, where that is held to a rate.
        self.sends: QuotaBucket | None = None
        # Sends are stopped or held: others look no further.
        self.is_held = False
        self.recheck_s = 0.0


class QuotaTree:
    """The buckets of this front end. One call of `pay` for each request."""

    def __init__(
        self,
        limits_of: LimitsOf = lambda _: DEFAULT_LIMITS,
        installation: Callable[[], Rates] = Rates,
        burst_s: float = RATE_BURST_S,
        buckets_max: int = RATE_BUCKETS_MAX,
        key_rates_of: KeyRatesOf = lambda _: _UNLIMITED,
        queue_rates_of: QueueRatesOf = lambda _, __: None,
    ) -> None:
        assert burst_s > 0 and buckets_max > 0
        self._limits_of = limits_of
        self._key_rates_of = key_rates_of
        self._queue_rates_of = queue_rates_of
        self._installation_rates = installation
        # A sum of steps may fall short of the burst by its rounding.
        self._burst_s = burst_s - _ROUNDING_S
        self._buckets_max = buckets_max
        # Times are told from the first one on: a double has no place for a byte's time beside the seconds since 1970.
        self._epoch_s: float | None = None
        self._paths: dict[str, QuotaPath] = {}
        self._installation = QuotaBucket("installation_")
        self._accounts: dict[str, QuotaBucket] = {}
        self._keys: dict[str, QuotaBucket] = {}
        self._queues: dict[str, QuotaBucket] = {}
        # Of accounts and queues whose sends are held to a rate.
        self._sends: dict[str, QuotaBucket] = {}
        self._asked: dict[str, AskedFor] = {}
        self.shares: dict[str, AccountShare] = {}
        self.front_ends = 1
        # Calls of `pay`, refused ones too.
        self.payments = 0

    def __len__(self) -> int:
        buckets = max(len(self._accounts), len(self._keys), len(self._queues), len(self._sends))
        return max(len(self._paths), len(self._asked), buckets)

    def pay(
        self,
        account_id: str,
        access_key_id: str,
        queue_name: str,
        now_s: float,
        messages: int = 0,
        size_bytes: int = 0,
        is_send: bool = False,
    ) -> QuotaRefusal | None:
        """One request. None: it is paid for. `queue_name`: that of a queue of the account, "" where there is none."""
        self.payments += 1
        path = self._paths.get(access_key_id)
        now_s -= self._epoch_s or 0.0
        if path is None or now_s >= path.recheck_s or path.account_id != account_id:
            path, now_s = self._look(path, account_id, access_key_id, now_s)
        asked = path.asked
        asked.requests += 1
        asked.messages += messages
        asked.bytes += size_bytes
        if is_send and size_bytes > path.limits.payload_bytes:
            return QuotaRefusal(PAYLOAD_QUOTA, path.limits.payload_bytes, 0.0)
        buckets = path.buckets
        if path.by_queue is not None and queue_name:
            buckets = path.by_queue.get(queue_name) or self._with_queue(path, queue_name, now_s)
            _count(buckets, 1, messages, size_bytes)
        if is_send and path.is_held:
            if path.stopped:
                return QuotaRefusal("sending", 0.0, 0.0, path.stopped)
            assert path.sends is not None
            buckets = (*buckets, path.sends)
        latest_s = now_s + self._burst_s
        for bucket in buckets:
            if bucket.requests_at_s >= latest_s or bucket.messages_at_s >= latest_s or bucket.bytes_at_s >= latest_s:
                return bucket.refusal(latest_s)
        for bucket in buckets:
            at_s = bucket.requests_at_s
            bucket.requests_at_s = (at_s if at_s > now_s else now_s) + bucket.requests_cost_s
            if messages:
                at_s = bucket.messages_at_s
                bucket.messages_at_s = (at_s if at_s > now_s else now_s) + messages * bucket.messages_cost_s
            if size_bytes:
                at_s = bucket.bytes_at_s
                bucket.bytes_at_s = (at_s if at_s > now_s else now_s) + size_bytes * bucket.bytes_cost_s
        return None

    def pay_later(
        self, account_id: str, access_key_id: str, queue_name: str, now_s: float, messages: int, size_bytes: int
    ) -> None:
        """What a request that was paid for has cost besides; negative: what it did not get after all. Never refused."""
        path = self._paths.get(access_key_id)
        if path is None or path.account_id != account_id:
            return  # forgotten in between
        now_s -= self._epoch_s or 0.0
        path.asked.messages += messages
        path.asked.bytes += size_bytes
        buckets = path.buckets
        if path.by_queue is not None and queue_name:
            buckets = path.by_queue.get(queue_name) or self._with_queue(path, queue_name, now_s)
            _count(buckets, 0, messages, size_bytes)
        if messages < 0 and path.sends is not None:
            buckets = (*buckets, path.sends)
        for bucket in buckets:
            at_s = bucket.messages_at_s
            bucket.messages_at_s = (at_s if at_s > now_s else now_s) + messages * bucket.messages_cost_s
            at_s = bucket.bytes_at_s
            bucket.bytes_at_s = (at_s if at_s > now_s else now_s) + size_bytes * bucket.bytes_cost_s

    def left(
        self, account_id: str, access_key_id: str, queue_name: str, now_s: float, ahead_s: float
    ) -> tuple[float, float]:
        """How many messages, and bytes, may be given to a request that was just paid for: what is left of the bursts,
        and what the rates grant within `ahead_s`."""
        path = self._paths.get(access_key_id)
        if path is None or path.account_id != account_id:
            return inf, inf
        now_s -= self._epoch_s or 0.0
        buckets = path.buckets
        if path.by_queue is not None and queue_name:
            buckets = path.by_queue.get(queue_name) or self._with_queue(path, queue_name, now_s)
        messages = size_bytes = inf
        latest_s = now_s + self._burst_s + ahead_s
        for bucket in buckets:
            if bucket.messages_cost_s:
                messages = min(messages, (latest_s - max(bucket.messages_at_s, now_s)) / bucket.messages_cost_s)
            if bucket.bytes_cost_s:
                size_bytes = min(size_bytes, (latest_s - max(bucket.bytes_at_s, now_s)) / bucket.bytes_cost_s)
        return messages, size_bytes

    def pay_sends(self, held: Sequence[HeldSends], now_s: float, messages: int = 1) -> QuotaRefusal | None:
        """What is sent where sends are held to these rates. None: it is paid for, at each; else at none."""
        now_s -= self._epoch_s or 0.0
        latest_s = now_s + self._burst_s
        buckets = [self._held(*one, now_s) for one in held]
        for bucket in buckets:
            if bucket.messages_at_s >= latest_s:
                return bucket.refusal(latest_s)
        for bucket in buckets:
            bucket.messages_at_s = max(bucket.messages_at_s, now_s) + messages * bucket.messages_cost_s
        return None

    def limits(self, account_id: str, access_key_id: str) -> AccountLimits:
        """Of an account whose request was just paid for."""
        path = self._paths.get(access_key_id)
        return path.limits if path is not None and path.account_id == account_id else self._limits_of(account_id)

    def standing(self, account_id: str, now_s: float) -> Standing | None:
        """None for an account that has asked for nothing."""
        bucket = self._accounts.get(account_id)
        if bucket is None or bucket.rates.requests_per_s is None:
            return None
        used_s = max(0.0, bucket.requests_at_s - (now_s - (self._epoch_s or 0.0)))
        limit = max(1, round(self._burst_s * bucket.rates.requests_per_s))
        left_s = self._burst_s + 2 * _ROUNDING_S - used_s
        return Standing(limit, max(0, int(left_s / bucket.requests_cost_s)), used_s)

    def take_asked(self) -> dict[str, AskedFor]:
        """What each holder was asked for since the last call, QUOTA_RECHECK_S ago or longer. One that was asked for
        nothing is forgotten: paths look again before they count."""
        taken = {holder: one.take() for holder, one in self._asked.items()}
        for holder, one in taken.items():
            if not one.requests:
                del self._asked[holder]
        for one in list(taken.values()):
            if one.account_id and one.requests:
                taken.setdefault(one.account_id, AskedFor()).add(one)
        return {holder: one for holder, one in taken.items() if one.requests}

    def share_out(self, front_ends: int, shares: dict[str, AccountShare]) -> None:
        """So many front ends are there, and these are the shares of the holders that are asked for more than others.
        Paths see them when they look again."""
        self.front_ends, self.shares = max(1, front_ends), shares

    # --- paths ---

    def _look(
        self, path: QuotaPath | None, account_id: str, access_key_id: str, now_s: float
    ) -> tuple[QuotaPath, float]:
        """The path of a key as its quotas are now, and the time as this tree tells it."""
        if self._epoch_s is None:
            self._epoch_s, now_s = now_s, 0.0
        if path is None or path.account_id != account_id:
            if len(self) >= self._buckets_max:
                self._forget(now_s)
            path = self._paths[access_key_id] = QuotaPath(account_id)
        path.limits = limits = self._limits_of(account_id)
        path.stopped = limits.stopped
        sends_per_s = limits.sends_per_s
        path.sends = self._held(SENDS_OF_ACCOUNT, account_id, sends_per_s, now_s) if sends_per_s else None
        path.is_held = bool(path.stopped) or path.sends is not None
        path.recheck_s = now_s + QUOTA_RECHECK_S
        buckets = [_made(self._accounts, account_id, "", limits.account, self._shares_of(account_id), now_s)]
        known = self._key_rates_of(access_key_id)
        path.key_rates = path.key_rates if known is None else known
        key_rates = limits.key
        if path.key_rates != _UNLIMITED:
            key_rates = lower_only(lowest(key_rates, path.key_rates), limits.account)
        if key_rates == _UNLIMITED:
            path.asked = self._asked_of(account_id)
        else:
            path.asked = self._asked_of(access_key_id, key_rates, account_id)
            buckets.append(_made(self._keys, access_key_id, "key_", key_rates, self._shares_of(access_key_id), now_s))
        rates = self._installation_rates()
        if rates != _UNLIMITED:
            self._installation.set_rates(rates, (1 / self.front_ends,) * 3, now_s)
            buckets.append(self._installation)
        path.buckets = tuple(buckets)
        path.by_queue = {} if limits.queues_differ or limits.queue != _UNLIMITED else None
        return path, now_s

    def _with_queue(self, path: QuotaPath, queue_name: str, now_s: float) -> tuple[QuotaBucket, ...]:
        """The name may be that of no queue: it is paid for before it is looked up. A queue that is not at hand has the
        rates that it had, until it is."""
        assert path.by_queue is not None
        name, limits = f"{path.account_id}/{queue_name}", path.limits
        rates, bucket = limits.queue, self._queues.get(name)
        own = self._queue_rates_of(path.account_id, queue_name) if limits.queues_differ else _UNLIMITED
        if own is None and bucket is not None:
            return (*path.buckets, bucket)
        if own:
            rates = lower_only(lowest(rates, own), limits.account)
        buckets = path.buckets
        if rates != _UNLIMITED:
            if bucket is None and len(self) >= self._buckets_max:
                self._forget(now_s)
            bucket = _made(self._queues, name, "queue_", rates, self._shares_of(name), now_s)
            bucket.asked = self._asked_of(name, rates)
            buckets = (*buckets, bucket)
        if own is not None:
            path.by_queue[queue_name] = buckets
        return buckets

    def _held(self, level: str, holder: str, sends_per_s: int, now_s: float) -> QuotaBucket:
        if holder not in self._sends and len(self) >= self._buckets_max:
            self._forget(now_s)
        rates, shares = Rates(messages_per_s=sends_per_s), (1 / self.front_ends,) * 3
        return _made(self._sends, holder, level, rates, shares, now_s)

    def _shares_of(self, holder: str) -> AccountShare:
        return self.shares.get(holder) or AccountShare(*(1 / self.front_ends,) * 3)

    def _asked_of(self, holder: str, rates: Rates | None = None, account_id: str = "") -> AskedFor:
        asked = self._asked.get(holder)
        if asked is None:
            asked = self._asked[holder] = AskedFor(rates, account_id)
        asked.rates = rates
        return asked

    def _forget(self, now_s: float) -> None:
        """What is empty anyway; if most is in use, what would be empty soonest. Paths find their buckets again."""
        self._paths.clear()
        self._asked.clear()
        for buckets in (self._accounts, self._keys, self._queues, self._sends):
            kept = {name: bucket for name, bucket in buckets.items() if bucket.empty_at_s > now_s}
            if len(kept) > self._buckets_max // 2:
                fullest = sorted(kept.items(), key=lambda item: item[1].empty_at_s)
                kept = dict(fullest[-(self._buckets_max // 2) :])
            buckets.clear()
            buckets.update(kept)


def _count(buckets: tuple[QuotaBucket, ...], requests: int, messages: int, size_bytes: int) -> None:
    """For the queue, if it has a bucket: that is the last one."""
    asked = buckets[-1].asked
    if asked is not None:
        asked.requests += requests
        asked.messages += messages
        asked.bytes += size_bytes


def _made(
    buckets: dict[str, QuotaBucket],
    name: str,
    prefix: str,
    rates: Rates,
    shares: tuple[float, float, float],
    now_s: float,
) -> QuotaBucket:
    bucket = buckets.get(name)
    if bucket is None:
        bucket = buckets[name] = QuotaBucket(prefix)
    bucket.set_rates(rates, shares, now_s)
    return bucket
