"""The principal of a Django request. `rest.py` beside this makes it DRF's authentication class."""

from __future__ import annotations

import time
from urllib.parse import quote

import structlog
from django.http import HttpRequest

from api.secrets import internal_key
from frontend.authn.principal import Principal
from frontend.authn.vouching import MAC_HEADER, PRINCIPAL_HEADER, verify_principal


def principal_of(request: HttpRequest) -> Principal:
    """Raises PrincipalError."""
    principal = verify_principal(
        internal_key(),
        request.method or "",
        raw_target(request),
        request.headers.get(PRINCIPAL_HEADER, ""),
        request.headers.get(MAC_HEADER, ""),
        request.body,
        time.time_ns() // 1_000_000,
    )
    structlog.contextvars.bind_contextvars(request_id=principal.request_id)
    return principal


def raw_target(request: HttpRequest) -> bytes:
    """Path and query byte for byte as they were sent, before anything was decoded: what front ends make MACs of."""
    scope = getattr(request, "scope", None)
    if scope is None:
        return request.get_full_path().encode()
    path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    query: bytes = scope.get("query_string", b"")
    return path + b"?" + query if query else path
