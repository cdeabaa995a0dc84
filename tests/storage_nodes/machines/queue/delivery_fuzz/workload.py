"""Random steps of a queue partition: calls, commits, time, changes of the leader, commands that are lost."""

from __future__ import annotations

import random

from storage_nodes.machines.queue.commands import NACKED, UNSEEN, uncounted
from storage_nodes.machines.queue.effects import Deliver
from tests.storage_nodes.machines.queue.delivery_fuzz.configurations import Configurations, Kind
from tests.storage_nodes.machines.queue.partition import NOW_MS, Partition
from tests.support.seeded_fuzz import require

# Steps, and how many of a hundred or so they are.
WEIGHTS = {
    "send": 10, "acquire": 14, "delete": 6, "change": 5, "remove": 3, "purge": 2, "configure": 4, "pass_time": 9,
    "tick": 2, "commit": 14, "commit_late": 5, "move": 5, "fail_move": 4, "unpark": 2, "fail_over": 2, "save": 1,
    "rebuild": 1, "hold_fetches": 1, "pack": 2, "write": 1, "cancel": 1, "turn_clocks": 1, "lose": 1,
}  # fmt: skip
# More receives whose leases run out, and changes of how many are allowed.
LETTERS = {
    "configure": 9, "fail_move": 3, "acquire": 16, "pass_time": 16, "commit": 22, "purge": 1, "delete": 2, "send": 8,
    "fail_over": 1,
}  # fmt: skip
# Of these up to two come between taking commands and their commit.
BETWEEN = ("send", "acquire", "pass_time", "move", "fail_move", "configure", "delete", "change", "remove")
VISIBILITIES_MS = (0, 10, 20_000, 1_000, NACKED, UNSEEN, uncounted(0), uncounted(10))
PASSES_MS = (1, 30, 500, 2_500, 4_000, 8_001)
DELAYS_MS = (0, 0, 0, 1_500, 1)
IDS = 12  # of deduplication
# Older messages are not named, nor older receipts.
NAMED_BACK = 60
RECEIPTS_BACK = 30
ACQUIRED_MAX = 10
# Ticks without time passing, after which the machine is said to be busy for nothing.
BUSY_TICKS_MAX = 3_000


