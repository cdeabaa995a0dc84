"""Three bare storage nodes as processes, without the other planes: for benchmarks and node tests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol

from deploy import allocator, certificates
from deploy.installation import inner_mode
from deploy.ports import choose_port
from storage_nodes.client import StorageClient
from storage_nodes.model import NodeAddress, format_node_list
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import PartitionInfo
from storage_nodes.trust.credentials import (
    FILE_SETTINGS,
    MODE_SETTING,
    CredentialFiles,
    Credentials,
    InnerTlsMode,
)
from storage_nodes.trust.names import InnerName, InnerRole

READY_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0


class NodeProcess(Protocol):
    """What is asked of a child, as `subprocess.Popen` answers it."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


class StorageCluster:
    """`start`, `kill`, `stop` real node processes on loopback; data in `directory` (a temporary one by default)."""

    def __init__(self, nodes: int = 3, directory: str | None = None, mode: InnerTlsMode | None = None) -> None:
        """`mode` of connections: as PENSTOCK_INNER_TLS says where nothing is given."""
        self._own_directory: tempfile.TemporaryDirectory[str] | None = None
        if not directory:
            self._own_directory = tempfile.TemporaryDirectory(prefix="penstock-bench-")
            directory = self._own_directory.name
        self.directory = Path(directory)
        self.cluster_id = "bench"
        ports = _free_ports(nodes)
        self.addresses = [
            NodeAddress(index + 1, "127.0.0.1", port, f"zone-{index + 1}") for index, port in enumerate(ports)
        ]
        self.processes: dict[int, NodeProcess] = {}
        # What starts a node, and settings beside the usual ones: tests give some nodes others.
        self.command = [sys.executable, "-m", "storage_nodes"]
        self.settings: dict[str, str] = {}
        self._mode = inner_mode(os.environ) if mode is None else mode
        self._credentials: Credentials | None = None
        # Ports of the metrics of nodes, where a benchmark asks for them.
        self.metrics_ports: dict[int, int] = {}

    def serve_metrics(self) -> None:
        """Before they start: nodes serve metrics."""
        self.metrics_ports = dict(enumerate(_free_ports(len(self.addresses)), 1))

    def add(self) -> int:
        """Start one node more, that joins the cluster; its id."""
        node_id = len(self.addresses) + 1
        self.addresses.append(NodeAddress(node_id, "127.0.0.1", _free_ports(1)[0], f"zone-{node_id}"))
        self.start(node_id, join=True)
        return node_id

    def start(self, node_id: int, join: bool = False) -> None:
        """Start one node; its output goes to a file beside its data."""
        address = self.addresses[node_id - 1]
        environment = dict(
            os.environ,
            PENSTOCK_CLUSTER_ID=self.cluster_id,
            PENSTOCK_NODE_ID=str(node_id),
            PENSTOCK_NODE_DIR=str(self.directory / f"node-{node_id}"),
            PENSTOCK_NODE_LISTEN=f"{address.host}:{address.port}",
            PENSTOCK_STORAGE_NODES=format_node_list(self.addresses),
            PENSTOCK_NODE_JOIN=str(int(join)),
            **allocator.ENVIRONMENT,
        )
        environment.update(self.certificate_settings(InnerRole.NODE, str(node_id)) | self.settings)
        environment.pop("PENSTOCK_METRICS_LISTEN", None)
        if node_id in self.metrics_ports:
            environment["PENSTOCK_METRICS_LISTEN"] = f"127.0.0.1:{self.metrics_ports[node_id]}"
        with open(self.directory / f"node-{node_id}.log", "ab") as log:
            self.processes[node_id] = self.launch(environment, log)

    def certificate_settings(self, role: InnerRole, number: str) -> dict[str, str]:
        """Of a process that is to be this one."""
        if self._mode is InnerTlsMode.OFF:
            return {MODE_SETTING: self._mode}
        files = self._files(role, number)
        return {MODE_SETTING: self._mode, **dict(zip(FILE_SETTINGS, files, strict=True))}

    @property
    def credentials(self) -> Credentials | None:
        """Of clients."""
        if self._mode is not InnerTlsMode.OFF and self._credentials is None:
            self._credentials = Credentials(self.cluster_id, self._files(InnerRole.OPERATOR, "bench"), self._mode)
        return self._credentials

    def _files(self, role: InnerRole, number: str) -> CredentialFiles:
        name = InnerName(self.cluster_id, role, number)
        certificates.settle(self.directory / "authority", self.directory / "certificates", [name])
        return certificates.files_of(self.directory / "certificates", name)

    def launch(self, environment: Mapping[str, str], log: IO[bytes]) -> NodeProcess:
        return subprocess.Popen(self.command, env=environment, stdout=log, stderr=log)

    def start_all(self) -> None:
        for address in self.addresses:
            self.start(address.node_id)

    def kill(self, node_id: int) -> None:
        """SIGKILL one node."""
        process = self.processes.pop(node_id)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """SIGTERM all nodes, wait, remove the temporary directory."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def remove(self) -> None:
        if self._own_directory is not None:
            self._own_directory.cleanup()

    def log_of(self, node_id: int) -> str:
        return (self.directory / f"node-{node_id}.log").read_text(errors="replace")

    async def client(self) -> StorageClient:
        client = StorageClient(self.cluster_id, self.addresses, "bench", credentials=self.credentials)
        await client.start()
        return client

    async def create_partition(self, client: StorageClient, kind: int, tag: str) -> int:
        """Create a partition and wait until it answers, however long the cluster still needs to come up."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                info = await client.create_partition(kind, tag)
                break
            except StorageError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)
        if kind == 1:
            await client.stats(info.partition)
        return info.partition


async def described(client: StorageClient, partition: int) -> PartitionInfo:
    """The partition, once the node that is asked knows it and its leader. A node that has just started, or was not
    among those that acknowledged the partition's creation, hears of it a little later."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        for row in (await client.describe([partition])).partitions:
            if row.leader:
                return row
        if time.monotonic() > deadline:
            raise TimeoutError(f"no node named a leader of partition {partition} in {READY_TIMEOUT_S:.0f} s")
        await asyncio.sleep(0.02)


async def leader_of(client: StorageClient, partition: int) -> int:
    """The node that leads the partition, as soon as one is named."""
    return (await described(client, partition)).leader


def _free_ports(count: int) -> list[int]:
    """Not among those that the system gives to connections: one of them could be taken before the node listens."""
    taken: set[int] = set()
    for _ in range(count):
        taken.add(choose_port(taken))
    return sorted(taken)
