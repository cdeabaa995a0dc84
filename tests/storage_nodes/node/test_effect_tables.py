"""Every effect of a machine is performed by one function of its replica, which takes that kind of effect."""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import get_args, get_type_hints

import pytest

from storage_nodes.machines.queue import effects as queue_effects
from storage_nodes.machines.raft import effects as raft_effects
from storage_nodes.machines.stream import effects as stream_effects
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.replica import Performers, Replica
from storage_nodes.node.replicas.stream_replica import StreamReplica

TABLES: list[tuple[Performers, UnionType]] = [
    (Replica.raft_performers, raft_effects.Effect),
    (QueueReplica.performers, queue_effects.Effect),
    (StreamReplica.performers, stream_effects.Effect),
]


@pytest.mark.parametrize(("table", "effects"), TABLES, ids=["raft", "queue", "stream"])
def test_each_effect_of_a_machine_is_performed(table: Performers, effects: UnionType) -> None:
    assert set(table) == set(get_args(effects))


@pytest.mark.parametrize(
    ("kind", "perform"), [pair for table, _ in TABLES for pair in table.items()], ids=lambda value: value.__name__
)
def test_effect_is_performed_by_a_function_that_takes_it(kind: type, perform: Callable[..., None]) -> None:
    hints = get_type_hints(perform)
    (taken,) = (hint for name, hint in hints.items() if name.lstrip("_") in ("effect", "asked"))
    assert taken is kind or kind in get_args(taken)
