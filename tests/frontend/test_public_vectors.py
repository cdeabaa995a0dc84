"""Public vectors (RELIABILITY S1, S27; 5.2): the SigV4 suite, Wycheproof and NIST for AES-GCM. vectors/README.md says
where they come from."""

from __future__ import annotations

import calendar
import hmac
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from frontend.authn import sigv4
from frontend.authn.sigv4 import read_signature, signing_key
from frontend.crypto.envelope import NONCE_BYTES, data_key
from frontend.errors import RequestError
from frontend.http import Request

VECTORS = Path(__file__).parent / "vectors"
SUITE_SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
# The id of the suite is too short for one of ours; it is no part of what is signed.
SUITE_ID, OUR_ID = "AKIDEXAMPLE", "AKIDEXAMPLE00000"
SUITE_NOW_S = calendar.timegm(time.strptime("20150830T123600Z", "%Y%m%dT%H%M%SZ"))
TAG_BYTES = 16


def read(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


SUITE = {case["name"]: case for case in read("aws_sigv4.json")}
# Each of these is refused before its signature is looked at, or signed over less than we ask for.
REFUSED = {
    "get-header-value-multiline": "a header of several lines is refused by the HTTP parser (RFC 9112, 5.2)",
    "get-vanilla-with-session-token": "a session token: none are issued",
    "post-sts-header-after": "a session token: none are issued",
    "post-sts-header-before": "a session token: none are issued",
}


def request_of(text: str, authorization: str) -> Request:
    """The request of a case as the server would hand it on."""
    head, _, body = text.replace("\r\n", "\n").partition("\n\n")
    first, *lines = head.split("\n")
    method, _, target = first.removesuffix(" HTTP/1.1").partition(" ")
    path, _, query = target.partition("?")
    headers = [tuple(line.split(":", 1)) for line in lines if line]
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    raw.append((b"authorization", authorization.strip().replace(SUITE_ID, OUR_ID).encode()))

    async def receive() -> Any:
        raise AssertionError("the body is there")

    request = Request(method, path.encode(), query.encode(), "http", "", raw, receive, body.encode())
    request.read_headers()
    return request


@pytest.mark.parametrize("name", sorted(SUITE.keys() - REFUSED.keys()))
def test_case_of_the_signature_suite_is_signed_as_its_author_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: string to sign, which has the hash of the canonical request, and signature."""
    monkeypatch.setattr(sigv4, "SERVICE", "service")
    case = SUITE[name]
    signed = read_signature(request_of(case["request"], case["authorization"]), SUITE_NOW_S, {})
    assert signed.string_to_sign.decode() == case["string_to_sign"].replace("\r\n", "\n").strip()
    key = signing_key(SUITE_SECRET, "20150830", "us-east-1")
    assert hmac.digest(key, signed.string_to_sign, "sha256").hex() == signed.signature


@pytest.mark.parametrize("name", sorted(SUITE.keys() - REFUSED.keys()))
def test_case_of_the_suite_with_its_body_or_path_changed_is_another(name: str) -> None:
    """S2: the hash in the string to sign is over the method, the path, the query, the headers and the body."""
    case = SUITE[name]
    wanted = case["string_to_sign"].replace("\r\n", "\n").strip()
    request = request_of(case["request"], case["authorization"])
    for attribute, value in (("method", "PUT"), ("path", b"/other"), ("query", b"other=1"), ("body", b"other")):
        before = getattr(request, attribute)
        setattr(request, attribute, value)
        assert read_signature(request, SUITE_NOW_S, {}).string_to_sign.decode() != wanted, attribute
        setattr(request, attribute, before)
    assert read_signature(request, SUITE_NOW_S, {}).string_to_sign.decode() == wanted


@pytest.mark.parametrize("name", [name for name, why in REFUSED.items() if "session token" in why])
def test_case_with_a_session_token_is_refused(name: str) -> None:
    """S6."""
    case = SUITE[name]
    text = case["request"]
    if "x-amz-security-token" not in text.lower():
        text = re.sub(r"(?i)(x-amz-date:)", "X-Amz-Security-Token:token\n\\1", text, count=1)
    with pytest.raises(RequestError) as refused:
        read_signature(request_of(text, case["authorization"]), SUITE_NOW_S, {})
    assert refused.value.code == "InvalidClientTokenId"


def test_suite_is_whole() -> None:
    assert REFUSED.keys() < SUITE.keys() and len(SUITE) >= 30


# --- AES-GCM ---


def cases_of(name: str) -> list[dict[str, Any]]:
    content = read(name)
    return [dict(zip(content["fields"], row, strict=True)) for row in content["cases"]]


def opened(case: dict[str, Any]) -> bytes | None:
    """By the cipher of a data key where it could be one, else by what that is made of. None: it does not open."""
    key, nonce, aad, cipher_text, tag = (bytes.fromhex(case[name]) for name in ("key", "iv", "aad", "cipher", "tag"))
    cipher = data_key(1, key, "1" * 12, b"u" * 16).cipher if len(key) == 32 else AESGCM(key)
    try:
        return cipher.decrypt(nonce, cipher_text + tag, aad)
    except (InvalidTag, ValueError):
        return None


def test_wycheproof_cases_of_aes_gcm() -> None:
    """S27: every valid case opens to its text and seals to its bytes, no invalid one opens. Nonces of other lengths
    than ours may be refused."""
    cases = cases_of("wycheproof_aes_gcm.json")
    assert len(cases) == 316 and sum(case["result"] == "valid" for case in cases) == 229
    for case in cases:
        found = opened(case)
        if case["result"] == "valid" and (found is not None or case["iv_bits"] == NONCE_BYTES * 8):
            assert found == bytes.fromhex(case["plain"]), case["id"]
            sealed = AESGCM(bytes.fromhex(case["key"])).encrypt(
                bytes.fromhex(case["iv"]), bytes.fromhex(case["plain"]), bytes.fromhex(case["aad"])
            )
            assert sealed.hex() == case["cipher"] + case["tag"], case["id"]
        elif case["result"] == "invalid":
            assert found is None, case["id"]


def test_nist_cases_of_aes_256_gcm_with_our_nonce_and_tag() -> None:
    """S27: both directions; those that fail must."""
    cases = cases_of("nist_aes_gcm.json")
    assert len(cases) >= 200 and sum(case["result"] == "invalid" for case in cases) >= 20
    for case in cases:
        assert (len(case["iv"]), len(case["tag"])) == (NONCE_BYTES * 2, TAG_BYTES * 2)
        found = opened(case)
        if case["result"] == "invalid":
            assert found is None
            continue
        assert found == bytes.fromhex(case["plain"])
        cipher = data_key(1, bytes.fromhex(case["key"]), "1" * 12, b"u" * 16).cipher
        sealed = cipher.encrypt(bytes.fromhex(case["iv"]), found, bytes.fromhex(case["aad"]))
        assert sealed.hex() == case["cipher"] + case["tag"]
