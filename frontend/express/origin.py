"""Where a hot request comes from: the peer of its connection; behind a trusted proxy, what that one says."""

from __future__ import annotations

from typing import Any

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

Headers = list[tuple[bytes, bytes]]


class ProxyOrigins:
    """uvicorn's own reading of X-Forwarded-*, so that both ways believe the same proxies."""

    def __init__(self, trusted_proxies: str) -> None:
        self._middleware = ProxyHeadersMiddleware(_nothing, trusted_proxies)

    def find(self, client: tuple[str, int] | None, scheme: str, headers: Headers) -> tuple[str, str]:
        """(address of the client, scheme)."""
        scope: Any = {"type": "http", "client": client, "scheme": scheme, "headers": headers}
        reading = self._middleware(scope, _nothing, _nothing)
        try:
            reading.send(None)
        except StopIteration:
            return scope["client"][0] if scope["client"] else "", scope["scheme"]
        raise AssertionError("the middleware waits for nothing")


async def _nothing(*_: Any) -> Any:
    """An application that is called for what was done to its scope."""
