"""How far a follower is: what is on its way is counted once, and forgotten when it may be lost."""

from __future__ import annotations

from storage_nodes.limits import APPEND_IN_FLIGHT_BYTES_MAX
from storage_nodes.machines.raft.progress import PROBE, REPLICATE, Progress
from storage_nodes.machines.raft.timing import APPENDS_TRACKED_MAX


def replicating() -> Progress:
    peer = Progress(2, up=True, votes=True, next_offset=10)
    peer.become_replicate()
    return peer


def test_appends_are_in_flight_until_they_are_acknowledged() -> None:
    peer = replicating()
    peer.track(11, APPEND_IN_FLIGHT_BYTES_MAX)
    assert peer.next == 11 and not peer.may_send()
    peer.acknowledge(10)
    assert not peer.may_send()
    peer.acknowledge(11)
    assert (peer.match, peer.in_flight_bytes) == (11, 0) and peer.may_send()


def test_appends_beyond_those_that_are_tracked_one_by_one_are_counted_too() -> None:
    peer = replicating()
    for end in range(11, 11 + 2 * APPENDS_TRACKED_MAX):
        peer.track(end, 1)
    assert (len(peer.in_flight), peer.in_flight_bytes) == (APPENDS_TRACKED_MAX, 2 * APPENDS_TRACKED_MAX)
    peer.acknowledge(peer.next)
    assert peer.in_flight_bytes == 0


def test_late_answer_does_not_take_off_what_was_forgotten() -> None:
    peer = replicating()
    peer.track(20, 100)
    peer.restart()
    assert (peer.state, peer.next, peer.in_flight_bytes) == (PROBE, 0, 0)
    peer.become_replicate()
    peer.track(15, 40)
    peer.acknowledge(20)
    assert (peer.state, peer.in_flight_bytes) == (REPLICATE, 0)


def test_followers_to_which_nothing_is_on_its_way_share_nothing_that_changes() -> None:
    one, other = replicating(), replicating()
    one.track(11, 5)
    assert not other.in_flight and other.in_flight_bytes == 0
