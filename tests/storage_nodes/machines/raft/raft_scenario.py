"""Interpreter of the scenario files in `testdata/`: one command a line, `#` starts a comment.

nodes 3                       start a group of nodes 1, 2, 3 (first line)
elect 1                       node 1 campaigns; wait until it serves
propose 1 a b                 clients write a and b at node 1, one entry each
appends carry 1               how many entries fit one append (3 unless said)
wait 500                      let 500 ms pass
until 1 knows 3 holds x       stop the very moment leader 1 learns that x is on the disk of node 3
crash 2 / start 2             the process ends (what was not fsynced is lost) / starts again
partition 1 | 2 3             nodes of different sides cannot talk
cut 1 > 2                     nothing goes from 1 to 2, the other way works
heal                          all links work
lose append 1 > 3             messages of this kind get lost on this link (append, answer, ask = requests for
                              votes, all); * = any node
lose nothing                  no message gets lost
disk 2 slow                   fsyncs of node 2 take 60 s (disk 2 fast: 1 ms again)
expect leader 2               node 2 leads, serves, and all running nodes that can talk to it know
expect no leader              nobody leads and serves
expect role 1 follower        (leader, candidate, pre_candidate)
expect log 3: a b             the writes in the log of node 3, epoch starts left out
expect committed 2: a b       the same, as far as node 2 knows it committed
expect acknowledged: a b      what clients were told is safe, in this order
expect same logs              all running nodes hold and know committed the same
expect epochs 3: 1 2 2        epoch of each entry in the log of node 3
expect idle                   no running node has a timer
"""

from __future__ import annotations

from storage_nodes.machines.raft.effects import Role
from storage_nodes.protocol.peer_messages import AppendEntries, AppendReply, RaftMessage, VoteReply, VoteRequest
from tests.storage_nodes.machines.raft.raft_cluster import Cluster, Node
from tests.storage_nodes.machines.raft.raft_disk import header_of

KINDS: dict[str, tuple[type, ...]] = {
    "append": (AppendEntries,),
    "answer": (AppendReply,),
    "ask": (VoteRequest,),
    "all": (AppendEntries, AppendReply, VoteRequest, VoteReply),
}
SLOW_FSYNC_MS = 60_000
ELECT_MS = 3_000
UNTIL_MS = 10_000


class ScenarioFailed(AssertionError):
    pass


def names_of(entries: list[bytes]) -> list[str]:
    """The writes among the entries."""
    names = [entry.rsplit(b":", 1)[1].decode() for entry in entries]
    return [name for name in names if not name.startswith("start-")]


