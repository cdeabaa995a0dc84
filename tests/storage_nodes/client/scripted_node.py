"""A node that answers as its script says, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from storage_nodes.client import StorageClient
from storage_nodes.model import NodeAddress
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.frames import FLAG_ANSWER, FLAG_ERROR, Frame, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import Cancel, Empty, ErrorReply, Hello, Opcode, SendReply, encode_message


class ScriptedNode:
    """Greets, keeps every frame, answers as its script says (None = never)."""

    def __init__(self, node_id: int, script: Callable[[Frame], bytes | StorageError | None]) -> None:
        self.node_id = node_id
        self.script = script
        self.frames: list[Frame] = []
        # Of a node that is there, however long its answers take.
        self.answers_pings = True
        self.pings = 0
        self.connections = 0
        self.server: asyncio.Server | None = None

    async def start(self) -> NodeAddress:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return NodeAddress(self.node_id, "127.0.0.1", self.server.sockets[0].getsockname()[1], "z")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        decoder = FrameDecoder()
        while data := await reader.read(65_536):
            for frame in decoder.feed(data):
                if frame.opcode == Opcode.HELLO:
                    payload = encode_message(Hello("c", "node", self.node_id))
                    writer.write(encode_frame(Opcode.HELLO, FLAG_ANSWER, frame.correlation_id, payload))
                    continue
                if frame.opcode == Opcode.PING:
                    self.pings += 1
                    if self.answers_pings:
                        writer.write(encode_frame(Opcode.PING, FLAG_ANSWER, 0, encode_message(Empty())))
                    continue
                self.frames.append(frame)
                answer = self.script(frame)
                if isinstance(answer, StorageError):
                    payload = encode_message(ErrorReply(answer.code, answer.message, answer.leader))
                    flags = FLAG_ANSWER | FLAG_ERROR
                    writer.write(encode_frame(frame.opcode, flags, frame.correlation_id, payload))
                elif answer is not None:
                    answered = frame.correlation_id
                    if frame.opcode == Opcode.CANCEL:  # too late: what it would cancel is answered
                        answered = msgspec.msgpack.decode(frame.payload, type=Cancel).correlation_id
                    writer.write(encode_frame(frame.opcode, FLAG_ANSWER, answered, answer))
        writer.close()


def accept(frame: Frame) -> bytes:
    return encode_message(SendReply(100, 5))


def run(
    scripts: list[Callable[[Frame], bytes | StorageError | None]],
    scenario: Callable[[StorageClient, list[ScriptedNode]], Awaitable[None]],
    cluster_id: str = "c",
) -> None:
    async def main() -> None:
        nodes = [ScriptedNode(index, script) for index, script in enumerate(scripts, start=1)]
        client = StorageClient(cluster_id, [await node.start() for node in nodes], timeout_s=2.0)
        await client.start()
        try:
            await scenario(client, nodes)
        finally:
            await client.close()
            for node in nodes:
                assert node.server is not None
                node.server.close()

    asyncio.run(asyncio.wait_for(main(), 20))
