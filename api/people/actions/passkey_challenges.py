"""Challenges of passkeys: made for one purpose of one holder, answered once, forgotten after PASSKEY_CHALLENGE_S.

The holder is what the browser shows by other means than the answer itself: its session, the token between the password
and the second step, or the token of a sign-in without a password. An answer to the challenge of another holder finds
no challenge. A new challenge takes the place of the one before it.
"""

from __future__ import annotations

import enum
import secrets
from datetime import timedelta

from django.db import connection, transaction

from api import clock
from api.people import limits
from api.people.models import PasskeyChallenge
from api.people.tokens import hash_challenge_holder

_SWEEP = """
DELETE FROM passkey_challenge WHERE holder_hash IN (
    SELECT holder_hash FROM passkey_challenge WHERE expires_at <= %s
    ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED)
"""


class Purpose(enum.StrEnum):
    REGISTER = "register"
    SIGN_IN = "sign_in"
    SECOND_FACTOR = "second_factor"
    AGAIN = "again"


@transaction.atomic
def make_challenge(purpose: Purpose, holder: str) -> bytes:
    now = clock.now()
    with connection.cursor() as cursor:
        cursor.execute(_SWEEP, (now, limits.PASSKEY_CHALLENGES_SWEPT))
    challenge = secrets.token_bytes(limits.PASSKEY_CHALLENGE_BYTES)
    expires_at = now + timedelta(seconds=limits.PASSKEY_CHALLENGE_S)
    PasskeyChallenge.objects.update_or_create(
        holder_hash=hash_challenge_holder(purpose, holder), defaults={"challenge": challenge, "expires_at": expires_at}
    )
    return challenge


@transaction.atomic
def take_challenge(purpose: Purpose, holder: str) -> bytes | None:
    """Gone with this call, whatever the answer to it is worth. Call outside transactions: what fails afterwards must
    not bring it back."""
    rows = PasskeyChallenge.objects.select_for_update().filter(holder_hash=hash_challenge_holder(purpose, holder))
    found = rows.first()
    if found is None:
        return None
    found.delete()
    return bytes(found.challenge) if found.expires_at > clock.now() else None
