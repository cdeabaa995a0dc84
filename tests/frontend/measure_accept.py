"""How fairly two processes share the connections of one port: a socket each (SO_REUSEPORT), or one that both inherited.

    python -m tests.frontend.measure_accept

Prints, for several numbers of connections, opened at once and one after the other, what part of them the busier process
got: the median of the rounds, and the worst. What is perfectly fair is 50 %.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import statistics
from collections import Counter

import uvloop

from frontend.listening import shared_sockets

ROUNDS = 60
PAUSE_S = 0.002
PROCESSES = 2


def serve(listening: socket.socket, sockets: list[socket.socket]) -> None:
    for other in sockets:
        if other is not listening:  # a process that was just started has none of them either
            other.close()

    class SaysWho(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, uvloop.loop.TCPTransport)
            transport.write(b"%d\n" % os.getpid())

    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(SaysWho, sock=listening, backlog=2048)
        await server.serve_forever()

    uvloop.run(forever())


def start(is_shared: bool) -> tuple[int, list[multiprocessing.Process]]:
    first = shared_sockets("127.0.0.1", 0)[0]
    port = first.getsockname()[1]
    sockets = [first, *(shared_sockets("127.0.0.1", port)[0] if is_shared else first for _ in range(PROCESSES - 1))]
    processes = [multiprocessing.Process(target=serve, args=(one, sockets), daemon=True) for one in sockets]
    for process in processes:
        process.start()
    for one in set(sockets):
        one.close()
    return port, processes


async def who(port: int) -> tuple[str, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    return (await asyncio.wait_for(reader.readline(), 1)).decode().strip(), writer


async def busier_share(port: int, connections: int, at_once: bool) -> float:
    opened = []
    if at_once:
        opened = list(await asyncio.gather(*(who(port) for _ in range(connections))))
    else:
        for _ in range(connections):
            opened.append(await who(port))
            await asyncio.sleep(PAUSE_S)
    for _, writer in opened:
        writer.close()
    return max(Counter(name for name, _ in opened).values()) / connections


async def measure(port: int, title: str) -> None:
    for connections in (4, 32, 256):
        for at_once in (True, False):
            rounds = ROUNDS if connections < 256 else 10
            shares = [await busier_share(port, connections, at_once) for _ in range(rounds)]
            how = "at once" if at_once else "one after the other"
            median, worst = statistics.median(shares), max(shares)
            print(f"{title:<10} {connections:>4} {how:<20} median {median:5.0%}  worst {worst:5.0%}")


async def unanswered(port: int, tries: int = 40) -> int:
    answers = await asyncio.gather(*(who(port) for _ in range(tries)), return_exceptions=True)
    return sum(isinstance(answer, BaseException) for answer in answers)


def main() -> None:
    for title, is_shared in (("reuseport", True), ("inherited", False)):
        port, processes = start(is_shared)
        asyncio.run(asyncio.sleep(0.5))
        asyncio.run(measure(port, title))
        victim = processes[0].pid
        assert victim is not None
        os.kill(victim, signal.SIGSTOP)
        print(f"{title:<10} one process stands still: {asyncio.run(unanswered(port))} of 40 wait for it")
        os.kill(victim, signal.SIGKILL)
        processes[0].join()
        print(f"{title:<10} it was killed: {asyncio.run(unanswered(port))} of 40 fail")
        for process in processes[1:]:
            process.terminate()
            process.join()


if __name__ == "__main__":
    main()
