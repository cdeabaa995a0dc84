"""Signatures of webhooks, as the Standard Webhooks specification writes them. Pure.

    webhook-id         the delivery: the same in every attempt
    webhook-timestamp  when this attempt was signed, in Unix seconds
    webhook-signature  v1,BASE64 for each secret that counts, with spaces between them

A signature is HMAC-SHA256 of `id.timestamp.body`, under the bytes that the secret has behind `whsec_`, from base64.
"""

from __future__ import annotations

import base64
import hmac
import os
from collections.abc import Iterable

from api.webhooks import limits

SECRET_PREFIX = "whsec_"
ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"


def new_webhook_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(os.urandom(limits.WEBHOOK_SECRET_BYTES)).decode()


def signature_headers(secrets: Iterable[str], delivery_id: str, signed_s: int, body: bytes) -> dict[str, str]:
    content = f"{delivery_id}.{signed_s}.".encode() + body
    return {
        ID_HEADER: delivery_id,
        TIMESTAMP_HEADER: str(signed_s),
        SIGNATURE_HEADER: " ".join(_signature(secret, content) for secret in secrets),
    }


def _signature(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    return "v1," + base64.b64encode(hmac.digest(key, content, "sha256")).decode()
