"""The faults, one cycle each: do it, see the cluster answer, undo it, see it whole again.

A cycle ends by itself: every wait in it has a bound (`bench.py`), every fault is undone by `NodeCluster.heal`.
"""

from __future__ import annotations

import asyncio
import time

from storage_nodes.client import StorageClient
from storage_nodes.limits import PEER_TIMEOUT_MS
from storage_nodes.node.disk.committer import EXIT_DISK_FAILED
from tests.blackbox.bench import Bench, BenchError
from tests.blackbox.checkers import APPEND, SEND
from tests.blackbox.clusters import ImageCluster, NetworkCluster
from tests.blackbox.faults.files import Damage, damageable, flip_bit, truncate
from tests.blackbox.history import OK

LEASES_PAUSED = 10
ZOMBIE_CALLS_S = 0.1
CUT_S = 4.0
QUIET_S = 0.3
FILL_LEAVES_MIB = 40  # below the reserve of the image clusters, above a quarter of it
LEADERS_LEAVE_S = 10.0
DAMAGE_STOP_TIMEOUT_S = 1.0
REPAIR_TIMEOUT_S = 30.0
FOUND_TEXT = "stored data is damaged"
REPAIRED_TEXT = "damage is repaired"


async def quiet(bench: Bench) -> None:
    await asyncio.sleep(1.0)
    await bench.recovered()


# --- processes ----------------------------------------------------------------------------------------------


async def kill_leader(bench: Bench) -> None:
    """F1: kill -9 of a leader at a random moment."""
    victim = await bench.leader(bench.rng.choice((bench.load.queue, bench.load.stream)))
    led = await bench.led_by(victim)
    await asyncio.sleep(bench.rng.random() * QUIET_S)
    bench.fault("kill", led, f"node {victim}")
    bench.cluster.kill(victim)
    await bench.recovered()
    bench.cluster.start(victim)
    await bench.caught_up()
    bench.healed("kill")


async def kill_follower(bench: Bench) -> None:
    leader = await bench.leader(bench.load.queue)
    victim = bench.rng.choice([node for node in await bench.holders(bench.load.queue) if node != leader])
    led = await bench.led_by(victim)
    bench.fault("kill", led, f"node {victim}")
    bench.cluster.kill(victim)
    await bench.recovered()
    bench.cluster.start(victim)
    await bench.caught_up()
    bench.healed("kill")


async def kill_all(bench: Bench) -> None:
    """F10 without the power: every process dies at the same moment."""
    await asyncio.sleep(bench.rng.random() * QUIET_S)
    bench.fault("kill all", [bench.load.queue, bench.load.stream])
    bench.cluster.kill_all()
    bench.cluster.start_all()
    await bench.recovered()
    await bench.caught_up()
    bench.healed("kill all")


async def pause_leader(bench: Bench, leases: int = LEASES_PAUSED) -> None:
    """F2: a leader stands still for many leases; clients that know only it must be told nothing stale when it wakes."""
    victim = await bench.leader(bench.rng.choice((bench.load.queue, bench.load.stream)))
    led = await bench.led_by(victim)
    zombies = await bench.one_attempt(f"zombie-of-{victim}", only_node=victim)
    for operation in (SEND, APPEND):  # the connection stands before the pause
        await bench.load.send(zombies, f"z{victim}", operation, bench.load.next_values(f"z{victim}", 1))
    bench.fault("pause", led, f"node {victim}")
    bench.cluster.pause(victim)
    calls: list[asyncio.Task[None]] = []
    end = time.monotonic() + leases * PEER_TIMEOUT_MS / 1000
    while time.monotonic() < end:
        calls.append(asyncio.create_task(_ask_zombie(bench, zombies, victim)))
        await asyncio.sleep(ZOMBIE_CALLS_S)
    await bench.recovered()
    bench.cluster.resume(victim)
    bench.healed("pause")
    await asyncio.gather(*calls)
    await bench.caught_up()


async def _ask_zombie(bench: Bench, zombies: StorageClient, node: int) -> None:
    """Calls to the paused node only; what it answers goes into the history and is judged there."""
    name = f"z{node}"
    sent, appended, _ = await asyncio.gather(
        bench.load.send(zombies, name, SEND, bench.load.next_values(name, 1)),
        bench.load.send(zombies, name, APPEND, bench.load.next_values(name, 1)),
        bench.load.acquire_and_delete(zombies, name),
    )
    for completion in (sent, appended):
        bench.notes["zombie writes acknowledged" if completion.kind == OK else "zombie writes not acknowledged"] += 1


