"""Codes of an authenticator application: TOTP of RFC 6238 with SHA-1, six digits, thirty seconds. Pure."""

from __future__ import annotations

import base64
import hmac
from urllib.parse import quote

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.hotp import HOTP

from api.people import limits

ISSUER = "Penstock"


def code_at(secret: bytes, step: int) -> str:
    return HOTP(secret, limits.TOTP_DIGITS, SHA1()).generate(step).decode()


def matching_step(secret: bytes, code: str, now_s: int, last_step: int) -> int | None:
    """The newest step near `now_s` whose code this is, if it comes after `last_step`. All candidates are compared, each
    in constant time."""
    now_step = now_s // limits.TOTP_STEP_S
    found = None
    for step in range(now_step - limits.TOTP_DRIFT_STEPS, now_step + limits.TOTP_DRIFT_STEPS + 1):
        if hmac.compare_digest(code_at(secret, step).encode(), code.encode()) and step > last_step:
            found = step
    return found


def secret_text(secret: bytes) -> str:
    """As people type it in."""
    return base64.b32encode(secret).decode().rstrip("=")


def otpauth_url(secret: bytes, email: str) -> str:
    """As a QR code carries it."""
    label = f"{quote(ISSUER)}:{quote(email, safe='@')}"
    digits, period = limits.TOTP_DIGITS, limits.TOTP_STEP_S
    return f"otpauth://totp/{label}?secret={secret_text(secret)}&issuer={ISSUER}&digits={digits}&period={period}"
