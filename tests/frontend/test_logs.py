"""What libraries log: floods that a client may cause."""

from __future__ import annotations

import logging

from frontend.limits import FLOOD_TOLD_EVERY_S
from frontend.logs import FloodFilter


def test_flood_of_one_kind_is_told_once_a_while_and_hides_no_other_kind() -> None:
    now_s = 5.0
    flood = FloodFilter(lambda: now_s)

    def told(text: str, *values: object) -> str | None:
        record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 1, text, values, None)
        return record.getMessage() if flood.filter(record) else None

    assert told("failed %s\n", "a") == "failed a\n"
    assert [told("failed %s\n", "b") for _ in range(3)] == [None] * 3
    assert told("another") == "another"
    now_s += FLOOD_TOLD_EVERY_S
    assert told("failed %s\n", "c") == "failed c (left out before: 3)"
    now_s += FLOOD_TOLD_EVERY_S
    assert told("failed %s\n", "d") == "failed d\n"
