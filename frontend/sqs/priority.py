"""Priority levels of standard queues: which one a message names. Pure.

    Penstock.PriorityLevels   queue attribute: levels 0 (the lowest) to one less than it says
    Penstock.Priority         message attribute, a Number; REST has a field for it. Without one a message has level 0

On a queue without levels the attribute is one like any other, so that producers may name levels before there are any.
"""

from __future__ import annotations

import re

from frontend.errors import Refusal, invalid
from frontend.limits import PRIORITY_LEVELS_MAX
from frontend.sqs.asks import AttributeIn
from frontend.sqs.validation import Draft

PRIORITY = "Penstock.Priority"
_LEVEL = re.compile(rb"[0-9]{1,2}")


def check_priority(draft: Draft, levels: int) -> int:
    """The level of a message on a queue of so many. Raises Refusal."""
    given = draft.content.attributes.get(PRIORITY)
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


def with_priority(attributes: dict[str, AttributeIn] | None, priority: int | None) -> dict[str, AttributeIn] | None:
    """The attributes of a message whose level was given beside them. Raises Refusal."""
    if priority is None:
        return attributes
    if not 0 <= priority < PRIORITY_LEVELS_MAX:
        raise invalid(f"priority must be between 0 and {PRIORITY_LEVELS_MAX - 1}.")
    if attributes and PRIORITY in attributes:
        raise Refusal("InvalidParameterValueException", f"priority and the attribute {PRIORITY} exclude each other.")
    return {**(attributes or {}), PRIORITY: AttributeIn(data_type="Number", string_value=str(priority))}
