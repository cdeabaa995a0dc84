"""Clusters under test: real node processes on plain directories, in network namespaces, or on disk images of their own.

What a level needs of the machine is asked first (`missing`); where it is missing the level is not run, which is never
the same as passed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.storage_cluster import STOP_TIMEOUT_S, StorageCluster
from deploy import allocator
from storage_nodes.log.node_log import NodeLog, PartitionLog
from storage_nodes.log.record_batch import iterate_bodies, read_header, records_to_fold
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.model import NodeAddress, format_node_list
from storage_nodes.protocol.records import decode_body
from storage_nodes.trust.credentials import InnerTlsMode
from storage_nodes.trust.names import InnerRole
from tests.blackbox.faults.disks import DiskImage
from tests.blackbox.faults.network import Network
from tests.blackbox.history import Value
from tests.blackbox.payload import value_of

NODES_USUAL = 3
COPY_READ_BYTES = 1024 * 1024
NODE_PORT = 7101


class NodeCluster(StorageCluster):
    """Nodes, three where nobody says otherwise; knows which run, which stand still, and how the others ended."""

    def __init__(self, nodes: int = NODES_USUAL) -> None:
        super().__init__(nodes, tempfile.mkdtemp(prefix="penstock-blackbox-"), InnerTlsMode.OFF)
        self.node_ids = tuple(address.node_id for address in self.addresses)
        self.cluster_id = "blackbox"
        self.paused: set[int] = set()
        self.exits: list[tuple[int, int]] = []  # (node, exit code) of nodes that ended by themselves

    def command_prefix(self, node_id: int) -> list[str]:
        return []

    def start(self, node_id: int) -> None:
        address = self.addresses[node_id - 1]
        environment = dict(
            os.environ,
            PENSTOCK_CLUSTER_ID=self.cluster_id,
            PENSTOCK_NODE_ID=str(node_id),
            PENSTOCK_NODE_DIR=str(self.node_directory(node_id)),
            PENSTOCK_NODE_LISTEN=f"{address.host}:{address.port}",
            PENSTOCK_STORAGE_NODES=format_node_list(self.addresses),
            **allocator.ENVIRONMENT,
        )
        environment.update(self.certificate_settings(InnerRole.NODE, str(node_id)) | self.settings)
        environment.pop("PENSTOCK_METRICS_LISTEN", None)
        command = [*self.command_prefix(node_id), sys.executable, "-m", "storage_nodes"]
        with open(self.directory / f"node-{node_id}.log", "ab") as log:
            self.processes[node_id] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def node_directory(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}"

    def reap(self) -> None:
        """Take note of nodes that ended by themselves."""
        for node_id, process in list(self.processes.items()):
            code = process.poll()
            if code is not None:
                self.exits.append((node_id, code))
                del self.processes[node_id]

    def running(self) -> list[int]:
        self.reap()
        return [node_id for node_id in self.processes if node_id not in self.paused]

    def kill(self, node_id: int) -> None:
        """SIGKILL; nothing where it does not run."""
        self.reap()
        self.paused.discard(node_id)
        if node_id in self.processes:
            super().kill(node_id)

    def kill_all(self) -> None:
        """SIGKILL to all before waiting for any."""
        self.reap()
        for process in self.processes.values():
            process.kill()
        for node_id in list(self.processes):
            super().kill(node_id)
        self.paused.clear()

    def terminate(self, node_id: int) -> int:
        """SIGTERM one node; its exit code."""
        process = self.processes.pop(node_id)
        process.terminate()
        return process.wait(STOP_TIMEOUT_S)

    def wait_exit(self, node_id: int, timeout_s: float) -> int | None:
        """The exit code of a node that ends by itself in time."""
        try:
            code = self.processes[node_id].wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        del self.processes[node_id]
        return code

    def pause(self, node_id: int) -> None:
        self.processes[node_id].send_signal(signal.SIGSTOP)
        self.paused.add(node_id)

    def resume(self, node_id: int) -> None:
        self.paused.discard(node_id)
        self.processes[node_id].send_signal(signal.SIGCONT)

    def heal(self) -> None:
        """Everything runs and nothing stands still."""
        for node_id in list(self.paused):
            self.resume(node_id)
        self.reap()
        for node_id in self.node_ids:
            if node_id not in self.processes:
                self.start(node_id)

    def stop(self) -> None:
        for node_id in list(self.paused):
            self.resume(node_id)
        self.reap()
        super().stop()

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def copies(self, partition: int, holders: Sequence[int]) -> dict[int, dict[int, Value]]:
        """What the own logs of these stopped nodes hold of a partition, read from a copy of their files."""
        return {node_id: read_copy(self.node_directory(node_id), partition) for node_id in holders}

    def queue_states(self, partition: int, holders: Sequence[int]) -> dict[int, bytes]:
        """What the own logs of these stopped nodes, of a queue, fold to, up to where all of them go."""
        end = min(log_end_of(self.node_directory(node_id), partition) for node_id in holders)
        return {node_id: fold_copy(self.node_directory(node_id), partition, end) for node_id in holders}


class NetworkCluster(NodeCluster):
    """Every node in a network namespace of its own, joined by a bridge; the clients are on the bridge."""

    def __init__(self, nodes: int = NODES_USUAL) -> None:
        super().__init__(nodes)
        self.network = Network(self.node_ids)
        self.addresses = [
            NodeAddress(node, self.network.address(node), NODE_PORT, f"zone-{node}") for node in self.node_ids
        ]

    def command_prefix(self, node_id: int) -> list[str]:
        # `ip netns exec` would also give the node mounts of its own, which keep a disk image busy.
        return ["nsenter", f"--net=/run/netns/{self.network.namespace(node_id)}"]

    def heal(self) -> None:
        self.network.heal()
        super().heal()

    def remove(self) -> None:
        self.network.remove()
        super().remove()


class ImageCluster(NodeCluster):
    """Every node's directory is an ext4 image of its own on a loop device."""

    image_mib = 768
    reserve_mib = 64

    def __init__(self, nodes: int = NODES_USUAL) -> None:
        super().__init__(nodes)
        self.settings = {"PENSTOCK_NODE_DISK_RESERVE_BYTES": str(self.reserve_mib * 1024 * 1024)}
        self.images: dict[int, DiskImage] = {}
        try:
            for node_id in self.node_ids:
                image_path = self.directory / f"node-{node_id}.img"
                self.images[node_id] = DiskImage(image_path, self.node_directory(node_id), self.image_mib)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        for image in self.images.values():
            image.unmount()
        super().remove()


