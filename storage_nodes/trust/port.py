"""The port of a service that is no storage node: who may connect. It encrypts whatever the mode of frames is: keys pass
there, and few bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from storage_nodes.trust.connection import ServerEnd
from storage_nodes.trust.credentials import Credentials
from storage_nodes.trust.handshakes import OpenHandshakes
from storage_nodes.trust.names import InnerName, InnerRole
from storage_nodes.trust.permissions import MAY_CONNECT


class NamedPort:
    """Of one process of the role `service`."""

    def __init__(self, credentials: Credentials, service: InnerRole, is_http: bool = False) -> None:
        self._credentials = credentials
        self._service = service
        self._is_http = is_http
        self._handshakes = OpenHandshakes()

    def over(self, protocol: Callable[..., asyncio.Protocol]) -> Callable[..., asyncio.Protocol]:
        """Makes connections whose `protocol` begins after the handshake, with the options given for each of them."""

        def accept(**options: Any) -> asyncio.Protocol:
            return ServerEnd(
                self._credentials,
                self._handshakes,
                lambda name: protocol(**options),
                self._objection,
                always_encrypts=True,
                is_http=self._is_http,
            )

        return accept

    def _objection(self, name: InnerName) -> str:
        if name.role in MAY_CONNECT[self._service]:
            return ""
        return f"a process of the role {name.role} has nothing to ask of the role {self._service}"
