"""Messages that an operator sends or receives, in the audit trail of their account: before, and how many after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
    counted is noted however it ends."""
    state = installation.load_state()
    account = f"--account={ensure_demo_key(installation, state)['account_id']}"
    count = MessageCount()
    with management.conversing(installation, state, "note_messages", account, "--", verb, queue) as tell:
        try:
            yield count
        finally:
            tell(str(count.messages))
