"""Hands leased messages to who asked for them, and takes back what nobody gets.

    machine: Deliver -> bodies from the log -> one answer -> its connection
                                                  |
                     lost, full, too large -> given back: available again at once, uncounted

The meter is told which leases became deliveries, and how large their messages are: what is given back is not billed.

What is given back is the lease of that answer only. A receive of a FIFO queue may be repeated while its first answer
waits for its connection: that gives the same deliveries a lease with another deadline, which stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from storage_nodes.limits import READ_AHEAD_BYTES_MAX
from storage_nodes.machines.queue.effects import Deliver, Effect, Pick
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.node.plain_metrics import PlainCounter
from storage_nodes.node.replicas.bodies import BodyReader
from storage_nodes.node.replicas.host import Host
from storage_nodes.node.replicas.leader_context import LeaderContext
from storage_nodes.node.replicas.leased import no_lease
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.messages import AcquiredMessage, AcquireReply, encode_message

MESSAGES_DELIVERED = PlainCounter("penstock_node_messages_delivered", "Messages leased to consumers by leaders here")


class DeliveringReplica(Protocol):
    """What this needs of the replica of a queue."""

    partition: int
    host: Host
    raft: RaftMachine
    machine: QueueMachine
    handing_over: bool

    @property
    def bodies(self) -> BodyReader: ...
    @property
    def serving(self) -> bool: ...
    def now_ms(self) -> int: ...
    def leads_in(self, epoch: int) -> bool: ...
    def holds_lease(self) -> bool: ...
    def leader_context(self) -> LeaderContext: ...
    def staged(self, effects: Iterable[Effect]) -> None: ...
    def schedule(self) -> None: ...


def deliver(replica: DeliveringReplica, effect: Deliver) -> None:
    token: Token = effect.token
    if not effect.picks:
        if not replica.holds_lease():
            token.connection.refuse(token, no_lease())
            return
        token.connection.answer(token, encode_message(AcquireReply(replica.raft.epoch, [])))
        return
    offsets = [pick.offset for pick in effect.picks]
    bodies = replica.bodies.read(offsets)
    if bodies is not None:
        _hand_over(replica, effect, bodies)
        return
    context = replica.leader_context()

    def found(bodies: dict[int, bytes]) -> None:
        # What was deleted while it was being read (by an earlier receipt, just in time) stays deleted.
        still_live = {offset: body for offset, body in bodies.items() if replica.machine.is_live(offset, offset)}
        _hand_over(replica, effect, still_live)
        replica.schedule()

    def lost() -> None:
        _give_back_elsewhere(replica, effect.picks, effect.deadline_ms)
        context.refuse(token)

    replica.bodies.read_later(offsets, context.then(found, lost))


def _hand_over(replica: DeliveringReplica, effect: Deliver, bodies: dict[int, bytes]) -> None:
    token: Token = effect.token
    picks, deadline_ms = effect.picks, effect.deadline_ms
    if not token.connection.is_open or token.connection.is_full:
        give_back(replica, picks, deadline_ms)
        _tell_meter(replica, effect, {})
        if token.connection.is_open:
            token.connection.refuse(token, replica.host.room.refusal("too many answers wait to be read"))
        return
    if not replica.holds_lease():
        # Another leader may have handed them out as well, and they may be done and deleted there.
        give_back(replica, picks, deadline_ms)
        _tell_meter(replica, effect, {})
        token.connection.refuse(token, no_lease())
        return
    messages = []
    size_bytes = 0
    for index, (offset, delivery, first_received_ms, sent_ms) in enumerate(effect.picks):
        body = bodies.get(offset)
        if body is None:
            continue  # deleted or purged while it was being read
        size_bytes += len(body)
        if index and size_bytes > READ_AHEAD_BYTES_MAX:
            give_back(replica, picks[index:], deadline_ms)
            picks = picks[:index]
            break
        messages.append(AcquiredMessage(offset, delivery, sent_ms, first_received_ms, body))
    MESSAGES_DELIVERED.count += len(messages)
    left = bodies if len(bodies) == len(messages) else {message.offset: message.body for message in messages}
    _tell_meter(replica, effect, left)
    epoch = replica.raft.epoch
    reply = encode_message(AcquireReply(epoch, messages, deadline_ms))
    undelivered = partial(_undelivered, replica, picks, deadline_ms, effect.is_repeat, epoch)
    token.connection.answer(token, reply, undelivered)


def _tell_meter(replica: DeliveringReplica, effect: Deliver, bodies: Mapping[int, bytes]) -> None:
    """Of the picks of this effect these (offset -> record body) are handed over. A repeat is no further delivery."""
    if not effect.is_repeat:
        replica.machine.handed_over(bodies, len(effect.picks) - len(bodies))


def _undelivered(
    replica: DeliveringReplica, picks: Sequence[Pick], deadline_ms: int, is_repeat: bool, epoch: int
) -> None:
    """The connection is gone, and the answer with these never left."""
    if replica.leads_in(epoch):
        give_back(replica, picks, deadline_ms, was_told=not is_repeat)
        replica.schedule()


def give_back(replica: DeliveringReplica, picks: Sequence[Pick], deadline_ms: int, was_told: bool = False) -> None:
    """Leased, but there is nobody to have them: available again at once. `was_told`: to the meter, as handed over."""
    if replica.handing_over:
        _give_back_elsewhere(replica, picks, deadline_ms)  # nothing is proposed here any more
        return
    replica.staged(replica.machine.release([pick[:2] for pick in picks], replica.now_ms(), deadline_ms, was_told))


def _give_back_elsewhere(replica: DeliveringReplica, picks: Sequence[Pick], deadline_ms: int) -> None:
    """This replica leads no longer, or is about to stop, and no consumer got these: the next leader takes them back.
    Only leases that are folded: the next leader may give out the others under the same numbers."""
    leased = [pick[:2] for pick in picks if replica.machine.is_delivered(pick.offset, pick.delivery)]
    if leased and (replica.handing_over or not replica.serving):
        replica.host.other_partitions.give_back(replica.partition, leased, deadline_ms)
