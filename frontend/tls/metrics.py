"""What Prometheus reads of TLS: when the certificate expires, whether a new one was refused, how handshakes go."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from frontend.tls.handshakes import Handshakes
from frontend.tls.keeper import CertificateKeeper


class TlsMetrics(Collector):
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
