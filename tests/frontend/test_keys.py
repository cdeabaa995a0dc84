"""Tokens, key ring, envelopes, receipts (RELIABILITY S9, S27): formats; nothing changed or moved still opens."""

from __future__ import annotations

import base64
import os
import re

import pytest

from frontend.authn.tokens import (
    bearer_token_matches,
    hash_bearer_token,
    mint_bearer_token,
    mint_key,
    parse_bearer_token,
)
from frontend.crypto.envelope import (
    Content,
    EnvelopeError,
    Opened,
    data_key,
    key_names,
    open_envelope,
    seal,
    seal_all,
)
from frontend.crypto.keyring import Keyring, KeyringError, SecretFileError, read_key_file
from frontend.crypto.receipts import Receipt, ReceiptError, ReceiptMaker, receipt_owner
from storage_nodes.ids import PARTITION_ID_MAX

UUID = b"u" * 16
ACCOUNT = "123456789012"


# --- tokens ---


def test_minted_key_has_the_documented_format() -> None:
    key = mint_key()
    assert re.fullmatch(r"AKPS[A-Z2-7]{16}", key.access_key_id)
    assert re.fullmatch(r"[A-Za-z0-9+/]{40}", key.secret_access_key)
    assert re.fullmatch(rf"pstk_{key.access_key_id}_[0-9A-Za-z]{{49}}", key.bearer_token)
    assert len({mint_key().bearer_token for _ in range(50)}) == 50


def test_bearer_token_parses_and_any_changed_character_does_not() -> None:
    token = mint_key().bearer_token
    assert parse_bearer_token(token) == token[5:25]
    for place in range(len(token)):
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        assert parse_bearer_token(changed) is None, place
    for text in ("", token + "\n", " " + token, token[:-1], token.lower()):
        assert parse_bearer_token(text) is None


def test_bearer_token_matches_only_its_own_hash() -> None:
    key = mint_key()
    pepper = b"p" * 32
    stored = hash_bearer_token(ACCOUNT, key.bearer_token, pepper)
    assert bearer_token_matches(ACCOUNT, key.bearer_token, pepper, stored)
    assert not bearer_token_matches(ACCOUNT, mint_bearer_token(key.access_key_id), pepper, stored)
    assert not bearer_token_matches(ACCOUNT, key.bearer_token, b"q" * 32, stored)
    assert not bearer_token_matches("999999999999", key.bearer_token, pepper, stored)
    assert not bearer_token_matches(ACCOUNT, key.bearer_token, pepper, None)
    assert not bearer_token_matches(ACCOUNT, key.bearer_token, pepper, b"")


# --- key ring ---


def test_keyring_opens_what_it_wrapped_for_the_same_owner_only() -> None:
    ring = Keyring(bytes(32))
    account_key = ring.new_account_key(ACCOUNT)
    wrapped = ring.new_data_key(ACCOUNT, account_key, UUID, 3)
    assert len(ring.unwrap_data_key(ACCOUNT, account_key, UUID, 3, wrapped)) == 32
    other = ring.new_account_key("999999999999")
    for arguments in (
        (ACCOUNT, account_key, UUID, 4, wrapped),
        (ACCOUNT, account_key, b"v" * 16, 3, wrapped),
        ("999999999999", account_key, UUID, 3, wrapped),
        ("999999999999", other, UUID, 3, wrapped),
        (ACCOUNT, account_key, UUID, 3, account_key),
        (ACCOUNT, account_key, UUID, 3, b""),
    ):
        with pytest.raises(KeyringError):
            ring.unwrap_data_key(*arguments)
    with pytest.raises(KeyringError):
        Keyring(b"x" * 32).unwrap_account_key(ACCOUNT, account_key)


def test_keyring_refuses_every_changed_byte_of_a_sealed_secret() -> None:
    ring = Keyring(bytes(32))
    sealed = ring.seal_secret(ACCOUNT, "AKPS1", "the secret")
    assert ring.open_secret(ACCOUNT, "AKPS1", sealed) == "the secret" and b"secret" not in sealed
    assert ring.seal_secret(ACCOUNT, "AKPS1", "the secret") != sealed
    for place in range(len(sealed)):
        changed = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        with pytest.raises(KeyringError):
            ring.open_secret(ACCOUNT, "AKPS1", changed)
    for bad in (sealed[:-1], sealed + b"\0", sealed[:20]):
        with pytest.raises(KeyringError):
            ring.open_secret(ACCOUNT, "AKPS1", bad)
    for account_id, access_key_id in ((ACCOUNT, "AKPS2"), ("999999999999", "AKPS1")):
        with pytest.raises(KeyringError):
            ring.open_secret(account_id, access_key_id, sealed)


def test_key_file_is_read_or_refused_without_its_content(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "master.key").write_text("ab" * 32 + "\n")
    assert read_key_file(str(tmp_path), "master.key") == b"\xab" * 32
    (tmp_path / "short.key").write_text("abcd")
    (tmp_path / "text.key").write_text("not hexadecimal")
    for name in ("short.key", "text.key", "absent.key"):
        with pytest.raises(SecretFileError) as raised:
            read_key_file(str(tmp_path), name)
        assert "abcd" not in str(raised.value) and "not hexadecimal" not in str(raised.value)


# --- envelopes ---

