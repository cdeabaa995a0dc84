"""The installation's secrets, read once per process."""

from __future__ import annotations

import functools

from api.settings.environment import environment
from frontend.crypto.keyring import INTERNAL_KEY_FILE, MASTER_KEY_FILE, PEPPER_KEY_FILE, RECEIPT_KEY_FILE, Keyring


@functools.cache
def keyring() -> Keyring:
    return Keyring(environment().secret(MASTER_KEY_FILE))


@functools.cache
def pepper() -> bytes:
    return environment().secret(PEPPER_KEY_FILE)


@functools.cache
def internal_key() -> bytes:
    return environment().secret(INTERNAL_KEY_FILE)


@functools.cache
def receipt_key() -> bytes:
    return environment().secret(RECEIPT_KEY_FILE)
