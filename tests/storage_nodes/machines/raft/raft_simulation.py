"""One seed of the simulation: faults, under which nothing promised may break; then healing, after which all must work.

Every seed draws its own subset of faults and their rates, so that some seeds are nearly quiet and some are wild.
"""

from __future__ import annotations

import random

from storage_nodes.machines.raft.effects import Role
from storage_nodes.machines.raft.membership import AddLearner, Change, Promote, Remove
from storage_nodes.protocol.configuration import Configuration
from tests.storage_nodes.machines.raft.raft_cluster import Cluster, Faults, Node
from tests.storage_nodes.machines.raft.raft_disk import configurations_of, header_of
from tests.storage_nodes.machines.raft.raft_oracle import BrokenPromise

SAFETY_MS = 12_000
HEAL_MS = 15_000
LOSSY_HEAL_MS = 60_000
STEP_MS = 40


def draw_faults(spread: random.Random) -> Faults:
    def rate(most: float) -> float:
        return spread.random() * most if spread.random() < 0.5 else 0.0

    return Faults(
        loss=rate(0.3),
        duplicate=rate(0.3),
        late=rate(0.3),
        fsync_ms=spread.choice([(1, 3), (1, 30), (5, 200)]),
        delay_ms=spread.choice([(1, 3), (1, 40)]),
        slow_read=rate(0.5),
        deaf=rate(0.8),
    )


