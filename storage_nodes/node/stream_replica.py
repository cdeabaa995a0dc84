"""A replica of a stream partition (interim)."""

from __future__ import annotations

from storage_nodes.node.connections import Token
from storage_nodes.node.replica import Replica


class StreamReplica(Replica):
    def append(self, token: Token, payload: bytes) -> None: ...
    def read(self, token: Token, payload: bytes) -> None: ...
    def cancel(self, token: Token) -> None: ...
