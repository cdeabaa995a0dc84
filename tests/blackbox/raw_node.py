"""A storage node's client port by hand: frames as we like them, read or not read."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import msgspec

from storage_nodes.model import NodeAddress
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import FLAG_ERROR, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import ErrorReply, Hello, Opcode, SendReply, SendRequest, encode_message

ANSWER_TIMEOUT_S = 10.0
READ_BYTES = 256 * 1024
LOOK_S = 0.25
READ_AT_LAST_S = 3.0
ESTABLISHED = "01"  # in /proc/net/tcp


class RawNode:
    """One connection, greeted, one call at a time."""

    def __init__(self, cluster_id: str, address: NodeAddress) -> None:
        self._cluster_id = cluster_id
        self._address = address
        self._calls = 0
        self._decoder = FrameDecoder()

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._address.host, self._address.port)
        await self.ask(Opcode.HELLO, encode_message(Hello(self._cluster_id, "by hand")))

    async def ask(self, opcode: int, payload: bytes) -> bytes:
        """The answer. Raises StorageError with what was refused, EOFError where the connection was cut."""
        self._calls += 1
        self._writer.write(encode_frame(opcode, 0, self._calls, payload))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while True:
                data = await self._reader.read(READ_BYTES)
                if not data:
                    raise EOFError("the node cut the connection")
                for frame in self._decoder.feed(data):
                    if frame.correlation_id != self._calls:
                        continue
                    if frame.flags & FLAG_ERROR:
                        told = msgspec.msgpack.decode(frame.payload, type=ErrorReply)
                        raise StorageError(ErrorCode(told.code), told.message, told.leader)
                    return frame.payload

    def close(self) -> None:
        self._writer.close()


def produce(partition: int, bodies: list[bytes], producer: int, epoch: int, sequence: int) -> bytes:
    """A send as a producer. The fields stand behind those of a plain send, whether this version knows them or not."""
    named = {"producer_id": producer, "producer_epoch": epoch, "sequence": sequence}
    if named.keys() <= set(SendRequest.__struct_fields__):
        return encode_message(SendRequest(partition, bodies, **named))  # type: ignore[arg-type]
    return msgspec.msgpack.encode([partition, bodies, True, 2, producer, epoch, sequence])


async def produced(node: RawNode, opcode: int, payload: bytes) -> int:
    """Where the first record stands."""
    return msgspec.msgpack.decode(await node.ask(opcode, payload), type=SendReply).first_offset


def silent_socket(host: str, port: int) -> socket.socket:
    """A connection that takes in little and reads nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(5.0)
    made.connect((host, port))
    made.setblocking(False)
    return made


def push(connection: socket.socket, data: bytes) -> int:
    """Bytes that it took; -1 where it is cut."""
    try:
        return connection.send(data)
    except BlockingIOError:
        return 0
    except OSError:
        return -1


def is_held(connection: socket.socket) -> bool:
    """Whether the process on the other side still has this connection open, by what the kernel says of that side: its
    end does not reach a socket that takes nothing in any more."""
    mine, theirs = connection.getsockname()[1], connection.getpeername()[1]
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state = row.split()[:4]
        if state == ESTABLISHED and int(local.split(":")[1], 16) == theirs and int(remote.split(":")[1], 16) == mine:
            return True
    return False


async def cut_after(connection: socket.socket, within_s: float, feed: bytes = b"", every_s: float = 1.0) -> float:
    """Seconds until the other side ends it, nothing read; inf where it does not. `feed`: one byte each `every_s`."""
    began_s = time.monotonic()
    fed = 0
    while (passed_s := time.monotonic() - began_s) < within_s:
        try:
            if not is_held(connection):
                return passed_s
        except OSError:  # not connected any more
            return passed_s
        if fed < len(feed) and passed_s >= fed * every_s:
            if push(connection, feed[fed : fed + 1]) < 0:
                return passed_s
            fed += 1
        await asyncio.sleep(LOOK_S)
    return float("inf")


async def refusals_in(connection: socket.socket, asks: int) -> int:
    """Reads at last what a silent client was sent: how many of its `asks` were refused. Those fit into the kernel's
    buffers, so the node holds nothing of them."""
    decoder, refused, answered = FrameDecoder(), 0, 0
    end_s = time.monotonic() + READ_AT_LAST_S
    while answered < asks and time.monotonic() < end_s:
        try:
            data = connection.recv(READ_BYTES)
        except BlockingIOError:
            await asyncio.sleep(LOOK_S / 10)
            continue
        except OSError:
            break
        if not data:
            break
        for frame in decoder.feed(data):
            answered += frame.opcode != Opcode.HELLO
            refused += bool(frame.flags & FLAG_ERROR)
    return refused
