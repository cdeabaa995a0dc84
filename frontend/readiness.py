"""What `/readyz` says: can this front end serve messages, and what is missing while it does?

    200 ready         everything it needs is there
    200 degraded      messages are served; each reason names a part and since when
    503 unavailable   the front end stops, or it knows no key and has nobody to ask

Storage nodes are not looked at: without a majority of them it says 200 `ready`.

Surface: other planes may import this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

# Where front ends ask the control plane whether it and its database are there: 200, or 503 without PostgreSQL.
ALIVE_PATH = "/internal/alive"
# The answer where PostgreSQL is there, and takes no more connections.
ALIVE_FULL = b"the database takes no more connections\n"


class Trouble(NamedTuple):
    """Something that a front end needs and does not have; `since_ms` is Unix time."""

    part: str
    reason: str
    since_ms: int


class Readiness(NamedTuple):
    status: int
    body: bytes


def readiness(serves: bool, troubles: Sequence[Trouble]) -> Readiness:
    word = "unavailable" if not serves else "degraded" if troubles else "ready"
    reasons = [{"part": one.part, "reason": one.reason, "since": _iso(one.since_ms)} for one in troubles]
    return Readiness(200 if serves else 503, msgspec.json.encode({"status": word, "reasons": reasons}))


def _iso(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
