"""Which messages of other partitions were taken here as dead letters, so that none is taken twice (R30).

A dead letter is sent again when nobody knows whether its copy was committed: after a failover of its partition, or when
commits here are slow. How long that takes has no bound, so what is remembered does not go by time. The partition that
sends says with each letter what it is done with (`DeadSource`):

    place   where the message lay there
    move    number of the move that it is part of: a position in that partition's log. All letters of a move were
            chosen together, and a later move has a higher number, under any leader
    term    where the leadership that sends began: a position in the same log
    kept    moves of this leadership below it are done: none of their letters lies there any more, none comes again

So moves from `term` to below `kept` are forgotten, and a letter of a move below the highest is late: another attempt
decides about it. What stays is the last move of each partition, and what broken-off leaderships left behind, until it
comes again. Letters that were moved by hand have no move; their places are remembered as if left behind.

Checkpoint: flat (partition, highest move, flat (place, move, offset)...)..., the least recently used partition first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from storage_nodes.machines.fold_constants import LEVEL_1
from storage_nodes.machines.queue.state.dedup import NOT_SEEN
from storage_nodes.protocol.messages import DeadSource

LETTERS_TAKEN_MAX = LEVEL_1.letters_taken_max
LETTERS_TAKEN_PER_SOURCE_MAX = LEVEL_1.letters_taken_per_source_max


class _Source:
    __slots__ = ("kept", "move", "places")

    def __init__(self) -> None:
        self.move = 0  # the highest
        self.kept = 0  # as it was told last; a restored one hears it again
        self.places: dict[int, tuple[int, int]] = {}  # place there -> (move, offset here), the oldest first


class TakenLetters:
    """Of one partition; changed by `take` only, in log order."""

    __slots__ = ("_count", "_sources")

    def __init__(self) -> None:
        self._sources: dict[int, _Source] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, letter: DeadSource) -> int:
        """Offset of the copy that was taken; NOT_SEEN where none is known."""
        source = self._sources.get(letter.partition)
        known = source.places.get(letter.place) if source is not None else None
        return NOT_SEEN if known is None else known[1]

    def take(self, letter: DeadSource, offset: int) -> int:
        """The copy that has been taken of the letter at `offset`, NOT_SEEN where this is the first; `offset` itself
        where it comes too late for anybody to ask."""
        if letter.place < 0:
            return NOT_SEEN
        source = self._sources.pop(letter.partition, None) or _Source()
        self._sources[letter.partition] = source
        known = source.places.get(letter.place)
        move = letter.move
        if move:
            if move < source.move:
                return offset if known is None else known[1]
            source.move = move
            if letter.kept != source.kept:
                self._forget(source, letter)
        if known is not None and not move:
            return known[1]
        self._count += letter.place not in source.places  # it may be known, and forgotten just now
        source.places.pop(letter.place, None)
        source.places[letter.place] = (move, offset if known is None else known[1])
        self._tidy(source)
        return NOT_SEEN if known is None else known[1]

    def _forget(self, source: _Source, letter: DeadSource) -> None:
        source.kept = letter.kept
        done = [place for place, (move, _) in source.places.items() if letter.term <= move < letter.kept]
        for place in done:
            del source.places[place]
        self._count -= len(done)

    def _tidy(self, source: _Source) -> None:
        if len(source.places) > LETTERS_TAKEN_PER_SOURCE_MAX:
            del source.places[next(iter(source.places))]
            self._count -= 1
        while self._count > LETTERS_TAKEN_MAX and len(self._sources) > 1:
            self._count -= len(self._sources.pop(next(iter(self._sources))).places)

    def pack(self) -> list[Any]:
        flat: list[Any] = []
        for partition, source in self._sources.items():
            flat += (partition, source.move, [n for place, known in source.places.items() for n in (place, *known)])
        return flat

    @classmethod
    def unpack(cls, flat: Sequence[Any]) -> TakenLetters:
        """Raises ValueError or TypeError."""
        taken = cls()
        fields = iter(flat)
        for partition, move, numbers in zip(fields, fields, fields, strict=True):
            source = taken._sources[partition] = _Source()
            source.move = move
            each = iter(numbers)
            source.places = {place: (its, offset) for place, its, offset in zip(each, each, each, strict=True)}
            taken._count += len(source.places)
        return taken
