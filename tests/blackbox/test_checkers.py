"""The checkers believed: every hand-made bad history is flagged by name, every good one with unknown results passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.blackbox.checkers import (
    Verdict,
    availability,
    check_queue,
    check_replicas,
    check_stream,
    failover_times_s,
    percentile,
    split_lost,
)
from tests.blackbox.history import FAIL, INVOKE, OK, UNKNOWN, Event, Place, Recorder, load


class Told:
    """A history written by hand: every line one second after the last."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._calls = 0

    def _add(self, kind: str, operation: str, client: str, call: int, values: list[int], places: list[Place]) -> None:
        writer = "w"
        pairs = [(writer, number) for number in values]
        self.events.append(Event(float(len(self.events)), kind, operation, client, call, 0, pairs, places))

    def begin(self, operation: str, client: str = "w", values: list[int] | None = None) -> int:
        self._calls += 1
        self._add(INVOKE, operation, client, self._calls, values or [], [])
        return self._calls

    def end(self, call: int, kind: str, values: list[int] | None = None, places: list[Place] | None = None) -> None:
        began = next(event for event in self.events if event.call == call)
        shown = [number for _, number in began.values] if values is None else values
        self._add(kind, began.operation, began.client, call, shown, places or [])

    def sent(self, value: int, place: Place, operation: str = "send") -> None:
        self.end(self.begin(operation, "w", [value]), OK, places=[place])

    def seen(self, *pairs: tuple[int, Place], client: str = "c", operation: str = "acquire") -> None:
        call = self.begin(operation, client)
        self.end(call, OK, [value for value, _ in pairs], [place for _, place in pairs])

    def deleted(self, value: int, place: Place) -> None:
        self.end(self.begin("delete", "c", [value]), OK, places=[place])

    def drained(self) -> None:
        self.events.append(Event(float(len(self.events)), "drained", "drained", "nemesis", 0, 0, [], [0]))


def sent_and_seen(told: Told, count: int, lost: int = -1) -> None:
    for value in range(count):
        told.sent(value, value)
    told.seen(*[(value, value) for value in range(count) if value != lost])


def lost_prefix(told: Told) -> None:
    sent_and_seen(told, 5, lost=0)


def lost_middle(told: Told) -> None:
    sent_and_seen(told, 5, lost=2)


def lost_postfix(told: Told) -> None:
    sent_and_seen(told, 5, lost=4)


def unexpected(told: Told) -> None:
    sent_and_seen(told, 2)
    told.seen((77, 9))


def aborted(told: Told) -> None:
    told.end(told.begin("send", "w", [0]), FAIL)
    told.seen((0, 0))


def duplicated(told: Told) -> None:
    sent_and_seen(told, 2)
    told.seen((1, 8))


def duplicated_after_one_unknown(told: Told) -> None:
    told.end(told.begin("send", "w", [0]), UNKNOWN)
    told.seen((0, 3))
    told.seen((0, 4))


def revived(told: Told) -> None:
    sent_and_seen(told, 1)
    told.deleted(0, 0)
    told.seen((0, 0))


def two_values_at_one_place(told: Told) -> None:
    told.sent(0, 0)
    told.end(told.begin("send", "w", [1]), UNKNOWN)
    told.seen((0, 0))
    told.seen((1, 0))


QUEUE_FAULTS: dict[str, tuple[Callable[[Told], None], str]] = {
    "lost prefix": (lost_prefix, "lost-prefix"),
    "lost middle": (lost_middle, "lost-middle"),
    "lost postfix": (lost_postfix, "lost-postfix"),
    "unexpected": (unexpected, "unexpected"),
    "aborted": (aborted, "aborted"),
    "duplicated": (duplicated, "duplicated"),
    "duplicated after one unknown": (duplicated_after_one_unknown, "duplicated"),
    "revived": (revived, "revived"),
    "two values at one place": (two_values_at_one_place, "inconsistent-place"),
}


