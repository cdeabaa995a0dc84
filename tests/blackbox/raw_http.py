"""HTTP/1.1 by hand: one attempt a call, nothing repeated in secret, and every byte sent and read when we say so."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any, NamedTuple

LOST = 0  # stands for a status: the connection ended, or could not be made


class Answer(NamedTuple):
    """`status` is LOST where there was no whole answer; `began_s` and `ended_s` are monotonic."""

    status: int
    headers: dict[str, str]
    body: bytes
    began_s: float
    ended_s: float
    note: str = ""

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class Endpoint:
    """One front end and one caller. A connection is used for one call after the other; those in use at a time are as
    many as there are calls."""

    def __init__(self, port: int, token: str, host: str = "127.0.0.1", source: str = "") -> None:
        """`source`: the address that it calls from, where that matters."""
        self.port = port
        self.host = host
        self.token = token
        self._source = (source, 0) if source else None
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def head(self, method: str, path: str, length: int) -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1", f"host: {self.host}:{self.port}", f"authorization: Bearer {self.token}",
            "content-type: application/json", f"content-length: {length}", "", "",
        ]  # fmt: skip
        return "\r\n".join(lines).encode()

    async def post(self, path: str, content: object, timeout_s: float = 60.0) -> Answer:
        return await self.call("POST", path, json.dumps(content).encode(), timeout_s)

    async def call(self, method: str, path: str, body: bytes = b"", timeout_s: float = 60.0) -> Answer:
        return await self.exchange(self.head(method, path, len(body)) + body, timeout_s)

    async def exchange(self, request: bytes, timeout_s: float = 60.0, has_no_body: bool = False) -> Answer:
        """The bytes of one request, as they are; `has_no_body`: its answer, whatever its headers say (HEAD)."""
        began_s = time.monotonic()
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await self._connected()
                writer.write(request)
                status, headers, content = await read_answer(reader, has_no_body)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            if writer is not None:
                writer.close()
            return Answer(LOST, {}, b"", began_s, time.monotonic(), repr(error))
        except asyncio.CancelledError:
            if writer is not None:
                writer.close()
            raise
        if headers.get("connection", "").lower() == "close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        return Answer(status, headers, content, began_s, time.monotonic())

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self.host, self.port, limit=4 * 1024 * 1024, local_addr=self._source)

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        self._idle.clear()


async def read_answer(reader: asyncio.StreamReader, has_no_body: bool = False) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (names in lower case), body. Raises EOFError or ValueError where it is none."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(lines[0].split(" ")[1])
    headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines[1:] if line)}
    if has_no_body or status in (204, 304):
        return status, headers, b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return status, headers, await _read_chunks(reader)
    return status, headers, await reader.readexactly(int(headers.get("content-length", "0")))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(parts)
