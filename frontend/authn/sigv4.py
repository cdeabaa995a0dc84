"""AWS Signature Version 4: what was signed, and does the signature match. Pure; the clock is a parameter.

    canonical request = method \n path \n query \n name:value\n... \n signed names \n sha256(body)
    string to sign    = AWS4-HMAC-SHA256 \n time \n date/region/sqs/aws4_request \n sha256(canonical request)
    signing key       = HMAC(HMAC(HMAC(HMAC("AWS4" + secret, date), region), "sqs"), "aws4_request")

Two forms: the Authorization header, and the presigned query. Decided here once, by default no: `host` and every
`x-amz-*` header must be signed, the body is always hashed and never taken on trust, both forms at once are refused,
and so are session tokens, which this service does not issue. Everything that does not match answers with the same
words.
"""

from __future__ import annotations

import calendar
import functools
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

import msgspec

from frontend.crypto.macs import MacKey
from frontend.errors import NOT_SIGNED, OTHER_SIGNATURE, UNKNOWN_KEY, RequestError
from frontend.http import Request
from frontend.limits import (
    AUTHORIZATION_BYTES_MAX,
    CLOCK_SKEW_S_MAX,
    DATES_CACHED_MAX,
    PRESIGN_EXPIRES_S_MAX,
    SIGNED_HEADERS_MAX,
)

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sqs"
_SCHEME = ALGORITHM.encode()
_HEADER_START = f"{ALGORITHM} "
_SIGNATURE = b"Signature="
# An id that no key can have is one of no key, and no fault of the signature's form.
_CREDENTIAL = re.compile(r"([A-Za-z0-9_]{1,64})/([0-9]{8})/([a-z0-9-]{1,32})/([a-z0-9-]{1,32})/aws4_request", re.ASCII)
_NAMES = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+(;[a-z0-9!#$%&'*+.^_`|~-]+)*", re.ASCII)
_AMZ_DATE = re.compile(rb"[0-9]{8}T[0-9]{6}Z")
_AMZ_DATE_CHARS = 16
_AMZ = b"x-amz-"
_AMZ_LINE = b"\n" + _AMZ
_HEX_64 = re.compile(rb"[0-9a-f]{64}")
_PRESIGNED = re.compile(rb"(^|&)X-Amz-")
# Version 2, which SQS took once: its signature is a field of the query.
_FORMER = re.compile(rb"(^|&)(SignatureVersion|SignatureMethod|AWSAccessKeyId)=")
_QUERY_SIGNATURE = b"X-Amz-Signature"
_QUERY_SINGLE = frozenset(
    (b"X-Amz-Algorithm", b"X-Amz-Credential", b"X-Amz-Date", b"X-Amz-Expires", b"X-Amz-SignedHeaders", _QUERY_SIGNATURE)
)


class Credential(NamedTuple):
    """The part of a signature that stays the same from request to request of one client on one day."""

    access_key_id: str
    date: str
    day: bytes  # the date, as moments of it begin
    region: str
    service: str
    names: tuple[bytes, ...]  # signed headers, as the client ordered them
    names_text: bytes
    scope: bytes
    lines: bytes  # of the canonical request, with a place for each value
    values_of: Callable[[Mapping[bytes, bytes]], object]  # what goes there
    amz_count: int  # of the names, those that begin with x-amz-


class Signed(msgspec.Struct, frozen=True, gc=False):
    """A request with a signature of the right shape, not verified yet."""

    credential: Credential
    signature: str
    string_to_sign: bytes
    read_from: bytes  # what the credential was read from; empty where that is a query


def read_signature(request: Request, now_s: float, known: Mapping[bytes, Credential]) -> Signed:
    """What the request claims; `known`: what was read before. Raises RequestError if it has no signature, a malformed
    one, or one out of time."""
    headers, query = request.headers, request.query
    authorization = headers.get(b"authorization")
    in_query = bool(query) and _PRESIGNED.search(query) is not None
    if authorization is None and not in_query:
        if _FORMER.search(query):
            raise _other_kind()
        raise RequestError("MissingAuthenticationToken", NOT_SIGNED)
    if authorization and not authorization.startswith(_SCHEME):
        raise _other_kind()
    if authorization is not None and in_query:
        raise RequestError("IncompleteSignature", "Only one way of signing may be used.")
    if b"x-amz-security-token" in headers:
        raise RequestError("InvalidClientTokenId", UNKNOWN_KEY)
    if authorization is not None:
        return _read_header(request, authorization, now_s, known)
    return _read_query(request, now_s)


def signing_key(secret_access_key: str, date: str, region: str) -> bytes:
    key = hmac.digest(b"AWS4" + secret_access_key.encode(), date.encode(), "sha256")
    for part in (region, SERVICE, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def signature_matches(signed: Signed, key: MacKey) -> bool:
    """Constant time; a scope of another service fails like any other difference. `key` is of the region in the scope,
    which the caller has looked at."""
    computed = key.digest(signed.string_to_sign).hex()
    equal = hmac.compare_digest(computed, signed.signature)
    return equal and signed.credential.service == SERVICE


# --- the two forms ---


def _read_header(request: Request, authorization: bytes, now_s: float, known: Mapping[bytes, Credential]) -> Signed:
    if len(authorization) > AUTHORIZATION_BYTES_MAX:
        raise _malformed()
    claimed, named, signature = authorization.rpartition(_SIGNATURE)
    credential = known.get(claimed) or _parse_header_credential(claimed)
    if not named or credential is None or _HEX_64.fullmatch(signature) is None:
        raise _malformed()
    amz_date = request.headers.get(b"x-amz-date")
    if amz_date is None:
        raise RequestError("IncompleteSignature", "The request must carry X-Amz-Date.")
    _check_time(amz_date, credential, now_s, CLOCK_SKEW_S_MAX)
    query = _canonical_query(request.query, skip_signature=False) if request.query else b""
    return _sign_over(request, credential, signature.decode(), amz_date, query, claimed)


def _parse_header_credential(claimed: bytes) -> Credential | None:
    """What stands before the signature, the same in all requests of one client on one day: the algorithm, then
    `Credential=..., SignedHeaders=..., ` in any order."""
    text = claimed.decode("latin-1")
    if not text.startswith(_HEADER_START):
        return None
    *parts, rest = text[len(_HEADER_START) :].split(",")
    fields: dict[str, str] = {}
    for part in parts:
        name, _, value = part.strip().partition("=")
        if name in fields:
            return None
        fields[name] = value
    if rest.strip() or set(fields) != {"Credential", "SignedHeaders"}:
        return None
    return _credential(fields["Credential"], fields["SignedHeaders"])


def _read_query(request: Request, now_s: float) -> Signed:
    fields: dict[bytes, str] = {}
    for part in request.query.split(b"&"):
        name, _, value = part.partition(b"=")
        if unquote_to_bytes(name.lower()).startswith(b"x-amz-security-token"):
            raise RequestError("InvalidClientTokenId", UNKNOWN_KEY)
        if name in _QUERY_SINGLE:
            if name in fields:
                raise _malformed()
            fields[name] = unquote_to_bytes(value).decode("latin-1")
    if set(fields) != _QUERY_SINGLE or fields[b"X-Amz-Algorithm"] != ALGORITHM:
        raise _malformed()
    credential = _credential(fields[b"X-Amz-Credential"], fields[b"X-Amz-SignedHeaders"])
    expires = fields[b"X-Amz-Expires"]
    signature = fields[_QUERY_SIGNATURE]
    if credential is None or _HEX_64.fullmatch(signature.encode()) is None:
        raise _malformed()
    if not (expires.isascii() and expires.isdigit()):
        raise _malformed()
    if len(expires) > 6 or not 1 <= int(expires) <= PRESIGN_EXPIRES_S_MAX:
        raise _malformed()
    moment = fields[b"X-Amz-Date"].encode("latin-1")
    _check_time(moment, credential, now_s, int(expires))
    query = _canonical_query(request.query, skip_signature=True)
    return _sign_over(request, credential, signature, moment, query)


def _credential(credential: str, names_text: str) -> Credential | None:
    match = _CREDENTIAL.fullmatch(credential)
    if match is None or _NAMES.fullmatch(names_text) is None:
        return None
    names = tuple(name.encode() for name in names_text.split(";"))
    if len(names) > SIGNED_HEADERS_MAX or b"host" not in names or len(set(names)) != len(names):
        return None
    scope = credential.partition("/")[2].encode()
    lines = b"".join([b"%b:%%b\n" % name.replace(b"%", b"%%") for name in names])
    amz_count = sum(name.startswith(_AMZ) for name in names)
    signed = itemgetter(*names)
    return Credential(
        match[1],
        match[2],
        match[2].encode(),
        match[3],
        match[4],
        names,
        names_text.encode(),
        scope,
        lines,
        signed,
        amz_count,
    )


# --- what was signed ---


def _sign_over(
    request: Request, credential: Credential, signature: str, moment: bytes, query: bytes, read_from: bytes = b""
) -> Signed:
    headers = request.headers
    body_hash = hashlib.sha256(request.body).hexdigest().encode()
    claimed = headers.get(b"x-amz-content-sha256")
    # Also refuses UNSIGNED-PAYLOAD and STREAMING-...: neither is the hash of anything.
    if claimed is not None and not hmac.compare_digest(claimed, body_hash):
        raise _mismatch()
    try:
        lines = credential.lines % credential.values_of(headers)
    except KeyError:
        raise _mismatch() from None
    # All that are signed are there: one more of these is not signed.
    names = b"\n".join(headers)
    if names.count(_AMZ_LINE) + names.startswith(_AMZ) != credential.amz_count:
        raise _mismatch()
    # A look at all of them at once: one in thousands has spaces that are not signed.
    if (b" " in lines and (b"  " in lines or b": " in lines or b" \n" in lines)) or b"\t" in lines:
        lines = b"".join([b"%b:%b\n" % (name, _folded(headers[name])) for name in credential.names])
    path = request.path if request.path == b"/" else _canonical_path(request.path)
    canonical = b"%b\n%b\n%b\n%b\n%b\n%b" % (
        request.method.encode(), path, query, lines, credential.names_text, body_hash
    )  # fmt: skip
    digest = hashlib.sha256(canonical).hexdigest().encode()
    to_sign = b"AWS4-HMAC-SHA256\n%b\n%b\n%b" % (moment, credential.scope, digest)
    return Signed(credential, signature, to_sign, read_from)


def _folded(value: bytes) -> bytes:
    if b"  " in value or b"\t" in value:
        value = b" ".join(value.split())
    return value.strip()


def _canonical_path(path: bytes) -> bytes:
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            if parts:
                parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    tail = "/" if parts and path.endswith(b"/") else ""
    # The path as it was sent is quoted once more: that is what every service but S3 signs.
    return f"/{quote(b'/'.join(parts), safe='/~')}{tail}".encode()


def _canonical_query(query: bytes, skip_signature: bool) -> bytes:
    pairs = []
    for part in query.split(b"&"):
        if not part:
            continue
        name, _, value = part.partition(b"=")
        if skip_signature and name == _QUERY_SIGNATURE:
            continue
        pairs.append((_requote(name), _requote(value)))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs)).encode()


def _requote(text: bytes) -> str:
    return quote(unquote_to_bytes(text), safe="-_.~")


def _check_time(moment: bytes, credential: Credential, now_s: float, valid_s: float) -> None:
    signed_s = _epoch_s(moment) if len(moment) == _AMZ_DATE_CHARS else None
    if signed_s is None or not moment.startswith(credential.day):
        raise _malformed()
    if signed_s - now_s > CLOCK_SKEW_S_MAX or now_s - signed_s > valid_s:
        raise RequestError("RequestExpired", "The signature of the request has expired or is not valid yet.")


@functools.lru_cache(maxsize=DATES_CACHED_MAX)
def _epoch_s(moment: bytes) -> int | None:
    if _AMZ_DATE.fullmatch(moment) is None:
        return None
    try:
        return calendar.timegm(time.strptime(moment.decode(), "%Y%m%dT%H%M%SZ"))
    except ValueError:
        return None


def _malformed() -> RequestError:
    return RequestError("IncompleteSignature", "The request signature is not complete or not well-formed.")


def _other_kind() -> RequestError:
    return RequestError("InvalidSecurity", OTHER_SIGNATURE)


def _mismatch() -> RequestError:
    return signature_does_not_match()


def signature_does_not_match() -> RequestError:
    """The one answer to every difference: it must not tell which part differed."""
    return RequestError(
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided. "
        "Check your AWS Secret Access Key and signing method. Consult the service documentation for details.",
    )
