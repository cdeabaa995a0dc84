"""Planted bugs of the product's client, of what nodes remember of it, and of budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any
from unittest import mock

import msgspec

from storage_nodes.client.connection import ClientConnection
from storage_nodes.client.storage_client import StorageClient
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import SendRequest, encode_message


@contextmanager
def keeps_late_leases() -> Iterator[None]:
    """B39: a lease that comes to a receive which was given up is nobody's, until it ends."""
    with mock.patch.object(StorageClient, "_hand_back", lambda self, partition, payload: None):
        yield


@contextmanager
def hands_back_what_was_repeated() -> Iterator[None]:
    """B49: a hand-back ends whatever lease the delivery has by now, also that of a receive which was repeated since."""
    machine = import_module("storage_nodes.machines.queue.machine").QueueMachine
    with mock.patch.object(machine, "of_leases_until", lambda self, changes, deadline_ms: list(changes)):
        yield


@contextmanager
def repeats_without_a_sequence() -> Iterator[None]:
    """B40: each attempt of a send has numbers of its own."""
    frame: Any = import_module("storage_nodes.client.sends")._Frame
    real = frame._ask

    def ask(self: Any) -> None:
        if self._payload and self._line is not None and self._asked:
            request = msgspec.msgpack.decode(self._payload, type=SendRequest)
            fields = {"sequence": self._line.next}
            self._line.next += len(request.bodies)
            self._payload = encode_message(msgspec.structs.replace(request, **fields))
        real(self)

    with mock.patch.object(frame, "_ask", ask):
        yield


@contextmanager
def forgets_sequences_with_the_leader() -> Iterator[None]:
    """B41: a leader knows the numbers that it appended itself and nobody else's: the fold is not asked."""
    table = import_module("storage_nodes.machines.producers").ProducerTable
    with mock.patch.object(table, "look_up", lambda *_: None):
        yield


@contextmanager
def keeps_the_budget() -> Iterator[None]:
    """B42: what refused or lost sends took of a node's memory is not given back."""
    budget = import_module("storage_nodes.node.memory.memory_budget").MemoryBudget
    real = budget.take

    def take(self: Any, kind: int, size_bytes: int) -> None:
        if size_bytes > 0:
            real(self, kind, size_bytes)

    with (
        mock.patch.object(budget, "take", take),
        mock.patch.object(budget, "give", lambda self, kind, size_bytes: None),
    ):
        yield


@contextmanager
def cuts_for_its_own_burst() -> Iterator[None]:
    """B43: a client whose connection does not take a burst at once gives it up."""

    def pause_writing(self: Any) -> None:
        self._transport.abort()

    with mock.patch.object(ClientConnection, "pause_writing", pause_writing):
        yield


@contextmanager
def repeats_changes_of_visibility() -> Iterator[None]:
    """B47: a change of visibility that ended a lease is sent again, by an attempt that takes itself for the first."""
    real = StorageClient.change_visibility

    async def change_visibility(self: StorageClient, partition: int, changes: Any, *more: Any) -> Any:
        codes = await real(self, partition, changes, *more)
        if any(visibility_ms == 0 for _, _, visibility_ms in changes):
            await asyncio.sleep(0.3)
            with suppress(StorageError):
                await real(self, partition, changes, *more)
        return codes

    with mock.patch.object(StorageClient, "change_visibility", change_visibility):
        yield
