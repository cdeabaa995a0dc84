"""Limits of attempts, per address and per source: a leaky bucket (GCRA) in one statement.

The time at which a count is back at nothing is all that is kept. An attempt moves it on by `every_s`, unless it is more
than `burst` attempts away. The count is committed by itself: a refused or failed attempt counts as well.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from django.db import connection

from api.people import limits
from api.people.errors import PeopleError
from api.people.tokens import hash_subject


class Rate(NamedTuple):
    """So many attempts at once, and one more for each `every_s`."""

    name: str
    burst: int
    every_s: int


SIGN_IN_PER_ADDRESS = Rate("sign_in_per_address", limits.SIGN_IN_PER_ADDRESS_BURST, limits.SIGN_IN_PER_ADDRESS_EVERY_S)
SIGN_IN_PER_FAMILIAR_SOURCE = Rate(
    "sign_in_per_familiar_source",
    limits.SIGN_IN_PER_FAMILIAR_SOURCE_BURST,
    limits.SIGN_IN_PER_FAMILIAR_SOURCE_EVERY_S,
)
PASSWORD_PER_PERSON = Rate("password_per_person", limits.PASSWORD_PER_PERSON_BURST, limits.PASSWORD_PER_PERSON_EVERY_S)
SIGN_IN_PER_SOURCE = Rate("sign_in_per_source", limits.SIGN_IN_PER_SOURCE_BURST, limits.SIGN_IN_PER_SOURCE_EVERY_S)
SIGN_UP_PER_ADDRESS = Rate("sign_up_per_address", limits.SIGN_UP_PER_ADDRESS_BURST, limits.SIGN_UP_PER_ADDRESS_EVERY_S)
SIGN_UP_PER_SOURCE = Rate("sign_up_per_source", limits.SIGN_UP_PER_SOURCE_BURST, limits.SIGN_UP_PER_SOURCE_EVERY_S)
RESET_PER_ADDRESS = Rate("reset_per_address", limits.RESET_PER_ADDRESS_BURST, limits.RESET_PER_ADDRESS_EVERY_S)
RESET_PER_SOURCE = Rate("reset_per_source", limits.RESET_PER_SOURCE_BURST, limits.RESET_PER_SOURCE_EVERY_S)
TOKEN_PER_SOURCE = Rate("token_per_source", limits.TOKEN_PER_SOURCE_BURST, limits.TOKEN_PER_SOURCE_EVERY_S)
CODE_PER_PERSON = Rate("code_per_person", limits.CODE_PER_PERSON_BURST, limits.CODE_PER_PERSON_EVERY_S)
INVITATION_PER_ACCOUNT = Rate(
    "invitation_per_account", limits.INVITATION_PER_ACCOUNT_BURST, limits.INVITATION_PER_ACCOUNT_EVERY_S
)

_SWEEP = """
DELETE FROM attempt_rate WHERE key IN (
    SELECT key FROM attempt_rate WHERE empty_at < clock_timestamp() AND key <> %s
    ORDER BY empty_at LIMIT %s FOR UPDATE SKIP LOCKED)
"""
_CHARGE = """
INSERT INTO attempt_rate AS held (key, empty_at)
VALUES (%(key)s, clock_timestamp() + %(every)s * interval '1 second')
ON CONFLICT (key) DO UPDATE
   SET empty_at = greatest(held.empty_at, clock_timestamp()) + %(every)s * interval '1 second'
 WHERE held.empty_at <= clock_timestamp() + %(room)s * interval '1 second'
"""
_WAIT = "SELECT extract(epoch FROM empty_at - clock_timestamp()) - %s FROM attempt_rate WHERE key = %s"


def charge(rate: Rate, subject: str) -> None:
    """Count one attempt. Raises PeopleError with `retry_after_s` where there were too many. Call outside transactions:
    what fails afterwards must not take the count back."""
    key = hash_subject(rate.name, subject)
    room_s = (rate.burst - 1) * rate.every_s
    with connection.cursor() as cursor:
        cursor.execute(_SWEEP, (key, limits.ATTEMPT_RATES_SWEPT))
        cursor.execute(_CHARGE, {"key": key, "every": rate.every_s, "room": room_s})
        if cursor.rowcount:
            return
        cursor.execute(_WAIT, (room_s, key))
        found = cursor.fetchone()
    wait_s = max(1, math.ceil(found[0])) if found else 1
    raise PeopleError("too-many-attempts", "Too many attempts. Try again later.", retry_after_s=wait_s)
