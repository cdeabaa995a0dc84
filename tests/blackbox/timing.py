"""Checkers of time: is a message there when it must be, and not when it must not be? Pure functions over histories.

The clock is the checker's own (`Event.time_s`), which no fault touches; every bound is widened by `slack_s`.

    early          a first delivery ended before the message's delay was over
    lease-early    delivered again before its lease was over, by the same leader (the same epoch: a lease of a standard
                   queue is known to its leader alone, docs/guarantees.md)
    absent         an acquire that waited and was answered "nothing" while the message had to be there: its delay or its
                   lease was over, or it was given to nobody. So a lease that nobody got shows here as well.
    expired-early  absent before its retention was over, and delivered to nobody ever

An empty answer is a proof, so what is judged does not depend on how long the cluster was away: a message is excused
while nobody was answered, while an acquire of unknown outcome may have leased it, and once a delete was asked for.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.blackbox.checkers import ACQUIRE, DELETE, SEND
from tests.blackbox.history import INVOKE, OK, UNKNOWN, Event, Value

NEVER = float("inf")
DELAY_WORD, EPOCH_WORD = "delay", "epoch"


class Terms(NamedTuple):
    """What was agreed for one queue partition, in seconds of the checker's clock."""

    retention_s: float
    lease_s: float


class Delivery(NamedTuple):
    begin_s: float
    end_s: float
    epoch: int


class Judged(NamedTuple):
    """`answers` empty answers were held against `messages` acknowledged messages: what was proved rests on them."""

    messages: int
    answers: int
    never_delivered: int
    violations: dict[str, list[str]]


class _Story(NamedTuple):
    """What happened on one partition, by value."""

    sent: dict[Value, tuple[float, float]]  # begin of the attempt, and its acknowledgement (NEVER without one)
    delays_s: dict[Value, float]
    deliveries: dict[Value, list[Delivery]]
    delete_asked_s: dict[Value, float]
    empty: list[tuple[float, float]]  # acquires that were answered with nothing
    unsure: list[tuple[float, float]]  # acquires whose answer is not known


def check_times(events: Sequence[Event], partition: int, terms: Terms, slack_s: float) -> Judged:
    story = _read(event for event in events if event.partition == partition)
    violations: dict[str, list[str]] = {"early": [], "lease-early": [], "absent": [], "expired-early": []}
    acknowledged = {value: times for value, times in story.sent.items() if times[1] != NEVER}
    never = 0
    for value, (begin_s, ack_s) in sorted(story.sent.items()):
        deliveries = story.deliveries.get(value, [])
        violations["early"] += _early(value, begin_s + story.delays_s.get(value, 0.0) - slack_s, deliveries)
        violations["lease-early"] += _leases_cut(value, deliveries, terms.lease_s - slack_s)
        if ack_s == NEVER:
            continue
        never += not deliveries
        due_s = ack_s + story.delays_s.get(value, 0.0)
        # A delayed message is kept from when it was sent; what releases a scheduled one counts anew, which is longer.
        until_s = min(begin_s + terms.retention_s - slack_s, story.delete_asked_s.get(value, NEVER))
        proof = _absent(story, deliveries, due_s, until_s, terms.lease_s, slack_s)
        if proof is not None:
            kind = "absent" if deliveries else "expired-early"
            violations[kind].append(f"{_text(value)}: nothing at {proof:.1f} s, sent {begin_s:.1f} s")
    return Judged(len(acknowledged), len(story.empty), never, violations)


def _read(events: Iterable[Event]) -> _Story:
    story = _Story({}, {}, defaultdict(list), {}, [], [])
    began: dict[int, Event] = {}
    for event in events:
        if event.kind == INVOKE:
            began[event.call] = event
            _note_invoke(story, event)
            continue
        begun = began.pop(event.call, None)
        if begun is None:
            continue
        if event.operation == SEND and event.kind == OK:
            for value in event.values:
                story.sent[value] = (begun.time_s, event.time_s)
        elif event.operation == ACQUIRE and event.kind == OK:
            delivery = Delivery(begun.time_s, event.time_s, int(_word(event.note, EPOCH_WORD)))
            for value in event.values:
                story.deliveries[value].append(delivery)
            if not event.values:
                story.empty.append((begun.time_s, event.time_s))
        elif event.operation == ACQUIRE and event.kind == UNKNOWN:
            story.unsure.append((begun.time_s, event.time_s))
    # Whoever asked and was never answered: what it may have leased is leased from some moment on.
    story.unsure.extend((begun.time_s, NEVER) for begun in began.values() if begun.operation == ACQUIRE)
    story.empty.sort()
    return story


def _note_invoke(story: _Story, event: Event) -> None:
    for value in event.values:
        if event.operation == SEND:
            story.sent.setdefault(value, (event.time_s, NEVER))
            story.delays_s[value] = _word(event.note, DELAY_WORD)
        elif event.operation == DELETE:
            story.delete_asked_s[value] = min(event.time_s, story.delete_asked_s.get(value, NEVER))


def _early(value: Value, from_s: float, deliveries: Sequence[Delivery]) -> list[str]:
    first_s = min((delivery.end_s for delivery in deliveries), default=NEVER)
    return [f"{_text(value)}: {from_s - first_s:.1f} s too early"] if first_s < from_s else []


def _leases_cut(value: Value, deliveries: Sequence[Delivery], lease_s: float) -> list[str]:
    found = []
    for earlier, later in itertools.pairwise(deliveries):
        if earlier.epoch == later.epoch and later.end_s < earlier.begin_s + lease_s:
            found.append(f"{_text(value)}: again after {later.end_s - earlier.begin_s:.1f} s")
    return found


def _absent(
    story: _Story, deliveries: Sequence[Delivery], due_s: float, until_s: float, lease_s: float, slack_s: float
) -> float | None:
    """When an empty answer proved that the message was not there though it had to be."""
    for at in range(bisect_left(story.empty, (due_s + slack_s, -NEVER)), len(story.empty)):
        begin_s, end_s = story.empty[at]
        if begin_s > until_s:
            return None
        if end_s > until_s or any(
            _holds(one.begin_s, one.end_s, lease_s + slack_s, begin_s, end_s) for one in deliveries
        ):
            continue
        if not any(_holds(*unsure, lease_s + slack_s, begin_s, end_s) for unsure in story.unsure):
            return begin_s
    return None


def _holds(given_s: float, answered_s: float, lease_s: float, begin_s: float, end_s: float) -> bool:
    """A lease that was given somewhere in a receive may still, or already, have held while the empty answer came."""
    return given_s < end_s and begin_s < answered_s + lease_s


def _word(note: str, name: str) -> float:
    """`name 3.5` somewhere among the words of a note; 0 where it is not there."""
    words = note.split()
    return float(words[words.index(name) + 1]) if name in words else 0.0


def _text(value: Value) -> str:
    return f"{value[0]}:{value[1]}"
