"""Opaque tokens: 256 random bits, of which a MAC is stored.

    token   prefix of its kind + 43 characters of base64url
    stored  HMAC-SHA-256(pepper.key, "person-token:" + kind + ":" + token)

The kind is part of what is hashed: a token of one kind opens nothing of another. A stolen table is of no use without
the pepper.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
import secrets

from api.people import limits
from api.secrets import pepper


class TokenKind(enum.StrEnum):
    SESSION = "session"
    SIGN_UP = "sign_up"
    PASSWORD_RESET = "password_reset"
    CHALLENGE = "challenge"
    INVITATION = "invitation"
    CONSOLE_LINK = "console_link"
    TAIL = "tail"
    PASSKEY_SIGN_IN = "passkey_sign_in"


_PREFIX = {
    TokenKind.SESSION: "psts_",
    TokenKind.SIGN_UP: "pstc_",
    TokenKind.PASSWORD_RESET: "pstr_",
    TokenKind.CHALLENGE: "pstm_",
    TokenKind.INVITATION: "psti_",
    TokenKind.CONSOLE_LINK: "pstl_",
    TokenKind.TAIL: "pstt_",
    TokenKind.PASSKEY_SIGN_IN: "pstp_",
}
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


def mint_token(kind: TokenKind) -> str:
    return _PREFIX[kind] + secrets.token_urlsafe(limits.TOKEN_BYTES)


def hash_token(kind: TokenKind, token: str) -> bytes | None:
    """What is stored of a token; None for what cannot be one of this kind."""
    prefix = _PREFIX[kind]
    if not token.startswith(prefix) or _SECRET.fullmatch(token, len(prefix)) is None:
        return None
    return _mac(f"person-token:{kind}:{token}")


def hash_recovery_code(person_id: object, code: str) -> bytes:
    return _mac(f"recovery-code:{person_id}:{code}")


def hash_challenge_holder(purpose: str, holder: str) -> bytes:
    """Names who has to answer a challenge of a passkey, and what for."""
    return _mac(f"passkey-challenge:{purpose}:{holder}")


def hash_subject(rate: str, subject: str) -> bytes:
    """Names the counter of attempts; does not tell which address was tried."""
    return _mac(f"attempts:{rate}:{subject}")


def hash_familiar_source(email: str, source: str) -> bytes:
    """Names a source for one address; tells neither."""
    return _mac(f"familiar-source:{source} {email}")


def same_hash(one: bytes, other: bytes | memoryview) -> bool:
    return hmac.compare_digest(one, bytes(other))


def _mac(text: str) -> bytes:
    return hmac.digest(pepper(), text.encode(), hashlib.sha256)
