"""When things of a queue or stream truly happened, whatever the stamps in its log say, and what followed too early.

The time of an entry is that at which its leader staged it. What a leader stamped that had not heard a majority of right
clocks since its process started is not judged: it cannot know the time (`Oracle.is_in_the_dark`).
"""

from __future__ import annotations

from tests.simulation.clocks import WALL_START_MS

# By how much a leader's time may be off.
TOLERANCE_US = 2_000_000


class TrueTimes:
    """Of one queue. `wrong` are (rule, text) of what was found and not looked at yet."""

    def __init__(self) -> None:
        self.now_us = 0  # of the entry that is folded
        self.trusted = True  # stamped by a leader that could know the time
        self.retention_ms = 0
        self.window_ms = 0
        self.wrong: list[tuple[str, str]] = []
        self.expired: set[int] = set()
        self._born_us: dict[int, int] = {}
        self._free_us: dict[int, int] = {}  # when its lease or delay ends
        self._due_us: dict[int, int] = {}  # when what is scheduled is to be released

    def sent(self, offset: int, delay_ms: int = 0) -> None:
        if self.trusted:
            self._born_us[offset] = self.now_us
            if delay_ms:
                self._free_us[offset] = self.now_us + delay_ms * 1_000

    def scheduled(self, offset: int, due_ms: int, is_absolute: bool) -> None:
        if is_absolute:
            self._due_us[offset] = (due_ms - WALL_START_MS) * 1_000
        elif self.trusted:
            self._due_us[offset] = self.now_us + due_ms * 1_000

    def released(self, origin: int, offset: int, is_delayed: bool) -> None:
        """A delayed message is as old as it was there."""
        due_us = self._free_us.get(origin, 0) if is_delayed else self._due_us.pop(origin, 0)
        self._not_before(due_us, "DUE by true time", f"offset {origin} was released")
        if is_delayed and origin in self._born_us:
            self._born_us[offset] = self._born_us[origin]

    def leased(self, offset: int, left_ms: int, is_renewal: bool = False) -> None:
        if not is_renewal:
            self._not_before(self._free_us.get(offset, 0), "LEASE by true time", f"offset {offset} was leased")
        self.freed_in(offset, left_ms)

    def freed_in(self, offset: int, left_ms: int) -> None:
        self._free_us[offset] = self.now_us + left_ms * 1_000 if self.trusted else 0

    def expires(self, offset: int) -> None:
        self.expired.add(offset)
        born_us = self._born_us.get(offset)
        if born_us is not None and self.retention_ms:
            self._not_before(born_us + self.retention_ms * 1_000, "EXPIRED by true time", f"offset {offset} expired")

    def repeats(self, original: int) -> None:
        """A message was taken for a repetition of this one."""
        born_us = self._born_us.get(original)
        late_us = self.now_us - self.window_ms * 1_000 - TOLERANCE_US
        if self.trusted and born_us is not None and born_us < late_us:
            text = f"a repetition of offset {original} was refused {(late_us - born_us) // 1_000} ms too late"
            self.wrong.append(("WINDOW by true time", text))

    def forgets(self, original: int) -> None:
        """A message with the id of this one was taken for a new one."""
        born_us = self._born_us.get(original)
        if born_us is not None:
            text = f"the id of offset {original} was forgotten"
            self._not_before(born_us + self.window_ms * 1_000, "WINDOW by true time", text)

    def free_since_us(self, offset: int) -> int:
        """From when on the message may be handed out; 0 = by what is known here at any time."""
        return max(self._free_us.get(offset, 0), self._born_us.get(offset, 0))

    def _not_before(self, time_us: int, rule: str, text: str) -> None:
        early_us = time_us - TOLERANCE_US - self.now_us
        if early_us > 0:
            self.wrong.append((rule, f"{text} {early_us // 1_000} ms too early, beyond what is tolerated"))


class StreamTimes:
    """Of one stream: its batches are trimmed from the front."""

    def __init__(self) -> None:
        self.now_us = 0
        self.trusted = True
        self.retention_ms = 0
        self.wrong: list[tuple[str, str]] = []
        self._kept: list[tuple[int, int]] = []  # (end offset, when it was appended; 0 = that is not judged)

    def appended(self, end_offset: int) -> None:
        self._kept.append((end_offset, self.now_us if self.trusted else 0))

    def trimmed(self, log_start: int) -> None:
        gone = [entry for entry in self._kept if entry[0] <= log_start]
        del self._kept[: len(gone)]
        oldest_us = self.now_us - self.retention_ms * 1_000 + TOLERANCE_US
        young = [entry for entry in gone if entry[1] and entry[1] > oldest_us]
        if young and self.retention_ms:
            text = f"{len(young)} batches up to {log_start}, {(young[-1][1] - oldest_us) // 1_000} ms too early"
            self.wrong.append(("TRIMMED by true time", text))
