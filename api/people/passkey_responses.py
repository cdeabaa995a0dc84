"""What browsers are asked for, and what their answers prove (WebAuthn level 2, with the `webauthn` package).

Every answer has to come from a page of the relying party's origin, be signed for its RP id, sign the challenge that was
given, and say that the device has verified its person. Attestation is neither asked for nor read: which maker a device
has decides nothing here, and no certificate of a stranger is parsed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import webauthn
from cryptography.hazmat.primitives.asymmetric import ec
from webauthn.helpers import (
    encode_cbor,
    options_to_json_dict,
    parse_attestation_object,
    parse_authentication_credential_json,
    parse_registration_credential_json,
)
from webauthn.helpers.cose import COSEAlgorithmIdentifier
from webauthn.helpers.structs import (
    AttestationFormat,
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from api.people import limits
from api.people.errors import passkey_refused
from api.people.relying_party import NAME, RelyingParty

_ALGORITHMS = [
    COSEAlgorithmIdentifier.ECDSA_SHA_256,
    COSEAlgorithmIdentifier.EDDSA,
    COSEAlgorithmIdentifier.RSASSA_PKCS1_v1_5_SHA_256,
]
_TIMEOUT_MS = limits.PASSKEY_CHALLENGE_S * 1_000


class NewCredential(NamedTuple):
    """`public_key` is COSE."""

    credential_id: bytes
    public_key: bytes
    sign_count: int


class NamedCredential(NamedTuple):
    """What an answer says about itself, before anything of it is verified. `user_handle` is "" where it has none."""

    credential_id: bytes
    user_handle: bytes


def creation_options(
    party: RelyingParty, challenge: bytes, user_handle: bytes, email: str, known: Iterable[bytes]
) -> dict[str, Any]:
    """For `navigator.credentials.create`. A device that holds one of the known credentials makes no other."""
    options = webauthn.generate_registration_options(
        rp_id=party.rp_id,
        rp_name=NAME,
        user_id=user_handle,
        user_name=email,
        challenge=challenge,
        timeout=_TIMEOUT_MS,
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.PREFERRED, user_verification=UserVerificationRequirement.REQUIRED
        ),
        exclude_credentials=[PublicKeyCredentialDescriptor(id=one) for one in known],
        supported_pub_key_algs=_ALGORITHMS,
    )
    return options_to_json_dict(options)


def request_options(party: RelyingParty, challenge: bytes, known: Iterable[bytes]) -> dict[str, Any]:
    """For `navigator.credentials.get`. Without known credentials the device offers those that it keeps itself."""
    options = webauthn.generate_authentication_options(
        rp_id=party.rp_id,
        challenge=challenge,
        timeout=_TIMEOUT_MS,
        allow_credentials=[PublicKeyCredentialDescriptor(id=one) for one in known],
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    return options_to_json_dict(options)


def verify_registration(party: RelyingParty, challenge: bytes, response: str) -> NewCredential:
    """Raises PeopleError."""
    try:
        given = parse_registration_credential_json(_content(response))
        stated = parse_attestation_object(given.response.attestation_object)
        is_plain = stated.fmt in (AttestationFormat.NONE, AttestationFormat.PACKED) and not stated.att_stmt.x5c
        if not is_plain:
            raise passkey_refused()
        found = webauthn.verify_registration_response(
            credential=given,
            expected_challenge=challenge,
            expected_rp_id=party.rp_id,
            expected_origin=party.origin,
            require_user_verification=True,
            supported_pub_key_algs=_ALGORITHMS,
        )
    except Exception as error:  # the parsers under it raise what they like for input from outside
        raise passkey_refused() from error
    is_short = len(found.credential_id) <= limits.CREDENTIAL_ID_BYTES_MAX
    if not is_short or len(found.credential_public_key) > limits.CREDENTIAL_KEY_BYTES_MAX:
        raise passkey_refused()
    return NewCredential(found.credential_id, found.credential_public_key, found.sign_count)


def named_credential(response: str) -> NamedCredential:
    """Which credential the answer is of, as it says. Raises PeopleError."""
    try:
        given = parse_authentication_credential_json(_content(response))
    except Exception as error:  # as above
        raise passkey_refused() from error
    return NamedCredential(given.raw_id, given.response.user_handle or b"")


def verify_assertion(party: RelyingParty, challenge: bytes, response: str, public_key: bytes, sign_count: int) -> int:
    """The new count of signatures. Raises PeopleError, also where the count has not grown: the key was copied."""
    try:
        found = webauthn.verify_authentication_response(
            credential=_content(response),
            expected_challenge=challenge,
            expected_rp_id=party.rp_id,
            expected_origin=party.origin,
            credential_public_key=public_key,
            credential_current_sign_count=sign_count,
            require_user_verification=True,
        )
    except Exception as error:  # as above
        raise passkey_refused() from error
    return found.new_sign_count


@functools.cache
def stand_in_key() -> bytes:
    """Of nobody. What a credential that is not known is verified with, so that its refusal takes as long."""
    point = ec.generate_private_key(ec.SECP256R1()).public_key().public_numbers()
    coordinates = {-2: point.x.to_bytes(32, "big"), -3: point.y.to_bytes(32, "big")}
    return encode_cbor({1: 2, 3: int(COSEAlgorithmIdentifier.ECDSA_SHA_256), -1: 1, **coordinates})


def _content(response: str) -> dict[str, Any]:
    """Raises ValueError, RecursionError or PeopleError."""
    if len(response) > limits.PASSKEY_RESPONSE_CHARACTERS_MAX:
        raise passkey_refused()
    found = json.loads(response)
    if not isinstance(found, dict):
        raise passkey_refused()
    return found
