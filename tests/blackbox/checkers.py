"""Checkers: pure functions over histories. What is found is listed, never summed away.

`check_queue` is Jepsen's total-queue with the split of NATS' queue checker, made sharper where our clients allow it:

    lost         acknowledged, delivered to nobody although the queue was drained; split for every writer into
                 prefix, middle and postfix of what was delivered (middle proves loss, postfix may be a slow reader)
    unexpected   delivered, but nobody ever sent it
    aborted      delivered, but every attempt to send it was answered "did not happen"
    duplicated   at more places than attempts that may have happened: a client never repeats after `unknown`
                 under the same counter, so one attempt gives one place
    revived      delivered to a call that began after the delete of that place was acknowledged
    recovered    delivered after an unknown answer; only counted

`check_stream` is Jepsen's kafka checker without transactions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.blackbox.history import DRAINED, FAIL, FAULT, INVOKE, OK, Event, Place, Value

SEND, ACQUIRE, DELETE, APPEND, READ = "send", "acquire", "delete", "append", "read"
WINDOW_S = 1.0


class Sends(NamedTuple):
    """What is known about the values of one partition from their senders' side."""

    attempted: set[Value]
    acked: dict[Value, Place]
    may_have_happened: Counter[Value]  # attempts that were not answered `fail`


class Verdict(NamedTuple):
    """Counts for the report, and violations by their name. Valid means complete and none."""

    complete: bool
    counts: dict[str, int]
    violations: dict[str, list[str]]

    @property
    def valid(self) -> bool:
        return self.complete and not any(self.violations.values())


def sends_of(events: Iterable[Event], operation: str) -> Sends:
    attempted: set[Value] = set()
    acked: dict[Value, Place] = {}
    possible: Counter[Value] = Counter()
    for event in events:
        if event.operation != operation:
            continue
        if event.kind == INVOKE:
            attempted.update(event.values)
            possible.update(event.values)
        elif event.kind == OK:
            acked.update(zip(event.values, event.places, strict=True))
        elif event.kind == FAIL:
            possible.subtract(event.values)
    return Sends(attempted, acked, possible)


def is_drained(events: Iterable[Event], partition: int) -> bool:
    return any(event.kind == DRAINED and partition in event.places for event in events)


# --- queues -------------------------------------------------------------------------------------------------


def check_queue(events: Sequence[Event], partition: int = 0, duplicates_allowed: bool = False) -> Verdict:
    """`duplicates_allowed` where the target itself repeats sends of unknown outcome (a standard queue over HTTP)."""
    mine = [event for event in events if event.partition == partition]
    sends = sends_of(mine, SEND)
    places: defaultdict[Value, set[Place]] = defaultdict(set)
    deliveries = 0
    for event in mine:
        if event.operation == ACQUIRE and event.kind == OK:
            deliveries += len(event.values)
            for value, place in zip(event.values, event.places, strict=True):
                places[value].add(place)
    lost = split_lost(sends.acked.keys() - places.keys(), places)
    surplus = _surplus(sends, places)
    violations = {
        **{f"lost-{part}": found for part, found in lost.items()},
        "unexpected": _texts(places.keys() - sends.attempted),
        "aborted": _texts(value for value in places if value in sends.attempted and not sends.may_have_happened[value]),
        "duplicated": [] if duplicates_allowed else surplus,
        "inconsistent-place": _inconsistent(sends.acked, places),
        "revived": _revived(mine),
    }
    counts = {
        "attempted": len(sends.attempted),
        "acked": len(sends.acked),
        "delivered": len(places),
        "recovered": len((places.keys() & sends.attempted) - sends.acked.keys()),
        "redelivered": deliveries - sum(map(len, places.values())),
        "duplicated": len(surplus),
    }
    return Verdict(is_drained(events, partition), counts, violations)


