"""What the connections of one TLS port share: the certificate and its keeper, the handshakes under way, and what
Prometheus reads of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from frontend.tls.connection import TlsConnection
from frontend.tls.handshakes import Handshakes
from frontend.tls.keeper import CertificateKeeper


class TlsPort:
    def __init__(self, certificate_file: str, key_file: str) -> None:
        """Raises CertificateRefused."""
        self.keeper = CertificateKeeper(certificate_file, key_file)
        self.handshakes = Handshakes(time.monotonic)
        self.metrics = TlsMetrics(self.keeper, self.handshakes)

    def over(self, protocol: Callable[..., asyncio.Protocol]) -> Callable[..., TlsConnection]:
        """Makes connections whose `protocol` begins after the handshake, with the options given for each of them."""

        def connect(**options: Any) -> TlsConnection:
            return TlsConnection(self.keeper.current.context, partial(protocol, **options), self.handshakes)

        return connect


class TlsMetrics(Collector):
    """When the certificate expires, whether a new one was refused, how handshakes go."""

    def __init__(self, keeper: CertificateKeeper, handshakes: Handshakes) -> None:
        self._keeper = keeper
        self._handshakes = handshakes

    def collect(self) -> Iterator[Metric]:
        keeper, handshakes = self._keeper, self._handshakes
        yield GaugeMetricFamily(
            "penstock_tls_certificate_expires_seconds", "Unix time.", value=keeper.current.not_after_s
        )
        yield GaugeMetricFamily(
            "penstock_tls_certificate_refused", "1: the files hold another one.", value=keeper.is_refused
        )
        yield CounterMetricFamily("penstock_tls_certificate_loads", "Certificates taken.", value=keeper.loads)
        yield GaugeMetricFamily("penstock_tls_handshakes_open", "Under way.", value=len(handshakes))
        yield CounterMetricFamily("penstock_tls_handshakes_done", "Handshakes done.", value=handshakes.done)
        failed = CounterMetricFamily("penstock_tls_handshakes_failed", "Handshakes that failed.", labels=("reason",))
        for reason, amount in handshakes.failures.items():
            failed.add_metric((reason,), amount)
        yield failed
