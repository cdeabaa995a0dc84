"""What must hold after every step. Each rule has a name.

folds        the state of a FIFO queue is what its log says, and each of its leases takes what stands first
replicas     replicas are equal, nothing was lost or made up, and a checkpoint restores to itself
timers       each message that is leased, delayed or paused has a timer for its next time
ready        no message is ready before its time, but a dead letter that cannot be moved; all have a turn
dead         no message that may be received again is dead, unless it is moving
letters      nothing moves that may be received again
moved        nothing is handed out that stands in the dead-letter queue
locked       groups, and the locked ones among them, are counted right
back         a group holds its messages in flight or delayed, in order
offers       a group that has something to hand out is offered
window       every message that waits below the end of the window is known in its group, none below what expired
pieces       a checkpoint in pieces is the whole one as of when they were made
rests        the machine asks for no tick that changes nothing, and for none once the queue is empty
drains       all that is left can be received and deleted, or expires
expires      what nobody receives expires soon after its retention, wherever it stands
works        nothing that the driver may do fails
"""

from __future__ import annotations

from collections import defaultdict

from storage_nodes.machines.queue.delivery.by_group import ByGroupDelivery
from storage_nodes.machines.queue.delivery.groups import GroupWindow
from storage_nodes.machines.queue.effects import DeadLetter
from storage_nodes.machines.queue.leader.leader import Leader
from storage_nodes.machines.queue.state.queue_state import QueueState
from tests.storage_nodes.machines.queue.delivery_fuzz.configured_fifo import ConfiguredFifo
from tests.storage_nodes.machines.queue.partition import Partition
from tests.support.seeded_fuzz import BrokenRule, require

RUN_MAX = 100
NOTHING = (0, 0)
NOT_OFFERED = (-1, 0)


def judge_replicas(partition: Partition) -> None:
    try:
        partition.check()
    except AssertionError as error:
        raise BrokenRule("replicas", error) from error


def judge_fold(naive: ConfiguredFifo, partition: Partition, from_entry: int) -> None:
    """`naive` folds the entries from that one on, and stands where the product does."""
    try:
        for header, batch in partition.log[from_entry:]:
            naive.fold(header, batch)
    except AssertionError as error:
        raise BrokenRule("folds", error) from error
    state, touched = partition.leader.state, {o: m for o, m in naive.messages.items() if m.touched}
    live = {o: (m.deadline_ms, m.delivery, m.first_received_ms, m.sent_ms) for o, m in touched.items()}
    differing = sorted(offset for offset, _ in state.live.items() ^ live.items())
    require("folds", not differing, f"other entries of {differing}")
    require("folds", set(state.parked) == naive.parked, f"{set(state.parked)} are parked, not {naive.parked}")
    waiting = len(naive.messages) - len(touched)
    require("folds", state.fresh_count == waiting, f"{state.fresh_count} wait, not {waiting}")


def judge_letters(effect: DeadLetter) -> None:
    alive = [letter for letter in effect.letters if not letter.receives >= letter.receives_max > 0]
    require("letters", not alive, f"{alive} move")


def judge_leases(state: QueueState, leader: Leader, revived: set[int]) -> None:
    leases, live = leader._leases, state.live
    timed: dict[int, set[int]] = defaultdict(set)
    for deadline_ms, first, last, offsets in leases._timers:
        for offset in offsets or range(first, last + 1):
            timed[offset].add(deadline_ms)
    for offset, entry in live.items():
        if not (leases.is_ready(offset) or offset in leases.dead or leases.is_held(offset)):
            require("timers", leases._next_ms(offset, entry) in timed[offset], f"none for {offset}: {entry}")
    require("ready", leases.ready <= set(leases._order), f"{set(leases.ready) - set(leases._order)} have no turn")
    for offset in leases.ready:
        early_ms = live[offset][0] - leader.time_ms
        is_due = early_ms <= 0 or leases.is_held(offset) or offset in revived
        require("ready", is_due, f"{offset}, {early_ms} ms early")
    alive = sorted(o for o in leases.dead.difference(leader._letters.under_way) if leases._may_live(o))
    require("dead", not alive, f"{alive}, which may be received again")


def judge_groups(state: QueueState, leader: Leader, naive: ConfiguredFifo) -> None:
    delivery = leader.delivery
    assert isinstance(delivery, ByGroupDelivery)
    window, leases = delivery.window, leader._leases
    group_of = state.group_of  # type: ignore[attr-defined]
    locked = {group_of[o] for o, entry in state.live.items() if entry[1] and not leases.is_ready(o)}
    counts = len(window.groups.keys() | window._untouched._last.keys()), len(locked)
    require("locked", window.group_counts() == counts, f"{window.group_counts()} are counted, of {counts}")
    judge_offers(window)
    judge_back(window, group_of)
    known = {offset for group in window.groups.values() for offset in group.fresh[group.head :]}
    if not leader._staging.fresh_picked and not leader._staging.fresh_expired:
        waiting = {o for o, message in naive.messages.items() if not message.touched and o < window.end}
        require("window", waiting == known, f"known or waiting, but not both: {sorted(waiting ^ known)}")
    first = min(known, default=window._expired_to)
    require("window", first >= window._expired_to, f"{first} waits, all below {window._expired_to} expired")


def judge_offers(window: GroupWindow) -> None:
    offers = set(window._offers)
    for key, group in window.groups.items():
        require("offers", group.key == key, f"{group.key!r} stands as {key!r}")
        if not group.leases_under_way and window.run(group, RUN_MAX) != NOTHING:
            is_offered = group.offered != NOT_OFFERED and (group.offered, key) in offers
            require("offers", is_offered, f"{key!r} is not")


def judge_back(window: GroupWindow, group_of: dict[int, bytes]) -> None:
    expected: dict[bytes, list[int]] = defaultdict(list)
    for offset in sorted(group_of):
        expected[group_of[offset]].append(offset)
    untouched = window._untouched
    for key, offsets in expected.items():
        if key in window.groups:
            back = window.groups[key].back
        else:
            back = untouched._several.get(key) or [untouched._last[key]]
        require("back", back == offsets, f"{key!r} holds {back}, not {offsets}")
