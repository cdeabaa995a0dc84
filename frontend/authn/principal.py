"""Who is asking, once that is proven."""

from __future__ import annotations

from typing import NamedTuple

from frontend.authn.rights import Rights


class Principal(NamedTuple):
    """An access key of an account, and where it asks from. `key_version` tells a key from its later self."""

    account_id: str
    access_key_id: str
    key_version: int = 0
    # The address of the client as the front end sees it, "" where there is none; whether the connection is encrypted.
    source_ip: str = ""
    is_secure: bool = False
    # None: the key acts as its account, and may do everything in it.
    rights: Rights | None = None
    # What the client says of itself, for conditions: None where it says nothing. Cut to CALLER_TEXT_CHARACTERS_MAX.
    user_agent: str | None = None
    referer: str | None = None
