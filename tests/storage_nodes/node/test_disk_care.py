"""A node's care for its disk: room, speed, trash; the decisions by themselves, then on real nodes (F12, F18)."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.config import ConfigError, NodeConfig
from storage_nodes.limits import (
    BODY_CACHE_IDLE_MS,
    DISK_RESERVE_BYTES_MIN,
    SLOW_LOOKS_MIN,
    SLOW_RECOVERY_LOOKS_MIN,
    SLOW_SYNC_US_MAX,
    SLOW_SYNC_US_MIN,
)
from storage_nodes.log.record_batch import build_batch
from storage_nodes.model import PartitionKind
from storage_nodes.node.disk.disk_space import SpaceLevel, SpaceWatch
from storage_nodes.node.disk.slow_disk import SlowDisk, SyncTimes
from storage_nodes.node.disk_care.maintenance import DiskMaintenance
from storage_nodes.node.node import StorageNode
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.peer_messages import AppendEntries, RaftFrame, RaftMessage
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.node_programs import HOMING_MS
from tests.storage_nodes.node.test_cluster_of_nodes import run

# Free space is below the reserve, and above a quarter of it; below a quarter.
FULL = {"PENSTOCK_NODE_DISK_RESERVE_BYTES": str(2 * shutil.disk_usage(tempfile.gettempdir()).free)}
CLOSED = {"PENSTOCK_NODE_DISK_RESERVE_BYTES": str(1 << 60)}
SLOW_FSYNC_S = 0.3
# A client asks again for so long before it tells of the refusal.
REFUSED_WITHIN_S = 2.0
REFUSALS_TRIED = 5
# A node whose syncs are slow while a file is there. It looks at them often.
SLOW_NODE = """
import os, runpy, time
from storage_nodes import limits
limits.CARE_INTERVAL_MS = 500
real = os.fdatasync
def slow(fd):
    if os.path.exists({flag!r}):
        time.sleep({seconds})
    real(fd)
