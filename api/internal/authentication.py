"""The principal of a Django request. `rest.py` beside this makes it DRF's authentication class."""

from __future__ import annotations

import time
from urllib.parse import quote

import structlog
from django.http import HttpRequest

from api.audit.actions import Actor
from api.internal.principal import MAC_HEADER, PRINCIPAL_HEADER, ForwardedPrincipal, verify_principal
from api.secrets import internal_key


def principal_of(request: HttpRequest) -> ForwardedPrincipal:
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


def actor_of(principal: ForwardedPrincipal) -> Actor:
    return Actor(principal.access_key_id, principal.request_id, source=principal.source_ip)


def raw_target(request: HttpRequest) -> bytes:
    """Path and query byte for byte as they were sent, before anything was decoded: what front ends make MACs of."""
    scope = getattr(request, "scope", None)
    if scope is None:
        return request.get_full_path().encode()
    path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    query: bytes = scope.get("query_string", b"")
    return path + b"?" + query if query else path
