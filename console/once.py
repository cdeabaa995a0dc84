"""Forms whose answer shows a secret. That answer is no redirect, so a browser that loads it again sends the form again:
the id that the page gave the form (`{% form_id %}`) lets it be carried out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.http import HttpRequest

from api.idempotency.forms import carry_out_once
from console.visits import Visit

T = TypeVar("T")


def once(request: HttpRequest, visit: Visit, act: Callable[[], T], name_of: Callable[[T], str]) -> T:
    """`name_of`: how what was created is told from the secret that goes with it. Raises DoneAlready,
    IdempotencyRefusal and what `act` raises."""
    return carry_out_once(str(visit.person.pk), request.POST.get("form_id", "").replace("\0", ""), act, name_of)