@pytest.mark.parametrize("name", QUEUE_FAULTS)
def test_bad_queue_history_is_flagged(name: str) -> None:
    write, flag = QUEUE_FAULTS[name]
    told = Told()
    write(told)
    told.drained()
    verdict = check_queue(told.events)
    assert not verdict.valid
    assert [found for found, items in verdict.violations.items() if items] == [flag]


def stream_of(told: Told, *places: int) -> None:
    for value, place in enumerate(places):
        told.sent(value, place, "append")


def stream_lost(told: Told) -> None:
    stream_of(told, 0, 1, 2)
    told.seen((0, 0), (2, 2), operation="read")


def stream_unseen(told: Told) -> None:
    stream_of(told, 0, 1, 2)
    told.seen((0, 0), (1, 1), operation="read")


def stream_two_readers_disagree(told: Told) -> None:
    told.sent(0, 0, "append")
    told.end(told.begin("append", "w", [1]), UNKNOWN)
    told.seen((0, 0), client="r1", operation="read")
    told.seen((1, 0), client="r2", operation="read")


def stream_read_goes_back(told: Told) -> None:
    stream_of(told, 0, 1)
    told.seen((0, 0), (1, 1), operation="read")
    told.seen((1, 1), operation="read")


def stream_read_skips(told: Told) -> None:
    stream_of(told, 0, 1, 2)
    told.seen((0, 0), (1, 1), (2, 2), client="r1", operation="read")
    told.seen((0, 0), (2, 2), client="r2", operation="read")


def stream_order_of_writer_reversed(told: Told) -> None:
    stream_of(told, 5, 3)
    told.seen((1, 3), (0, 5), operation="read")


def stream_aborted(told: Told) -> None:
    told.end(told.begin("append", "w", [0]), FAIL)
    told.seen((0, 0), operation="read")


STREAM_FAULTS: dict[str, tuple[Callable[[Told], None], str]] = {
    "lost write": (stream_lost, "lost-middle"),
    "unseen": (stream_unseen, "unseen"),
    "readers disagree": (stream_two_readers_disagree, "inconsistent-place"),
    "read goes back": (stream_read_goes_back, "nonmonotonic-poll"),
    "read skips": (stream_read_skips, "poll-skip"),
    "order of a writer reversed": (stream_order_of_writer_reversed, "nonmonotonic-send"),
    "aborted": (stream_aborted, "aborted"),
}


@pytest.mark.parametrize("name", STREAM_FAULTS)
def test_bad_stream_history_is_flagged(name: str) -> None:
    write, flag = STREAM_FAULTS[name]
    told = Told()
    write(told)
    told.drained()
    verdict = check_stream(told.events)
    assert not verdict.valid
    assert [found for found, items in verdict.violations.items() if items] == [flag]


def test_history_without_a_drain_is_not_valid() -> None:
    told = Told()
    sent_and_seen(told, 3)
    verdict = check_queue(told.events)
    assert not any(verdict.violations.values())
    assert not verdict.valid


# --- good histories -----------------------------------------------------------------------------------------


def unknown_send_seen(told: Told) -> None:
    told.end(told.begin("send", "w", [0]), UNKNOWN)
    told.seen((0, 0))


def unknown_send_never_seen(told: Told) -> None:
    sent_and_seen(told, 2)
    told.end(told.begin("send", "w", [2]), UNKNOWN)


def refused_then_sent(told: Told) -> None:
    told.end(told.begin("send", "w", [0]), FAIL)
    told.sent(0, 4)
    told.seen((0, 4))


def unanswered_then_repeated(told: Told) -> None:
    told.begin("send", "w", [0])
    told.sent(0, 1)
    told.seen((0, 0))
    told.seen((0, 1))


def redelivered_while_delete_is_unknown(told: Told) -> None:
    told.sent(0, 0)
    early = told.begin("acquire", "c2")
    told.seen((0, 0))
    told.end(told.begin("delete", "c", [0]), UNKNOWN)
    told.seen((0, 0))
    told.deleted(0, 0)
    told.end(early, OK, [0], [0])  # asked before the delete was acknowledged


