"""What a certificate says of its holder: `penstock://CLUSTER/ROLE/NUMBER`, the one URI of that scheme that it has."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

SCHEME = "penstock://"


class InnerRole(enum.StrEnum):
    NODE = "node"
    FRONT_END = "front-end"
    CONTROL_PLANE = "control-plane"
    WORKER = "worker"
    METADATA = "metadata"
    OPERATOR = "operator"


class InnerName(NamedTuple):
    """`number` tells processes of one role apart; that of a node is its node name (`ids.py`)."""

    cluster_id: str
    role: InnerRole
    number: str

    def __str__(self) -> str:
        return f"{SCHEME}{quote(self.cluster_id, safe='')}/{self.role}/{quote(self.number, safe='')}"


class NameRefused(Exception):
    """A certificate says nothing that is understood here, or of another process. The text says what."""


def parse_name(uri: str) -> InnerName:
    """Raises NameRefused."""
    parts = uri.removeprefix(SCHEME).split("/")
    if not uri.startswith(SCHEME) or len(parts) != 3 or not all(parts):
        raise NameRefused(f"{uri[:200]!r} is not of the form {SCHEME}CLUSTER/ROLE/NUMBER")
    try:
        role = InnerRole(parts[1])
    except ValueError:
        raise NameRefused(f"{parts[1][:40]!r} is no role; there is {', '.join(InnerRole)}") from None
    return InnerName(unquote(parts[0]), role, unquote(parts[2]))


def name_of(certificate: Mapping[str, Any] | None) -> InnerName:
    """Of what `SSLObject.getpeercert` says. Raises NameRefused."""
    names = (certificate or {}).get("subjectAltName", ())
    uris = [value for kind, value in names if kind == "URI" and value.startswith(SCHEME)]
    if len(uris) != 1:
        raise NameRefused(f"the certificate has {len(uris)} names that begin with {SCHEME}; it must have one")
    return parse_name(uris[0])
