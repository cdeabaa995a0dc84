"""What time it is by a majority of the cluster's clocks, and whether this node's clock is wrong (docs/clocks.md).

Pure: told what clocks say, it answers. Of each node it keeps the *base* of its clock: what its wall clock says less
what our monotonic clock says. A base only changes when its clock is set, so that the clock of a node that is down is
known as well as it was, and a step of our own wall clock changes our own base alone.

    heard   a peer's wall time came with a heartbeat. It left its node a moment ago, so the clock looks behind by the
            delay. Of the last few samples the largest is the truest, unless the clock was set back: so who is off goes
            by the largest, and agreed time by the last one. It may be behind by a delay, but a
            clock that was ahead and has been corrected no longer pulls it forward.
    told    a peer's heartbeat says what the clocks of others say. It counts for a node that we have not heard since we
            were started: so one that is restarted while another node is away knows what its peers know. The teller
            carries the word on by its own monotonic clock, and may err as that does: so a word counts while it is
            young, and for agreed time alone. A word that is only a little younger may be our own, come back.
    look    our own clock is read, and all are compared:

        agreed time   the latest time that a majority of the registered nodes' clocks say or have passed: no minority,
                      however far ahead, makes it later. Not known before so many clocks were heard of.
        off           a majority agree with each other within CLOCK_OFFSET_MS_MAX, and our clock is not among them. Back
                      once it agrees, more closely, for CLOCK_BACK_MS_MIN. Where no majority agrees nobody is off.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence

from storage_nodes.limits import (
    CLOCK_BACK_MS_MIN,
    CLOCK_OFFSET_BACK_MS_MAX,
    CLOCK_OFFSET_MS_MAX,
    CLOCK_SAMPLES_MAX,
    CLOCK_WORD_AGE_MS_MAX,
    CLOCK_WORD_NEWER_MS_MIN,
)


class ClockAgreement:
    """Of one node."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._samples: dict[int, deque[int]] = {}  # peer -> its base by the last few beats
        self._heard_ms: dict[int, int] = {}  # peer -> when it was heard last (monotonic)
        self._told: dict[int, tuple[int, int]] = {}  # node that was not heard -> (its base, when somebody heard it)
        self._own_base_ms = 0
        self._agrees_since_ms = 0  # monotonic; 0 = it does not, or was never off
        # Agreed time is this and our monotonic clock; None = not known.
        self.base_ms: int | None = None
        # Were as many clocks heard as tell whether ours is off?
        self.heard_majority = False
        self.is_off = False

    def heard(self, peer: int, peer_wall_ms: int, mono_ms: int) -> None:
        """This is what the peer's clock said when its beat left, a short while ago."""
        samples = self._samples.get(peer)
        if samples is None:
            samples = self._samples[peer] = deque(maxlen=CLOCK_SAMPLES_MAX)
            self._told.pop(peer, None)
        samples.append(peer_wall_ms - mono_ms)
        self._heard_ms[peer] = mono_ms

    def told(self, clocks: Iterable[tuple[int, int, int]], mono_ms: int) -> None:
        """A peer's word of other clocks, as (node, wall time, its age in ms), which left it a short while ago."""
        for node, wall_ms, age_ms in clocks:
            if node == self._node_id or node in self._samples or not 0 <= age_ms <= CLOCK_WORD_AGE_MS_MAX:
                continue
            known = self._told.get(node)
            if known is None or mono_ms - age_ms > known[1] + CLOCK_WORD_NEWER_MS_MIN:
                self._told[node] = wall_ms - mono_ms, mono_ms - age_ms

    def known(self, mono_ms: int) -> list[tuple[int, int, int]]:
        """What clocks of others say now, as (node, wall time, its age in ms), for a heartbeat."""
        words = [(node, samples[-1], self._heard_ms[node]) for node, samples in self._samples.items()]
        words += [(node, *word) for node, word in self._told.items()]
        since_ms = mono_ms - CLOCK_WORD_AGE_MS_MAX
        return [(node, base_ms + mono_ms, mono_ms - at_ms) for node, base_ms, at_ms in words if at_ms >= since_ms]

    def look(self, own_wall_ms: int, mono_ms: int, registered: Iterable[int]) -> None:
        """Compare the clocks of these nodes, ours among them."""
        self._own_base_ms = own_wall_ms - mono_ms
        nodes = {self._node_id, *registered}
        if self._told:
            self._forget_words(nodes, mono_ms - CLOCK_WORD_AGE_MS_MAX)
        majority = len(nodes) // 2 + 1
        heard = [samples for node, samples in self._samples.items() if node in nodes]
        bases_ms = sorted(map(max, heard))
        known_ms = sorted([samples[-1] for samples in heard] + [base_ms for base_ms, _ in self._told.values()])
        insort(known_ms, self._own_base_ms)
        self.base_ms = known_ms[-majority] if len(known_ms) >= majority else None
        self.heard_majority = len(heard) + 1 >= majority
        tolerance_ms = CLOCK_OFFSET_BACK_MS_MAX if self.is_off else CLOCK_OFFSET_MS_MAX
        if _agree_with(self._own_base_ms, bases_ms, majority, tolerance_ms) or not _agree(bases_ms, majority):
            self._agrees_since_ms = self._agrees_since_ms or mono_ms
            self.is_off = self.is_off and mono_ms - self._agrees_since_ms < CLOCK_BACK_MS_MIN
        else:
            self._agrees_since_ms = 0
            self.is_off = True

    def _forget_words(self, nodes: set[int], since_ms: int) -> None:
        gone = [node for node, (_, at_ms) in self._told.items() if node not in nodes or at_ms < since_ms]
        for node in gone:
            del self._told[node]

    def agreed_ms(self, mono_ms: int) -> int | None:
        """Agreed time, None = not known."""
        return None if self.base_ms is None else self.base_ms + mono_ms

    def offset_ms(self, node: int) -> int | None:
        """How far the clock of a node is ahead of agreed time (negative: behind); None = not known."""
        told_ms, _ = self._told.get(node, (None, 0))
        base_ms = self._own_base_ms if node == self._node_id else max(self._samples.get(node, ()), default=told_ms)
        return None if base_ms is None or self.base_ms is None else base_ms - self.base_ms


def _agree(bases_ms: Sequence[int], count: int) -> bool:
    """Do any `count` of these, which are sorted, agree with each other?"""
    starts = range(len(bases_ms) - count + 1)
    return any(bases_ms[at + count - 1] - bases_ms[at] <= CLOCK_OFFSET_MS_MAX for at in starts)


def _agree_with(own_ms: int, bases_ms: Sequence[int], count: int, tolerance_ms: int) -> bool:
    """Do our own and any `count - 1` of the others, which are sorted, agree with each other so closely?"""
    others = count - 1
    if not others:
        return True
    spans = (
        max(bases_ms[at + others - 1], own_ms) - min(bases_ms[at], own_ms) for at in range(len(bases_ms) - others + 1)
    )
    return any(span_ms <= tolerance_ms for span_ms in spans)
