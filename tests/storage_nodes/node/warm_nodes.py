"""Nodes that begin as copies of one process that has imported what a node needs.

An interpreter takes half a second of a core to import the storage plane, and the tests of this folder start hundreds of
nodes. `python -m tests.storage_nodes.node.warm_nodes` imports once, then forks a node for each request: the same
`main()` in a process of its own, which is killed, paused and stopped like any other. `random` and `ssl` draw new
entropy in each copy by themselves; all copies share the seed of string hashes, and the environment that the C library
read at its start. How `python -m storage_nodes` starts is tested where a whole installation runs, and by the nodes with
other bounds (`node_programs.py`).
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from benchmarks.storage_cluster import NodeProcess, StorageCluster
from deploy import allocator

REQUEST_BYTES_MAX = 1024 * 1024
ANSWER_BYTES_MAX = 64


class Incubator:
    """The process that nodes are copies of. It ends with its owner, whose end of the socket is then closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **allocator.ENVIRONMENT},
            )

    def start(self, environment: Mapping[str, str], log: IO[bytes]) -> int:
        """The number of a new process, whose output goes to `log`."""
        return self._ask({"environment": dict(environment)}, [log.fileno()])

    def exit_code(self, pid: int) -> int:
        """Of a process that has ended, once."""
        return self._ask({"ended": pid}, [])

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def _ask(self, request: dict[str, Any], files: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            return int(self._socket.recv(ANSWER_BYTES_MAX))


class WarmNode:
    """What `subprocess.Popen` is for a child: of a process that is a child of the incubator."""

    def __init__(self, incubator: Incubator, pid: int) -> None:
        self.pid = pid
        self._incubator = incubator
        self._exit = os.pidfd_open(pid)
        self._exit_code: int | None = None

    def __del__(self) -> None:
        os.close(self._exit)

    def poll(self) -> int | None:
        if self._exit_code is None and select.select([self._exit], [], [], 0)[0]:
            self._exit_code = self._incubator.exit_code(self.pid)
        return self._exit_code

    def wait(self, timeout: float | None = None) -> int:
        if self._exit_code is None:
            select.select([self._exit], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"node {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._exit, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class WarmCluster(StorageCluster):
    """Its nodes are copies, unless a test has given them a program of their own."""

    def __init__(self, nodes: int, incubator: Incubator) -> None:
        super().__init__(nodes)
        self._incubator = incubator
        self._usual_command = self.command

    def launch(self, environment: Mapping[str, str], log: IO[bytes]) -> NodeProcess:
        if self.command != self._usual_command:
            return super().launch(environment, log)
        return WarmNode(self._incubator, self._incubator.start(environment, log))


# --- the process itself ---------------------------------------------------------------------------------------


def incubate(requests: socket.socket) -> None:
    import storage_nodes.__main__  # noqa: F401 - what every copy finds imported

    gc.collect()
    gc.freeze()  # the collector of a copy would write to all these pages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal goes to all; the owner says when it is over
    while True:
        received, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 1)
        if not received:
            return
        request = json.loads(received)
        if "ended" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["ended"], 0)[1])
        else:
            (log,) = files
            answer = os.fork()
            if answer == 0:
                requests.close()
                become_node(request["environment"], log)
            os.close(log)
        requests.send(str(answer).encode())


def become_node(environment: Mapping[str, str], log: int) -> NoReturn:
    from storage_nodes.__main__ import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    os.close(log)
    os.environ.clear()
    os.environ.update(environment)
    sys.exit(main())


if __name__ == "__main__":
    incubate(socket.socket(fileno=int(sys.argv[1])))
