"""ARNs of queues: `arn:aws:sqs:<region>:<account>:<name>`."""

from __future__ import annotations

import re
from typing import NamedTuple

_QUEUE_ARN = re.compile(r"arn:[a-z-]{1,20}:sqs:([a-z0-9-]{1,40}):([0-9]{12}):([A-Za-z0-9_.-]{1,80})", re.ASCII)


class QueueArn(NamedTuple):
    region: str
    account_id: str
    name: str


def parse_arn(text: object) -> QueueArn | None:
    match = _QUEUE_ARN.fullmatch(text) if isinstance(text, str) else None
    return QueueArn(*match.groups()) if match else None


def format_arn(region: str, account_id: str, name: str) -> str:
    return f"arn:aws:sqs:{region}:{account_id}:{name}"
