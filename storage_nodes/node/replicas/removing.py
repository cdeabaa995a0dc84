"""Removes messages that somebody chose, by their offsets, from wherever they stand: waiting, in flight or delayed.

    look       where each stands, by the machine; what is gone is answered for at once
    read       the log, for those that were never handed out: only it knows that there is a message, and its group
    stage      one command; the fold decides, and the answer follows its commit

A lease of another consumer does not count. What the message browser does, and a redrive once its copies are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from storage_nodes.limits import REMOVES_PER_CALL_MAX
from storage_nodes.log.record_batch import read_header, records_to_fold
from storage_nodes.machines.queue.effects import Effect
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.queue.state.headers import group_of
from storage_nodes.node.replicas.leader_context import LeaderContext
from storage_nodes.node.replicas.message_sizes import with_sizes
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import CodesReply, QueueRemoveRequest, encode_message

Stage = Callable[[Iterable[Effect]], None]

_NO_MESSAGE = -1


def remove(
    context: LeaderContext, machine: QueueMachine, token: Token, request: QueueRemoveRequest, stage: Stage
) -> None:
    """Answers the token once the command is committed. Raises StorageError."""
    offsets = request.offsets
    if not 1 <= len(offsets) <= REMOVES_PER_CALL_MAX or len(set(offsets)) != len(offsets) or min(offsets) < 0:
        text = f"a call names 1 to {REMOVES_PER_CALL_MAX} different offsets"
        raise StorageError(ErrorCode.INVALID_REQUEST, text)
    with_sizes(context, machine, token, offsets, lambda: _look(context, machine, token, request, stage))


def _look(
    context: LeaderContext, machine: QueueMachine, token: Token, request: QueueRemoveRequest, stage: Stage
) -> None:
    offsets = request.offsets
    log, now_ms = context.replica.log, context.replica.now_ms()
    untracked = [offset for offset in offsets if not machine.is_tracked(offset)]
    waiting = [offset for offset in untracked if machine.look_at(offset, now_ms) is not None]
    missing: list[int] = []
    groups: dict[int, bytes] = {}
    for offset in waiting:
        batches = log.read_hot(offset, 1)
        if batches is None:
            missing.append(offset)
        else:
            _note_group(groups, offset, batches)
    if not missing:
        _stage(machine, token, request, groups, stage)
        return

    def read(cold: list[list[bytes]]) -> None:
        for offset, batches in zip(missing, cold, strict=True):
            _note_group(groups, offset, batches)
        _stage(machine, token, request, groups, stage)

    context.run_cold(lambda: [log.read_cold(offset, 1) for offset in missing], read, lambda: context.refuse(token))


def _note_group(groups: dict[int, bytes], offset: int, batches: list[bytes]) -> None:
    """The group of the message at `offset`, if there is one: a control record, or a gap, is none."""
    if not batches:
        return
    header = read_header(batches[0])
    if header.is_control or not header.base_offset <= offset < header.end_offset:
        return
    groups.update((at, group_of(section)) for at, section in records_to_fold(batches[0]) if at == offset)


def _stage(
    machine: QueueMachine, token: Token, request: QueueRemoveRequest, groups: dict[int, bytes], stage: Stage
) -> None:
    named = [offset if machine.is_tracked(offset) or offset in groups else _NO_MESSAGE for offset in request.offsets]
    if all(offset == _NO_MESSAGE for offset in named):
        gone = [ErrorCode.UNKNOWN_RECORD] * len(named)
        token.connection.answer(token, encode_message(CodesReply([int(code) for code in gone])))
        return
    stage(machine.remove(token, named, groups, request.moved))
