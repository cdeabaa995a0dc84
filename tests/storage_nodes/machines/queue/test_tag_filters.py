"""Receives that ask for tags: who gets what, who is woken, and where it ends."""

from __future__ import annotations

import pytest

from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import HEADER_DUE, HEADER_GROUP, HEADER_TAG, decode_body, encode_body, origin_offset
from tests.storage_nodes.machines.queue.partition import Partition, offsets_of, receipts_of

RED, BLUE, NONE = (b"", b"red"), (b"", b"blue"), (b"", b"")


def test_filtered_receive_takes_matching_messages_only(partition: Partition) -> None:
    sent = partition.send_tagged(RED, BLUE, NONE, RED)
    assert offsets_of(partition.acquire("red", tags=(b"red",))) == [sent[0], sent[3]]
    assert offsets_of(partition.acquire("green", tags=(b"green",))) == []
    partition.commit()
    rest = partition.acquire("rest")
    assert [(pick.offset, pick.delivery) for pick in rest or ()] == [(sent[1], 1), (sent[2], 1)]
    partition.check()


def test_filter_of_several_tags_keeps_the_order_of_the_log(partition: Partition) -> None:
    sent = partition.send_tagged(RED, BLUE, NONE, RED, BLUE)
    assert offsets_of(partition.acquire("both", tags=(b"blue", b"red"))) == [sent[0], sent[1], sent[3], sent[4]]


def test_messages_sent_before_anybody_filtered_are_found(partition: Partition) -> None:
    partition.send(10)
    red = partition.send_tagged(RED)
    partition.send(10)
    assert offsets_of(partition.acquire("red", tags=(b"red",))) == list(red)


def test_filter_on_a_queue_of_plain_messages_finds_nothing_and_reads_nothing(partition: Partition) -> None:
    for _ in range(5):
        partition.send(1_000)
    partition.holds_fetches = True
    partition.fetches.clear()
    assert partition.acquire("red", tags=(b"red",)) == []
    assert len(offsets_of(partition.acquire("all", 1_000))) == 1_000


def test_waiter_with_a_tag_is_woken_by_a_match_alone(partition: Partition) -> None:
    partition.acquire("red", wait_ms=5_000, tags=(b"red",))
    partition.acquire("blue", wait_ms=5_000, tags=(b"blue",))
    plain = partition.send(1)
    assert "red" not in partition.delivered and "blue" not in partition.delivered
    blue = partition.send_tagged(BLUE)
    assert offsets_of(partition.delivered["blue"]) == list(blue)
    assert "red" not in partition.delivered
    partition.pass_ms(6_000)
    assert partition.delivered["red"] == []
    assert offsets_of(partition.acquire("plain")) == list(plain)


def test_waiters_of_one_tag_are_served_in_the_order_they_came(partition: Partition) -> None:
    partition.acquire("first", 1, wait_ms=5_000, tags=(b"red",))
    partition.acquire("second", 1, wait_ms=5_000)
    partition.acquire("third", 1, wait_ms=5_000, tags=(b"blue", b"red"))
    sent = partition.send_tagged(RED, RED)
    assert offsets_of(partition.delivered["first"]) == [sent[0]]
    assert offsets_of(partition.delivered["second"]) == [sent[1]]
    assert "third" not in partition.delivered
    more = partition.send_tagged(BLUE)
    assert offsets_of(partition.delivered["third"]) == list(more)


def test_unfiltered_waiter_behind_a_filtered_one_is_not_blocked(partition: Partition) -> None:
    partition.acquire("red", 1, wait_ms=5_000, tags=(b"red",))
    partition.acquire("any", 1, wait_ms=5_000)
    blue = partition.send_tagged(BLUE)
    assert offsets_of(partition.delivered["any"]) == list(blue)
    assert "red" not in partition.delivered


def test_message_that_comes_again_wakes_its_tag(partition: Partition) -> None:
    red = partition.send_tagged(RED)
    picks = partition.acquire("first", tags=(b"red",))
    partition.commit()
    partition.acquire("blue", wait_ms=20_000, tags=(b"blue",))
    partition.acquire("again", wait_ms=20_000, tags=(b"red",))
    partition.change("back", [(*receipts_of(picks)[0], 0)])
    partition.commit()
    assert [(pick.offset, pick.delivery) for pick in partition.delivered["again"]] == [(red[0], 2)]
    assert "blue" not in partition.delivered


def test_delayed_message_wakes_its_tag_when_it_is_due(partition: Partition) -> None:
    red = partition.send_tagged(RED, delay_ms=2_000)
    assert partition.acquire("early", tags=(b"red",)) == []
    partition.acquire("red", wait_ms=5_000, tags=(b"red",))
    partition.pass_ms(3_000)
    assert offsets_of(partition.delivered["red"]) == list(red)
    partition.commit()
    partition.check()


def test_tags_of_messages_in_flight_outlive_their_leader(partition: Partition) -> None:
    sent = partition.send_tagged(RED, BLUE)
    delayed = partition.send_tagged(RED, delay_ms=40_000)
    partition.acquire("both")
    partition.commit()
    partition.fail_over()
    assert partition.acquire("none", tags=(b"red",)) == []
    partition.pass_ms(31_000)
    assert offsets_of(partition.acquire("red", tags=(b"red",))) == [sent[0]]
    partition.pass_ms(10_000)
    assert offsets_of(partition.acquire("late", tags=(b"red",))) == list(delayed)
    assert offsets_of(partition.acquire("blue", tags=(b"blue",))) == [sent[1]]


def test_matching_messages_behind_a_long_backlog_are_read_for(partition: Partition) -> None:
    for _ in range(30):
        partition.send_tagged(*[BLUE] * 1_000)
    red = partition.send_tagged(RED)
    partition.fail_over()  # who leads now has read nothing yet
    assert offsets_of(partition.acquire("red", tags=(b"red",))) == list(red)


