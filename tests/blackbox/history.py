"""Histories: what clients asked and what they were told, one JSON line an event.

Every call is an `invoke` and later one completion:

    ok        it happened
    fail      it did not happen and never will
    unknown   it may or may not have happened: timeouts, lost connections, 5xx

A call without a completion (the client died) counts as unknown. Recording an unknown as `fail` would make false aborted
reads, as `ok` false losses; so the class is taken from the flags of the error and from nothing else.

A value is (client, counter). A place is where the system says the value stands: an offset, or a message id over HTTP.
Times are monotonic seconds of the one process that writes the history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

INVOKE, OK, FAIL, UNKNOWN = "invoke", "ok", "fail", "unknown"
FAULT, HEALED, DRAINED = "fault", "healed", "drained"

Value = tuple[str, int]
Place = int | str


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. `call` joins an invoke with its completion; values and places run side by side."""

    time_s: float
    kind: str
    operation: str
    client: str
    call: int
    partition: int = 0
    values: list[Value] = []
    places: list[Place] = []
    note: str = ""


class Recorder:
    """Keeps the events of a run and writes them as they come. `now_s` is the checkers' clock."""

    def __init__(self, path: Path | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self.events: list[Event] = []
        self.now_s = now_s
        self._file: BinaryIO | None = path.open("wb") if path else None
        self._encode = msgspec.json.Encoder().encode
        self._calls = 0

    def invoke(
        self, operation: str, client: str, partition: int, values: Sequence[Value] = (), note: str = ""
    ) -> Event:
        self._calls += 1
        return self._add(Event(self.now_s(), INVOKE, operation, client, self._calls, partition, list(values), [], note))

    def complete(
        self,
        invoked: Event,
        kind: str,
        values: Sequence[Value] | None = None,
        places: Sequence[Place] = (),
        note: str = "",
    ) -> Event:
        shown = invoked.values if values is None else list(values)
        return self._add(
            Event(
                self.now_s(),
                kind,
                invoked.operation,
                invoked.client,
                invoked.call,
                invoked.partition,
                shown,
                list(places),
                note,
            )
        )

    def mark(self, kind: str, name: str, partitions: Sequence[int] = (), note: str = "") -> Event:
        """A fault, its end, or the end of a drain. The partitions it concerns stand in `places`."""
        return self._add(Event(self.now_s(), kind, name, "nemesis", 0, 0, [], list(partitions), note))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _add(self, event: Event) -> Event:
        self.events.append(event)
        if self._file is not None:
            self._file.write(self._encode(event) + b"\n")
        return event


def load(path: Path) -> list[Event]:
    """Read a history back. Raises msgspec.DecodeError on a line that is none."""
    decode = msgspec.json.Decoder(Event).decode
    with path.open("rb") as file:
        return [decode(line) for line in file]
