"""A form of a page whose answer shows a secret is carried out once: a browser that loads the answer again sends the
form again, and that must create nothing.

What was created is kept by its name, for IDEMPOTENCY_KEPT_S, and its secret is not: a repetition shows no secret.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import transaction

from api import clock, limits
from api.idempotency import actions, errors
from api.idempotency.asked import form_asked
from api.idempotency.outcomes import has_room, outcome_of
from api.secrets import keyring

T = TypeVar("T")
_STATUS = 200


class DoneAlready(Exception):
    """The form was carried out before. `made` is the name of what it created."""

    def __init__(self, made: str) -> None:
        super().__init__(made)
        self.made = made


def carry_out_once(person_id: str, form_id: str, act: Callable[[], T], name_of: Callable[[T], str]) -> T:
    """`act` is one transaction; what it refuses is not kept, so the form may be sent again. Raises DoneAlready,
    IdempotencyRefusal and what `act` raises."""
    if not 1 <= len(form_id) <= limits.IDEMPOTENCY_KEY_CHARACTERS_MAX:
        raise errors.form_without_id()
    asked = form_asked(person_id, form_id)
    with actions.held_lock(asked.lock_number) as is_held:
        if not is_held:
            raise errors.form_in_progress()
        now = clock.now()
        found = outcome_of(asked, now)
        if found is not None:
            sealed = bytes(found.sealed)
            raise DoneAlready(keyring().open_answer(asked.account_id, asked.actor, asked.key_hash, sealed).decode())
        if not has_room(asked, now):
            raise errors.too_many_forms()
        with transaction.atomic():
            done = act()
            made = keyring().seal_answer(asked.account_id, asked.actor, asked.key_hash, name_of(done).encode())
            actions.remember(asked, _STATUS, made, holds_secret=False)
        return done
