"""What the connections of one TLS port share: the certificate and its keeper, the handshakes under way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from frontend.tls.connection import TlsConnection
from frontend.tls.handshakes import Handshakes
from frontend.tls.keeper import CertificateKeeper
from frontend.tls.metrics import TlsMetrics


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