class Scenario:
    def __init__(self) -> None:
        self.cluster = Cluster(0, 1)
        self._lost: list[tuple[tuple[type, ...], int, int]] = []

    def play(self, text: str) -> None:
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split("#")[0].replace(":", " ").split()
            if words:
                try:
                    getattr(self, f"_{words[0]}")(words[1:])
                except ScenarioFailed as error:
                    raise ScenarioFailed(f"line {number}, {line.strip()!r}: {error}") from None

    # --- commands -------------------------------------------------------------------------------------------

    def _nodes(self, words: list[str]) -> None:
        self.cluster = Cluster(int(words[0]), 1)
        self.cluster.on_leave = self._may_leave
        self.cluster.run(200)

    def _elect(self, words: list[str]) -> None:
        node = self._node(words[0])
        self.cluster.input(node, "campaign", self.cluster.now_ms)
        for _ in range(ELECT_MS // 10):
            if node.serving and node.machine.role is Role.LEADER:
                return
            self.cluster.run(10)
        raise ScenarioFailed(f"node {words[0]} is {node.machine.role.name}")

    def _propose(self, words: list[str]) -> None:
        for name in words[1:]:
            self.cluster.propose(int(words[0]), name, 1)

    def _wait(self, words: list[str]) -> None:
        self.cluster.run(int(words[0]))

    def _appends(self, words: list[str]) -> None:
        self.cluster.append_entries_max = int(words[1])

    def _until(self, words: list[str]) -> None:
        leader, follower, name = int(words[0]), int(words[2]), words[4]
        deadline_ms = self.cluster.now_ms + UNTIL_MS
        while self.cluster.now_ms < deadline_ms:
            self.cluster.run_one()
            node = self.cluster.nodes[leader]
            for peer in node.machine.status().peers:
                if peer.node_id == follower and name in names_of(node.log.prefix(peer.match)):
                    return
        raise ScenarioFailed(f"not after {UNTIL_MS} ms")

    def _crash(self, words: list[str]) -> None:
        self.cluster.crash(int(words[0]))

    def _start(self, words: list[str]) -> None:
        self.cluster.start(int(words[0]))

    def _partition(self, words: list[str]) -> None:
        sides = [{int(node) for node in side.split()} for side in " ".join(words).split("|")]
        ids = self.cluster.ids
        self.cluster.faults.cut = {
            (a, b) for a in ids for b in ids if a != b and not any(a in side and b in side for side in sides)
        }

    def _cut(self, words: list[str]) -> None:
        self.cluster.faults.cut.add((int(words[0]), int(words[2])))

    def _heal(self, words: list[str]) -> None:
        self.cluster.faults.cut.clear()

    def _lose(self, words: list[str]) -> None:
        if words[0] == "nothing":
            self._lost.clear()
        else:
            self._lost.append((KINDS[words[0]], int(words[1]), 0 if words[3] == "*" else int(words[3])))

    def _disk(self, words: list[str]) -> None:
        self._node(words[0]).fsync_ms = SLOW_FSYNC_MS if words[1] == "slow" else 0

    # --- expectations ---------------------------------------------------------------------------------------

    def _expect(self, words: list[str]) -> None:
        getattr(self, f"_expect_{words[0]}")(words[1:])

    def _expect_leader(self, words: list[str]) -> None:
        leader = int(words[0])
        self._same("leaders", self.cluster.leaders(), [leader])
        cut = self.cluster.faults.cut
        for node_id, node in self.cluster.nodes.items():
            if (leader, node_id) not in cut and (node_id, leader) not in cut:
                self._same(f"the leader as node {node_id} knows it", node.machine.leader, leader)

    def _expect_no(self, words: list[str]) -> None:
        self._same("leaders", self.cluster.leaders(), [])

    def _expect_role(self, words: list[str]) -> None:
        self._same("role", self._node(words[0]).machine.role.name.lower(), words[1])

    def _expect_log(self, words: list[str]) -> None:
        self._same("log", names_of(self._node(words[0]).log.entries), words[1:])

    def _expect_committed(self, words: list[str]) -> None:
        node = self._node(words[0])
        self._same("committed", names_of(node.log.prefix(node.machine.commit)), words[1:])

    def _expect_acknowledged(self, words: list[str]) -> None:
        self._same("acknowledged", self.cluster.acked, words)

    def _expect_same(self, words: list[str]) -> None:
        first, *others = self.cluster.nodes.values()
        self._same(f"commit of node {first.node_id}", first.machine.commit, first.log.log_end)
        for node in others:
            self._same(f"log of node {node.node_id}", node.log.entries, first.log.entries)
            self._same(f"commit of node {node.node_id}", node.machine.commit, first.machine.commit)

    def _expect_epochs(self, words: list[str]) -> None:
        epochs = [str(header_of(entry).epoch) for entry in self._node(words[0]).log.entries]
        self._same("epochs", epochs, words[1:])

    def _expect_idle(self, words: list[str]) -> None:
        timers = {i: node.machine.next_tick_ms() for i, node in self.cluster.nodes.items()}
        self._same("timers", timers, dict.fromkeys(timers, 0))

    # --- plain work -----------------------------------------------------------------------------------------

    def _node(self, word: str) -> Node:
        return self.cluster.nodes[int(word)]

    def _may_leave(self, sender: int, receiver: int, message: RaftMessage) -> bool:
        return not any(isinstance(message, kinds) and sender == a and b in (0, receiver) for kinds, a, b in self._lost)

    @staticmethod
    def _same(what: str, found: object, expected: object) -> None:
        if found != expected:
            raise ScenarioFailed(f"{what}: found {found}, expected {expected}")
