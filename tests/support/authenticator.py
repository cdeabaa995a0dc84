"""A security key of software: ES256, without attestation. It answers as told, so that tests can make it lie.

authenticatorData   sha256(RP id), 32 bytes | flags, 1 byte | count of signatures, 4 bytes, big-endian
                    of a new credential: | AAGUID, 16 bytes | length of the id, 2 bytes | id | COSE key
signature           ECDSA over authenticatorData | sha256(clientDataJSON), in DER
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import struct
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from webauthn.helpers import encode_cbor

USER_PRESENT, USER_VERIFIED, HAS_CREDENTIAL = 0x01, 0x04, 0x40
_CREDENTIAL_ID_BYTES = 32


@dataclass
class SoftwareAuthenticator:
    """One key pair. `origin` is that of the page that a browser would name."""

    origin: str
    rp_id: str = "localhost"
    flags: int = USER_PRESENT | USER_VERIFIED
    count: int = 0
    counts: bool = True
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(_CREDENTIAL_ID_BYTES))
    user_handle: bytes = b""
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def create(self, options: dict[str, Any]) -> str:
        """What a browser sends after `navigator.credentials.create`."""
        self.user_handle = from_text(options["user"]["id"])
        length = struct.pack(">H", len(self.credential_id))
        held = bytes(16) + length + self.credential_id + self._cose_key()
        attestation = {"fmt": "none", "attStmt": {}, "authData": self._data(self.flags | HAS_CREDENTIAL) + held}
        client = self._client_data("webauthn.create", options["challenge"])
        return self._sent({"clientDataJSON": client, "attestationObject": encode_cbor(attestation)})

    def get(self, options: dict[str, Any]) -> str:
        """What a browser sends after `navigator.credentials.get`."""
        self.count += self.counts
        data, client = self._data(self.flags), self._client_data("webauthn.get", options["challenge"])
        signature = self.key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(SHA256()))
        response = {"clientDataJSON": client, "authenticatorData": data, "signature": signature}
        return self._sent({**response, "userHandle": self.user_handle} if self.user_handle else response)

    def _data(self, flags: int) -> bytes:
        return hashlib.sha256(self.rp_id.encode()).digest() + struct.pack(">BI", flags, self.count)

    def _client_data(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False}).encode()

    def _sent(self, response: dict[str, bytes]) -> str:
        shown = as_text(self.credential_id)
        members = {name: as_text(value) for name, value in response.items()}
        return json.dumps({"id": shown, "rawId": shown, "type": "public-key", "response": members})

    def _cose_key(self) -> bytes:
        point = self.key.public_key().public_numbers()
        return encode_cbor({1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32, "big"), -3: point.y.to_bytes(32, "big")})


def as_text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
