"""Leases of leaders between two nodes: what a promise is, when it is another one, and until when it counts."""

from __future__ import annotations

from storage_nodes.limits import HEARTBEAT_INTERVAL_MS, LEADER_LEASE_MS, VOTE_HOLD_MS
from storage_nodes.node.transport.leases import LeaderLeases

PEER = 2


def test_promise_stays_the_same_while_heartbeats_come_in_time() -> None:
    lease = LeaderLeases().add(PEER)
    lease.heard(10_000)
    first = lease.promise
    lease.heard(10_000 + VOTE_HOLD_MS - 1)
    assert lease.promise == first
    lease.heard(10_000 + 2 * VOTE_HOLD_MS)
    assert lease.promise != first, "a vote may have gone elsewhere"


def test_withdrawn_promise_binds_as_long_as_what_was_said_before() -> None:
    leases = LeaderLeases()
    lease = leases.add(PEER)
    lease.heard(10_000)
    first = lease.promise
    assert leases.withdraw(PEER, 10_100) == 10_000 + VOTE_HOLD_MS
    assert lease.promise != first
    lease.heard(10_150)
    assert leases.withdraw(PEER, 10_200) == 10_150 + VOTE_HOLD_MS


def test_promise_to_a_peer_that_was_never_heard_or_has_no_process_binds_nobody() -> None:
    leases = LeaderLeases()
    lease = leases.add(PEER)
    assert leases.withdraw(PEER, 10_000) == 0
    lease.heard(10_000)
    lease.release()
    assert leases.withdraw(PEER, 10_001) == 0


def test_promise_to_a_process_binds_when_another_one_of_that_node_greets() -> None:
    """The one before may run on: it is turned away by us, and counts on us still."""
    leases = LeaderLeases()
    lease = leases.add(PEER)
    lease.heard(10_000)
    lease.restarted()
    assert leases.withdraw(PEER, 10_100) == 10_000 + VOTE_HOLD_MS


def test_promise_to_a_node_that_was_decommissioned_binds_as_long_as_any() -> None:
    leases = LeaderLeases()
    leases.add(PEER).heard(10_000)
    leases.remove(PEER)
    assert leases.withdraw(PEER, 10_100) == 10_100 + VOTE_HOLD_MS
    assert leases.until_ms(PEER, 99) == 0


def test_who_does_not_remember_promises_everybody_anew() -> None:
    leases = LeaderLeases()
    one, other = leases.add(PEER), leases.add(3)
    before = one.promise, other.promise
    assert leases.withdraw_all(10_000) == 10_000 + VOTE_HOLD_MS
    assert one.promise != before[0] and other.promise != before[1]


def test_lease_counts_from_when_the_echoed_heartbeat_was_sent() -> None:
    leases = LeaderLeases()
    lease = leases.add(PEER)
    leases.echoed(lease, 5, 10_000)
    assert leases.until_ms(PEER, leases.round) == 10_000 + LEADER_LEASE_MS
    leases.echoed(lease, 5, 10_000 - HEARTBEAT_INTERVAL_MS)
    assert leases.until_ms(PEER, leases.round) == 10_000 + LEADER_LEASE_MS, "a late echo takes nothing away"
    assert LEADER_LEASE_MS < VOTE_HOLD_MS


def test_answers_from_before_another_promise_count_no_more() -> None:
    leases = LeaderLeases()
    lease = leases.add(PEER)
    leases.echoed(lease, 5, 10_000)
    answered = leases.round
    leases.echoed(lease, 6, 10_150)
    assert leases.until_ms(PEER, answered) == 0
    assert leases.until_ms(PEER, leases.round) == 10_150 + LEADER_LEASE_MS


def test_promise_of_one_peer_leaves_answers_of_the_others_alone() -> None:
    leases = LeaderLeases()
    one, other = leases.add(PEER), leases.add(3)
    leases.echoed(one, 5, 10_000)
    answered = leases.round
    leases.echoed(other, 8, 10_000)
    assert leases.until_ms(PEER, answered) and not leases.until_ms(3, answered)


def test_peer_that_makes_no_promise_or_was_restarted_counts_for_nothing() -> None:
    leases = LeaderLeases()
    lease = leases.add(PEER)
    leases.echoed(lease, 0, 10_000)
    assert leases.until_ms(PEER, 99) == 0
    leases.echoed(lease, 5, 10_000)
    lease.restarted()
    assert leases.until_ms(PEER, 99) == 0
