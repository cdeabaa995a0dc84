"""Queue URLs: `http://<host the caller used>/<12-digit account>/<name>`.

Only the account and the name of a URL that comes in are looked at: scheme, host, port and what stands before the
account in its path are ignored, and nothing is ever called. A bare queue name is read as the caller's own queue.
"""

from __future__ import annotations

import re
from functools import lru_cache

from frontend.errors import RequestError, missing
from frontend.limits import QUEUE_NAME_CHARS_MAX, QUEUE_URLS_CACHED_MAX
from frontend.parameters import shortened
from frontend.queues.names import Address

_NAME = rf"[A-Za-z0-9_-]{{1,{QUEUE_NAME_CHARS_MAX}}}(?:\.fifo)?"
_URL = re.compile(rf"[^?#\s]*/([0-9]{{12}})/({_NAME})/?", re.ASCII)
_BARE_NAME = re.compile(_NAME, re.ASCII)
_PATH = re.compile(rf"/([0-9]{{12}})/({_NAME})/?", re.ASCII)
_ACCOUNT_ID = re.compile(r"[0-9]{12}", re.ASCII)
_URL_CHARS_MAX = 512


def read_queue_url(url: str | None, caller_account_id: str) -> Address:
    """Raises RequestError."""
    if not url:
        raise missing("QueueUrl")
    address = _parse(url) if len(url) <= _URL_CHARS_MAX else None
    if address is None and _BARE_NAME.fullmatch(url) is not None:
        return Address(caller_account_id, url)
    if address is None:
        raise RequestError("InvalidAddress", f"The address {shortened(url)} is not valid for this endpoint.")
    return address


def check_account_id(account_id: str | None) -> str | None:
    """Raises RequestError for what no account can be called."""
    if account_id and _ACCOUNT_ID.fullmatch(account_id) is None:
        raise RequestError("InvalidAddress", "The specified account id is not valid: it has 12 digits.")
    return account_id


def read_queue_path(path: bytes) -> Address | None:
    """The queue a request path names, None if it names none."""
    match = _PATH.fullmatch(path.decode("latin-1"))
    return Address(match[1], match[2]) if match else None


def make_queue_url(base_url: str, address: Address) -> str:
    return f"{base_url}/{address.account_id}/{address.name}"


@lru_cache(maxsize=QUEUE_URLS_CACHED_MAX)
def _parse(url: str) -> Address | None:
    match = _URL.fullmatch(url)
    return Address(match[1], match[2]) if match else None
