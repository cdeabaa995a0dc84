"""What a person asks of usage, answered by a process of its own: a line for each step on stderr, one JSON object on
stdout."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable


def answer_asked(work: Callable[[], object]) -> int:
    """The exit code. Django is set up before `work`. Without a database: os.EX_UNAVAILABLE and one line on stderr, as
    `manage.py` has it."""
    os.environ.setdefault("PENSTOCK_PROCESS", "usage-now")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "api.settings.project")
    import django

    django.setup()
    from api.outage import DATABASE_AWAY

    try:
        answer = work()
    except DATABASE_AWAY as error:
        say(f"the database does not answer: {(str(error).strip() or type(error).__name__).splitlines()[0]}")
        return os.EX_UNAVAILABLE
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
