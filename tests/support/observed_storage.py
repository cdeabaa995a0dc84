"""`MemoryStorage` that tests watch and that fails when they say so.

It notes calls and what they ask for, and answers in the place of the storage where a failure was ordered. What the
storage does is not its business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from storage_nodes.model import Acks
from storage_nodes.node.replicas.queue_checks import check_count
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    ChangeVisibilityRequest,
    DeleteRequest,
    Opcode,
    ScheduledRequest,
    SendRequest,
    VisibilityMode,
)
from storage_nodes.protocol.records import decode_body
from tests.support.memory_node import Call
from tests.support.memory_storage import MemoryStorage


class ObservedStorage(MemoryStorage):
    def __init__(self, now_s: Callable[[], float], partitions: Sequence[int] = ()) -> None:
        super().__init__(now_s, partitions)
        # What was asked for: (call, partition), and of sends and changes how.
        self.calls: list[tuple[str, int]] = []
        self.plain: list[bool] = []
        self.acks: list[Acks] = []
        self.modes: list[VisibilityMode] = []
        # Every call is refused with this.
        self.fail_with: ErrorCode | None = None
        self.fail_text = ""
        # What deletes and changes of visibility are answered with, undone.
        self.codes: list[ErrorCode] | None = None
        # Called with each call and its partition, before it is made; may raise.
        self.before: Callable[[str, int], None] = lambda call, partition: None
        self.page_max = 2**31  # scheduled messages that a partition shows at a time

    def _call(self, opcode: Opcode, partition: int, request: object) -> tuple[Token, Call]:
        self._observe(opcode, partition, request)
        if isinstance(request, ScheduledRequest):
            request = msgspec.structs.replace(request, messages_max=min(request.messages_max, self.page_max))
        return super()._call(opcode, partition, request)

    def _codes(self, opcode: Opcode, partition: int, request: object) -> list[ErrorCode]:
        if self.codes is None or not isinstance(request, DeleteRequest | ChangeVisibilityRequest):
            return super()._codes(opcode, partition, request)
        self._observe(opcode, partition, request)
        check_count(len(request.receipts if isinstance(request, DeleteRequest) else request.changes))
        return self.codes

    def _observe(self, opcode: Opcode, partition: int, request: object) -> None:
        name = opcode.name.lower().removeprefix("queue_")
        self.before(name, partition)
        self.calls.append((name, partition))
        if self.fail_with is not None:
            raise StorageError(self.fail_with, self.fail_text)
        if isinstance(request, SendRequest):
            is_plain = not any(decode_body(body).headers for body in request.bodies)
            assert is_plain or not request.plain, "plain promises that none has headers"
            self.plain.append(request.plain)
            self.acks.append(Acks(request.acks))
        elif isinstance(request, ChangeVisibilityRequest):
            self.modes.append(VisibilityMode(request.mode))
