"""Request ids: each one once, and none tells how many there were."""

from __future__ import annotations

import re
from itertools import pairwise

from frontend.http import new_request_id

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}")


def test_ids_are_unique_and_have_the_form_of_a_uuid() -> None:
    ids = [new_request_id() for _ in range(20_000)]
    assert len(set(ids)) == len(ids)
    assert all(_UUID.fullmatch(one) for one in ids[:1_000])


def test_ids_tell_nothing_of_the_requests_between_them() -> None:
    """Neither by a distance, nor by the lowest bits, which a multiplied counter shows as they are."""
    numbers = [int(new_request_id()[-12:], 16) for _ in range(4_000)]
    steps = {(after - before) % 2**48 for before, after in pairwise(numbers)}
    assert len(steps) > 3_900
    odd_steps = sum((before ^ after) & 1 for before, after in pairwise(numbers))
    assert 1_700 < odd_steps < 2_300
