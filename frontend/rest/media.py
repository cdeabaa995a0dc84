"""The two forms in which REST takes and gives bodies, JSON and msgpack, with the same members; and who asks for which.

The Content-Type says what a body is. The Accept header says what the answer is to be; without one, and for what it
leaves open, the answer has the form of the body. Refusals are JSON problems in any case.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from frontend.errors import RequestError, invalid

_QUALITY = re.compile(rb"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE)
_CHARSET = re.compile(rb";\s*charset\s*=\s*\"?([^\s;\"]*)", re.IGNORECASE)
# JSON is UTF-8 alone (RFC 8259, 8.1), and what is ASCII is both.
_CHARSETS = (b"utf-8", b"utf8", b"us-ascii", b"ascii")


class MediaForm(NamedTuple):
    content_type: bytes
    encode: Callable[[object], bytes]


JSON = MediaForm(b"application/json", msgspec.json.Encoder().encode)
MSGPACK = MediaForm(b"application/msgpack", msgspec.msgpack.Encoder().encode)
_KNOWN = {
    b"application/json": JSON,
    b"application/msgpack": MSGPACK,
    b"application/vnd.msgpack": MSGPACK,
    b"application/x-msgpack": MSGPACK,
}


def form_of_body(headers: dict[bytes, bytes]) -> MediaForm:
    """Raises RequestError."""
    given = headers.get(b"content-type")
    if given is None:
        return JSON
    form = _KNOWN.get(given) or _KNOWN.get(given.partition(b";")[0].strip().lower())
    if form is None:
        raise RequestError("UnsupportedMediaType", "The Content-Type must be application/json or application/msgpack.")
    charset = _CHARSET.search(given)
    if charset is not None and charset[1].lower() not in _CHARSETS:
        raise invalid("The charset of a body is utf-8.")
    return form


def form_of_answer(headers: dict[bytes, bytes], asked: MediaForm) -> MediaForm:
    """`asked` is the form of the body."""
    accept = headers.get(b"accept")
    if accept is None or accept == b"*/*":
        return asked
    qualities: dict[MediaForm, float] = {}
    for one in accept.split(b","):
        media, _, parameters = one.partition(b";")
        form = _KNOWN.get(media.strip().lower())
        if form is not None:
            found = _QUALITY.search(parameters)
            qualities[form] = max(qualities.get(form, 0.0), float(found[1]) if found else 1.0)
    if not qualities:
        return asked if b"*/*" in accept or b"application/*" in accept else JSON
    # Of two that are as welcome, the form of the body.
    best = max(qualities, key=lambda form: (qualities[form], form is asked))
    return best if qualities[best] else asked
