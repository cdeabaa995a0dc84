"""The scrub: all stored files are read from the disk now and then, so that damage is found while others can repair it.

One pass reads every manifest, segment and checkpoint, in the order of partition and file number, at most
SCRUB_BYTES_PER_SECOND, and drops from the page cache what it read. A pass begins SCRUB_INTERVAL_MS after the last one
ended, or when it is asked for. Where it is gets noted every SCRUB_NOTE_INTERVAL_MS in `scrub.json`: a node that starts
again goes on near there (a note that cannot be read begins the interval anew). What is made meanwhile may be missed by
this pass; the next one has it.

What it finds goes to `DamageControl`. The write-ahead log is not read here: every start reads it whole, and a flush
reads what it keeps of it.
"""

from __future__ import annotations

import asyncio

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from storage_nodes.limits import SCRUB_BYTES_PER_SECOND, SCRUB_INTERVAL_MS, SCRUB_NOTE_INTERVAL_MS, SCRUB_PIECE_BYTES
from storage_nodes.log.errors import CorruptionError, NotVerifiedError
from storage_nodes.log.node_log import NodeLog, StoredFile
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.disk.blocking_work import BlockingWork
from storage_nodes.node.disk_care.damage import DamageControl
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.messages import ScrubReply, ScrubRequest, encode_message

SCRUBBED_BYTES = Counter("penstock_node_scrubbed_bytes", "Bytes of stored files read and checked by the scrub")
SCRUB_PASSES = Counter("penstock_node_scrub_passes", "Passes of the scrub over all stored files")
SCRUB_ENDED_SECONDS = Gauge("penstock_node_scrub_ended_timestamp_seconds", "When the last pass of the scrub ended")
NOTE_NAME = "scrub.json"

_scrub_request = msgspec.msgpack.Decoder(ScrubRequest)
_log = structlog.get_logger()


class ScrubNote(msgspec.Struct):
    """What is kept over a restart. Times are ms since the Unix epoch."""

    started_ms: int = 0  # of the pass under way; 0 = none is
    ended_ms: int = 0
    partition: int = -1
    number: int = -1  # the last file that was read, in the order of passes


class Scrub:
    """Of one node. On the event loop; reads in a thread."""

    def __init__(self, log: NodeLog, work: BlockingWork, clock: NodeClock, damage: DamageControl) -> None:
        self._log = log
        self._work = work
        self._clock = clock
        self._damage = damage
        self._note = ScrubNote()
        self._pass: asyncio.Task[None] | None = None
        self._loaded = False
        self._noted_ms = 0
        self.files_total = 0
        self.files_done = 0
        self.bytes_done = 0
        self.found = 0

    async def look(self) -> None:
        """Now and then: begin a pass that is due, or that was under way when the node stopped."""
        now_ms = self._clock.wall_ms()
        if not self._loaded:
            self._note = _decode(await self._work.run_blocking(lambda: self._log.read_note(NOTE_NAME)), now_ms)
            self._loaded = True
        if not self.running and (self._note.started_ms or now_ms - self._note.ended_ms >= SCRUB_INTERVAL_MS):
            self.begin()

    @property
    def running(self) -> bool:
        return self._pass is not None and not self._pass.done()

    def begin(self) -> None:
        """A pass from now on, unless one is under way."""
        if not self.running:
            self._pass = self._work.loop.create_task(self._run())
            self._pass.add_done_callback(raise_error)

    def stop(self) -> None:
        if self._pass is not None:
            self._pass.cancel()

    def answer(self, token: Token, payload: bytes) -> None:
        """An operator asks how it goes, or for a pass now."""
        request = _scrub_request.decode(payload)
        if request.start:
            self.begin()
        note, damage = self._note, self._damage
        reply = ScrubReply(
            self.running, note.started_ms, note.ended_ms, self.files_done, self.files_total, self.bytes_done,
            self.found, damage.unrepaired, [f"{error.path}: {error.problem}" for error in damage.waiting.values()],
        )  # fmt: skip
        token.connection.answer(token, encode_message(reply))

    async def _run(self) -> None:
        note = self._note
        if not note.started_ms:
            note.started_ms, note.partition, note.number = self._clock.wall_ms(), -1, -1
        files = await self._work.run_blocking(self._log.stored_files)
        files = [file for file in files if file.place > (note.partition, note.number)]
        self.files_total, self.files_done, self.bytes_done, self.found = len(files), 0, 0, 0
        for file in files:
            try:
                await self._read(file)
            except CorruptionError as error:
                self.found += 1
                self._damage.scrubbed(error)
            except NotVerifiedError as error:
                _log.warning("scrub left a file out", error=str(error))
            note.partition, note.number = file.place
            self.files_done += 1
            await self._keep_note()
        note.started_ms, note.ended_ms = 0, self._clock.wall_ms()
        self._noted_ms = 0
        await self._keep_note()
        SCRUB_PASSES.inc()
        SCRUB_ENDED_SECONDS.set(note.ended_ms / 1000)
        _log.info("scrub ended", files=self.files_done, bytes=self.bytes_done, damaged=self.found)

    async def _read(self, file: StoredFile) -> None:
        """Raises CorruptionError, NotVerifiedError."""
        pieces = self._log.verify(file, SCRUB_PIECE_BYTES)
        while size := await self._work.run_blocking(lambda: next(pieces, 0)):
            self.bytes_done += size
            SCRUBBED_BYTES.inc(size)
            await asyncio.sleep(size / SCRUB_BYTES_PER_SECOND)

    async def _keep_note(self) -> None:
        now_ms = self._clock.mono_ms()
        if not self._noted_ms or now_ms - self._noted_ms >= SCRUB_NOTE_INTERVAL_MS:
            self._noted_ms = now_ms
            data = msgspec.json.encode(self._note)
            await self._work.run_blocking(lambda: self._log.write_note(NOTE_NAME, data))


def raise_error(task: asyncio.Task[None]) -> None:
    """When a task of the node ends that should not: the error is nobody's but the loop's, which ends the process."""
    if not task.cancelled():
        error = task.exception()
        if error is not None:
            raise error


def _decode(data: bytes, now_ms: int) -> ScrubNote:
    try:
        note = msgspec.json.decode(data, type=ScrubNote)
    except msgspec.DecodeError:
        return ScrubNote(ended_ms=now_ms)
    return note if note.ended_ms <= now_ms else ScrubNote(ended_ms=now_ms)