def split_lost(lost: Iterable[Value], delivered: Iterable[Value]) -> dict[str, list[str]]:
    """Before, between or behind what was delivered of the same writer; of a writer with nothing delivered: behind."""
    bounds: dict[str, tuple[int, int]] = {}
    for writer, counter in delivered:
        low, high = bounds.get(writer, (counter, counter))
        bounds[writer] = (min(low, counter), max(high, counter))
    split: dict[str, list[str]] = {"prefix": [], "middle": [], "postfix": []}
    for writer, counter in sorted(lost):
        low, high = bounds.get(writer, (-1, -1))
        part = "postfix" if counter > high else "prefix" if counter < low else "middle"
        split[part].append(f"{writer}:{counter}")
    return split


def _surplus(sends: Sends, places: Mapping[Value, set[Place]]) -> list[str]:
    found = {}
    for value, where in places.items():
        allowed = sends.may_have_happened[value]
        if value in sends.attempted and 0 < allowed < len(where):
            found[value] = where
    return [f"{writer}:{counter} at {sorted(map(str, where))}" for (writer, counter), where in sorted(found.items())]


def _inconsistent(acked: Mapping[Value, Place], places: Mapping[Value, set[Place]]) -> list[str]:
    """One place shows one value, and an acknowledged value is where its sender was told."""
    holders: defaultdict[Place, set[Value]] = defaultdict(set)
    for value, place in acked.items():
        holders[place].add(value)
    for value, where in places.items():
        for place in where:
            holders[place].add(value)
    found = [f"{place} holds {_texts(values)}" for place, values in holders.items() if len(values) > 1]
    for value, place in acked.items():
        seen = places.get(value, set())
        if seen and place not in seen:
            found.append(f"{value[0]}:{value[1]} acknowledged at {place}, delivered at {sorted(map(str, seen))}")
    return found


def _revived(events: Sequence[Event]) -> list[str]:
    deleted_at: dict[Place, float] = {}
    began_at: dict[int, float] = {}
    found = []
    for event in events:
        if event.operation == DELETE and event.kind == OK:
            for place in event.places:
                deleted_at.setdefault(place, event.time_s)
        elif event.operation == ACQUIRE and event.kind == INVOKE:
            began_at[event.call] = event.time_s
        elif event.operation == ACQUIRE and event.kind == OK:
            began = began_at[event.call]
            for value, place in zip(event.values, event.places, strict=True):
                if deleted_at.get(place, began) < began:
                    late_ms = (began - deleted_at[place]) * 1000
                    found.append(f"{value[0]}:{value[1]} at {place} to {event.client}, {late_ms:.0f} ms after delete")
    return found


# --- streams ------------------------------------------------------------------------------------------------


def check_stream(events: Sequence[Event], partition: int = 0) -> Verdict:
    mine = [event for event in events if event.partition == partition]
    sends = sends_of(mine, APPEND)
    polls = [event for event in mine if event.operation == READ and event.kind == OK and event.values]
    places: defaultdict[Value, set[Place]] = defaultdict(set)
    for poll in polls:
        for value, place in zip(poll.values, poll.places, strict=True):
            places[value].add(place)
    highest = max((_number(place) for where in places.values() for place in where), default=-1)
    missing = [value for value in sends.acked if value not in places]
    lost = [value for value in missing if _number(sends.acked[value]) <= highest]
    known = sorted({_number(place) for where in places.values() for place in where})
    violations = {
        **{f"lost-{part}": found for part, found in split_lost(lost, places).items()},
        "unseen": _texts(set(missing) - set(lost)),
        "unexpected": _texts(places.keys() - sends.attempted),
        "aborted": _texts(value for value in places if value in sends.attempted and not sends.may_have_happened[value]),
        "duplicated": _surplus(sends, places),
        "inconsistent-place": _inconsistent(sends.acked, places),
        "nonmonotonic-poll": _nonmonotonic_polls(polls),
        "poll-skip": _skips(polls, known),
        "nonmonotonic-send": _nonmonotonic_sends(mine),
    }
    counts = {
        "attempted": len(sends.attempted),
        "acked": len(sends.acked),
        "delivered": len(places),
        "recovered": len((places.keys() & sends.attempted) - sends.acked.keys()),
        "duplicated": len(violations["duplicated"]),
        "polls": len(polls),
    }
    return Verdict(is_drained(events, partition), counts, violations)


