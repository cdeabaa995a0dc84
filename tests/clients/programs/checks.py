"""What every Python client program says: one JSON line for itself, then one for each check.

    {"client": "boto3", "version": "1.44.5", "checks": ["a long poll is woken by a message", ...]}
    {"check": "a long poll is woken by a message", "passed": true, "detail": "", "seconds": 0.7}

Runs in environments that hold nothing but the client under test, so only the standard library is used here. The first
line announces the checks, so that the reader of a program that died half-way counts what is missing as failed.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from typing import Any

DETAIL_CHARACTERS_MAX = 2000

Check = Callable[[Any], None]


def title(check: Check) -> str:
    """The first line of the check's docstring is its name in the report."""
    assert check.__doc__, f"{check} says in its docstring what was tried"
    return check.__doc__.splitlines()[0].rstrip(".")


def run_checks(client: str, version: str, checks: Sequence[Check], subject: Callable[[], Any]) -> int:
    """Run them in order, each whatever became of those before it; the program's exit code."""
    say(client=client, version=version, checks=[title(check) for check in checks])
    made = subject()
    passed = [run_one(check, made) for check in checks]
    return 0 if all(passed) else 1


def run_one(check: Check, subject: Any) -> bool:
    started = time.monotonic()
    detail = ""
    try:
        check(subject)
    except Exception:
        detail = traceback.format_exc()[-DETAIL_CHARACTERS_MAX:]
    say(check=title(check), passed=not detail, detail=detail, seconds=round(time.monotonic() - started, 1))
    return not detail


def say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def endpoint() -> str:
    return os.environ["AWS_ENDPOINT_URL_SQS"]


def new_name(prefix: str = "client") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0, interval_s: float = 0.1) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(interval_s)
