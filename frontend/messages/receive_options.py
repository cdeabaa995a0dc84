"""What a receive asks for, and the rules of its numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from frontend.errors import invalid
from frontend.limits import RECEIVE_MESSAGES_MAX, RECEIVE_WAIT_S_MAX, VISIBILITY_S_MAX
from frontend.parameters import bad_value


class ReceiveOptions(msgspec.Struct, frozen=True, gc=False):
    """None = as the queue is configured."""

    messages_max: int
    visibility_s: int | None
    wait_s: int | None
    attempt: str | None = None
    tags: Sequence[str] | None = None


def check_messages_max(value: int | None, most: int = RECEIVE_MESSAGES_MAX) -> int:
    if value is None:
        return 1
    if not 1 <= value <= most:
        raise bad_value(value, "MaxNumberOfMessages", f"Must be between 1 and {most}, if provided.")
    return value


def check_wait_s(value: int | None) -> int | None:
    if value is not None and not 0 <= value <= RECEIVE_WAIT_S_MAX:
        raise bad_value(value, "WaitTimeSeconds", f"Must be >= 0 and <= {RECEIVE_WAIT_S_MAX}, if provided.")
    return value


def check_visibility_s(value: int | None) -> int | None:
    if value is not None and not 0 <= value <= VISIBILITY_S_MAX:
        raise bad_value(value, "VisibilityTimeout", f"Must be >= 0 and <= {VISIBILITY_S_MAX}, if provided.")
    return value


def check_give_back_s(value: int | None) -> int | None:
    if value is not None and not 0 <= value <= VISIBILITY_S_MAX:
        raise invalid(f"delay_seconds must be between 0 and {VISIBILITY_S_MAX}.")
    return value
