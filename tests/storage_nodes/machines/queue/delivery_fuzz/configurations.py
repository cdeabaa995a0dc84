"""What a run may be about, and the configurations that it draws."""

from __future__ import annotations

import random
from typing import NamedTuple

from storage_nodes.protocol.messages import QueueConfig, RetryKind

DEAD_LETTER_PARTITION = 7
DEDUP_WINDOW_MS = 8_000
IN_FLIGHT_MAX = 1_000
LONG_MS = 345_600_000
PAUSED_SHARE = 0.12
# kind, delay_ms, max_ms, jitter_permille
RETRIES = ((0, 0, 0, 0), (0, 0, 0, 0), (RetryKind.FIXED, 700, 700, 0), (RetryKind.EXPONENTIAL, 500, 3_000, 500))


class Kind(NamedTuple):
    is_fifo: bool
    has_letters: bool  # most messages are received until they are dead

    def __str__(self) -> str:
        return ("FIFO" if self.is_fifo else "standard") + (" with dead letters" if self.has_letters else "")


KINDS = (Kind(True, False), Kind(False, False), Kind(True, True), Kind(False, True))


class Configurations:
    """Of one queue, all drawn."""

    def __init__(self, rnd: random.Random, kind: Kind) -> None:
        self._rnd = rnd
        self._kind = kind
        self._account_id = rnd.choice(("", "", "account"))

    def first(self) -> QueueConfig:
        return self._draw(0)

    def another(self) -> QueueConfig:
        return self._draw(PAUSED_SHARE)

    def last(self, retention_ms: int) -> QueueConfig:
        """One with which everything that the queue holds can be received, or expires."""
        return self._config(retention_ms, IN_FLIGHT_MAX, self._rnd.choice((0, 5)))

    def _draw(self, paused_share: float) -> QueueConfig:
        rnd, is_fifo = self._rnd, self._kind.is_fifo
        retry = rnd.choice(RETRIES)
        park = is_fifo and rnd.random() < 0.5
        paused = rnd.random() < paused_share
        if self._kind.has_letters:
            return self._config(LONG_MS, IN_FLIGHT_MAX, rnd.choice((0, 1, 1, 2, 4)), retry, park, False)
        retention_ms = rnd.choice((2_000, 5_000, 20_000, LONG_MS))
        in_flight_max = rnd.choice((4, 20, IN_FLIGHT_MAX))
        return self._config(retention_ms, in_flight_max, rnd.choice((0, 0, 1, 2, 3, 5)), retry, park, paused)

    def _config(
        self,
        retention_ms: int,
        in_flight_max: int,
        max_receives: int,
        retry: tuple[int, int, int, int] = RETRIES[0],
        park_groups: bool = False,
        paused: bool = False,
    ) -> QueueConfig:
        kind, delay_ms, max_ms, jitter_permille = retry
        return QueueConfig(
            retention_ms=retention_ms, in_flight_max=in_flight_max, fifo=self._kind.is_fifo,
            dedup_window_ms=DEDUP_WINDOW_MS, max_receives=max_receives,
            dead_letter_partition=DEAD_LETTER_PARTITION if max_receives else 0, paused=paused, retry_kind=kind,
            retry_delay_ms=delay_ms, retry_max_ms=max_ms, retry_jitter_permille=jitter_permille,
            park_groups=park_groups, account_id=self._account_id,
        )  # fmt: skip
