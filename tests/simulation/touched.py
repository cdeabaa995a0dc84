"""Which replicas of a node may have changed since the oracle looked at them last: it looks at no others.

Nothing of this is sampled. Whatever writes what the oracle looks at, or reads the reference to state that can be
changed in place, leaves a mark at that moment. The marks are left by subclasses of the product's own classes: replicas,
their Raft machines and their state machines become such when the oracle sees them first. A world with `check_all` looks
at everything besides, and fails where something changed without a mark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.machines.stream.machine import StreamMachine
from storage_nodes.node.replicas.local_replicas import LocalReplicas
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.protocol.peer_messages import RaftMessage

# What `Oracle.turned` looks at, in a replica and in its Raft machine.
OF_REPLICA = frozenset({"closed", "log", "raft", "serving"})
OF_RAFT = frozenset({"commit", "epoch", "role"})
# References of state machines to state that is changed in place. Plain values are marked when they are written.
REFERENCES = {
    QueueMachine: ("leader", "state"),
    StreamMachine: ("_consumers", "_coordinator", "_marks", "producers"),
}


class Touched:
    """The marks of one node, over its lives."""

    def __init__(self, hear: Callable[[], None]) -> None:
        """`hear` is called when a message of another node is about to be received by a replica."""
        self.replicas: set[int] = set()  # partitions whose replica `Oracle.turned` is to look at
        self.states: set[int] = set()  # partitions of which `Oracle.check_states` is to look at the state
        self._hear = hear
        self._marking: dict[type[Any], type[Any]] = {}
        self._partition_of: dict[int, int] = {}  # by id of the state machine

    def follow_all(self, replicas: LocalReplicas) -> None:
        """A node begins: each replica that comes is marked."""
        self.replicas.clear()
        self.states.clear()
        self.replicas.update(replicas)
        replicas.__class__ = self._class_for(replicas, self._of_replicas)

    def follow(self, replica: Replica) -> None:
        """One that came: it is marked."""
        machine: Any = replica.machine
        self._partition_of[id(machine)] = replica.partition
        self.states.add(replica.partition)
        if type(machine) in REFERENCES:
            machine.__class__ = self._class_for(machine, self._of_state)
        replica.raft.__class__ = self._class_for(replica.raft, self._of_raft)
        replica.__class__ = self._class_for(replica, self._of_replica)

    def _class_for(self, instance: object, make: Callable[[type[Any]], dict[str, Any]]) -> type[Any]:
        kind = type(instance)
        found = self._marking.get(kind)
        if found is None:
            found = self._marking[kind] = type(kind.__name__, (kind,), {"__slots__": (), **make(kind)})
        return found

    def _of_replicas(self, kind: type[LocalReplicas]) -> dict[str, Any]:
        mark, write = self.replicas.add, kind.__setitem__

        def set_item(self_: LocalReplicas, partition: int, replica: Replica) -> None:
            mark(partition)
            write(self_, partition, replica)

        return {"__setitem__": set_item}

    def _of_replica(self, kind: type[Replica]) -> dict[str, Any]:
        """`receive` too: a replica has no place for a method of its own."""
        mark, mark_state, write, receive_as = self.replicas.add, self.states.add, kind.__setattr__, kind.receive
        slot: Any = Replica.__dict__["machine"]
        read, hear = slot.__get__, self._hear

        def set_attribute(self_: Replica, name: str, value: object) -> None:
            if name in OF_REPLICA:
                mark(self_.partition)
            elif name == "applied":
                mark_state(self_.partition)
            write(self_, name, value)

        def machine(self_: Replica) -> Any:
            mark_state(self_.partition)
            return read(self_)

        def receive(self_: Replica, sender: int, message: RaftMessage) -> None:
            hear()
            receive_as(self_, sender, message)

        return {"__setattr__": set_attribute, "machine": property(machine, slot.__set__), "receive": receive}

    def _of_raft(self, kind: type[RaftMachine]) -> dict[str, Any]:
        mark, write = self.replicas.add, kind.__setattr__

        def set_attribute(self_: RaftMachine, name: str, value: object) -> None:
            if name in OF_RAFT:
                mark(self_.partition)
            write(self_, name, value)

        return {"__setattr__": set_attribute}

    def _of_state(self, kind: type[Any]) -> dict[str, Any]:
        mark, partition_of, write = self.states.add, self._partition_of, kind.__setattr__

        def set_attribute(self_: object, name: str, value: object) -> None:
            mark(partition_of[id(self_)])
            write(self_, name, value)

        def reference(slot: Any) -> property:
            read = slot.__get__

            def get(self_: object) -> Any:
                mark(partition_of[id(self_)])
                return read(self_)

            return property(get, slot.__set__)

        return {"__setattr__": set_attribute, **{name: reference(vars(kind)[name]) for name in REFERENCES[kind]}}