def test_filtered_receive_whose_matches_are_out_of_sight_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage_nodes.machines.queue.delivery.backlog.LOOKAHEAD_RUNS_MAX", 20)
    partition = Partition(fetch_batches_max=1)
    for _ in range(20):
        partition.send_tagged(BLUE, NONE)
    red = partition.send_tagged(RED)
    partition.acquire("red", tags=(b"red",))
    assert partition.refused["red"].code == ErrorCode.OVER_LIMIT
    for number in range(2):
        partition.delete(f"d{number}", receipts_of(partition.acquire(number, 20)))
        partition.commit()
    assert offsets_of(partition.acquire("red now", tags=(b"red",))) == list(red)


def test_filtered_receive_is_refused_when_too_much_was_taken_out(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage_nodes.machines.queue.delivery.fair.TAKEN_AHEAD_RANGES_MAX", 3)
    sent = partition.send_tagged(*[BLUE, RED] * 5)
    picks = partition.acquire("red", 3, tags=(b"red",))
    partition.delete("d", receipts_of(picks))
    partition.commit()
    partition.acquire("more", tags=(b"red",))
    assert partition.refused["more"].code == ErrorCode.OVER_LIMIT
    assert offsets_of(partition.acquire("blue", 2)) == [sent[0], sent[2]]
    partition.commit()
    assert offsets_of(partition.acquire("more now", tags=(b"red",))) == [sent[7], sent[9]]


def test_filter_on_a_fifo_queue_is_refused() -> None:
    partition = Partition(QueueConfig(fifo=True))
    partition.acquire("red", tags=(b"red",))
    assert partition.refused["red"].code == ErrorCode.INVALID_REQUEST


def test_filter_obeys_the_bound_of_messages_in_flight() -> None:
    partition = Partition(QueueConfig(in_flight_max=2))
    sent = partition.send_tagged(RED, RED, RED)
    assert len(offsets_of(partition.acquire("two", tags=(b"red",)))) == 2
    partition.acquire("refused", tags=(b"red",))
    assert partition.refused["refused"].code == ErrorCode.OVER_LIMIT
    partition.acquire("waits", wait_ms=5_000, tags=(b"red",))
    partition.delete("d", receipts_of(partition.delivered["two"]))
    partition.commit()
    assert offsets_of(partition.delivered["waits"]) == [sent[2]]


def test_pause_holds_filtered_messages_until_it_ends(partition: Partition) -> None:
    partition.acquire("waits", wait_ms=20_000, tags=(b"red",))
    partition.perform(partition.leader.configure("pause", QueueConfig(paused=True)))
    partition.commit()
    red = partition.send_tagged(RED)
    partition.acquire("parks", wait_ms=20_000, tags=(b"red",))
    assert partition.acquire("short", tags=(b"red",)) == []
    assert "waits" not in partition.delivered
    partition.perform(partition.leader.configure("go on", QueueConfig()))
    partition.commit()
    assert offsets_of(partition.delivered["waits"]) == list(red)
    assert "parks" not in partition.delivered


def test_flood_of_one_tag_is_fair_among_its_groups(partition: Partition) -> None:
    partition.send_tagged(*[(b"flood", b"red")] * 200, (b"quiet", b"blue"), (b"quiet", b"red"))
    picks = partition.acquire("red", 31, tags=(b"red",))
    assert offsets_of(picks)[-1] == 202, "the quiet one of that tag"


def test_tag_per_consumer_wakes_each_with_his_own(partition: Partition) -> None:
    for number in range(500):
        partition.acquire(number, wait_ms=5_000, tags=(b"%d" % number,))
    sent = partition.send_tagged(*[(b"", b"%d" % number) for number in range(500)])
    assert [offsets_of(partition.delivered[number]) for number in range(500)] == [[offset] for offset in sent]
    partition.commit()
    partition.check()


def test_scheduled_message_wakes_its_tag_when_it_is_released(partition: Partition) -> None:
    due = b"%d" % (partition.now_ms + 3_000)
    body = encode_body(b"body", headers=[(HEADER_DUE, due), (HEADER_GROUP, b"g"), (HEADER_TAG, b"red")])
    partition.append([body], plain=False)
    assert partition.acquire("early", tags=(b"red",)) == []
    partition.acquire("red", wait_ms=10_000, tags=(b"red",))
    partition.pass_ms(4_000)
    partition.commit()
    (pick,) = partition.delivered["red"]
    assert partition.leader.state.keys == {pick.offset: (b"g", b"red")}
    partition.check()


def test_scheduled_message_that_came_while_nothing_waited_and_the_view_had_no_room_comes_when_it_is_due_and_once(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fold's cursor passes it as it comes; read from the log later it would look like one that waits."""
    monkeypatch.setattr("storage_nodes.machines.queue.delivery.backlog.LOOKAHEAD_TAG_QUEUES_MAX", 2)
    partition.send_tagged(RED, BLUE)
    partition.acquire("first", visibility_ms=1_000)
    partition.commit()
    partition.pass_ms(1_000)
    partition.acquire("nobody", tags=(b"green",))
    assert partition.counts() == (2, 0, 0), "both may be received again: as many tags as the view has room for"
    early = partition.schedule(b"+5000")
    plain = partition.send()
    received = []
    for number in range(2):
        received += offsets_of(partition.acquire(number, visibility_ms=60_000))
        partition.commit()
    assert early[0] not in received and plain[0] in received
    partition.pass_ms(5_000)
    [due] = offsets_of(partition.acquire("due", visibility_ms=60_000))
    assert origin_offset(decode_body(partition.body(due)).headers, due) == early[0]
    partition.commit()
    partition.check()
