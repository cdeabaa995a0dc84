"""`Penstock.RetryPolicy` as text and back. Pure.

    {"kind": "fixed"|"linear"|"exponential", "delay_ms", "max_ms", "jitter"}

`max_ms` and `jitter` need not be given; in normal form both stand there. What it means: machines/queue/state/retry.py.

Surface: other planes may import this module.
"""

from __future__ import annotations

import msgspec

from storage_nodes.limits import RETRY_PAUSE_MS_MAX
from storage_nodes.protocol.messages import QueueConfig, RetryKind

KINDS = {kind.name.lower(): kind for kind in RetryKind}
JITTER_STEPS = 1000

RETRY_POLICY_MUST_BE = (
    f'an object {{"kind": one of {", ".join(KINDS)}, "delay_ms": 1 to {RETRY_PAUSE_MS_MAX}, '
    f'"max_ms": delay_ms to {RETRY_PAUSE_MS_MAX}, "jitter": 0 to 1}}'
)


class RetryJson(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    kind: str
    delay_ms: int
    max_ms: int = RETRY_PAUSE_MS_MAX
    jitter: float = 0.0

    @property
    def is_right(self) -> bool:
        in_range = 1 <= self.delay_ms <= self.max_ms <= RETRY_PAUSE_MS_MAX
        return self.kind in KINDS and in_range and 0 <= self.jitter <= 1

    def config(self) -> dict[str, int]:
        """The fields of a QueueConfig."""
        assert self.is_right
        jitter = round(self.jitter * JITTER_STEPS)
        return dict(zip(_FIELDS, (KINDS[self.kind], self.delay_ms, self.max_ms, jitter), strict=True))


_FIELDS = [field for field in QueueConfig.__struct_fields__ if field.startswith("retry_")]
_decode = msgspec.json.Decoder(RetryJson).decode
_encode = msgspec.json.Encoder().encode


def normal_retry_policy(text: str) -> str | None:
    """None: not a policy."""
    try:
        policy = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return _encode(policy).decode() if policy.is_right else None


def retry_policy(text: str) -> RetryJson:
    """Of a text in normal form."""
    return _decode(text)