def stream_with_an_unknown(told: Told) -> None:
    told.sent(0, 0, "append")
    told.end(told.begin("append", "w", [1]), UNKNOWN)
    told.sent(2, 2, "append")
    told.seen((0, 0), (1, 1), client="r1", operation="read")
    told.seen((2, 2), client="r1", operation="read")
    told.seen((0, 0), (1, 1), (2, 2), client="r2", operation="read")


GOOD: dict[str, tuple[Callable[[Told], None], Callable[[list[Event]], Verdict]]] = {
    "unknown send seen": (unknown_send_seen, check_queue),
    "unknown send never seen": (unknown_send_never_seen, check_queue),
    "refused, then sent": (refused_then_sent, check_queue),
    "unanswered, then repeated": (unanswered_then_repeated, check_queue),
    "redelivered while the delete is unknown": (redelivered_while_delete_is_unknown, check_queue),
    "stream with an unknown": (stream_with_an_unknown, check_stream),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_history_passes(name: str) -> None:
    write, check = GOOD[name]
    told = Told()
    write(told)
    told.drained()
    verdict = check(told.events)
    assert verdict.valid, verdict.violations


def test_unknown_then_delivered_is_counted_as_recovered() -> None:
    told = Told()
    unknown_send_seen(told)
    told.drained()
    assert check_queue(told.events).counts["recovered"] == 1


# --- the other checkers -------------------------------------------------------------------------------------


def test_lost_values_are_split_by_what_their_own_writer_delivered() -> None:
    lost = [("a", 0), ("a", 5), ("a", 9), ("b", 1)]
    split = split_lost(lost, [("a", 3), ("a", 7)])
    assert split == {"prefix": ["a:0"], "middle": ["a:5"], "postfix": ["a:9", "b:1"]}


def test_replica_that_differs_or_lacks_a_write_is_named() -> None:
    whole = {0: ("w", 0), 1: ("w", 1)}
    assert check_replicas({1: whole, 2: whole, 3: whole}, {("w", 1): 1}) == []
    found = check_replicas({1: whole, 2: {0: ("w", 0)}, 3: {**whole, 1: ("w", 7)}}, {("w", 1): 1})
    assert len(found) == 3
    assert found[1:] == ["node 2 lacks w:1 at 1", "node 3 lacks w:1 at 1"]


def test_replicas_that_all_lack_an_acknowledged_write_are_named() -> None:
    assert check_replicas({1: {}, 2: {}, 3: {}}, {("w", 0): 0}) == [f"node {node} lacks w:0 at 0" for node in (1, 2, 3)]


def test_failover_time_counts_only_sends_that_began_after_the_fault() -> None:
    told = Told()
    early = told.begin("send", "w", [0])  # 0 s
    told.events.append(Event(1.0, "fault", "kill", "nemesis", 0, 0, [], [0]))
    told.end(early, OK, places=[0])  # 2 s
    told.sent(1, 1)  # 3 s to 4 s
    assert failover_times_s(told.events, 0) == [3.0]


def test_failover_that_never_ends_is_infinite() -> None:
    told = Told()
    told.sent(0, 0)
    told.events.append(Event(2.0, "fault", "kill", "nemesis", 0, 0, [], [0]))
    assert failover_times_s(told.events, 0) == [float("inf")]


def test_windows_without_an_acknowledgement_are_not_served() -> None:
    told = Told()
    told.sent(0, 0)  # 0 s, 1 s
    for value in (1, 2):
        told.end(told.begin("send", "w", [value]), UNKNOWN)  # 2 s to 5 s
    told.sent(3, 3)  # 6 s, 7 s
    assert availability(told.events, 0) == (7, 1)


def test_percentile_is_by_nearest_rank() -> None:
    assert [percentile([3.0, 1.0, 2.0], share) for share in (0.0, 0.5, 0.99)] == [1.0, 2.0, 3.0]


def test_history_read_back_is_the_history_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "history.jsonl")
    invoked = recorder.invoke("send", "w1", 3, [("w1", 0), ("w1", 1)])
    recorder.complete(invoked, OK, places=[7, 8])
    recorder.mark("fault", "kill", [3], "node 2")
    recorder.close()
    assert load(tmp_path / "history.jsonl") == recorder.events
