from __future__ import annotations

import hmac
import random

import pytest

from frontend.crypto.macs import MacKey


@pytest.mark.parametrize("key_bytes", [1, 20, 32, 63, 64])
def test_mac_is_hmac_sha256_for_every_length_of_text_and_as_often_as_it_is_asked(key_bytes: int) -> None:
    chance = random.Random(key_bytes)
    key = chance.randbytes(key_bytes)
    made = MacKey(key)
    for text_bytes in (0, 1, 55, 56, 63, 64, 65, 200, 4096):
        text = chance.randbytes(text_bytes)
        assert made.digest(text) == made.digest(text) == hmac.digest(key, text, "sha256")


def test_key_that_is_longer_than_a_block_is_refused() -> None:
    with pytest.raises(AssertionError):
        MacKey(b"k" * 65)