class Workload:
    def __init__(self, rnd: random.Random, kind: Kind, limits: dict[str, int]) -> None:
        self._rnd = rnd
        self.kind = kind
        self.weights = WEIGHTS | LETTERS if kind.has_letters else WEIGHTS
        self.configurations = Configurations(rnd, kind)
        self._groups = [b"g%d" % at for at in range(rnd.choice((1, 3, 8, 30)))] + [b""] * (rnd.random() < 0.3)
        self._is_keyed = rnd.random() < 0.6
        # What leases and expires is one command, and a receive is to fit into it.
        self.acquired_max = min(ACQUIRED_MAX, limits["EXPIRED_PER_COMMAND_MAX"])
        self._config = self.configurations.first()
        self.partition = Partition(self._config, rnd.choice((1, 2, 100)))
        self.receipts: list[tuple[int, int]] = []
        self.moved: set[int] = set()  # of which this leader was told that they stand in the dead-letter queue
        self.revived: set[int] = set()  # that cannot be moved, and may be received at once
        self.trace: list[str] = []
        self._tokens = 0
        self._saved = self.partition.leader.checkpoint(), len(self.partition.log)
        self._packed: list[tuple[bytes, list[object]]] = []  # checkpoints, and the pieces of the same

    def do(self, step: str) -> None:
        self.trace.append(f"{self.partition.now_ms - NOW_MS:,} ms: {step}")
        getattr(self, step)()

    def step(self) -> None:
        self.do(self._rnd.choices(list(self.weights), list(self.weights.values()))[0])

    def token(self) -> int:
        self._tokens += 1
        return self._tokens

    def delivered(self, effect: Deliver) -> None:
        self.receipts += [pick[:2] for pick in effect.picks]
        self.revived.difference_update(pick.offset for pick in effect.picks)

    # --- calls ------------------------------------------------------------------------------------------------

    def send(self) -> None:
        rnd, partition, delay_ms = self._rnd, self.partition, self._rnd.choice(DELAYS_MS)
        count = rnd.randint(1, 12)
        if self.kind.is_fifo:
            ids = (b"", b"", b"id%d" % rnd.randrange(IDS))
            keyed = [(rnd.choice(self._groups), rnd.choice(ids)) for _ in range(count)]
            partition.send_keyed(*keyed, delay_ms=delay_ms)
        elif self._is_keyed:
            tagged = [(rnd.choice(self._groups), rnd.choice((b"", b"t1", b"t2"))) for _ in range(count)]
            partition.send_tagged(*tagged, delay_ms=delay_ms)
        else:
            partition.send(count, delay_ms)

    def acquire(self) -> None:
        rnd = self._rnd
        count, wait_ms = rnd.randint(1, self.acquired_max), rnd.choice((0, 0, 5_000))
        if self.kind.has_letters:
            self.partition.acquire(self.token(), count, rnd.choice((0, 1, 500)), wait_ms)
            return
        attempt, tags = b"", ()
        if self.kind.is_fifo:
            attempt = rnd.choice((b"", b"", b"x", b"y", b"z", b"\0c1", b"\0c2", b"\0%d" % self._tokens))
        elif self._is_keyed:
            tags = rnd.choice(((), (), (b"t1",), (b"t1", b"t2")))
        visibility_ms = rnd.choice((0, 1, 500, 2_000, 2_000, 30_000))
        self.partition.acquire(self.token(), count, visibility_ms, wait_ms, attempt, tags)

    def delete(self) -> None:
        if self.receipts:
            self.partition.delete(self.token(), self._receipts(6))

    def change(self) -> None:
        if self.receipts:
            visibility_ms = self._rnd.choice(VISIBILITIES_MS)
            changed = dict.fromkeys(self._receipts(3))
            self.partition.change(self.token(), [(*receipt, visibility_ms) for receipt in changed])

    def remove(self) -> None:
        rnd, end = self._rnd, self.partition.end
        offsets = {rnd.randrange(max(1, end - NAMED_BACK), end + 2) for _ in range(rnd.randint(1, 6))}
        self.partition.remove(self.token(), list(offsets), rnd.random() < 0.5)

    def purge(self) -> None:
        self.partition.purge(self.token())

    def configure(self) -> None:
        self.partition.perform(self.partition.leader.configure(self.token(), self.configurations.another()))

    def cancel(self) -> None:
        if self._tokens:
            token = self._rnd.randint(max(1, self._tokens - 10), self._tokens)
            self.partition.perform(self.partition.leader.cancel(token))

    def unpark(self) -> None:
        if self.kind.is_fifo:
            groups = self._rnd.sample(self._groups, min(len(self._groups), self._rnd.randint(0, 2)))
            self.partition.perform(self.partition.leader.unpark(self.token(), groups, self.partition.now_ms))

    # --- dead letters -----------------------------------------------------------------------------------------

    def move(self) -> None:
        """All letters of the move arrived, or the first one; those that are gone by now are no news."""
        partition = self.partition
        if partition.moves:
            letters = [letter.offset for letter in partition.moves.pop().letters]
            arrived = letters[: self._rnd.choice((1, len(letters)))]
            if not any(offset in partition.leader.state.live for offset in letters):
                arrived = []
            self.moved.update(arrived)
            partition.perform(partition.leader.moved(arrived, partition.now_ms))

    def fail_move(self) -> None:
        partition = self.partition
        if partition.moves:
            letters = partition.moves.pop().letters
            is_final = self._rnd.random() < 0.3
            if is_final:
                self.revived.update(letter.offset for letter in letters)
            partition.perform(partition.leader.move_failed(is_final, partition.now_ms))

    # --- the log and the clock --------------------------------------------------------------------------------

    def commit(self) -> None:
        self.partition.commit()

    def commit_late(self) -> None:
        """Commands are taken, and something comes in between."""
        if self.partition.is_proposed:
            bodies = self.partition.take()
            for _ in range(self._rnd.randint(0, 2)):
                self.do(self._rnd.choice(BETWEEN))
            if bodies:
                self.partition.append(bodies, control=True)

    def tick(self) -> None:
        self.partition.tick()

    def pass_time(self) -> None:
        self.pass_ms(self._rnd.choice(PASSES_MS))

    def pass_ms(self, ms: int) -> None:
        """As `Partition.pass_ms`, with more ticks at one time: limits are small."""
        partition = self.partition
        until_ms, busy = partition.now_ms + ms, 0
        while 0 < (due_ms := partition.leader.next_tick_ms()) <= until_ms:
            busy = busy + 1 if due_ms <= partition.now_ms else 0
            require("rests", busy < BUSY_TICKS_MAX, f"{busy} ticks at {partition.now_ms - NOW_MS:,} ms")
            partition.now_ms = max(partition.now_ms, due_ms)
            partition.tick()
        partition.now_ms = until_ms

    def turn_clocks(self) -> None:
        self.partition.leader.clocks_say(self._rnd.choice((0, 0, 1_500, 10_000)))

    def hold_fetches(self) -> None:
        """Reads of the log are not answered for a while."""
        self.partition.holds_fetches = not self.partition.holds_fetches
        if not self.partition.holds_fetches:
            self.partition.run_fetches()

    # --- replicas ---------------------------------------------------------------------------------------------

    def fail_over(self) -> None:
        self.partition.fail_over()
        self.moved.clear()
        self.revived.clear()

    def lose(self) -> None:
        """The leader goes with commands that it had given away."""
        if self.partition.is_proposed:
            self.partition.take()
        self.fail_over()

    def save(self) -> None:
        self._saved = self.partition.leader.checkpoint(), len(self.partition.log)

    def rebuild(self) -> None:
        self.partition.rebuild_follower(*self._saved)

    def pack(self) -> None:
        leader = self.partition.leader
        whole, pieces = leader.checkpoint(), leader.checkpoint_pieces()
        self._packed.append((whole, [pieces] if isinstance(pieces, bytes) else list(pieces)))

    def write(self) -> None:
        """Checkpoints whose pieces were made some steps ago."""
        for whole, pieces in self._packed:
            written = b"".join(bytes(piece) for piece in pieces)  # type: ignore[call-overload]
            require("pieces", written == whole, f"{len(written):,} bytes are written, {len(whole):,} stood there")
        self._packed.clear()

    def _receipts(self, count_max: int) -> list[tuple[int, int]]:
        newest = self.receipts[-RECEIPTS_BACK:]
        return [self._rnd.choice(newest) for _ in range(self._rnd.randint(1, count_max))]
