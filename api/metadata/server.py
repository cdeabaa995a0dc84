"""Frames on one side, lookups on the other. One object per connection; answers leave in the order they are ready."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Coroutine
from typing import cast

import msgspec
import structlog

from api import limits
from api.metadata.service import MetadataLookups, Subscriber
from api.metadata.store import StoreUnavailable
from frontend.limits import QUOTA_REPORTED_ACCOUNTS_MAX
from frontend.metadata.interface import MISS
from frontend.metadata.limits import (
    ACCESS_KEY_ID_CHARACTERS_MAX,
    ACCOUNT_ID_CHARACTERS_MAX,
    METADATA_FRAME_BYTES_MAX,
    METADATA_HEARTBEAT_MS,
    QUEUE_NAME_CHARACTERS_MAX,
)
from frontend.metadata.messages import (
    AccountReply,
    Change,
    Compare,
    CompareReply,
    EncryptionKeyReply,
    FeedState,
    GetAccount,
    GetEncryptionKey,
    GetKey,
    GetQueue,
    KeyReply,
    MetadataOpcode,
    QueueReply,
    Subscribe,
    UseReport,
)
from frontend.metadata.records import RecordKind, queue_change_key
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.frames import FLAG_ANSWER, FLAG_ERROR, Frame, FrameDecoder, FrameError, encode_frame
from storage_nodes.protocol.messages import ErrorReply, Hello, Message, Opcode, encode_message, message_reader

_hello = message_reader(Hello)
_get_key = message_reader(GetKey)
_get_queue = message_reader(GetQueue)
_get_account = message_reader(GetAccount)
_get_encryption_key = message_reader(GetEncryptionKey)
_subscribe = message_reader(Subscribe)
_compare = message_reader(Compare)
_report_use = message_reader(UseReport)
_ABSENT = {
    RecordKind.KEY: encode_message(KeyReply(None)),
    RecordKind.QUEUE: encode_message(QueueReply(None)),
    RecordKind.ACCOUNT: encode_message(AccountReply(None)),
    RecordKind.ENCRYPTION_KEY: encode_message(EncryptionKeyReply(None)),
}
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_log = structlog.get_logger(__name__)


class MetadataServer(asyncio.Protocol, Subscriber):
    """One connection."""

    def __init__(self, lookups: MetadataLookups, cluster_id: str, connections: set[MetadataServer]) -> None:
        self._lookups = lookups
        self._cluster_id = cluster_id
        self._connections = connections
        self._decoder = FrameDecoder(METADATA_FRAME_BYTES_MAX)
        self._greeted = False
        self._feed_id: int | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None  # of the greeting
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        if len(self._connections) >= limits.METADATA_CLIENTS_MAX:
            transport.close()
            return
        self._connections.add(self)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(limits.METADATA_GREETING_S_MAX, self._cut_for, "no greeting in time")

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._handle(frame)
        except (FrameError, msgspec.DecodeError) as error:
            self._cut_for(str(error))

    def pause_writing(self) -> None:
        """Its answers wait to be read: until they are, its questions wait, too."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._lookups.unsubscribe(self)
        self._lookups.demands.forget(self)
        for timer in (self._heartbeat, self._deadline):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()

    # --- Subscriber ---

    def tell(self, change: Change) -> None:
        self._push(MetadataOpcode.SUBSCRIBE, change)

    def tell_state(self, state: FeedState) -> None:
        self._push(MetadataOpcode.FEED_STATE, state)

    def _push(self, opcode: int, message: Message) -> None:
        assert self._feed_id is not None and self._transport is not None
        if self._transport.get_write_buffer_size() > limits.METADATA_CLIENT_BUFFER_BYTES_MAX:
            self.cut_off()  # it does not read: it shall notice and start over
            return
        self._send(opcode, FLAG_ANSWER, self._feed_id, message)

    def _cut_for(self, why: str) -> None:
        self._tell_refused(why)
        self.cut_off()

    def _tell_refused(self, why: str) -> None:
        source = self._transport.get_extra_info("peername") if self._transport is not None else None
        _log.warning("connection_refused", error=why, source=str(source))

    def cut_off(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- frames ---

    def _handle(self, frame: Frame) -> None:
        if not self._greeted:
            self._greet(frame)
        elif frame.opcode == MetadataOpcode.GET_KEY:
            key = _get_key(frame.payload)
            possible = len(key.access_key_id) <= ACCESS_KEY_ID_CHARACTERS_MAX
            self._answer(frame, RecordKind.KEY, key.access_key_id, key.fresh, possible)
        elif frame.opcode == MetadataOpcode.GET_QUEUE:
            queue = _get_queue(frame.payload)
            possible = len(queue.name) <= QUEUE_NAME_CHARACTERS_MAX and _is_account(queue.account_id)
            name = queue_change_key(queue.account_id, queue.name)
            if queue.confirmed and possible:
                self._spawn(frame, self._answer_confirmed(frame, RecordKind.QUEUE, name))
            else:
                self._answer(frame, RecordKind.QUEUE, name, queue.fresh, possible)
        elif frame.opcode == MetadataOpcode.GET_ACCOUNT:
            account = _get_account(frame.payload)
            self._answer(frame, RecordKind.ACCOUNT, account.account_id, account.fresh, _is_account(account.account_id))
        elif frame.opcode == MetadataOpcode.GET_ENCRYPTION_KEY:
            asked = _get_encryption_key(frame.payload)
            possible = _UUID.fullmatch(asked.key_id) is not None
            self._answer(frame, RecordKind.ENCRYPTION_KEY, asked.key_id, asked.fresh, possible)
        elif frame.opcode == MetadataOpcode.SUBSCRIBE:
            self._subscribe(frame, _subscribe(frame.payload))
        elif frame.opcode == MetadataOpcode.COMPARE:
            self._compare(frame, _compare(frame.payload))
        elif frame.opcode == MetadataOpcode.REPORT_USE:
            self._report_use(frame, _report_use(frame.payload))
        else:
            self._refuse(frame, ErrorCode.UNKNOWN_OPCODE, f"opcode {frame.opcode}")

    def _greet(self, frame: Frame) -> None:
        if frame.opcode != Opcode.HELLO:
            raise FrameError("the first frame must be HELLO")
        hello = _hello(frame.payload)
        if hello.cluster_id != self._cluster_id:
            self._tell_refused("a client of another installation")
            self._refuse(frame, ErrorCode.INVALID_REQUEST, "this is another installation")
            assert self._transport is not None
            self._transport.close()
            return
        self._greeted = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._send(Opcode.HELLO, FLAG_ANSWER, frame.correlation_id, Hello(self._cluster_id, "metadata"))

    def _subscribe(self, frame: Frame, asked: Subscribe) -> None:
        if self._feed_id is not None:
            self._refuse(frame, ErrorCode.INVALID_REQUEST, "subscribed already")
            return
        self._feed_id = frame.correlation_id
        self._lookups.subscribe(self, asked.epoch, asked.sequence)
        self._heartbeat = asyncio.get_running_loop().call_later(METADATA_HEARTBEAT_MS / 1000, self._beat)

    def _beat(self) -> None:
        self.tell_state(self._lookups.state())
        loop = asyncio.get_running_loop()
        self._heartbeat = loop.call_later(METADATA_HEARTBEAT_MS / 1000, self._beat)

    def _compare(self, frame: Frame, asked: Compare) -> None:
        if not self._lookups.loaded:
            self._refuse(frame, ErrorCode.UNAVAILABLE, "there is no copy of the records yet")
        elif asked.kind not in _ABSENT or len(asked.keys) != len(asked.versions):
            self._refuse(frame, ErrorCode.INVALID_REQUEST, "not a list of records")
        else:
            outdated = self._lookups.outdated(RecordKind(asked.kind), asked.keys, asked.versions)
            self._send(frame.opcode, FLAG_ANSWER, frame.correlation_id, CompareReply(outdated))

    def _report_use(self, frame: Frame, report: UseReport) -> None:
        if len(report.accounts) > QUOTA_REPORTED_ACCOUNTS_MAX:
            self._refuse(frame, ErrorCode.INVALID_REQUEST, "too many accounts")
            return
        shares = self._lookups.demands.report(self, report, time.monotonic())
        self._send(frame.opcode, FLAG_ANSWER, frame.correlation_id, shares)

    def _answer(self, frame: Frame, kind: RecordKind, key: str, fresh: bool, possible: bool) -> None:
        """At once from the copy, where it says. What is not `possible` names nothing."""
        held = self._lookups.held(kind, key, fresh) if possible and key.isprintable() else None
        if held is MISS:
            self._spawn(frame, self._answer_read(frame, kind, key, fresh))
        else:
            self._reply(frame, held or _ABSENT[kind])

    def _spawn(self, frame: Frame, answer: Coroutine[None, None, None]) -> None:
        if len(self._tasks) >= limits.METADATA_LOOKUPS_PER_CLIENT_MAX:
            answer.close()
            self._refuse(frame, ErrorCode.OVERLOADED, "too many lookups at once")
            return
        task = asyncio.create_task(self._guarded(frame, answer), name="metadata-answer")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, frame: Frame, answer: Coroutine[None, None, None]) -> None:
        try:
            await answer
        except StoreUnavailable as error:
            self._refuse(frame, ErrorCode.UNAVAILABLE, str(error))
        except Exception:  # our own bug: the asker is told, the process lives
            _log.exception("lookup_failed", opcode=frame.opcode)
            self._refuse(frame, ErrorCode.INTERNAL, "")

    async def _answer_read(self, frame: Frame, kind: RecordKind, key: str, fresh: bool) -> None:
        self._reply(frame, await self._lookups.read(kind, key, fresh) or _ABSENT[kind])

    async def _answer_confirmed(self, frame: Frame, kind: RecordKind, key: str) -> None:
        held = self._lookups.held(kind, key, fresh=False)
        if held is MISS:
            await self._answer_read(frame, kind, key, fresh=False)
        else:
            await self._lookups.confirm()
            self._reply(frame, held or _ABSENT[kind])

    def _refuse(self, frame: Frame, code: ErrorCode, message: str) -> None:
        self._send(frame.opcode, FLAG_ANSWER | FLAG_ERROR, frame.correlation_id, ErrorReply(code, message))

    def _send(self, opcode: int, flags: int, correlation_id: int, message: Message) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frame(opcode, flags, correlation_id, encode_message(message)))

    def _reply(self, frame: Frame, encoded: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frame(frame.opcode, FLAG_ANSWER, frame.correlation_id, encoded))


def _is_account(account_id: str) -> bool:
    return len(account_id) <= ACCOUNT_ID_CHARACTERS_MAX and "/" not in account_id