async def pause_train(bench: Bench) -> None:
    """F3: short pauses, every node in turn."""
    for node in bench.cluster.node_ids:
        led = await bench.led_by(node)
        bench.fault("short pause", led, f"node {node}")
        bench.cluster.pause(node)
        await asyncio.sleep(0.2 + bench.rng.random() * 1.8)
        bench.cluster.resume(node)
        bench.healed("short pause")
        await asyncio.sleep(QUIET_S)
    await bench.recovered()


async def restart_storm(bench: Bench) -> None:
    """F29: somebody is killed every one or two seconds, whether the last one has caught up or not; then quiet."""
    for _ in range(5):
        victim = bench.rng.choice(bench.cluster.node_ids)
        bench.fault("storm", [], f"node {victim}")
        bench.cluster.kill(victim)
        await asyncio.sleep(bench.rng.random())
        bench.cluster.start(victim)
        await asyncio.sleep(1.0 + bench.rng.random())
    bench.fault("end of storm", [bench.load.queue, bench.load.stream])
    bench.cluster.heal()
    await bench.recovered()
    await bench.caught_up()
    bench.healed("storm")


# --- network ------------------------------------------------------------------------------------------------


async def _cut(bench: Bench, name: str, affected: list[int], drops: list[tuple[int, int]]) -> None:
    cluster = bench.cluster
    assert isinstance(cluster, NetworkCluster)
    bench.fault(name, affected, str(drops))
    for sender, receiver in drops:
        cluster.network.drop(sender, receiver)
    await asyncio.sleep(CUT_S)
    await bench.recovered()
    cluster.network.heal()
    bench.healed(name)
    await bench.caught_up()


async def isolate_leader(bench: Bench) -> None:
    """F4: the leader is cut off from all others; clients reach all of them."""
    victim = await bench.leader(bench.load.queue)
    others = [node for node in bench.cluster.node_ids if node != victim]
    drops = [pair for node in others for pair in ((victim, node), (node, victim))]
    await _cut(bench, "leader isolated", await bench.led_by(victim), drops)


async def leader_not_heard(bench: Bench) -> None:
    """F5: the leader hears the others, and is not heard."""
    victim = await bench.leader(bench.load.queue)
    drops = [(victim, node) for node in bench.cluster.node_ids if node != victim]
    await _cut(bench, "leader not heard", await bench.led_by(victim), drops)


async def leader_deaf(bench: Bench) -> None:
    """F5, the other way: the leader is heard, and hears nothing."""
    victim = await bench.leader(bench.load.queue)
    drops = [(node, victim) for node in bench.cluster.node_ids if node != victim]
    await _cut(bench, "leader deaf", await bench.led_by(victim), drops)


async def bridge(bench: Bench) -> None:
    """F6: two of the three replicas' nodes do not see each other, the third sees both."""
    holders = await bench.holders(bench.load.queue)
    middle = bench.rng.choice(holders)
    one, other = (node for node in holders if node != middle)
    await _cut(bench, f"bridge over {middle}", [], [(one, other), (other, one)])


# --- disks --------------------------------------------------------------------------------------------------


async def power_one(bench: Bench) -> None:
    """F9: the leader's machine loses power."""
    cluster = bench.cluster
    assert isinstance(cluster, ImageCluster)
    bench.expected_exits.add(EXIT_DISK_FAILED)
    victim = await bench.leader(bench.load.queue)
    led = await bench.led_by(victim)
    await asyncio.sleep(bench.rng.random() * QUIET_S)
    bench.fault("power loss", led, f"node {victim}")
    cluster.images[victim].lose_power()
    cluster.kill(victim)
    await bench.recovered()
    await asyncio.to_thread(cluster.images[victim].unmount)
    await asyncio.to_thread(cluster.images[victim].mount)
    cluster.start(victim)
    await bench.caught_up()
    bench.healed("power loss")


