"""The quotas: their names, what an account has unless it was given another value, and between which bounds one lies.

    installation    all accounts together, over all front ends; no limit unless the operator sets one
      account       rates, and how much of what is shared it may use at once
        key         rates of every key of the account; as much as the account has unless set
          queue     rates of every queue of the account; the same

A single key or queue may have rates of its own besides (SINGLE_QUOTAS). They only lower: the lowest of what the levels
say holds.

A rate is per second and holds over all front ends together. `frontend/limits/quota_tree.py` enforces the rates.

Surface: other planes may import this module.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from frontend.limits import (
    BROWSER_CALLS_MAX,
    CONTROL_CALLS_IN_FLIGHT_MAX,
    MIB,
    POLLS_PARKED_MAX,
    REQUEST_BODY_BYTES_MAX,
    SOCKETS_MAX,
)

# The holder of the installation's own quotas, where an account's id stands otherwise (those have twelve digits).
INSTALLATION = "installation"
# From this share of a quota on its use is told as a warning.
SOFT_LEVEL_PERCENT = 80
RATE_PER_S_MAX = 1_000_000
BYTES_PER_S_MIN = 1_024
BYTES_PER_S_MAX = 100 * 1_024 * MIB
QUEUES_PER_ACCOUNT_MAX = 1_000_000
PAYLOAD_BYTES_MIN = 1_024


class QuotaUnit(enum.StrEnum):
    REQUESTS_PER_S = "requests/s"
    MESSAGES_PER_S = "messages/s"
    BYTES_PER_S = "bytes/s"
    COUNT = "count"
    BYTES = "bytes"


class QuotaKind(NamedTuple):
    """`default` None: no limit of its own. A value lies between `least` and `most`."""

    name: str
    unit: QuotaUnit
    default: int | None
    least: int
    most: int
    text: str


def _rates(level: str, prefix: str, defaults: tuple[int | None, int | None, int | None]) -> tuple[QuotaKind, ...]:
    requests, messages, size = defaults
    return (
        QuotaKind(
            f"{prefix}requests_per_s", QuotaUnit.REQUESTS_PER_S, requests, 1, RATE_PER_S_MAX,
            f"Requests and websocket frames of {level}.",
        ),
        QuotaKind(
            f"{prefix}messages_per_s", QuotaUnit.MESSAGES_PER_S, messages, 1, RATE_PER_S_MAX,
            f"Messages of {level} that are sent, given out, or settled.",
        ),
        QuotaKind(
            f"{prefix}bytes_per_s", QuotaUnit.BYTES_PER_S, size, BYTES_PER_S_MIN, BYTES_PER_S_MAX,
            f"Bytes of request bodies, and of messages given out, of {level}.",
        ),
    )  # fmt: skip


# Above what one front end on two cores can answer (some 9,000 requests a second): quotas are lowered per account.
ACCOUNT_RATES = _rates("the account", "", (20_000, 200_000, 512 * MIB))
KEY_RATES = _rates("one key", "key_", (None, None, None))
QUEUE_RATES = _rates("one queue", "queue_", (None, None, None))
COUNTS = (
    QuotaKind("queues", QuotaUnit.COUNT, 100_000, 1, QUEUES_PER_ACCOUNT_MAX, "Queues of the account."),
    QuotaKind("polls", QuotaUnit.COUNT, POLLS_PARKED_MAX, 1, POLLS_PARKED_MAX, "Long polls waiting at a front end."),
    QuotaKind("sockets", QuotaUnit.COUNT, SOCKETS_MAX, 1, SOCKETS_MAX, "Websockets open at a front end."),
    QuotaKind(
        "browser_searches", QuotaUnit.COUNT, BROWSER_CALLS_MAX, 1, BROWSER_CALLS_MAX,
        "Searches of the message browser at once at a front end.",
    ),
    QuotaKind(
        "control_calls", QuotaUnit.COUNT, CONTROL_CALLS_IN_FLIGHT_MAX, 1, CONTROL_CALLS_IN_FLIGHT_MAX,
        "Management calls at once at a front end.",
    ),
    QuotaKind(
        "payload_bytes", QuotaUnit.BYTES, REQUEST_BODY_BYTES_MAX, PAYLOAD_BYTES_MIN, REQUEST_BODY_BYTES_MAX,
        "Body of one request.",
    ),
)  # fmt: skip
ACCOUNT_QUOTAS = {kind.name: kind for kind in (*ACCOUNT_RATES, *KEY_RATES, *QUEUE_RATES, *COUNTS)}
# Of one key, or of one queue, that is named.
SINGLE_QUOTAS = {
    kind.name: kind._replace(default=None, text=text)
    for kind, text in zip(
        ACCOUNT_RATES,
        (
            "Requests and websocket frames.",
            "Messages that are sent, given out, or settled.",
            "Bytes of request bodies, and of messages given out.",
        ),
        strict=True,
    )
}
INSTALLATION_QUOTAS = {
    kind.name: kind._replace(default=None, text=kind.text.replace("the account", "all accounts together"))
    for kind in ACCOUNT_RATES
}


class QuotaError(Exception):
    """A value that is no quota; the text is for the caller."""


def quotas_of(holder: str) -> Mapping[str, QuotaKind]:
    """The quotas that a holder (an account id, or INSTALLATION) may have."""
    return INSTALLATION_QUOTAS if holder == INSTALLATION else ACCOUNT_QUOTAS


def check_quota(holder: str, name: object, value: object) -> QuotaKind:
    """Raises QuotaError."""
    return _check(quotas_of(holder), name, value)


def check_single_quota(name: object, value: object) -> QuotaKind:
    """Of one key or queue. Raises QuotaError."""
    return _check(SINGLE_QUOTAS, name, value)


def _check(kinds: Mapping[str, QuotaKind], name: object, value: object) -> QuotaKind:
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise QuotaError("There is no such quota. There are: " + ", ".join(kinds) + ".")
    if not isinstance(value, int) or isinstance(value, bool) or not kind.least <= value <= kind.most:
        raise QuotaError(f"{kind.name} must be a whole number between {kind.least} and {kind.most} ({kind.unit}).")
    return kind


class Rates(NamedTuple):
    """Of one level, per second; None where it has no limit of its own."""

    requests_per_s: float | None = None
    messages_per_s: float | None = None
    bytes_per_s: float | None = None


class AccountLimits(NamedTuple):
    """What the quotas of one account say to the data plane. `stopped`: why it may not send; "" where it may."""

    account: Rates
    key: Rates = Rates()
    queue: Rates = Rates()
    polls: int = POLLS_PARKED_MAX
    sockets: int = SOCKETS_MAX
    browser_searches: int = BROWSER_CALLS_MAX
    control_calls: int = CONTROL_CALLS_IN_FLIGHT_MAX
    payload_bytes: int = REQUEST_BODY_BYTES_MAX
    stopped: str = ""
    # Some queue of the account has rates of its own.
    queues_differ: bool = False
    # So many messages a second may be sent, for this reason; 0: sends have no rate of their own.
    sends_per_s: int = 0
    held_reason: str = ""


def account_limits(
    given: Mapping[str, int],
    stopped: str = "",
    queues_differ: bool = False,
    sends_per_s: int = 0,
    held_reason: str = "",
) -> AccountLimits:
    """`given` holds the values that differ from the defaults. What is not known here is left out: a later release of
    the control plane may know more."""
    values = {kind.name: given.get(kind.name, kind.default) for kind in ACCOUNT_QUOTAS.values()}
    account, key, queue = (
        Rates(*(values[kind.name] for kind in kinds)) for kinds in (ACCOUNT_RATES, KEY_RATES, QUEUE_RATES)
    )
    counts = {name: int(values[name] or 0) for name in AccountLimits._fields if name in values}
    key, queue = lower_only(key, account), lower_only(queue, account)
    return AccountLimits(
        account,
        key,
        queue,
        stopped=stopped,
        queues_differ=queues_differ,
        sends_per_s=sends_per_s,
        held_reason=held_reason,
        **counts,
    )


def given_rates(given: Mapping[str, int]) -> Rates:
    """Of the installation, of one key, or of one queue: what is not given has no limit."""
    return Rates(*(given.get(name) for name in Rates._fields))


def lowest(one: Rates, other: Rates) -> Rates:
    """Where both have a limit the lower one."""
    return Rates(
        *(
            theirs if mine is None else mine if theirs is None else min(mine, theirs)
            for mine, theirs in zip(one, other, strict=True)
        )
    )


def lower_only(rates: Rates, above: Rates) -> Rates:
    """Without the limits that the level above meets first anyhow."""
    return Rates(
        *(
            None if mine is None or (theirs is not None and mine >= theirs) else mine
            for mine, theirs in zip(rates, above, strict=True)
        )
    )


DEFAULT_LIMITS = account_limits({})

assert all(kind.default is None or kind.least <= kind.default <= kind.most for kind in ACCOUNT_QUOTAS.values()), (
    "a default is a value that could be set"
)
