"""The key ring: who wraps what, and the bytes of a wrapped key.

    master key (file, 32 bytes)
      |-- wraps  account key        one per account, row of the account       aad: account id
      |     |-- wraps  data key     versioned, rows of the queue              aad: account id, queue uuid, version
      |     '-- wraps  encryption key of the customer, versioned rows         aad: account id, key id, version
      |-- seals  secret access key  row of the key                            aad: account id, access key id
      '-- makes  key of kept answers, one key of each answer                  aad: account id, caller, key hash

Every wrapped value, whatever its kind:

    offset size
       0     1  layout version, 1
       1    12  nonce, random
      13     n  AES-256-GCM ciphertext (a key: 32 bytes)
    13+n    16  tag

The associated data starts with the kind of value, so that nothing sealed for one purpose opens for another; each part
is preceded by its length, so that no two lists of parts give the same bytes. Random 96-bit nonces are safe up to
2**32 values under one key, over all processes and restarts together: the master key seals one value per account and
per access key, an account key one per queue data key and per version of an encryption key.

What is kept of answers (`api/idempotency`) is sealed under HMAC-SHA-256(HMAC-SHA-256(master key, "penstock-answers"),
key hash): a key of its own for each, for there are many.

A queue that names an encryption key seals under neither of the two, but under a key that both make together, another
one for every period of the queue's `KmsDataKeyReusePeriodSeconds`:

    bound    = HMAC-SHA-256(data key, "penstock-bound-key" || when the period began, 4 bytes)
    derived  = HMAC-SHA-256(encryption key, "penstock-derived-key" || bound)

A derived key seals the messages of one queue in one period: 2**32 are 49,700 a second for a day, the longest period. A
data key seals all messages of a queue that names no encryption key.

Without one of the two keys nothing is learnt of the derived one: when the rows of either are gone, so are all the
messages. Nothing is stored for a period, and the rotation of an encryption key writes no row of any queue.

Surface: other planes may import this module.
"""

from __future__ import annotations

import hmac
import os
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
UUID_BYTES = 16
MASTER_KEY_FILE = "master.key"
INTERNAL_KEY_FILE = "internal.key"
RECEIPT_KEY_FILE = "receipt.key"
DJANGO_KEY_FILE = "django.key"
PEPPER_KEY_FILE = "pepper.key"

_LAYOUT = b"\x01"
_OVERHEAD_BYTES = 1 + NONCE_BYTES + TAG_BYTES
_ACCOUNT_KEY = b"account-key"
_DATA_KEY = b"data-key"
_ENCRYPTION_KEY = b"encryption-key"
_BOUND = b"penstock-bound-key"
_DERIVED = b"penstock-derived-key"
_SECRET = b"secret-access-key"
_ANSWERS = b"penstock-answers"


class KeyringError(Exception):
    """A wrapped value does not open: wrong key, wrong owner, or changed bytes. Says nothing about which."""


class SecretFileError(Exception):
    """A file of the secrets directory is missing or is not 64 hex characters."""


def read_key_file(directory: str, name: str) -> bytes:
    """The 32 bytes of one file of the secrets directory. Raises SecretFileError, which never quotes the content."""
    path = os.path.join(directory, name)
    try:
        with open(path, encoding="ascii") as file:
            key = bytes.fromhex(file.read(1024).strip())
    except OSError as error:
        raise SecretFileError(f"cannot read {path}: {error.strerror}") from error
    except ValueError:
        raise SecretFileError(f"{path} does not hold 64 hex characters") from None
    if len(key) != KEY_BYTES:
        raise SecretFileError(f"{path} does not hold 64 hex characters")
    return key


