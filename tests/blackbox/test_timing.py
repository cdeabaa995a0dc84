"""The checkers of time believed: each hand-made bad history goes red under its own name, each good one stays green."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.blackbox.checkers import ACQUIRE, DELETE, SEND
from tests.blackbox.history import INVOKE, OK, UNKNOWN, Event
from tests.blackbox.timing import Terms, check_times

SLACK_S = 2.0
TERMS = Terms(retention_s=60.0, lease_s=10.0)


class Told:
    """A history written by hand, with times."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._calls = 0

    def call(
        self, operation: str, begin_s: float, end_s: float, values: list[int], kind: str = OK, before: str = "",
        after: str = "",
    ) -> None:  # fmt: skip
        self._calls += 1
        pairs = [("w", number) for number in values]
        asked = [] if operation == ACQUIRE else pairs
        self.events.append(Event(begin_s, INVOKE, operation, "c", self._calls, 0, asked, [], before))
        if kind:
            places = [number for _, number in pairs] if kind == OK else []
            self.events.append(Event(end_s, kind, operation, "c", self._calls, 0, pairs, places, after))
        self.events.sort(key=lambda event: event.time_s)

    def sent(self, at_s: float, value: int = 0, delay_s: float = 0.0) -> None:
        self.call(SEND, at_s, at_s + 0.1, [value], before=f"delay {delay_s}" if delay_s else "")

    def got(self, at_s: float, *values: int, epoch: int = 1) -> None:
        self.call(ACQUIRE, at_s, at_s + 0.3, list(values), after=f"epoch {epoch}")

    def nothing(self, at_s: float) -> None:
        self.got(at_s)

    def unanswered(self, at_s: float, end_s: float = 0.0) -> None:
        self.call(ACQUIRE, at_s, end_s, [], kind=UNKNOWN if end_s else "")

    def deleted(self, at_s: float, value: int = 0, kind: str = OK) -> None:
        self.call(DELETE, at_s, at_s + 0.1, [value], kind=kind)


def delayed_and_early(told: Told) -> None:
    told.sent(0.0, delay_s=5.0)
    told.got(1.0, 0)


def lease_cut_short(told: Told) -> None:
    told.sent(0.0)
    told.got(1.0, 0)
    told.got(5.0, 0)


def delayed_and_late(told: Told) -> None:
    told.sent(0.0, delay_s=5.0)
    told.nothing(8.0)
    told.got(9.0, 0)


def lease_that_does_not_end(told: Told) -> None:
    told.sent(0.0)
    told.got(1.0, 0)
    told.nothing(14.0)
    told.got(20.0, 0)


def lease_that_nobody_got(told: Told) -> None:
    told.sent(0.0)
    told.nothing(3.0)
    told.got(30.0, 0)


def gone_before_its_time(told: Told) -> None:
    told.sent(0.0)
    told.nothing(50.0)


def gone_after_an_unknown_answer(told: Told) -> None:
    told.sent(0.0)
    told.unanswered(1.0, 3.0)
    told.nothing(20.0)


BAD: dict[str, tuple[Callable[[Told], None], str]] = {
    "delayed and early": (delayed_and_early, "early"),
    "lease cut short": (lease_cut_short, "lease-early"),
    "delayed and late": (delayed_and_late, "absent"),
    "lease that does not end": (lease_that_does_not_end, "absent"),
    "lease that nobody got": (lease_that_nobody_got, "absent"),
    "gone before its time": (gone_before_its_time, "expired-early"),
    "gone after an unknown answer": (gone_after_an_unknown_answer, "expired-early"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_history_is_flagged(name: str) -> None:
    write, kind = BAD[name]
    told = Told()
    write(told)
    found = check_times(told.events, 0, TERMS, SLACK_S).violations
    assert [name for name, items in found.items() if items] == [kind]


def in_time(told: Told) -> None:
    told.sent(0.0, delay_s=5.0)
    told.nothing(5.5)
    told.got(6.0, 0)
    told.deleted(6.5)
    told.nothing(30.0)


def leased_and_back(told: Told) -> None:
    told.sent(0.0)
    told.got(1.0, 0)
    told.nothing(5.0)
    told.nothing(12.0)  # within the slack
    told.got(13.0, 0)


def again_from_another_leader(told: Told) -> None:
    told.sent(0.0)
    told.got(1.0, 0, epoch=1)
    told.got(3.0, 0, epoch=2)


def perhaps_leased_by_an_unknown_answer(told: Told) -> None:
    told.sent(0.0)
    told.unanswered(1.0, 3.0)
    told.nothing(14.0)
    told.got(16.0, 0)


def never_answered(told: Told) -> None:
    told.sent(0.0)
    told.unanswered(1.0)
    told.nothing(30.0)


def expired_in_time(told: Told) -> None:
    told.sent(0.0)
    told.nothing(59.0)


def delete_of_unknown_outcome(told: Told) -> None:
    told.sent(0.0)
    told.got(1.0, 0)
    told.deleted(2.0, kind=UNKNOWN)
    told.nothing(30.0)


def send_of_unknown_outcome(told: Told) -> None:
    told.call(SEND, 0.0, 1.0, [0], kind=UNKNOWN)
    told.nothing(10.0)


def handed_to_another_at_that_moment(told: Told) -> None:
    told.sent(0.0)
    told.call(ACQUIRE, 4.0, 4.6, [0], after="epoch 1")
    told.nothing(4.2)


GOOD: dict[str, Callable[[Told], None]] = {
    "in time": in_time,
    "leased and back": leased_and_back,
    "again from another leader": again_from_another_leader,
    "perhaps leased by an unknown answer": perhaps_leased_by_an_unknown_answer,
    "never answered": never_answered,
    "expired in time": expired_in_time,
    "delete of unknown outcome": delete_of_unknown_outcome,
    "send of unknown outcome": send_of_unknown_outcome,
    "handed to another at that moment": handed_to_another_at_that_moment,
}


@pytest.mark.parametrize("name", GOOD)
def test_good_history_passes(name: str) -> None:
    told = Told()
    GOOD[name](told)
    judged = check_times(told.events, 0, TERMS, SLACK_S)
    assert not any(judged.violations.values()), judged.violations


def test_what_was_proved_is_counted() -> None:
    told = Told()
    told.sent(0.0, 0)
    told.sent(0.0, 1)
    told.got(1.0, 0)
    told.nothing(1.5)
    judged = check_times(told.events, 0, TERMS, SLACK_S)
    assert (judged.messages, judged.answers, judged.never_delivered) == (2, 1, 1)
