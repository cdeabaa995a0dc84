"""The numbers a client gives to the records it sends, one sequence per partition (storage_nodes/machines/producers.py).

A number stays with its record through all attempts. A partition remembers the last PRODUCER_WINDOW_RECORDS of them, so
no more than that may lie between the lowest one that is outstanding and the highest one that was given: a send beyond
waits for its turn here. Nor does it take a number further than that from its highest (a leap), so a client that gave up
so many sends in a row goes on as another producer. Sends with acks ALL, which may take as long as a replica is away,
have a line of their own: the others need not wait for them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from storage_nodes.client.pauses import Chance
from storage_nodes.limits import PRODUCER_PARTITIONS_MAX, PRODUCER_SEQUENCE_MAX, PRODUCER_WINDOW_RECORDS

PRODUCER_ID_BITS = 63


class Line:
    """What this client sends to one partition, but for sends with acks ALL, or these."""

    __slots__ = (
        "_chance",
        "_is_serving",
        "_lowest",
        "_outstanding",
        "_stored_end",
        "_turns",
        "_waiting",
        "next",
        "producer_id",
    )  # fmt: skip

    def __init__(self, producer_id: int, chance: Chance) -> None:
        self._chance = chance
        # Of the numbers that are given from now on.
        self.producer_id = producer_id
        self.next = 0
        # The end of the highest number of this producer that is known to be stored, or where it began.
        self._stored_end = 0
        # First numbers that are outstanding, in order, and a bound that none of them is below.
        self._outstanding: dict[int, None] = {}
        self._lowest = 0
        self._waiting: OrderedDict[int, tuple[int, Callable[[int], None]]] = OrderedDict()
        self._turns = 0
        self._is_serving = False

    def number(self, count: int, go: Callable[[int], None]) -> int:
        """Calls `go` with the first of `count` numbers of `producer_id`, as soon as they are within the window. Answers
        the place among those that wait, by which it can `leave`."""
        self._turns += 1
        first = self.next
        end = first + count
        # Nearly always; what `_has_room` and `_give` do otherwise.
        if not self._waiting and end <= min(self._lowest, self._stored_end) + PRODUCER_WINDOW_RECORDS:
            self._outstanding[first] = None
            self.next = end
            go(first)
        elif self._waiting or not self._has_room(count):
            self._waiting[self._turns] = (count, go)
        else:
            go(self._give(count))
        return self._turns

    def leave(self, turn: int) -> None:
        """It is wanted no more: it takes no number."""
        if self._waiting.pop(turn, None) is not None:
            self._serve()

    def done(self, first: int, stored: int = 0) -> None:
        """The outcome of these is known, or nobody asks for it any more; `stored` of them are certainly in the log."""
        self._outstanding.pop(first, None)
        if stored and first + stored > self._stored_end:
            self._stored_end = first + stored
        if self._waiting:
            self._serve()

    def _serve(self) -> None:
        """Whoever gets its number may be done in that moment, and so come here again: the loop that runs goes on."""
        if self._is_serving:
            return
        self._is_serving = True
        waiting = self._waiting
        try:
            while waiting and self._has_room(next(iter(waiting.values()))[0]):
                _, (count, go) = waiting.popitem(last=False)
                go(self._give(count))
        finally:
            self._is_serving = False

    def _give(self, count: int) -> int:
        first = self.next
        if first + count - self._stored_end > PRODUCER_WINDOW_RECORDS:
            # The numbers go on where they are: a new producer may begin with any.
            self.producer_id = self._chance.getrandbits(PRODUCER_ID_BITS)
            self._stored_end = first
        self._outstanding[first] = None
        self.next = first + count
        return first

    def _has_room(self, count: int) -> bool:
        if self.next + count - self._lowest > PRODUCER_WINDOW_RECORDS:
            self._lowest = next(iter(self._outstanding), self.next)
        return self.next + count - self._lowest <= PRODUCER_WINDOW_RECORDS


class Sequences:
    """Of one client."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._producer_id = chance.getrandbits(PRODUCER_ID_BITS)
        self._lines: dict[tuple[int, bool], Line] = {}

    def line(self, partition: int, waits_for_all: bool = False) -> Line:
        """The line that the next records for this partition go by. There is no way back to low numbers: who
        runs out of them, or of room for partitions, is another producer from then on."""
        key = (partition, waits_for_all)
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= PRODUCER_PARTITIONS_MAX:
                self._lines.clear()
                self._producer_id = self._chance.getrandbits(PRODUCER_ID_BITS)
            line = self._lines[key] = Line(self._producer_id ^ waits_for_all, self._chance)
        elif line.next > PRODUCER_SEQUENCE_MAX - 2 * PRODUCER_WINDOW_RECORDS:
            # Those that wait in it still get their numbers from it.
            line = self._lines[key] = Line(self._chance.getrandbits(PRODUCER_ID_BITS), self._chance)
        return line