class Keyring:
    """Wraps and unwraps under one master key. Holds no unwrapped key but the master's cipher, and that of answers."""

    __slots__ = ("_answers", "_master")

    def __init__(self, master_key: bytes) -> None:
        if len(master_key) != KEY_BYTES:
            raise ValueError(f"a master key has {KEY_BYTES} bytes")
        self._master = AESGCM(master_key)
        self._answers = hmac.digest(master_key, _ANSWERS, "sha256")

    @classmethod
    def from_directory(cls, secrets_dir: str) -> Keyring:
        """The ring of an installation. Raises SecretFileError."""
        return cls(read_key_file(secrets_dir, MASTER_KEY_FILE))

    def new_account_key(self, account_id: str) -> bytes:
        """A fresh account key, wrapped: the column `account_key_wrapped`."""
        return _seal(self._master, AESGCM.generate_key(256), _aad(_ACCOUNT_KEY, account_id.encode()))

    def unwrap_account_key(self, account_id: str, wrapped: bytes) -> bytes:
        return _open_key(self._master, wrapped, _aad(_ACCOUNT_KEY, account_id.encode()))

    def new_data_key(self, account_id: str, account_key_wrapped: bytes, queue_uuid: bytes, version: int) -> bytes:
        """A fresh data key of a queue, wrapped under the account's key: one row of the queue's `data_keys`."""
        account = AESGCM(self.unwrap_account_key(account_id, account_key_wrapped))
        return _seal(account, AESGCM.generate_key(256), _data_key_aad(account_id, queue_uuid, version))

    def unwrap_data_key(
        self, account_id: str, account_key_wrapped: bytes, queue_uuid: bytes, version: int, wrapped: bytes
    ) -> bytes:
        account = AESGCM(self.unwrap_account_key(account_id, account_key_wrapped))
        return _open_key(account, wrapped, _data_key_aad(account_id, queue_uuid, version))

    def new_encryption_key(self, account_id: str, account_key_wrapped: bytes, key_id: bytes, version: int) -> bytes:
        """A fresh version of a customer's encryption key, wrapped under the account's key: its row."""
        account = AESGCM(self.unwrap_account_key(account_id, account_key_wrapped))
        return _seal(account, AESGCM.generate_key(256), _encryption_key_aad(account_id, key_id, version))

    def unwrap_encryption_key(
        self, account_id: str, account_key_wrapped: bytes, key_id: bytes, version: int, wrapped: bytes
    ) -> bytes:
        account = AESGCM(self.unwrap_account_key(account_id, account_key_wrapped))
        return _open_key(account, wrapped, _encryption_key_aad(account_id, key_id, version))

    def seal_secret(self, account_id: str, access_key_id: str, secret_access_key: str) -> bytes:
        """What is stored of a secret access key. It opens for this account only: a row that is moved to another one
        does not make the key that account's."""
        return _seal(self._master, secret_access_key.encode(), _secret_aad(account_id, access_key_id))

    def open_secret(self, account_id: str, access_key_id: str, sealed: bytes) -> str:
        """Raises KeyringError."""
        return _open(self._master, sealed, _secret_aad(account_id, access_key_id)).decode()

    def seal_answer(self, account_id: str, caller: str, key_hash: bytes, answer: bytes) -> bytes:
        """What is kept of the answer to a request that its caller may repeat: opens for this caller and key alone."""
        return _seal(self._answer_cipher(key_hash), answer, _answer_aad(account_id, caller, key_hash))

    def open_answer(self, account_id: str, caller: str, key_hash: bytes, sealed: bytes) -> bytes:
        """Raises KeyringError."""
        return _open(self._answer_cipher(key_hash), sealed, _answer_aad(account_id, caller, key_hash))

    def _answer_cipher(self, key_hash: bytes) -> AESGCM:
        return AESGCM(hmac.digest(self._answers, key_hash, "sha256"))


def derived_key(encryption_key: bytes, data_key: bytes, since_s: int) -> bytes:
    """The key of one queue, one version of an encryption key and one period."""
    bound = hmac.digest(data_key, _BOUND + struct.pack(">I", since_s), "sha256")
    return hmac.digest(encryption_key, _DERIVED + bound, "sha256")


def _data_key_aad(account_id: str, queue_uuid: bytes, version: int) -> bytes:
    if len(queue_uuid) != UUID_BYTES:
        raise ValueError(f"a queue uuid has {UUID_BYTES} bytes")
    return _aad(_DATA_KEY, account_id.encode(), queue_uuid, struct.pack(">I", version))


def _encryption_key_aad(account_id: str, key_id: bytes, version: int) -> bytes:
    if len(key_id) != UUID_BYTES:
        raise ValueError(f"the id of an encryption key has {UUID_BYTES} bytes")
    return _aad(_ENCRYPTION_KEY, account_id.encode(), key_id, struct.pack(">I", version))


def _secret_aad(account_id: str, access_key_id: str) -> bytes:
    return _aad(_SECRET, account_id.encode(), access_key_id.encode())


def _answer_aad(account_id: str, caller: str, key_hash: bytes) -> bytes:
    return _aad(_ANSWERS, account_id.encode(), caller.encode(), key_hash)


def _aad(*parts: bytes) -> bytes:
    return b"".join(struct.pack(">H", len(part)) + part for part in parts)


def _seal(cipher: AESGCM, plain: bytes, aad: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return _LAYOUT + nonce + cipher.encrypt(nonce, plain, aad)


def _open_key(cipher: AESGCM, wrapped: bytes, aad: bytes) -> bytes:
    key = _open(cipher, wrapped, aad)
    if len(key) != KEY_BYTES:
        raise KeyringError("a wrapped key has the wrong size")
    return key


def _open(cipher: AESGCM, wrapped: bytes, aad: bytes) -> bytes:
    if len(wrapped) < _OVERHEAD_BYTES or wrapped[:1] != _LAYOUT:
        raise KeyringError("not a wrapped value of a known layout")
    try:
        return cipher.decrypt(wrapped[1 : 1 + NONCE_BYTES], wrapped[1 + NONCE_BYTES :], aad)
    except InvalidTag:
        raise KeyringError("a wrapped value does not open") from None