class Simulation:
    def __init__(self, seed: int, size: int) -> None:
        self.seed = seed
        # Another source than the cluster's: a new draw in one does not shift the other.
        self.random = random.Random(f"faults-{seed}")
        self._changes = random.Random(f"changes-{seed}")
        spares = self._changes.choice([0, 0, 1, 2])
        self.cluster = Cluster(size, seed, draw_faults(self.random), spares)
        self._change_rate = self._changes.choice([0.02, 0.1, 0.5]) if spares else 0.0
        self._drop_rate = self._changes.choice([0.02, 0.2])
        # How many entries were committed when the replica of a node was made.
        self._made_at = dict.fromkeys(self.cluster.boot.voters, 0)
        self._crash_rate = self.random.choice([0.0, 0.01, 0.03])
        self._cut_rate = self.random.choice([0.0, 0.02, 0.05])
        self._pause_rate = self.random.choice([0.0, 0.01])
        self._propose_rate = self.random.choice([0.1, 0.5, 1.0])
        self._wipes = random.Random(f"wipes-{seed}")
        self._wipe_rate = self._wipes.choice([0.0, 0.0, 0.05]) if size > 1 and not spares else 0.0
        self._trims = random.Random(f"trims-{seed}")
        self._trim_rate = self._trims.choice([0.0, 0.0, 0.01, 0.1])
        self._transfers = random.Random(f"transfers-{seed}")
        self._transfer_rate = self._transfers.choice([0.0, 0.0, 0.01, 0.1])

    def run(self) -> Cluster:
        for _ in range(SAFETY_MS // STEP_MS):
            self._fault()
            self._propose()
            self._change()
            self._trim()
            self.cluster.run(STEP_MS)
        self._heal()
        return self.cluster

    # --- the phase with faults ------------------------------------------------------------------------------

    def _fault(self) -> None:
        cluster, spread = self.cluster, self.random
        for node_id in cluster.ids:
            if node_id in cluster.vacant:
                continue
            if node_id not in cluster.nodes:
                if self._wipes.random() < self._wipe_rate and not any(cluster.image(i).suspect for i in cluster.ids):
                    cluster.wipe(node_id)
                if spread.random() < 0.05:
                    cluster.start(node_id)
            elif spread.random() < self._crash_rate:
                cluster.crash(node_id)
                if spread.random() < 0.3:
                    cluster.start(node_id)
            elif spread.random() < self._pause_rate:
                cluster.nodes[node_id].paused_until_ms = cluster.now_ms + spread.randint(10, 3_000)
        if spread.random() < self._cut_rate:
            self._cut()
        if spread.random() < self._cut_rate:
            cluster.faults.cut.clear()
        if self._crash_rate and spread.random() < 0.002:
            for node_id in list(cluster.nodes):  # power failure
                cluster.crash(node_id)

    def _cut(self) -> None:
        spread, ids = self.random, self.cluster.ids
        shape = spread.randrange(3) if len(ids) > 1 else 2
        if shape == 0:  # two sides
            side = {i for i in ids if spread.random() < 0.5}
            self.cluster.faults.cut |= {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
        elif shape == 1:  # one link, one way
            a, b = spread.sample(ids, 2)
            self.cluster.faults.cut.add((a, b))
        else:  # one node alone
            alone = spread.choice(ids)
            self.cluster.faults.cut |= {(alone, b) for b in ids if b != alone} | {(b, alone) for b in ids if b != alone}

    def _trim(self) -> None:
        """Nodes drop dead entries that are committed, without waiting for anyone who is behind."""
        for node in self.cluster.nodes.values():
            if self._trims.random() < self._trim_rate and node.paused_until_ms <= self.cluster.now_ms:
                committed = [header_of(entry).end_offset for entry in node.log.prefix(node.machine.commit)]
                durable = [end for end in committed if end <= node.log.durable_end]
                if durable:
                    node.log.trim(durable[-1])

    def _propose(self) -> None:
        for node in list(self.cluster.nodes.values()):
            leads = node.machine.role is Role.LEADER and node.paused_until_ms <= self.cluster.now_ms
            if leads and self._transfers.random() < self._transfer_rate:
                target = self._transfers.choice(self.cluster.ids)
                self.cluster.input(node, "transfer", target, self.cluster.now_ms)
            if leads and not node.machine.transferee and self.random.random() < self._propose_rate:
                self.cluster.propose(node.node_id)

    # --- membership -----------------------------------------------------------------------------------------

    def _change(self) -> None:
        """Somebody moves replicas: asks leaders for changes, makes replicas of learners, drops those of the removed."""
        cluster, spread = self.cluster, self._changes
        if not self._change_rate:
            return
        for node in list(cluster.nodes.values()):
            leads = node.machine.role is Role.LEADER and node.paused_until_ms <= cluster.now_ms
            if leads and spread.random() < self._change_rate:
                change = self._draw_change(node.machine.configuration)
                if change is not None and node.machine.refusal_of(change) is None:
                    cluster.input(node, "change_configuration", change, cluster.now_ms)
        self._drop_removed()

    def _draw_change(self, configuration: Configuration) -> Change | None:
        spread, voters = self._changes, configuration.voters
        kind = spread.randrange(3)
        if kind == 0:
            node_id = spread.choice(self.cluster.ids)
            if node_id not in configuration.members and not self._was_member(node_id):
                self._make(node_id, configuration)
                return AddLearner(node_id)
        elif kind == 1 and configuration.learners:
            return Promote(spread.choice(configuration.learners))
        elif kind == 2 and (len(voters) > 2 or spread.random() < 0.1):
            return Remove(spread.choice(configuration.members))
        return None

    def _make(self, node_id: int, configuration: Configuration) -> None:
        if node_id in self.cluster.vacant:
            self._made_at[node_id] = len(self.cluster.oracle.committed_entries)
            self.cluster.make(node_id, Configuration(configuration.voters, (node_id,)))

    def _was_member(self, node_id: int) -> bool:
        """Has the group committed that the present replica of this node is a member? Then it must go before another."""
        if node_id in self.cluster.vacant:
            return False
        since = self.cluster.oracle.committed_entries[self._made_at[node_id] :]
        named = any(node_id in entry.configuration.members for entry in configurations_of(since))
        return named or (node_id in self.cluster.boot.voters and not self._made_at[node_id])

    def _drop_removed(self) -> None:
        cluster = self.cluster
        committed = configurations_of(cluster.oracle.committed_entries)
        if not committed:
            return
        for node_id in set(cluster.nodes).difference(committed[-1].configuration.members):
            if self._was_member(node_id) and self._changes.random() < self._drop_rate:
                cluster.drop(node_id)

    # --- the phase of healing -------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Links heal and a majority of the nodes runs; with or without loss, the group must serve again."""
        cluster, spread = self.cluster, self.random
        cluster.faults.cut.clear()
        lossy = spread.random() < 0.3
        cluster.faults.loss = 0.1 if lossy else 0.0
        cluster.faults.late = cluster.faults.slow_read = cluster.faults.deaf = 0.0
        down = [node_id for node_id in cluster.ids if node_id not in cluster.nodes and node_id not in cluster.vacant]
        spread.shuffle(down)
        stays_down = down[: (len(cluster.ids) - 1) // 2] if spread.random() < 0.3 else []
        if any(cluster.image(i).suspect for i in cluster.ids):
            stays_down = []  # who lost its disk is no help in an election
        if self._change_rate:
            stays_down = []  # it might be one of two voters
        for node in cluster.nodes.values():
            node.paused_until_ms = min(node.paused_until_ms, cluster.now_ms)
        for node_id in down:
            if node_id not in stays_down:
                cluster.start(node_id)
        cluster.run(LOSSY_HEAL_MS if lossy else HEAL_MS)
        self._expect_serving()
        cluster.propose(cluster.leaders()[0])
        cluster.faults.loss = 0.0
        cluster.run(5_000)
        self._expect_equal_and_idle()

    def _expect_serving(self) -> None:
        cluster = self.cluster
        leaders = cluster.leaders()
        if len(leaders) != 1:
            states = {i: node.machine.status() for i, node in cluster.nodes.items()}
            raise BrokenPromise(f"liveness: {len(leaders)} leaders serve after healing: {states}")
        # A learner asks nobody: it hears of its leader again with the next append.
        voters = cluster.nodes[leaders[0]].machine.voters
        astray = [i for i in voters if i in cluster.nodes and cluster.nodes[i].machine.leader != leaders[0]]
        if astray and not cluster.faults.loss:
            raise BrokenPromise(f"liveness: nodes {astray} do not follow {leaders[0]}")

    def _members(self) -> dict[int, Node]:
        """The group; whoever was removed and not dropped yet may be anywhere."""
        cluster = self.cluster
        members = cluster.nodes[cluster.leaders()[0]].machine.configuration.members
        return {i: node for i, node in cluster.nodes.items() if i in members}

    def _expect_equal_and_idle(self) -> None:
        cluster = self.cluster
        nodes = self._members()
        ends = {i: (node.machine.commit, node.log.log_end, node.log.durable_end) for i, node in nodes.items()}
        if len({end for positions in ends.values() for end in positions}) != 1:
            raise BrokenPromise(f"liveness: (commit, log end, durable end) differ after healing: {ends}")
        logs = {tuple(node.log.entries) for node in nodes.values()}
        if len(logs) != 1:
            raise BrokenPromise("liveness: logs differ after healing")
        suspects = [i for i, node in nodes.items() if node.machine.suspect or node.log.suspect]
        if suspects:
            raise BrokenPromise(f"liveness: nodes {suspects} are still suspect after healing")
        timers = {i: node.machine.next_tick_ms() for i, node in nodes.items()}
        if any(timers.values()):
            raise BrokenPromise(f"an idle group has no timer: {timers}")
        written = {entry.rsplit(b":", 1)[1].decode() for entry in next(iter(logs))}
        lost = set(cluster.acked) - written
        if lost:
            raise BrokenPromise(f"acknowledged writes lost: {sorted(lost)}")


def run_seed(seed: int) -> Cluster:
    """The same seed, the same run. Odd seeds have 3 nodes, every fourth 5, the rest 3 or 1."""
    size = 5 if seed % 4 == 0 else 1 if seed % 50 == 2 else 3
    try:
        return Simulation(seed, size).run()
    except Exception as error:
        command = f"python -m tests.storage_nodes.machines.raft.raft_simulation {seed}"
        raise BrokenPromise(f"{type(error).__name__}: {error}\nseed {seed}, {size} nodes; again: {command}") from error


def main(first: int, count: int) -> None:
    steps = acked = 0
    for seed in range(first, first + count):
        cluster = run_seed(seed)
        steps += cluster.steps
        acked += len(cluster.acked)
    print(f"{count} seeds from {first}: {steps} steps, {acked} acknowledged writes")


if __name__ == "__main__":
    import sys

    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
