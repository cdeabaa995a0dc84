"""Judges what clients of the SQS wire saw by what docs/guarantees.md promises. Pure.

lost         a message whose send was answered, and that nobody ever received
unexpected   a message that nobody sent
came back    a message that was received by a call that began after its delete was answered
stored twice a send that became two messages (a FIFO queue; a dead letter)
order        a message of a FIFO group that was received while an earlier one of it was not deleted
too early    a message that was received again before its visibility was over. A standard queue may do so where a
             leader was lost, or a front end with an answer: those are counted, with the fault that explains each
dead letters a message that came to the dead-letter queue without its receives, or did not with them
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from tests.blackbox.wire_history import Fault, Outcome, Received, Sent, Settled, WireHistory

# Clients and servers read their clocks at slightly different moments of a call.
TOLERATED_S = 0.25
# A fault explains what happened up to so long after it.
EXPLAINS_S = 30.0

Violations = dict[str, list[str]]


def judge(
    history: WireHistory, fifo: Sequence[str], dead: Mapping[str, tuple[str, int]]
) -> tuple[Violations, Counter[str]]:
    """Violations by rule, and how many duplicates each fault explains. `dead`: the dead-letter queue of a queue, and
    its maxReceiveCount."""
    found: Violations = defaultdict(list)
    explained: Counter[str] = Counter()
    targets = {target for target, _ in dead.values()}
    for queue in sorted({sent.queue for sent in history.sent} | targets):
        sent = [event for event in history.sent if event.queue == queue]
        received = [event for event in history.received if event.queue == queue]
        settled = [event for event in history.settled if event.queue == queue]
        if queue not in targets:
            target = dead.get(queue, ("", 0))[0]
            letters = {event.key for event in history.received if event.queue == target}
            _judge_complete(queue, sent, received, letters, found)
        _judge_came_back(queue, received, settled, found)
        _judge_visibility(queue, received, settled, history.faults if queue not in fifo else [], found, explained)
        if queue in fifo or queue in targets:
            _judge_stored_once(queue, received, found)
        if queue in fifo:
            _judge_order(queue, sent, received, settled, found)
    for queue, (target, receives_max) in dead.items():
        _judge_dead(history, queue, target, receives_max, found)
    return dict(found), explained


def _judge_complete(
    queue: str, sent: Sequence[Sent], received: Sequence[Received], letters: set[str], found: Violations
) -> None:
    attempted = {event.key for event in sent}
    acknowledged = {event.key for event in sent if event.outcome is Outcome.OK}
    seen = {event.key for event in received} | letters
    found["lost"] += [f"{queue} {key}" for key in sorted(acknowledged - seen)]
    found["unexpected"] += [f"{queue} {key}" for key in sorted(seen - attempted)]


def _judge_came_back(queue: str, received: Sequence[Received], settled: Sequence[Settled], found: Violations) -> None:
    deleted_s: dict[str, float] = {}
    for event in settled:
        if event.is_delete and event.outcome is Outcome.OK:
            deleted_s[event.key] = min(event.ended_s, deleted_s.get(event.key, event.ended_s))
    for event in received:
        if event.began_s > deleted_s.get(event.key, float("inf")):
            found["came back"].append(f"{queue} {event.key}: {event.began_s - deleted_s[event.key]:.2f} s after")


def _judge_visibility(
    queue: str,
    received: Sequence[Received],
    settled: Sequence[Settled],
    faults: Sequence[Fault],
    found: Violations,
    explained: Counter[str],
) -> None:
    by_key: dict[str, list[Received]] = defaultdict(list)
    for event in received:
        by_key[event.key].append(event)
    changes: dict[str, list[Settled]] = defaultdict(list)
    for change in settled:
        changes[change.key].append(change)
    for key, events in by_key.items():
        events.sort(key=lambda event: event.ended_s)
        for first, again in pairwise(events):
            free_s = _hidden_until_s(first, again, changes[key])
            if again.ended_s >= free_s - TOLERATED_S:
                continue
            fault = next((fault for fault in faults if _explains(fault, first, again)), None)
            if fault is None:
                found["too early"].append(f"{queue} {key}: {free_s - again.ended_s:.2f} s before its visibility ended")
            else:
                explained[fault.name] += 1


def _hidden_until_s(first: Received, again: Received, changes: Sequence[Settled]) -> float:
    """The earliest moment at which the message may be given again. A change whose outcome is unknown says nothing
    for certain, so it counts as whatever is earlier."""
    until_s = first.began_s + first.visibility_s
    for change in sorted(changes, key=lambda change: change.began_s):
        if (
            change.is_delete
            or change.outcome is Outcome.REFUSED
            or not first.ended_s <= change.began_s <= again.ended_s
        ):
            continue
        changed_s = change.began_s + change.visibility_s
        until_s = changed_s if change.outcome is Outcome.OK else min(until_s, changed_s)
    return until_s


def _explains(fault: Fault, first: Received, again: Received) -> bool:
    return fault.began_s <= again.ended_s and fault.ended_s + EXPLAINS_S >= first.began_s


def _judge_stored_once(queue: str, received: Sequence[Received], found: Violations) -> None:
    ids: dict[str, set[str]] = defaultdict(set)
    for event in received:
        ids[event.key].add(event.message_id)
    found["stored twice"] += [f"{queue} {key}: {sorted(known)}" for key, known in sorted(ids.items()) if len(known) > 1]


def _judge_order(
    queue: str, sent: Sequence[Sent], received: Sequence[Received], settled: Sequence[Settled], found: Violations
) -> None:
    """A message is received when all before it in its group are deleted, or stand before it in the same answer. A
    delete counts from the moment it was asked for, whatever came of it."""
    deleted_s: dict[str, float] = {}
    for event in settled:
        if event.is_delete:
            deleted_s[event.key] = min(event.began_s, deleted_s.get(event.key, event.began_s))
    order: dict[str, dict[int, str]] = defaultdict(dict)
    place_of: dict[str, tuple[str, int]] = {}
    for message in sent:
        place_of[message.key] = message.group, message.number
        if message.outcome is Outcome.OK:
            order[message.group][message.number] = message.key
    answers: dict[int, dict[str, int]] = defaultdict(dict)
    for event in received:
        answers[event.answer][event.key] = event.place
    done: dict[str, int] = defaultdict(int)  # all below it in the group are deleted for every later answer
    for event in sorted(received, key=lambda event: event.ended_s):
        group, number = place_of.get(event.key, ("", 0))
        numbers = order[group]
        first = done[group]
        while (
            first < number
            and deleted_s.get(numbers.get(first, ""), float("inf") if first in numbers else 0) < event.ended_s
        ):
            first += 1
        done[group] = first
        for earlier in range(first, number):
            key = numbers.get(earlier)
            if key is None or deleted_s.get(key, float("inf")) < event.ended_s:
                continue
            if answers[event.answer].get(key, event.place) >= event.place:
                found["order"].append(f"{queue} {event.key} of {group} before {key}")
                break


def _judge_dead(history: WireHistory, queue: str, target: str, receives_max: int, found: Violations) -> None:
    deleted = {
        event.key
        for event in history.settled
        if event.queue == queue and event.is_delete and event.outcome is Outcome.OK
    }
    receives = Counter(event.key for event in history.received if event.queue == queue)
    letters = {event.key for event in history.received if event.queue == target}
    acknowledged = {event.key for event in history.sent if event.queue == queue and event.outcome is Outcome.OK}
    found["dead letters"] += [f"{key}: deleted and moved" for key in sorted(letters & deleted)]
    found["dead letters"] += [
        f"{key}: received {receives[key]} times and neither deleted nor moved"
        for key in sorted(acknowledged - deleted - letters)
        if receives[key] > receives_max
    ]