async def power_all(bench: Bench) -> None:
    """F10: all machines lose power at once."""
    cluster = bench.cluster
    assert isinstance(cluster, ImageCluster)
    bench.expected_exits.add(EXIT_DISK_FAILED)
    await asyncio.sleep(bench.rng.random() * QUIET_S)
    bench.fault("power loss everywhere", [bench.load.queue, bench.load.stream])
    for image in cluster.images.values():
        image.lose_power()
    cluster.kill_all()
    for image in cluster.images.values():
        await asyncio.to_thread(image.unmount)
        await asyncio.to_thread(image.mount)
    cluster.start_all()
    await bench.recovered()
    await bench.caught_up()
    bench.healed("power loss everywhere")


async def disk_full(bench: Bench) -> None:
    """F12: the disk of a leader is nearly full. It goes on, takes no messages, and leads nothing after a while."""
    cluster = bench.cluster
    assert isinstance(cluster, ImageCluster)
    victim = await bench.leader(bench.load.queue)
    led = await bench.led_by(victim)
    bench.fault("disk full", led, f"node {victim}")
    await asyncio.to_thread(cluster.images[victim].fill, FILL_LEAVES_MIB)
    end = time.monotonic() + LEADERS_LEAVE_S
    while await bench.led_by(victim):
        if time.monotonic() > end:
            bench.findings.append(f"node {victim} still leads {LEADERS_LEAVE_S:.0f} s after its disk was nearly full")
            break
        await asyncio.sleep(QUIET_S)
    await bench.recovered()
    code = await asyncio.to_thread(cluster.wait_exit, victim, QUIET_S)
    bench.notes["disk full, node ran on" if code is None else f"disk full, node stopped with exit code {code}"] += 1
    if code is not None:
        bench.findings.append(f"node {victim} stopped with exit code {code} on a disk that was nearly full")
    cluster.images[victim].empty()
    cluster.heal()
    await bench.caught_up()
    bench.healed("disk full")


async def flip_bits(bench: Bench) -> None:
    """F15 on a minority: one bit of one file of a stopped node."""
    await _damage_one(bench, flipped=True)


async def truncate_files(bench: Bench) -> None:
    """F16 on a minority: one file of a stopped node is cut short."""
    await _damage_one(bench, flipped=False)


async def _damage_one(bench: Bench, flipped: bool) -> None:
    """Nothing is undone. Correct is: the node starts by itself, says what it found, is fed again by the others, and
    holds what they do; what it did not find changed nothing that it needs (read back at the end)."""
    cluster = bench.cluster
    leader = await bench.leader(bench.load.stream)
    victim = bench.rng.choice([node for node in await bench.holders(bench.load.stream) if node != leader])
    led = await bench.led_by(victim)
    bench.fault("damaged files", led, f"node {victim}")
    cluster.kill(victim)
    path = bench.rng.choice(damageable(cluster.node_directory(victim)))
    damage: Damage | None = flip_bit(path, bench.rng) if flipped else truncate(path, bench.rng)
    kind = path.suffix.lstrip(".") or path.name.partition("-")[0]
    found_before = cluster.log_of(victim).count(FOUND_TEXT)
    cluster.start(victim)
    code = await asyncio.to_thread(cluster.wait_exit, victim, DAMAGE_STOP_TIMEOUT_S)
    if code is not None:
        bench.findings.append(f"node {victim} did not start but ended with exit code {code}: {damage}")
        raise BenchError(f"node {victim} cannot start")
    await bench.recovered()
    await bench.caught_up()
    await bench.scrubbed([victim])
    found = cluster.log_of(victim).count(FOUND_TEXT) > found_before
    bench.notes[f"{kind}: {'found and repaired' if found else 'of no consequence'}"] += 1
    await _repaired(bench, victim)
    bench.healed("damaged files")


async def _repaired(bench: Bench, victim: int) -> None:
    """Everything the node found is repaired: its replicas are trusted again."""
    end = time.monotonic() + REPAIR_TIMEOUT_S
    while True:
        text = bench.cluster.log_of(victim)
        if text.count(FOUND_TEXT) == text.count(REPAIRED_TEXT):
            return
        if time.monotonic() > end:
            raise BenchError(f"node {victim} is not repaired after {REPAIR_TIMEOUT_S:.0f} s")
        await asyncio.sleep(QUIET_S)
