"""Reads how large messages are that a caller takes out of a queue by their offsets: its meter is to take out as much
(docs/storage/metering.md). Of messages that were handed out the leader knows it already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.node.replicas.bodies import read_scattered
from storage_nodes.node.replicas.leader_context import LeaderContext
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.usage import billed_bytes_of


def with_sizes(
    context: LeaderContext, machine: QueueMachine, token: Token, offsets: Sequence[int], then: Callable[[], None]
) -> None:
    """Goes on with `then` once the machine knows the sizes of those of these messages that are there: at once, or after
    a read. The token is refused where the leadership was lost meanwhile."""
    now_ms = context.replica.now_ms()
    unknown = [o for o in offsets if not machine.usage.knows_size(o) and machine.look_at(o, now_ms) is not None]
    if not unknown:
        then()
        return

    def found(bodies: dict[int, bytes]) -> None:
        machine.usage.note_sizes(dict(zip(bodies, billed_bytes_of(bodies.values()), strict=True)))
        then()

    run_cold = partial(context.run_cold, lost=lambda: context.refuse(token))
    read_scattered(context.replica.log, run_cold, unknown, found)
