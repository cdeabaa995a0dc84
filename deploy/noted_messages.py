"""Messages that an operator sends or receives, in the audit trail of their account: before, and how many after."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from deploy import management
from deploy.demo import ensure_demo_key
from deploy.installation import Installation


class MessageCount:
    def __init__(self) -> None:
        self.messages = 0

    def add(self, messages: int) -> None:
        self.messages += messages


@contextmanager
def noted(installation: Installation, verb: str, queue: str) -> Iterator[MessageCount]:
    """`verb` is `send` or `receive`. Raises CommandError, and nothing is done, where it cannot be noted. What was
    counted is noted however it ends, also by Ctrl-C, by SIGTERM, or with its terminal (SIGHUP)."""
    state = installation.load_state()
    account = f"--account={ensure_demo_key(installation, state)['account_id']}"
    count = MessageCount()
    with management.conversing(installation, state, "note_messages", account, "--", verb, queue) as tell:
        try:
            with _ended_by_signals(lambda: tell(str(count.messages))):
                yield count
        finally:
            tell(str(count.messages))


_SHOW_CURSOR = b"\x1b[?25h\n"  # a display of progress has hidden it
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _ended_by_signals(before_end: Callable[[], None]) -> Iterator[None]:
    """Each of these ends the process at once, after `before_end`; one that is ignored (nohup) stays so. On the main
    thread. An exception would not do: a thread that reads an idle pipe holds up the end of the event loop and of the
    interpreter."""

    def end(number: int, _: FrameType | None) -> None:
        for one in _ENDING:
            signal.signal(one, signal.SIG_IGN)
        try:
            before_end()
        finally:
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), _SHOW_CURSOR)
            os._exit(128 + number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
