"""What clients of the SQS wire saw: one event a call and message, with the monotonic times of the call."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Outcome(enum.Enum):
    OK = "ok"
    UNKNOWN = "unknown"  # no answer, or one that says nothing: it may have happened
    REFUSED = "refused"


class Sent(NamedTuple):
    """`key` stands in the body and is sent once, however often the call is made; `group` and `number` are for FIFO."""

    queue: str
    key: str
    began_s: float
    ended_s: float
    outcome: Outcome
    group: str = ""
    number: int = 0


class Received(NamedTuple):
    """One message of one answer. `answer` is the same for all messages of it, `place` its place there."""

    queue: str
    key: str
    message_id: str
    began_s: float
    ended_s: float
    visibility_s: float
    answer: int
    place: int = 0


class Settled(NamedTuple):
    """A delete, or a change of visibility to `visibility_s`, of one message."""

    queue: str
    key: str
    began_s: float
    ended_s: float
    outcome: Outcome
    visibility_s: float = -1.0

    @property
    def is_delete(self) -> bool:
        return self.visibility_s < 0


class Fault(NamedTuple):
    name: str
    began_s: float
    ended_s: float


class WireHistory:
    """Of one run; in the order in which calls ended."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.received: list[Received] = []
        self.settled: list[Settled] = []
        self.faults: list[Fault] = []
        self._answers = 0

    def next_answer(self) -> int:
        self._answers += 1
        return self._answers
