"""What a scrape of a real node shows of its event loop, and of replicas that have stopped."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.node_programs import POISON, poisoned_node
from tests.storage_nodes.node.test_cluster_of_nodes import run

STALLS, STOPPED = "penstock_node_loop_stall_seconds", "penstock_node_replicas_stopped"
# A stop of the process, and the bound of the histogram below it.
STALL_S, BELOW_S = 0.4, "0.2"
WAIT_S_MAX = 20.0
# A sample by its name and the bound of its bucket ("" = it is none).
Scrape = dict[tuple[str, str], float]


@pytest.fixture
def node() -> Iterator[StorageCluster]:
    cluster = StorageCluster(1)
    cluster.command = [sys.executable, "-c", poisoned_node(retry_ms=500)]
    cluster.serve_metrics()
    cluster.start_all()
    yield cluster
    cluster.stop()
    cluster.remove()


def scraped(node: StorageCluster) -> tuple[dict[str, str], Scrape]:
    """Kinds by name, and values. BLOCKING."""
    with urllib.request.urlopen(f"http://127.0.0.1:{node.metrics_ports[1]}/metrics", timeout=5) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    values = {(sample.name, sample.labels.get("le", "")): sample.value for sample in samples}
    return {family.name: family.type for family in families}, values


async def values(node: StorageCluster) -> Scrape:
    return (await asyncio.to_thread(scraped, node))[1]


async def until(node: StorageCluster, is_so: Callable[[Scrape], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S_MAX
    while not is_so(await values(node)):
        assert time.monotonic() < ends_s
        await asyncio.sleep(0.05)


def longer(scrape: Scrape) -> float:
    """How many stalls were longer than BELOW_S."""
    return scrape[f"{STALLS}_count", ""] - scrape[f"{STALLS}_bucket", BELOW_S]


def test_scrape_counts_a_stall_of_the_loop_with_its_length(node: StorageCluster) -> None:
    async def scenario() -> None:
        client = await node.client()
        await node.create_partition(client, PartitionKind.QUEUE, "queue:1:0")
        kinds, before = await asyncio.to_thread(scraped, node)
        assert kinds[STALLS] == "histogram"
        assert before[f"{STALLS}_bucket", "+Inf"] == before[f"{STALLS}_count", ""]
        node.processes[1].send_signal(signal.SIGSTOP)
        await asyncio.sleep(STALL_S)
        node.processes[1].send_signal(signal.SIGCONT)
        await until(node, lambda now: longer(now) > longer(before))
        after = await values(node)
        assert after[f"{STALLS}_count", ""] > before[f"{STALLS}_count", ""]
        assert after[f"{STALLS}_sum", ""] >= before[f"{STALLS}_sum", ""] + float(BELOW_S)
        await client.close()

    run(scenario())


def test_scrape_counts_a_replica_as_long_as_it_has_stopped(node: StorageCluster) -> None:
    async def scenario() -> None:
        client = await node.client()
        good = await node.create_partition(client, PartitionKind.QUEUE, "queue:good:0")
        bad = await node.create_partition(client, PartitionKind.QUEUE, "queue:bad:0")
        kinds, before = await asyncio.to_thread(scraped, node)
        assert kinds[STOPPED] == "gauge" and before[STOPPED, ""] == 0
        sending = asyncio.create_task(client.send(bad, [encode_body(POISON)]))
        await until(node, lambda now: now[STOPPED, ""] == 1)
        assert await client.send(good, [encode_body(b"others go on")])
        assert (await values(node))[STOPPED, ""] == 1
        (node.directory / "healed").touch()
        await until(node, lambda now: now[STOPPED, ""] == 0)
        assert await client.send(bad, [encode_body(b"and it, too")])
        await asyncio.gather(sending, return_exceptions=True)
        await client.close()

    run(scenario())
