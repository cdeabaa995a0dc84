"""Names of queues: the address that a caller gives, ARNs (`arn:aws:sqs:<region>:<account>:<name>`), rules of names.

Surface: other planes may import this module.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from frontend.errors import RequestError, invalid, missing
from frontend.limits import QUEUE_NAME_CHARS_MAX

FIFO_SUFFIX = ".fifo"
_QUEUE_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{QUEUE_NAME_CHARS_MAX}}}", re.ASCII)
_QUEUE_ARN = re.compile(r"arn:[a-z-]{1,20}:sqs:([a-z0-9-]{1,40}):([0-9]{12}):([A-Za-z0-9_.-]{1,80})", re.ASCII)


class Address(NamedTuple):
    """How a caller names a queue."""

    account_id: str
    name: str


class QueueArn(NamedTuple):
    region: str
    account_id: str
    name: str


def parse_arn(text: object) -> QueueArn | None:
    match = _QUEUE_ARN.fullmatch(text) if isinstance(text, str) else None
    return QueueArn(*match.groups()) if match else None


def format_arn(region: str, account_id: str, name: str) -> str:
    return f"arn:aws:sqs:{region}:{account_id}:{name}"


def check_queue_name(name: str | None) -> str:
    """Returns the name of a queue to be made, with its suffix if it is a FIFO queue. Raises RequestError."""
    if not name:
        raise missing("QueueName")
    if len(name) > QUEUE_NAME_CHARS_MAX or _QUEUE_NAME.fullmatch(name.removesuffix(FIFO_SUFFIX)) is None:
        raise bad_queue_name()
    return name


def bad_queue_name() -> RequestError:
    return invalid(
        f"Can only include alphanumeric characters, hyphens, or underscores. 1 to {QUEUE_NAME_CHARS_MAX} in length"
    )
