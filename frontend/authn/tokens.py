"""Access keys and bearer tokens: how they are minted, told apart from typing errors, and stored.

    access key id      AKPS + 16 characters of [A-Z2-7]                    80 random bits, a public name
    secret access key  40 characters of the base64 alphabet                240 random bits, signs SigV4 requests
    bearer token       pstk_ + access key id + _ + 43 base62 + 6 base62    256 random bits, then a CRC-32

The CRC covers everything before it, so that a mangled token is refused before any look-up, and so that secret
scanners can tell a token from noise. Only HMAC-SHA-256(pepper, token) is stored: a stolen table is of no use without
the pepper.

Surface: other planes may import this module.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import zlib
from typing import NamedTuple

ACCESS_KEY_ID_PREFIX = "AKPS"
ACCESS_KEY_ID_CHARS = 20
SECRET_ACCESS_KEY_CHARS = 40
BEARER_PREFIX = "pstk_"
BEARER_SECRET_CHARS = 43
BEARER_CHECKSUM_CHARS = 6
BEARER_CHARS = len(BEARER_PREFIX) + ACCESS_KEY_ID_CHARS + 1 + BEARER_SECRET_CHARS + BEARER_CHECKSUM_CHARS

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ACCESS_KEY_ID = re.compile(r"AKPS[A-Z2-7]{16}", re.ASCII)
_BEARER = re.compile(r"pstk_(AKPS[A-Z2-7]{16})_[0-9A-Za-z]{49}", re.ASCII)

# What a token of an unknown key is compared with, so that known and unknown ids cost the same.
_NO_HASH = bytes(32)

assert 62**BEARER_CHECKSUM_CHARS > 2**32, "the checksum must hold a CRC-32"
assert 62**BEARER_SECRET_CHARS > 2**256


class MintedKey(NamedTuple):
    """A new key. The two secrets are shown once; what is kept is `sealed` by the key ring and `bearer_hash`."""

    access_key_id: str
    secret_access_key: str
    bearer_token: str


def mint_key() -> MintedKey:
    """A new access key id with its two secrets."""
    access_key_id = mint_access_key_id()
    return MintedKey(access_key_id, mint_secret_access_key(), mint_bearer_token(access_key_id))


def mint_access_key_id() -> str:
    return ACCESS_KEY_ID_PREFIX + base64.b32encode(secrets.token_bytes(10)).decode()


def mint_secret_access_key() -> str:
    return base64.b64encode(secrets.token_bytes(30)).decode()


def mint_bearer_token(access_key_id: str) -> str:
    """A bearer token for this key. Raises ValueError if the id is not an access key id."""
    if not is_access_key_id(access_key_id):
        raise ValueError("not an access key id")
    secret = "".join(secrets.choice(_BASE62) for _ in range(BEARER_SECRET_CHARS))
    body = f"{BEARER_PREFIX}{access_key_id}_{secret}"
    return body + bearer_checksum(body)


def is_access_key_id(text: str) -> bool:
    return _ACCESS_KEY_ID.fullmatch(text) is not None


def parse_bearer_token(token: str) -> str | None:
    """The access key id a well-formed token names, or None. Says nothing yet about the secret in it."""
    match = _BEARER.fullmatch(token)
    if match is None:
        return None
    if not hmac.compare_digest(bearer_checksum(token[:-BEARER_CHECKSUM_CHARS]), token[-BEARER_CHECKSUM_CHARS:]):
        return None
    return match.group(1)


def hash_bearer_token(account_id: str, token: str, pepper: bytes) -> bytes:
    """What is stored of a token. It says whose it is: a row that is moved to another account matches no token."""
    return hmac.digest(pepper, f"{account_id}:{token}".encode(), hashlib.sha256)


def bearer_token_matches(account_id: str, token: str, pepper: bytes, bearer_hash: bytes | None) -> bool:
    """Compare in constant time. None (no such key) does the same work and never matches."""
    computed = hash_bearer_token(account_id, token, pepper)
    equal = hmac.compare_digest(computed, bearer_hash or _NO_HASH)
    return equal and bool(bearer_hash)


def bearer_checksum(body: str) -> str:
    """What follows everything else of a token."""
    number = zlib.crc32(body.encode())
    digits = []
    for _ in range(BEARER_CHECKSUM_CHARS):
        number, digit = divmod(number, 62)
        digits.append(_BASE62[digit])
    return "".join(reversed(digits))