class LargeImageCluster(ImageCluster):
    """Room for large messages (the images are sparse); what makes the disk full is a ballast file."""

    image_mib = 4_000


class EverythingCluster(ImageCluster, NetworkCluster):
    """Every node in a namespace of its own, on a disk image of its own: for mixes of all faults."""

    image_mib = 4_000


@contextlib.contextmanager
def copied_log(directory: Path, partition: int) -> Iterator[PartitionLog]:
    """One partition of a stopped node, opened on a copy of its files. Raises CorruptionError as the node would."""
    with tempfile.TemporaryDirectory(prefix="penstock-copy-") as place:
        copy = Path(place) / "node"
        shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("lost+found", "ballast"))
        node_log = NodeLog.open(str(copy))
        try:
            yield node_log.partitions[partition]
        finally:
            with contextlib.suppress(OSError):
                node_log.close()


def entries(log: PartitionLog, offset: int, end_offset: int) -> Iterator[bytes]:
    """The batches that end at or below end_offset, from the first one at or after `offset`."""
    while offset < end_offset:
        batches = log.read_cold(offset, COPY_READ_BYTES)
        if not batches:
            return
        for batch in batches:
            offset = read_header(batch).end_offset
            if offset > end_offset:
                return
            yield batch


def read_copy(directory: Path, partition: int) -> dict[int, Value]:
    """Offset to value of every message in one node's log."""
    found: dict[int, Value] = {}
    with copied_log(directory, partition) as log:
        for batch in entries(log, log.log_start, log.log_end):
            if not read_header(batch).is_control:
                found |= {at: value_of(decode_body(body).value) for at, body in iterate_bodies(batch)}
    return found


def log_end_of(directory: Path, partition: int) -> int:
    with copied_log(directory, partition) as log:
        return log.log_end


def fold_copy(directory: Path, partition: int, end_offset: int) -> bytes:
    """What a queue partition's log comes to, up to end_offset, as a checkpoint: equal states give equal bytes."""
    with copied_log(directory, partition) as log:
        machine = QueueMachine()
        if log.checkpoint is not None:
            machine.restore(log.checkpoint)
        for batch in entries(log, log.checkpoint_offset, end_offset):
            header = read_header(batch)
            if header.base_offset >= log.checkpoint_offset:
                machine.apply(header, functools.partial(records_to_fold, batch), 0)
        return machine.checkpoint()
