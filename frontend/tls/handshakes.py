"""Handshakes that are under way, and how many failed for which reason.

A connection whose handshake is not done costs a file and some memory, and asks for no key. So there are
at most TLS_HANDSHAKES_MAX, each ends within TLS_HANDSHAKE_S_MAX, and where one too many begins, the oldest gives way of
the address that has most of them (IPv6: of its /64): one host that opens thousands displaces its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from frontend.http import network_of
from frontend.limits import REFUSALS_TOLD_EVERY_S, TLS_HANDSHAKES_MAX

PLAIN_HTTP, NOT_TLS, VERSION, CIPHER = "plain_http", "not_tls", "version", "cipher"
CLIENT_REFUSED, INVALID, DEADLINE, CROWDED, LEFT = "client_refused", "invalid", "deadline", "crowded", "left"
REASONS = (PLAIN_HTTP, NOT_TLS, VERSION, CIPHER, CLIENT_REFUSED, INVALID, DEADLINE, CROWDED, LEFT)

_VERSION_REASONS = frozenset(("UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "WRONG_VERSION_NUMBER", "WRONG_SSL_VERSION"))
_log = structlog.get_logger("frontend.tls")


class Handshake(Protocol):
    def give_up(self, reason: str) -> None:
        """Ends the connection, and calls `failed`."""


class Handshakes:
    """Of one process."""

    def __init__(self, steady_s: Callable[[], float]) -> None:
        self._steady_s = steady_s
        self._open: dict[str, dict[Handshake, None]] = {}  # by network, oldest first
        self._networks: dict[Handshake, str] = {}
        self._told_s = -REFUSALS_TOLD_EVERY_S
        self.failures = dict.fromkeys(REASONS, 0)
        self.done = 0

    def __len__(self) -> int:
        return len(self._networks)

    def begin(self, handshake: Handshake, address: str) -> None:
        network = network_of(address)
        if len(self._networks) >= TLS_HANDSHAKES_MAX:
            largest = max(self._open.values(), key=len)
            next(iter(largest)).give_up(CROWDED)
        self._networks[handshake] = network
        self._open.setdefault(network, {})[handshake] = None

    def finish(self, handshake: Handshake) -> None:
        self._forget(handshake)
        self.done += 1

    def failed(self, handshake: Handshake, reason: str, detail: str, client: str) -> None:
        """Told now and then only: anyone who can connect could fill the log."""
        self._forget(handshake)
        self.failures[reason] += 1
        now_s = self._steady_s()
        if reason != LEFT and now_s - self._told_s >= REFUSALS_TOLD_EVERY_S:
            self._told_s = now_s
            _log.warning("handshake_failed", reason=reason, detail=detail, client=client, failures=self.failures)

    def _forget(self, handshake: Handshake) -> None:
        network = self._networks.pop(handshake)
        same = self._open[network]
        del same[handshake]
        if not same:
            del self._open[network]


def reason_of(openssl_reason: str) -> str:
    """OpenSSL has hundreds; a metric has few."""
    if openssl_reason in _VERSION_REASONS:
        return VERSION
    if openssl_reason == "NO_SHARED_CIPHER":
        return CIPHER
    return CLIENT_REFUSED if "ALERT" in openssl_reason else INVALID