CONTENT = Content("body ü", {"a": ("String", b"x"), "b": ("Binary.png", b"\x00\xff")}, "Root=1")


def test_envelope_opens_to_what_was_sealed() -> None:
    key = data_key(2, b"k" * 32, ACCOUNT, UUID)
    message_id, envelope = seal(key, b"AKPSX", CONTENT)
    opened = open_envelope(key, envelope)
    assert opened == Opened(message_id, "AKPSX", CONTENT)
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", message_id)
    assert key_names(envelope) == (2, 0, 0) and b"body" not in envelope
    assert seal(key, b"AKPSX", CONTENT)[1] != envelope


def test_envelope_of_another_queue_account_or_version_does_not_open() -> None:
    key = data_key(2, b"k" * 32, ACCOUNT, UUID)
    _, envelope = seal(key, b"AKPSX", CONTENT)
    for other in (
        data_key(2, b"k" * 32, "999999999999", UUID),
        data_key(2, b"k" * 32, ACCOUNT, b"v" * 16),
        data_key(3, b"k" * 32, ACCOUNT, UUID),
        data_key(2, b"l" * 32, ACCOUNT, UUID),
    ):
        with pytest.raises(EnvelopeError):
            open_envelope(other, envelope)


def test_envelope_with_any_byte_changed_does_not_open() -> None:
    """Message id, key version, sender, nonce, ciphertext, tag: all of it is bound."""
    key = data_key(2, b"k" * 32, ACCOUNT, UUID)
    _, envelope = seal(key, b"AKPSX", CONTENT)
    for place in range(len(envelope)):
        changed = envelope[:place] + bytes([envelope[place] ^ 1]) + envelope[place + 1 :]
        with pytest.raises(EnvelopeError):
            open_envelope(key, changed)
    for bad in (b"", envelope[:21], envelope[:-1], envelope[:-16], envelope + b"\0"):
        with pytest.raises(EnvelopeError):
            open_envelope(key, bad)


def test_envelope_halves_of_two_messages_do_not_combine() -> None:
    key = data_key(2, b"k" * 32, ACCOUNT, UUID)
    _, first = seal(key, b"AKPSX", CONTENT)
    _, second = seal(key, b"AKPSX", CONTENT)
    with pytest.raises(EnvelopeError):
        open_envelope(key, first[:27] + second[27:])


# --- receipts ---


@pytest.mark.parametrize(("received_s", "characters"), [(0, 56), (1_700_000_000, 60), (2**32 - 1, 60)])
def test_receipt_reads_back_for_its_own_queue_only(received_s: int, characters: int) -> None:
    maker = ReceiptMaker(b"r" * 32)
    owner = receipt_owner(ACCOUNT, UUID)
    handle = maker.make(owner, PARTITION_ID_MAX, 2**40, 3, 9, received_s)
    assert len(handle) == characters
    assert maker.read(owner, handle) == Receipt(PARTITION_ID_MAX, 2**40, 3, 9, received_s)
    for other in (receipt_owner("999999999999", UUID), receipt_owner(ACCOUNT, b"v" * 16)):
        with pytest.raises(ReceiptError):
            maker.read(other, handle)
    with pytest.raises(ReceiptError):
        ReceiptMaker(b"s" * 32).read(owner, handle)


@pytest.mark.parametrize("received_s", [0, 1_700_000_000])
def test_receipt_with_any_bit_changed_is_invalid(received_s: int) -> None:
    maker = ReceiptMaker(b"r" * 32)
    owner = receipt_owner(ACCOUNT, UUID)
    raw = base64.urlsafe_b64decode(maker.make(owner, 7, 11, 3, 9, received_s))
    for bit in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ReceiptError):
            maker.read(owner, base64.urlsafe_b64encode(changed).decode())
    for bad in ("", "x", "A" * 56, "A" * 60, "é" * 56, "é" * 60, "=" * 56, "=" * 60, "\0" * 56, "A" * 5000):
        with pytest.raises(ReceiptError):
            maker.read(owner, bad)


def test_receipt_has_one_text() -> None:
    """Plain base64 writes two of its characters otherwise."""
    maker = ReceiptMaker(b"r" * 32)
    owner = receipt_owner(ACCOUNT, UUID)
    handles = [maker.make(owner, 7, offset, 3, 9) for offset in range(20)]
    for shown, plain in (("-", "+"), ("_", "/")):
        written = [handle for handle in handles if shown in handle]
        assert written
        for handle in written:
            with pytest.raises(ReceiptError):
                maker.read(owner, handle.replace(shown, plain))


# --- nonces ---


def test_no_nonce_repeats_within_or_across_processes() -> None:
    """RELIABILITY S29: a process that was forked draws its own."""
    key = data_key(1, bytes(32), ACCOUNT, UUID)

    def nonces(count: int) -> list[bytes]:
        messages = [(Content("x"), b"")] * 100
        batches = [seal_all(key, b"", messages) for _ in range(count // 100)]
        return [envelope[22:34] for _, envelopes in batches for envelope in envelopes]

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"".join(nonces(5_000)))
        os._exit(0)
    os.close(writer)
    found = nonces(100_000)
    with os.fdopen(reader, "rb") as pipe:
        raw = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    found += [raw[at : at + 12] for at in range(0, len(raw), 12)]
    assert len(found) == 105_000 and len(set(found)) == len(found)
