"""The judge of the SQS wire: each rule finds what breaks it, and nothing in a run that keeps them."""

from __future__ import annotations

import pytest

from tests.blackbox.wire_history import Fault, Outcome, Received, Sent, Settled, WireHistory
from tests.blackbox.wire_judge import Violations, judge

OK, UNKNOWN, REFUSED = Outcome.OK, Outcome.UNKNOWN, Outcome.REFUSED
QUEUE, FIFO, DYING, LETTERS = "standard", "orders.fifo", "dying", "letters"


class Story:
    """Writes a history; each call takes a tenth of a second."""

    def __init__(self) -> None:
        self.history = WireHistory()

    def sends(
        self, at_s: float, key: str, queue: str = QUEUE, outcome: Outcome = OK, group: str = "", number: int = 0
    ) -> None:
        self.history.sent.append(Sent(queue, key, at_s, at_s + 0.1, outcome, group, number))

    def receives(
        self, at_s: float, *keys: str, queue: str = QUEUE, message_id: str = "", visibility_s: float = 10.0
    ) -> None:
        answer = self.history.next_answer()
        for place, key in enumerate(keys):
            self.history.received.append(
                Received(queue, key, message_id or key, at_s, at_s + 0.1, visibility_s, answer, place)
            )

    def deletes(self, at_s: float, *keys: str, queue: str = QUEUE, outcome: Outcome = OK) -> None:
        self.history.settled += [Settled(queue, key, at_s, at_s + 0.1, outcome) for key in keys]

    def changes(self, at_s: float, key: str, visibility_s: float, outcome: Outcome = OK) -> None:
        self.history.settled.append(Settled(QUEUE, key, at_s, at_s + 0.1, outcome, visibility_s))

    def harm(self, began_s: float, ended_s: float) -> None:
        self.history.faults.append(Fault("kill", began_s, ended_s))

    def verdict(self) -> tuple[Violations, int]:
        found, explained = judge(self.history, [FIFO], {DYING: (LETTERS, 2)})
        return {rule: items for rule, items in found.items() if items}, explained.total()


@pytest.fixture
def story() -> Story:
    return Story()


def test_run_that_keeps_the_rules_has_no_violation(story: Story) -> None:
    story.sends(0, "a")
    story.sends(0, "doubtful", outcome=UNKNOWN)
    story.receives(1, "a")
    story.receives(20, "a")
    story.deletes(21, "a")
    for number, key in enumerate(("f0", "f1", "f2")):
        story.sends(0, key, FIFO, group="g", number=number)
    story.receives(1, "f0", "f1", queue=FIFO)
    story.deletes(2, "f0", "f1", queue=FIFO)
    story.receives(3, "f2", queue=FIFO)
    story.deletes(4, "f2", queue=FIFO)
    assert story.verdict() == ({}, 0)


def test_acknowledged_message_that_nobody_received_is_lost(story: Story) -> None:
    story.sends(0, "a")
    story.sends(0, "refused", outcome=REFUSED)
    assert story.verdict()[0] == {"lost": ["standard a"]}


def test_dead_letter_is_not_lost(story: Story) -> None:
    story.sends(0, "poison", DYING)
    story.receives(1, "poison", queue=LETTERS)
    assert not story.verdict()[0]


def test_message_that_nobody_sent_is_unexpected(story: Story) -> None:
    story.sends(0, "a", outcome=UNKNOWN)
    story.receives(1, "b")
    assert story.verdict()[0] == {"unexpected": ["standard b"]}


def test_message_that_is_received_after_its_delete_was_answered_came_back(story: Story) -> None:
    story.sends(0, "a")
    story.receives(1, "a")
    story.deletes(2, "a")
    story.receives(2.05, "a")
    assert "came back" not in story.verdict()[0], "that call began before the answer"
    story.receives(30, "a")
    assert story.verdict()[0]["came back"] == ["standard a: 27.90 s after"]


@pytest.mark.parametrize("outcome", [UNKNOWN, REFUSED])
def test_delete_that_was_not_answered_promises_nothing(story: Story, outcome: Outcome) -> None:
    story.sends(0, "a")
    story.receives(1, "a")
    story.deletes(2, "a", outcome=outcome)
    story.receives(30, "a")
    assert not story.verdict()[0]


def test_message_that_is_received_within_its_visibility_is_too_early_or_explained(story: Story) -> None:
    story.sends(0, "a")
    story.receives(1, "a")
    story.receives(5, "a")
    assert list(story.verdict()[0]) == ["too early"]
    story.harm(2, 3)
    assert story.verdict() == ({}, 1)


def test_fault_of_long_before_explains_nothing(story: Story) -> None:
    story.harm(-100, -90)
    story.sends(0, "a")
    story.receives(1, "a")
    story.receives(5, "a")
    assert list(story.verdict()[0]) == ["too early"]


def test_no_fault_explains_an_early_message_of_a_fifo_queue(story: Story) -> None:
    story.harm(2, 3)
    story.sends(0, "a", FIFO, group="g")
    story.receives(1, "a", queue=FIFO)
    story.receives(5, "a", queue=FIFO)
    assert list(story.verdict()[0]) == ["too early"]


def test_changes_of_visibility_count(story: Story) -> None:
    story.sends(0, "a")
    story.receives(1, "a")
    story.changes(2, "a", 0)
    story.receives(3, "a")
    assert not story.verdict()[0], "handed back"
    story.changes(4, "a", 60)
    story.receives(30, "a")
    assert list(story.verdict()[0]) == ["too early"], "kept for longer"


def test_change_of_unknown_outcome_excuses_and_does_not_accuse(story: Story) -> None:
    story.sends(0, "a")
    story.receives(1, "a")
    story.changes(2, "a", 60, UNKNOWN)
    story.receives(12, "a")
    story.changes(13, "a", 0, UNKNOWN)
    story.receives(14, "a")
    assert not story.verdict()[0]


def test_message_of_two_ids_was_stored_twice(story: Story) -> None:
    story.sends(0, "a", FIFO, group="g")
    story.receives(1, "a", queue=FIFO, message_id="1")
    story.receives(20, "a", queue=FIFO, message_id="2")
    assert list(story.verdict()[0]) == ["stored twice"]


def test_order_of_a_group(story: Story) -> None:
    for number, key in enumerate(("f0", "f1")):
        story.sends(0, key, FIFO, group="g", number=number)
    story.sends(0, "other", FIFO, group="h")
    story.receives(1, "f0", queue=FIFO)
    story.receives(2, "other", queue=FIFO)
    assert "order" not in story.verdict()[0]
    story.receives(3, "f1", queue=FIFO)
    assert story.verdict()[0]["order"] == ["orders.fifo f1 of g before f0"]


def test_order_within_an_answer(story: Story) -> None:
    for number, key in enumerate(("f0", "f1")):
        story.sends(0, key, FIFO, group="g", number=number)
    story.receives(1, "f1", "f0", queue=FIFO)
    assert story.verdict()[0]["order"] == ["orders.fifo f1 of g before f0"]


def test_dead_letters(story: Story) -> None:
    for key in ("moved", "both", "left"):
        story.sends(0, key, DYING)
        for at_s in (1, 20):
            story.receives(at_s, key, queue=DYING)
    story.receives(30, "moved", "both", queue=LETTERS)
    story.deletes(21, "both", queue=DYING)
    assert story.verdict()[0] == {"dead letters": ["both: deleted and moved"]}
    story.receives(40, "left", queue=DYING)
    assert story.verdict()[0]["dead letters"][1:] == ["left: received 3 times and neither deleted nor moved"]
