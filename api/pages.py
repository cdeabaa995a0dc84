"""Lists by page: `page_size` and an opaque `page_token`, which names the last item of the page before (keyset).

    TOKEN  base64url, unpadded, of 12 bytes of nonce, and AES-256-GCM of the last item with what the list is as
           additional data: the account, the listing, and each filter that was asked for

So a token goes on with the list that it was made for, and with no other: changed by a bit, of another account, another
listing or other filters, it is refused. `page_size` may change from page to page. It says nothing to who holds it: some
lists go by numbers that count over all accounts.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hmac
import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from api import limits
from api.query_parameters import is_of_signature
from api.secrets import internal_key
from frontend.authn.principal import Principal

PAGE_SIZE, PAGE_TOKEN = "page_size", "page_token"
_NONCE_BYTES = 12
# With zeros in front, too: what is read as a number is the text that was given, whole.
_SIZE_DIGITS_MAX = 9


class PagedList(NamedTuple):
    """`listing` names what is listed, `filters` what is asked of it, in one order."""

    account_id: str
    listing: str
    filters: tuple[str, ...] = ()

    def token(self, last: str) -> str:
        """For the page behind `last`."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + _cipher().encrypt(nonce, last.encode(), self._bound)
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def after(self, token: str) -> str:
        """What `token` was given. Raises ValueError for one that was not made here for this list."""
        if not 0 < len(token) <= limits.PAGE_TOKEN_CHARACTERS_MAX:
            raise ValueError("page token of an impossible length")
        if token.endswith("="):
            raise ValueError("page token with an end that none has")
        try:
            sealed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
            return _cipher().decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._bound).decode()
        except (binascii.Error, InvalidTag, ValueError):
            raise ValueError("page token of another list") from None

    @property
    def _bound(self) -> bytes:
        parts = [part.encode(errors="surrogatepass") for part in (self.account_id, self.listing, *self.filters)]
        return b"".join(struct.pack(">I", len(part)) + part for part in parts)


class PageAsked(NamedTuple):
    after: str
    size: int
    of: PagedList

    def token(self, last: object) -> str:
        """`next_page_token` of a page that ends with `last`, where there is a next one."""
        return self.of.token(str(last))


@functools.cache
def _cipher() -> AESGCM:
    return AESGCM(hmac.digest(internal_key(), b"penstock-page-token", "sha256"))


def text_asked(request: Request, name: str) -> str:
    """A text of the query string, empty where it is not given. Raises ValidationError for what no row can hold."""
    text: str = request.query_params.get(name, "")
    if "\0" in text:
        raise ValidationError({name: "holds a character that is not allowed"})
    return text


def page_asked(request: Request) -> PageAsked:
    """Raises ValidationError."""
    size = request.query_params.get(PAGE_SIZE, str(limits.PAGE_SIZE_DEFAULT))
    is_number = size.isascii() and size.isdigit() and len(size) <= _SIZE_DIGITS_MAX
    if not (is_number and 1 <= int(size) <= limits.PAGE_SIZE_MAX):
        raise ValidationError({PAGE_SIZE: f"must be an integer from 1 to {limits.PAGE_SIZE_MAX}"})
    token, of = request.query_params.get(PAGE_TOKEN, ""), _list_asked(request)
    try:
        return PageAsked(of.after(token) if token else "", int(size), of)
    except ValueError:
        text = "is not a token of this list with these filters: begin without one"
        raise ValidationError({PAGE_TOKEN: text}) from None


def _list_asked(request: Request) -> PagedList:
    """The path is the listing: it has the account of lists that people ask for, and the queue of lists of one."""
    given = request.query_params.lists()
    asked = sorted((name, values) for name, values in given if not _is_of_page(name))
    account_id = request.user.account_id if isinstance(request.user, Principal) else ""
    return PagedList(account_id, request.path, tuple(_flat(asked)))


def _is_of_page(name: str) -> bool:
    """Another page has others, and another signature."""
    return name in (PAGE_SIZE, PAGE_TOKEN) or is_of_signature(name)


def _flat(asked: Iterable[tuple[str, list[str]]]) -> Iterable[str]:
    for name, values in asked:
        yield name
        yield str(len(values))
        yield from values