os.fdatasync = slow
runpy.run_module("storage_nodes", run_name="__main__")
"""


# --- decisions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "levels"),
    [
        ([1000, 999, 1249, 1250], [0, 1, 1, 0]),
        ([1000, 250, 249, 499, 500, 1249, 1250], [0, 1, 2, 2, 1, 1, 0]),
        ([10, 5000], [2, 0]),
    ],
)
def test_space_level_follows_the_free_bytes_with_room_between_coming_and_going(
    free: list[int], levels: list[int]
) -> None:
    watch = SpaceWatch(1000)
    assert [watch.look(each) for each in free] == [SpaceLevel(level) for level in levels]


def looks(disk: SlowDisk, own_us: int, count: int, peers_us: list[int], better: int = 2) -> list[bool]:
    return [disk.look(own_us, peers_us, better) for _ in range(count)]


def test_disk_far_slower_than_its_peers_is_slow_after_some_looks_in_a_row() -> None:
    disk = SlowDisk()
    own_us = SLOW_SYNC_US_MIN + 1
    assert looks(disk, own_us, SLOW_LOOKS_MIN, [1_000, 1_200]) == [False] * (SLOW_LOOKS_MIN - 1) + [True]


def test_one_hiccup_is_no_slow_disk() -> None:
    disk = SlowDisk()
    for _ in range(20):
        assert looks(disk, 10**6, SLOW_LOOKS_MIN - 1, [1_000]) == [False] * (SLOW_LOOKS_MIN - 1)
        assert not disk.look(1_000, [1_000], 2)


def test_disk_as_slow_as_its_peers_is_not_slow_below_the_absolute_limit() -> None:
    disk = SlowDisk()
    assert not any(looks(disk, SLOW_SYNC_US_MAX, 50, [SLOW_SYNC_US_MAX // 5] * 2))
    assert not any(looks(disk, SLOW_SYNC_US_MIN, 50, [10, 10]))


def test_disk_above_the_absolute_limit_is_slow_whatever_the_peers_say() -> None:
    disk = SlowDisk()
    assert looks(disk, SLOW_SYNC_US_MAX + 1, SLOW_LOOKS_MIN, [SLOW_SYNC_US_MAX] * 2)[-1]


def test_no_disk_is_slow_where_nobody_could_lead_instead() -> None:
    disk = SlowDisk()
    assert not any(looks(disk, 10**7, 50, [10, 10], better=0))
    looks(disk, 10**7, SLOW_LOOKS_MIN, [10, 10])
    assert disk.slow and not disk.look(10**7, [10**7], 0)


def test_slow_disk_counts_as_slow_until_it_was_clearly_faster_for_a_while() -> None:
    disk = SlowDisk()
    looks(disk, 10**6 * 2, SLOW_LOOKS_MIN, [1_000])
    assert all(looks(disk, SLOW_SYNC_US_MIN - 1, 50, [1_000])), "not yet half"
    assert looks(disk, 1_000, SLOW_RECOVERY_LOOKS_MIN, [1_000]) == [True] * (SLOW_RECOVERY_LOOKS_MIN - 1) + [False]


def test_sync_times_are_of_this_look_and_of_the_last_ones_and_count_one_that_hangs() -> None:
    times = SyncTimes()
    assert times.look([], 0.0) == (0, 0)
    assert times.look([0.001] * 200 + [0.5], 0.0) == (1_000, 1_000)
    assert times.look([0.002], 0.0) == (2_000, 1_000)
    assert times.look([], 7.0)[0] == 7_000_000


def test_reserve_below_what_a_flush_needs_is_refused() -> None:
    settings = {
        "PENSTOCK_CLUSTER_ID": "c", "PENSTOCK_NODE_ID": "1", "PENSTOCK_NODE_DIR": "/d",
        "PENSTOCK_NODE_LISTEN": "h:1", "PENSTOCK_STORAGE_NODES": "1=h:1@z",
    }  # fmt: skip
    least = {"PENSTOCK_NODE_DISK_RESERVE_BYTES": str(DISK_RESERVE_BYTES_MIN)}
    assert NodeConfig.from_environment(settings | least).node_disk_reserve_bytes == DISK_RESERVE_BYTES_MIN
    with pytest.raises(ConfigError, match=r"PENSTOCK_NODE_DISK_RESERVE_BYTES is .*: Expected"):
        NodeConfig.from_environment(settings | {"PENSTOCK_NODE_DISK_RESERVE_BYTES": str(DISK_RESERVE_BYTES_MIN - 1)})
    with pytest.raises(ConfigError, match=r"PENSTOCK_NODE_DISK_RESERVE_BYTES is '1G': Expected `int`"):
        NodeConfig.from_environment(settings | {"PENSTOCK_NODE_DISK_RESERVE_BYTES": "1G"})


# --- nodes ------------------------------------------------------------------------------------------------------


async def until(question: Callable[[], Awaitable[bool]], seconds: float) -> float:
    started = time.monotonic()
    while not await question():
        assert time.monotonic() < started + seconds, "it did not come to pass"
        await asyncio.sleep(0.1)
    return time.monotonic() - started


def test_node_whose_disk_is_nearly_full_leads_nothing_and_the_others_go_on(homing_cluster: StorageCluster) -> None:
    cluster = homing_cluster

    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        full = await leader_of(client, partition)
        cluster.kill(full)
        cluster.settings = FULL
        cluster.start(full)

        async def is_noted() -> bool:
            return "disk space changed" in cluster.log_of(full)

        await until(is_noted, 15)
        for number in range(50):
            await client.send(partition, [encode_body(b"%d" % number)])
        # It is the preferred leader, and still gets no leadership (it had long got it, were its disk not full).
        ends_s = time.monotonic() + 3 * HOMING_MS / 1_000
        while time.monotonic() < ends_s:
            assert await leader_of(client, partition) != full
            await client.send(partition, [encode_body(b"more")])
            await asyncio.sleep(0.25)
        await client.close()

    run(scenario())


async def refusal_of(call: Callable[[], Awaitable[object]]) -> StorageError:
    """How a call is refused. A machine that is busy may leave a single one without an answer in time."""
    for _ in range(REFUSALS_TRIED):
        with pytest.raises(StorageError) as refused:
            await call()
        if refused.value.code is not ErrorCode.OUTCOME_UNKNOWN:
            break
    return refused.value


@pytest.mark.parametrize("settings", [FULL, CLOSED], ids=["full", "closed"])
def test_all_disks_nearly_full_sends_are_refused_and_deletes_go_on(
    cluster: StorageCluster, settings: dict[str, str]
) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        stream = await cluster.create_partition(client, PartitionKind.STREAM, "s")
        for number in range(20):
            await client.send(partition, [encode_body(b"%d" % number)])
        for node in (1, 2, 3):
            cluster.kill(node)
        cluster.settings = settings
        cluster.start_all()

        async def all_noted() -> bool:
            return all("disk space changed" in cluster.log_of(node) for node in (1, 2, 3))

        await until(all_noted, 15)
        # Both have leaders again, and the refusal comes from them.
        await client.stats(partition)
        await client.stream_read(stream, 0, 1, 0)
        impatient = StorageClient(cluster.cluster_id, cluster.addresses, "impatient", REFUSED_WITHIN_S)
        await impatient.start()
        refused = await refusal_of(lambda: impatient.send(partition, [encode_body(b"one more")]))
        assert refused.code is ErrorCode.READ_ONLY and "nearly full" in refused.message
        refused = await refusal_of(lambda: impatient.stream_append(stream, [encode_body(b"one more")]))
        assert refused.code is ErrorCode.READ_ONLY
        await impatient.close()
        reply = await client.acquire(partition, 100, 30_000, 5_000)
        assert len(reply.messages) == 20
        codes = await client.delete(partition, [(m.offset, m.delivery) for m in reply.messages])
        assert all(code == ErrorCode.OK for code in codes)
        cluster.stop()
        cluster.settings = {}
        cluster.start_all()
        await client.send(partition, [encode_body(b"there is room again")])
        await client.close()

    run(scenario())


def test_leader_whose_disk_becomes_slow_gives_way_and_the_others_lead(
    homing_cluster: StorageCluster, tmp_path: Path
) -> None:
    cluster = homing_cluster

    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        slow = await leader_of(client, partition)
        flag = tmp_path / "slow"
        cluster.kill(slow)
        cluster.command = [sys.executable, "-c", SLOW_NODE.format(flag=str(flag), seconds=SLOW_FSYNC_S)]
        cluster.start(slow)

        async def leads() -> bool:
            await client.send(partition, [encode_body(b"x")])
            return await leader_of(client, partition) == slow

        async def leads_not() -> bool:
            return not await leads()

        await until(leads, 30)  # as the preferred leader
        flag.touch()
        took_s = await until(leads_not, 15)
        assert took_s < 15
        started = time.monotonic()
        while time.monotonic() < started + 3 * HOMING_MS / 1_000:
            assert await leads_not(), "it gets the leadership back only when it has recovered"
        flag.unlink()

        async def has_recovered() -> bool:
            await client.send(partition, [encode_body(b"x")])
            return "disk is slow no longer" in cluster.log_of(slow)

        await until(has_recovered, 60)
        await client.close()

    asyncio.run(asyncio.wait_for(scenario(), 150))


def test_full_node_takes_commands_of_other_leaders_and_leaves_what_is_damaged_to_its_replica() -> None:
    """Nothing is read from an entry before its checksum is: a damaged header would end the connection of the peer."""
    command = build_batch(0, 1, 5, [b"c"], control=True)
    messages = [build_batch(0, 1, 5, [b"m"]), b"short", command[:-1], command]
    taken: list[RaftMessage] = []
    node: Any = StorageNode.__new__(StorageNode)
    node.links = SimpleNamespace(is_newest=lambda _sender, _incarnation: True)
    node.maintenance = SimpleNamespace(closed=True)
    node.room = SimpleNamespace(takes_appends=lambda: True)
    node._inbox = SimpleNamespace(take=lambda _sender, _incarnation, kept: taken.extend(kept))
    frame = RaftFrame(9, [AppendEntries(number, 1, 0, 0, 0, [entry]) for number, entry in enumerate(messages)])
    node.raft_frame(2, frame)
    assert [message.partition for message in taken] == [1, 2, 3]


def test_care_lets_idle_queues_drop_their_bodies_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        pass

    now_ms = 0
    dropped: list[int] = []
    node: Any = SimpleNamespace(
        clock=SimpleNamespace(mono_ms=lambda: now_ms),
        bodies=SimpleNamespace(drop_idle=lambda: dropped.append(now_ms)),
        damage=SimpleNamespace(look=lambda: None, rewrite_manifest=nothing),
        links=SimpleNamespace(read_only=False),
        log=SimpleNamespace(sync_mark=None),
        work=SimpleNamespace(run_blocking=nothing),
    )
    scrub: Any = SimpleNamespace(look=nothing)
    maintenance = DiskMaintenance(node, scrub, 0)
    for rest in ("_look_at_space", "_carry_tails", "_rewrite_some", "_purge_trash"):
        monkeypatch.setattr(maintenance, rest, nothing)
    monkeypatch.setattr(maintenance, "_look_at_syncs", lambda: None)
    monkeypatch.setattr(maintenance, "_hand_over_if_unfit", lambda: None)
    while now_ms <= 2 * BODY_CACHE_IDLE_MS:
        asyncio.run(maintenance._once())
        now_ms += 1_000
    assert dropped == [0, BODY_CACHE_IDLE_MS, 2 * BODY_CACHE_IDLE_MS]


def test_stop_waits_for_a_step_that_keeps_flushes_away_and_for_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled in the middle, its thread went on, nobody heard of its end, and the stop of a node that had a damaged
    log to empty waited for ever (seed 130001160)."""
    monkeypatch.setattr("storage_nodes.node.disk_care.maintenance.CARE_INTERVAL_MS", 1)

    async def scenario() -> None:
        begun, end = asyncio.Event(), asyncio.Event()
        ended = []

        async def rewrite_manifest() -> None:
            begun.set()
            await end.wait()
            ended.append(True)

        async def nothing() -> None:
            pass

        damage = SimpleNamespace(look=lambda: None, rewrite_manifest=rewrite_manifest)
        links = SimpleNamespace(read_only=False)
        work = SimpleNamespace(loop=asyncio.get_running_loop())
        node: Any = SimpleNamespace(work=work, damage=damage, links=links)
        scrub: Any = SimpleNamespace(look=nothing, stop=lambda: None)
        maintenance = DiskMaintenance(node, scrub, 0)
        monkeypatch.setattr(maintenance, "_look_at_space", nothing)
        monkeypatch.setattr(maintenance, "_carry_tails", nothing)
        for rest in ("_look_at_syncs", "_hand_over_if_unfit"):
            monkeypatch.setattr(maintenance, rest, lambda: None)
        monkeypatch.setattr(maintenance, "_is_due", lambda what, interval_ms: False)
        maintenance.start()
        await begun.wait()
        maintenance.stop()
        await asyncio.sleep(0.02)
        assert maintenance.busy and maintenance._task is not None and not maintenance._task.done()
        end.set()
        with pytest.raises(asyncio.CancelledError):
            await maintenance._task
        assert ended == [True] and not maintenance.busy
        maintenance = DiskMaintenance(node, scrub, 0)
        monkeypatch.setattr(maintenance, "_look_at_space", asyncio.Event().wait)
        maintenance.start()
        await asyncio.sleep(0.02)
        maintenance.stop()
        with pytest.raises(asyncio.CancelledError):
            await maintenance._task  # type: ignore[misc]

    asyncio.run(asyncio.wait_for(scenario(), 10))
