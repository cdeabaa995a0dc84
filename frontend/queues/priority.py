"""Priority levels of standard queues: which one a message names. Pure.

    Penstock.PriorityLevels   queue attribute: levels 0 (the lowest) to one less than it says
    Penstock.Priority         message attribute, a Number; REST has a field for it. Without one a message has level 0

On a queue without levels the attribute is one like any other, so that producers may name levels before there are any.
So what it says is read by the rules of the queue, not when a message comes in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from frontend.crypto.envelope import Attributes
from frontend.errors import invalid

PRIORITY_LEVELS = "Penstock.PriorityLevels"
PRIORITY = "Penstock.Priority"
_LEVEL = re.compile(rb"[0-9]{1,2}")


def levels_of(attributes: Mapping[str, str]) -> int:
    """How many levels a queue with these attributes has; 0 where messages choose from none."""
    return int(attributes.get(PRIORITY_LEVELS, "0"))


def check_priority(attributes: Attributes, levels: int) -> int:
    """Returns the level of a message on a queue of so many. Raises RequestError."""
    given = attributes.get(PRIORITY)
    if given is None:
        return 0
    level = level_of(*given)
    if level is None or level >= levels:
        raise invalid(
            f"The message attribute '{PRIORITY}' must be a Number from 0 to {levels - 1}: the queue has {levels} "
            "priority levels."
        )
    return level


def level_of(data_type: str, value: bytes) -> int | None:
    """None for what names no level."""
    return int(value) if data_type.startswith("Number") and _LEVEL.fullmatch(value) else None
