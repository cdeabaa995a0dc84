"""Who is asking, once that is proven."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """An access key of an account. `key_version` tells a key from its later self."""

    account_id: str
    access_key_id: str
    key_version: int = 0
