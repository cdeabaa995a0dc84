"""Commands of the queue machine in the log: what is read back, what a later version may add, what is no command."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from storage_nodes.machines.queue.commands import (
    CONTROL_QUEUE_KEY,
    AcquiredCommand,
    Acquisition,
    Command,
    ConfiguredCommand,
    DeadLetteredCommand,
    DeletedCommand,
    ExpiredCommand,
    FifoLease,
    HandedOverCommand,
    LeasedCommand,
    LeveledCommand,
    PurgedCommand,
    QueueCommand,
    RemovedCommand,
    RescheduledCommand,
    RetiredCommand,
    UnparkedCommand,
    UsageClosedCommand,
    UsageExportedCommand,
    VisibilityCommand,
    decode_command,
    encode_command,
    pack_sizes,
)
from storage_nodes.machines.queue.state.configs import config_fields
from storage_nodes.machines.queue.state.folding import StateFold
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.machines.unknown_entries import UnknownEntryError
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import decode_body, encode_body

HEAD = (1_000, 55, 1_790_000_000_000)
CONFIG = QueueConfig(retention_ms=60_000, fifo=True, dead_letter_groups=(1, 2), account_id="a")
COMMANDS: list[Command] = [
    AcquiredCommand(*HEAD, 7, [Acquisition(1, 2, [5, 6, 1], [3])], [b"group", b"", [5, 5]]),
    DeletedCommand(*HEAD, [5, 1, 6, 1], pack_sizes([10, 20]), (2, 2, 30, 2)),
    DeletedCommand(*HEAD, [5, 1], [None]),
    VisibilityCommand(*HEAD, [5, 1, 30_000], [4]),
    ExpiredCommand(*HEAD, 9, [1, 4], [6], [70]),
    PurgedCommand(*HEAD, b"attempt"),
    ConfiguredCommand(*HEAD, *config_fields(CONFIG)),
    LeasedCommand(*HEAD, [FifoLease(1, 2, b"a", True, [b"group", [3], [4, 1]])]),
    DeadLetteredCommand(*HEAD, [8], [None]),
    RescheduledCommand(*HEAD, [8, 0], [1]),
    RemovedCommand(*HEAD, [8, -1], True, [1, None]),
    UnparkedCommand(*HEAD, [b"group"]),
    UsageClosedCommand(*HEAD),
    UsageExportedCommand(*HEAD, 3_600_000, 3_600_001),
    RetiredCommand(*HEAD),
    HandedOverCommand(*HEAD, 3, 2, 100, 2),
    LeveledCommand(*HEAD, 2),
]
FOLDS = {
    AcquiredCommand: "fold_acquired",
    DeletedCommand: "fold_deleted",
    VisibilityCommand: "fold_visibility",
    ExpiredCommand: "fold_expired",
    PurgedCommand: "fold_purged",
    ConfiguredCommand: "fold_configured",
    LeasedCommand: "fold_leased",
    DeadLetteredCommand: "fold_dead_lettered",
    RescheduledCommand: "fold_rescheduled",
    RemovedCommand: "fold_removed",
    UnparkedCommand: "fold_unparked",
    UsageClosedCommand: "fold_usage_closed",
    UsageExportedCommand: "fold_usage_exported",
    RetiredCommand: "fold_retired",
    HandedOverCommand: "fold_handed_over",
    LeveledCommand: "fold_leveled",
}
KINDS = {1, 2, 3, 4, 5, 6, 7, 8, 16, 19, 20, 21, 22, 23, 24, 25}


def record(*fields: object) -> bytes:
    return encode_body(msgspec.msgpack.encode(fields), CONTROL_QUEUE_KEY)


def fields_of(command: QueueCommand) -> list[Any]:
    fields: list[Any] = msgspec.msgpack.decode(decode_body(encode_command(command)).value)
    return fields


def test_every_kind_is_here_once_and_keeps_its_number() -> None:
    assert {type(command) for command in COMMANDS} == set(get_args(Command))
    assert {fields_of(command)[0] for command in COMMANDS} == KINDS and len(get_args(Command)) == len(KINDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_command_is_read_as_it_was_written(command: QueueCommand) -> None:
    assert decode_command(encode_command(command)) == command
    assert fields_of(command)[1:4] == list(HEAD)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_fields_that_a_later_version_adds_are_passed_over_but_not_those_of_a_configuration(
    command: QueueCommand,
) -> None:
    later = record(*msgspec.msgpack.decode(msgspec.msgpack.encode(command)), b"later", [1])
    if isinstance(command, ConfiguredCommand):
        with pytest.raises(msgspec.DecodeError):
            decode_command(later)
    else:
        assert decode_command(later) == command


def test_configuration_stands_in_its_command_field_by_field() -> None:
    fields = [field.name for field in msgspec.structs.fields(QueueConfig)]
    assert [field.name for field in msgspec.structs.fields(ConfiguredCommand)][len(HEAD) :] == fields
    assert fields_of(ConfiguredCommand(*HEAD, *config_fields(CONFIG))) == [
        *(6, *HEAD, 60_000, 120_000, True, 300_000, 0, 0, False, 0, 0, 0, 0, False, False, [1, 2], "a")
    ]


def test_configuration_of_an_earlier_version_leaves_what_it_did_not_know() -> None:
    state = QueueState(QueueConfig(account_id="a", paused=True))
    command = decode_command(record(6, *HEAD, 60_000, 7, False))
    assert command is not None
    command.fold(StateFold(state), 0)
    assert state.config == QueueConfig(retention_ms=60_000, in_flight_max=7, account_id="a", paused=True)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_command_calls_the_fold_of_its_kind_and_no_other(command: Command) -> None:
    called: list[tuple[str, tuple[object, ...]]] = []

    class Spy:
        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: called.append((name, arguments))

    command.fold(Spy(), 77)  # type: ignore[arg-type]
    ((name, arguments),) = called
    assert arguments == ((command, 77) if isinstance(command, PurgedCommand) else (command,))
    assert name == FOLDS[type(command)] and hasattr(StateFold, name)


def test_fields_at_the_end_may_be_missing() -> None:
    assert decode_command(record(1, *HEAD, 7, [])) == AcquiredCommand(*HEAD, 7, [])
    assert decode_command(record(2, *HEAD, [5, 1])) == DeletedCommand(*HEAD, [5, 1])
    assert decode_command(record(4, *HEAD, 9, [], [])) == ExpiredCommand(*HEAD, 9, [], [])


def test_fields_at_the_end_that_say_nothing_are_not_written() -> None:
    assert fields_of(AcquiredCommand(*HEAD, 7, [])) == [1, *HEAD, 7, []]
    assert fields_of(DeletedCommand(*HEAD, [5, 1])) == [2, *HEAD, [5, 1]]
    assert fields_of(DeletedCommand(*HEAD, [5, 1], [9])) == [2, *HEAD, [5, 1], [9]]
    assert fields_of(DeletedCommand(*HEAD, [5, 1], [], (1, 0, 0, 0))) == [2, *HEAD, [5, 1], [], [1, 0, 0, 0]]
    assert fields_of(ExpiredCommand(*HEAD, 9, [], [])) == [4, *HEAD, 9, [], []]
    assert fields_of(RemovedCommand(*HEAD, [], False)) == [19, *HEAD, [], False]
    assert fields_of(UnparkedCommand(*HEAD, [])) == [20, *HEAD, []]


@pytest.mark.parametrize("kind", [0, 9, 26, -1, 2**40])
def test_kind_that_is_not_known_is_told_from_one_that_is_damaged(kind: int) -> None:
    with pytest.raises(UnknownEntryError, match=f"command kind {kind} of a queue"):
        decode_command(record(kind, *HEAD))


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ("1", *HEAD, 7, []),
        (2, *HEAD),
        (2, *HEAD, ["5", 1]),
        (2, *HEAD, [5, 1], [], [1, 2, 3]),
        (1, *HEAD, 7, [[1, 2, [5, 6, 1]]]),
        (7, *HEAD, [[1, 2, b"a", 1, []]]),
        (19, 1, 2, "now", [8], False),
        (6, *HEAD, [60_000, 1, False]),
    ],
    ids=str,
)
def test_what_is_no_command_is_refused_before_anything_is_folded(fields: tuple[object, ...]) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_command(record(*fields))


def test_value_that_is_no_msgpack_is_refused() -> None:
    for value in (b"", b"\xc1", b"\x92\x01", b"\x01"):
        with pytest.raises(msgspec.DecodeError):
            decode_command(encode_body(value, CONTROL_QUEUE_KEY))
