"""Checkpoints whose large parts a thread packs: the same bytes, of the moment at which they were asked for, and of the
event loop no more than copies of arrays."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from storage_nodes.limits import PRODUCER_MEMORY_MS
from storage_nodes.log.checkpoint import blob_bytes, joined
from storage_nodes.machines import packed_later, producers
from storage_nodes.machines.packed_later import PackedLater, array_header, raw_array
from storage_nodes.machines.producers import LAZY_ROWS_MIN, ProducerTable
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.queue.state import dedup, held_messages
from storage_nodes.machines.queue.state.dedup import SLICES_PER_WINDOW, DedupWindow
from storage_nodes.machines.stream.machine import StreamMachine
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.stream_replica import StreamReplica
from tests.storage_nodes.machines.test_producers import NOW_MS, Batch

_encode = msgspec.msgpack.encode


class Sends:
    """Of some producers, with gaps, out of order, and some that repeat a deduplication id."""

    def __init__(self, table: ProducerTable | None = None, seed: int = 0) -> None:
        self.table = ProducerTable() if table is None else table
        self.now_ms = NOW_MS
        self._end = 5
        self._next_of: dict[int, int] = {}
        self._chance = random.Random(seed)

    def send(self, count: int, producer: int = 1, epoch: int = 0) -> None:
        chance = self._chance
        for _ in range(count):
            first = self._next_of.get(producer, 0) + chance.choice([1, 1, 2, 9])
            length = chance.randrange(1, 5)
            self._next_of[producer] = first + length
            if chance.random() < 0.1:  # its forerunner comes behind it
                self._fold(first + length, 1, producer, epoch)
                self._next_of[producer] += 1
            self._fold(first, length, producer, epoch)

    def _fold(self, first: int, length: int, producer: int, epoch: int) -> None:
        batch = Batch(self._end, length, self.now_ms, producer, epoch, first)
        self.table.fold(batch)
        if self._chance.random() < 0.1:
            self.table.note_duplicates(batch, [(self._end, self._chance.choice([3, -1]))])
        self._end += length + self._chance.randrange(3)
        self.now_ms += self._chance.randrange(3)


def packed_at_once(table: ProducerTable) -> bytes:
    """As the format says."""
    flat: list[Any] = []
    for producer_id, producer in table._producers.items():
        end, end_offset, ms = 0, 0, table._time_ms
        rows: list[int] = []
        for at in range(0, len(producer.rows), 4):
            first, row_end, base_offset, row_ms = producer.rows[at : at + 4]
            rows += (first - end, row_end - first, base_offset - end_offset, row_ms - ms)
            end, end_offset, ms = row_end, base_offset + row_end - first, row_ms
        ages = (table._time_ms - producer.last_ms, table._stamp_ms - producer.stamp_ms)
        flat += (producer_id, producer.epoch, producer.floor, *ages, rows, list(producer.duplicates or ()))
    return _encode([table._time_ms, table._stamp_ms, flat] if flat else [])


def later(table: ProducerTable) -> bytes:
    return b"".join(map(bytes, table.pack_later()))


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 65_535, 65_536])
def test_array_of_any_length_is_packed_in_steps_as_it_is_at_once(length: int) -> None:
    numbers = [number * 7 - 100_000 for number in range(length)]
    for step in (1, 7, 16, 70_000):
        steps = (numbers[at : at + step] for at in range(0, length, step))
        assert _encode(raw_array(length, steps)) == _encode(numbers)
    assert _encode(numbers).startswith(array_header(length))


# --- producers ---


@pytest.mark.parametrize("step_rows", [1, 3, 2_048])
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_the_same_bytes_whoever_packs_them(monkeypatch: pytest.MonkeyPatch, seed: int, step_rows: int) -> None:
    monkeypatch.setattr(producers, "_STEP_NUMBERS", 4 * step_rows)
    sends = Sends(seed=seed)
    assert later(sends.table) == packed_at_once(sends.table) == b"\x90"
    for producer, count in ((4, 1), (2, 3), (9, 4), (1, 300), (7, 5)):
        sends.send(count, producer)
    assert later(sends.table) == _encode(sends.table.pack()) == packed_at_once(sends.table)
    again = ProducerTable.unpack(msgspec.msgpack.decode(later(sends.table)))
    assert packed_at_once(again) == packed_at_once(sends.table)


def test_folds_while_they_are_packed_change_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two steps: rows that are added, filled in and dropped, a newer epoch, a producer that comes."""
    monkeypatch.setattr(producers, "_STEP_NUMBERS", 8)
    sends = Sends()
    for producer in (1, 2, 3):
        sends.send(100, producer)
    before, pieces = packed_at_once(sends.table), sends.table.pack_later()
    real, folded = packed_later._encode, 0

    def encode(step: Any) -> bytes:
        nonlocal folded
        folded += 1
        sends.send(3, 1 + folded % 4, epoch=folded // 100)
        sends.now_ms += PRODUCER_MEMORY_MS // 50
        return real(step)

    monkeypatch.setattr(packed_later, "_encode", encode)
    assert b"".join(map(bytes, pieces)) == before != packed_at_once(sends.table)
    assert folded > 150 and sends.table._producers[1].floor > 100, "rows were dropped"
    assert b"".join(map(bytes, pieces)) == before, "made once"


class Steps:
    """How many numbers each step of the packing had, since the last look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lengths: list[int] = []
        real = packed_later._encode

        def encode(value: Any) -> bytes:
            if isinstance(value, list):
                self._lengths.append(len(value))
            return real(value)

        def noted(rows: Any, table: ProducerTable, numbers: array[int]) -> Iterator[list[int]]:
            for step in rows(table, numbers):
                self._lengths.append(len(step))
                yield step

        monkeypatch.setattr(packed_later, "_encode", encode)
        rows = ProducerTable._rows_in_steps
        monkeypatch.setattr(ProducerTable, "_rows_in_steps", lambda table, numbers: noted(rows, table, numbers))

    def take(self) -> list[int]:
        taken, self._lengths[:] = self._lengths[:], []
        return taken


def holding(machine: QueueMachine | StreamMachine, table: ProducerTable) -> None:
    (machine.state if isinstance(machine, QueueMachine) else machine).producers = table


@pytest.mark.parametrize("kind", [QueueMachine, StreamMachine])
def test_event_loop_packs_no_row_where_there_are_many_and_the_thread_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch, kind: type[QueueMachine | StreamMachine]
) -> None:
    machine, sends = kind(), Sends()
    for producer in (1, 2):
        sends.send(10_000, producer)
    holding(machine, sends.table)
    whole, steps = machine.checkpoint(), Steps(monkeypatch)
    pieces = machine.checkpoint_pieces()
    assert isinstance(pieces, list) and max(steps.take(), default=0) < 20
    assert joined(pieces) == whole and blob_bytes(pieces) == len(whole)
    taken = steps.take()
    assert len(taken) > 8 and max(taken) <= 8_192
    sends.send(10)
    assert joined(pieces) == whole != machine.checkpoint()
    again = kind()
    again.restore(whole)
    assert again.checkpoint() == whole


@pytest.mark.parametrize("kind", [QueueMachine, StreamMachine])
@pytest.mark.parametrize("of", ["rows", "duplicates"])
def test_few_rows_are_packed_at_once(kind: type[QueueMachine | StreamMachine], of: str) -> None:
    machine, table = kind(), ProducerTable()
    holding(machine, table)
    assert isinstance(machine.checkpoint_pieces(), bytes)
    for number in range(LAZY_ROWS_MIN):
        assert isinstance(machine.checkpoint_pieces(), bytes)
        batch = Batch(3 * number, 1, NOW_MS, number % 3, 0, 2 * number)
        if of == "rows" or number == 0:
            table.fold(batch)
        else:  # two of them weigh as much as a row
            table.note_duplicates(batch._replace(producer_id=0), [(batch.base_offset + more, 1) for more in (0, 1)])
    assert isinstance(machine.checkpoint_pieces(), list)


# --- deduplication ids ---


def window(ids: int, window_ms: int = 8_000) -> DedupWindow:
    made = DedupWindow(window_ms)
    for number in range(ids):
        remember(made, number, NOW_MS + number * window_ms // ids)
    return made


def remember(window: DedupWindow, number: int, time_ms: int) -> None:
    window.begin(3 * number, time_ms)
    window.original(b"%d" % number, 3 * number, time_ms)


def test_ids_are_the_same_bytes_whoever_packs_them_and_are_packed_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "_STEP_IDS", 16)
    for ids in (0, 1, 15, 16, 17, 700):
        known = window(ids) if ids else DedupWindow(8_000)
        pieces = known.pack_later()
        before = _encode(window(ids).pack() if ids else [])
        for number in range(ids, ids + 300):
            remember(known, number, NOW_MS + 8_000 + 10 * (number - ids))
        assert b"".join(map(bytes, pieces)) == before != _encode(known.pack())
        again = DedupWindow(8_000)
        again.unpack(msgspec.msgpack.decode(before))
        assert b"".join(map(bytes, again.pack_later())) == before
    assert sum(isinstance(piece, PackedLater) for piece in window(700).pack_later()) == SLICES_PER_WINDOW


def test_event_loop_packs_no_slice_of_many_ids_and_copies_only_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_messages, "CHECKPOINT_PIECES_MESSAGES", window(300).packed_numbers)
    machine = QueueMachine()
    machine.state.dedup = window(299)
    assert isinstance(machine.checkpoint_pieces(), bytes)
    machine.state.dedup = known = window(300)
    done: list[str] = []
    for name in ("pack", "copied"):
        real = getattr(dedup._Slice, name)

        def noted(each: Any, name: str = name, real: Any = real) -> Any:
            done.append(name)
            return real(each)

        monkeypatch.setattr(dedup._Slice, name, noted)
    pieces = machine.checkpoint_pieces()
    assert isinstance(pieces, list) and done == ["copied"]
    blob = joined(pieces)
    assert done == ["copied", *["pack"] * len(known._slices)]
    done.clear()
    assert joined(machine.checkpoint_pieces()) == blob == machine.checkpoint()
    assert done == ["copied", "pack", "pack"], "once for each that is full"


def test_many_repeats_of_few_ids_are_packed_by_who_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is a step of the window's times, though it brings no id."""
    monkeypatch.setattr(held_messages, "CHECKPOINT_PIECES_MESSAGES", 300)
    machine = QueueMachine()
    machine.state.dedup = known = DedupWindow(8_000)
    for number in range(299):
        known.begin(number, NOW_MS)
        known.original(b"again", number, NOW_MS)
    assert isinstance(machine.checkpoint_pieces(), list)


# --- replicas ---


@pytest.mark.parametrize("kind", [QueueReplica, StreamReplica])
def test_replicas_leave_packing_and_reading_to_threads(
    monkeypatch: pytest.MonkeyPatch, kind: type[QueueReplica | StreamReplica]
) -> None:
    replica: Any = kind.__new__(kind)
    replica.machine = QueueMachine() if kind is QueueReplica else StreamMachine()
    sends = Sends()
    sends.send(LAZY_ROWS_MIN + 300)
    holding(replica.machine, sends.table)
    pieces = replica.checkpoint_pieces()
    assert any(isinstance(piece, PackedLater) for piece in pieces)
    state = kind.read_state(joined(pieces))
    other: Any = kind.__new__(kind)
    other.machine = QueueMachine() if kind is QueueReplica else StreamMachine()
    with monkeypatch.context() as patch:
        patch.setattr(ProducerTable, "unpack", lambda _: pytest.fail("read on the event loop"))
        other.take_state(state)
    assert other.machine.checkpoint() == joined(pieces)