def _nonmonotonic_polls(polls: Sequence[Event]) -> list[str]:
    """Offsets rise inside a poll and from one poll of a reader to its next."""
    last: dict[str, int] = {}
    found = []
    for poll in polls:
        before = last.get(poll.client, -1)
        for place in map(_number, poll.places):
            if place <= before:
                found.append(f"{poll.client} read {place} after {before}")
            before = place
        last[poll.client] = before
    return found


def _skips(polls: Sequence[Event], known: Sequence[int]) -> list[str]:
    """What lies between two offsets that one reader read one after the other, nobody read."""
    index = {place: position for position, place in enumerate(known)}
    last: dict[str, int] = {}
    found = []
    for poll in polls:
        for place in map(_number, poll.places):
            before = last.get(poll.client)
            if before is not None and index[place] > index[before] + 1:
                found.append(f"{poll.client} went from {before} to {place} past {known[index[before] + 1]}")
            last[poll.client] = place
    return found


def _nonmonotonic_sends(events: Sequence[Event]) -> list[str]:
    """An append that began after another was acknowledged stands behind it, whoever sent the two."""
    highest = -1
    floor: dict[int, int] = {}
    found = []
    for event in events:
        if event.operation != APPEND:
            continue
        if event.kind == INVOKE:
            floor[event.call] = highest
        elif event.kind == OK:
            numbers = [_number(place) for place in event.places]
            if numbers != sorted(numbers) or numbers[0] <= floor[event.call]:
                found.append(f"{event.client} got {numbers[0]} though {floor[event.call]} was acknowledged before")
            highest = max(highest, numbers[-1])
    return found


# --- replicas -----------------------------------------------------------------------------------------------


def check_replicas(copies: Mapping[int, Mapping[int, Value]], acked: Mapping[Value, Place]) -> list[str]:
    """Every node's own log, read after a write that all voters acknowledged: they are equal and hold all of it."""
    found = []
    everything = set().union(*(copy.keys() for copy in copies.values()))
    for place in sorted(everything):
        held = {node: copy.get(place) for node, copy in copies.items()}
        if any(value != held[min(held)] for value in held.values()):
            found.append(f"offset {place} differs: {held}")
    for node, copy in copies.items():
        for value, acked_place in acked.items():
            if copy.get(_number(acked_place)) != value:
                found.append(f"node {node} lacks {value[0]}:{value[1]} at {acked_place}")
    return found


# --- time ---------------------------------------------------------------------------------------------------


class Availability(NamedTuple):
    windows: int
    served: int


def availability(events: Sequence[Event], partition: int, operation: str = SEND) -> Availability:
    """1-s windows between the first and the last send; one is served if a send was acknowledged in it."""
    mine = [event for event in events if event.partition == partition and event.operation == operation]
    if not mine:
        return Availability(0, 0)
    start = mine[0].time_s
    windows = int((mine[-1].time_s - start) / WINDOW_S)
    served = {int((event.time_s - start) / WINDOW_S) for event in mine if event.kind == OK}
    return Availability(windows, len([window for window in served if window < windows]))


def failover_times_s(events: Sequence[Event], partition: int, operation: str = SEND) -> list[float]:
    """From each fault on the partition to the first acknowledgement of a send that began after it."""
    times: list[float] = []
    waiting: list[float] = []
    began_at: dict[int, float] = {}
    for event in events:
        if event.kind == FAULT and partition in event.places:
            waiting.append(event.time_s)
        elif event.partition != partition or event.operation != operation:
            continue
        elif event.kind == INVOKE:
            began_at[event.call] = event.time_s
        elif event.kind == OK and waiting and began_at[event.call] > waiting[0]:
            times += [event.time_s - fault for fault in waiting if began_at[event.call] > fault]
            waiting = [fault for fault in waiting if began_at[event.call] <= fault]
    return times + [float("inf")] * len(waiting)


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank; nan of nothing."""
    if not values:
        return float("nan")
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def _number(place: Place) -> int:
    assert isinstance(place, int), f"stream places are offsets, got {place!r}"
    return place


def _texts(values: Iterable[Value]) -> list[str]:
    return [f"{writer}:{counter}" for writer, counter in sorted(values)]
