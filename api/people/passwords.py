"""Passwords: which are accepted, and the one place that hashes and verifies them.

Every path that is given a password spends exactly one hash on it, whether there is such a person or not: where there is
nothing to compare with, a hash of a random password stands in. At most HASHES_AT_ONCE_MAX run at a time.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
import unicodedata
from collections.abc import Iterator

from django.contrib.auth.hashers import Argon2PasswordHasher
from django.contrib.auth.password_validation import CommonPasswordValidator
from django.core.exceptions import ValidationError
from django.db import connection

from api.people import limits
from api.people.errors import PeopleError

_places = threading.BoundedSemaphore(limits.HASHES_AT_ONCE_MAX)


class PersonPasswordHasher(Argon2PasswordHasher):
    """Argon2id with the costs of `limits.py`. Named in Django's setting PASSWORD_HASHERS."""

    time_cost = limits.ARGON2_PASSES
    memory_cost = limits.ARGON2_MEMORY_KIB
    parallelism = limits.ARGON2_LANES


_hasher = PersonPasswordHasher()


def check_rules(password: str, email: str) -> None:
    """Raises PeopleError for a password that is too short, too long, or easily guessed."""
    plain = _normal(password)
    shortest, longest = limits.PASSWORD_CHARACTERS_MIN, limits.PASSWORD_CHARACTERS_MAX
    if not shortest <= len(plain) <= longest:
        raise PeopleError("weak-password", f"A password has {shortest} to {longest} characters.")
    if len(set(plain)) < limits.PASSWORD_DISTINCT_CHARACTERS_MIN:
        least = limits.PASSWORD_DISTINCT_CHARACTERS_MIN
        raise PeopleError("weak-password", f"A password has at least {least} different characters.")
    if plain.lower() in (email, email.partition("@")[0]):
        raise PeopleError("weak-password", "A password is not the e-mail address.")
    try:
        _common().validate(plain)
    except ValidationError:
        raise PeopleError("weak-password", "This password is one of the most common ones.") from None


def hash_password(password: str) -> str:
    """Raises PeopleError where too many others wait for the same."""
    with _place():
        return _hasher.encode(_normal(password), _hasher.salt())


def verify_password(password: str, encoded: str) -> bool:
    """An empty `encoded` (no such person, no password) costs the same and never matches. Raises PeopleError."""
    stand_in = _stand_in()  # made with the first call of the process, whatever that is asked
    with _place():
        return _hasher.verify(_normal(password), encoded or stand_in) and bool(encoded)


def is_outdated(encoded: str) -> bool:
    """It was made with other costs than those of today."""
    return _hasher.must_update(encoded)


@contextlib.contextmanager
def _place() -> Iterator[None]:
    if not connection.in_atomic_block:
        # Back to the pool: those who wait here, or compute, must not hold what all other requests need.
        connection.close()
    if not _places.acquire(timeout=limits.HASH_WAIT_S_MAX):
        raise PeopleError("service-busy", "Too many sign-ins at once. Try again.", retry_after_s=5)
    try:
        yield
    finally:
        _places.release()


@functools.cache
def _stand_in() -> str:
    return _hasher.encode(secrets.token_urlsafe(limits.TOKEN_BYTES), _hasher.salt())


@functools.cache
def _common() -> CommonPasswordValidator:
    return CommonPasswordValidator()


def _normal(password: str) -> str:
    """One form for what keyboards write in several."""
    return unicodedata.normalize("NFKC", password)
