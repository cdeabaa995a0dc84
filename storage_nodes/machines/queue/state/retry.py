"""The pause before a message is available again after a receive that failed: a pure function of the queue's policy, the
message's offset and its delivery number, so that it is the same on every replica and needs no place in the state.

    fixed         delay
    linear        delay * receives
    exponential   delay * 2 ** (receives - 1)

bounded by `max_ms`; of that, jitter takes off a share between nothing and `jitter_permille`, which is drawn from a hash
of (offset, delivery number).

An entry of `live` holds the end of the lease. A message is *due* a pause after it: who leads counts it in flight until
then, and its receipt is as old as the lease. What is to be available without a pause has the end of its lease set back
by one (`QueueState.fold_visibility`). A message that was received too often is due, and dead, at the end of its lease.
"""

from __future__ import annotations

from typing import NamedTuple

from storage_nodes.limits import RETRY_PAUSE_MS_MAX
from storage_nodes.machines.queue.state.checkpoint import Entry
from storage_nodes.protocol.deliveries import receives_of
from storage_nodes.protocol.messages import QueueConfig, RetryKind

_DOUBLINGS_MAX = 30
_MASK = 2**64 - 1

assert 2**_DOUBLINGS_MAX > RETRY_PAUSE_MS_MAX, "more doublings change nothing"


class RetryPolicy(NamedTuple):
    kind: int
    delay_ms: int
    max_ms: int
    jitter_permille: int

    @classmethod
    def of(cls, config: QueueConfig) -> RetryPolicy | None:
        """None: what failed is available at once."""
        if not config.retry_kind:
            return None
        return cls(config.retry_kind, config.retry_delay_ms, config.retry_max_ms, config.retry_jitter_permille)

    def pause_ms(self, offset: int, delivery: int) -> int:
        receives = receives_of(delivery)
        if not receives:
            return 0
        pause_ms = self.delay_ms
        if self.kind == RetryKind.LINEAR:
            pause_ms *= receives
        elif self.kind == RetryKind.EXPONENTIAL:
            pause_ms <<= min(receives - 1, _DOUBLINGS_MAX)
        pause_ms = min(pause_ms, self.max_ms)
        if self.jitter_permille:
            pause_ms -= pause_ms * self.jitter_permille * (_hash(offset, delivery) >> 48) // (1000 << 16)
        return pause_ms

    def due_ms(self, offset: int, entry: Entry, receives_max: int) -> int:
        """When a message in `live` is available, or dead; receives_max 0 = it never is."""
        if receives_max and receives_of(entry[1]) >= receives_max:
            return entry[0]
        return entry[0] + self.pause_ms(offset, entry[1])


def policy_problem(config: QueueConfig) -> str | None:
    """What is wrong with a configuration's policy."""
    if config.retry_kind not in (0, *RetryKind):
        return f"retry_kind {config.retry_kind} is not known"
    if config.retry_kind and not 1 <= config.retry_delay_ms <= config.retry_max_ms <= RETRY_PAUSE_MS_MAX:
        return "retry_delay_ms or retry_max_ms is out of range"
    if not 0 <= config.retry_jitter_permille <= 1000:
        return "retry_jitter_permille must be 0 to 1000"
    return None


def _hash(offset: int, delivery: int) -> int:
    """64 bits that look random: the finaliser of splitmix64."""
    mixed = (offset * 0x9E3779B97F4A7C15 + delivery * 0xD1B54A32D192ED03) & _MASK
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
    return mixed ^ (mixed >> 31)
