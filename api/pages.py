"""Lists by page: `page_size` and an opaque `page_token`, which names the last item of the page before (keyset)."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from api import limits


class PageAsked(NamedTuple):
    after: str
    size: int


def text_asked(request: Request, name: str) -> str:
    """A text of the query string, empty where it is not given. Raises ValidationError for what no row can hold."""
    text: str = request.query_params.get(name, "")
    if "\0" in text:
        raise ValidationError({name: "holds a character that is not allowed"})
    return text


def page_asked(request: Request) -> PageAsked:
    """Raises ValidationError."""
    size = request.query_params.get("page_size", str(limits.PAGE_SIZE_DEFAULT))
    if not (size.isascii() and size.isdigit() and 1 <= int(size[:9]) <= limits.PAGE_SIZE_MAX):
        raise ValidationError({"page_size": f"must be an integer from 1 to {limits.PAGE_SIZE_MAX}"})
    token = request.query_params.get("page_token", "")
    if not token:
        return PageAsked("", int(size))
    try:
        after = parse_page_token(token)
    except ValueError:
        raise ValidationError({"page_token": "is not a token of this list"}) from None
    return PageAsked(after, int(size))


def make_page_token(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")


def parse_page_token(token: str) -> str:
    """Raises ValueError on anything `make_page_token` did not make."""
    if not 0 < len(token) <= limits.PAGE_TOKEN_CHARACTERS_MAX:
        raise ValueError("page token of an impossible length")
    try:
        after = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode("ascii")
    except binascii.Error as error:
        raise ValueError("page token does not decode") from error
    if not after.isprintable():
        raise ValueError("page token does not decode")
    return after
