"""One machine on a bench: a log whose fsyncs are at hand, and shorthands to bring the machine into any role."""

from __future__ import annotations

from collections.abc import Sequence

from storage_nodes.machines.raft.effects import (
    Append,
    AppendConfiguration,
    Effect,
    EpochStart,
    Role,
    SaveVote,
    Send,
    SendEntries,
    Truncate,
)
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.peer_messages import AppendEntries, AppendReply, RaftMessage, VoteReply, VoteRequest
from tests.storage_nodes.machines.raft.raft_disk import Image, SimLog, header_of, make_entry, name_of

PARTITION = 7
START_MS = 10_000


def log_of(*epochs: int, records: int = 1) -> SimLog:
    """A durable log with one entry of `records` records for each epoch."""
    entries = [make_entry(i * records, (i + 1) * records, epoch, f"e{i}") for i, epoch in enumerate(epochs)]
    return SimLog(Image(tuple(entries), max(epochs, default=0)))


class Bench:
    """Node 1 of voters 1..size; random delays are half of their bound."""

    def __init__(
        self,
        log: SimLog | None = None,
        size: int = 3,
        commit: int = 0,
        epoch: int | None = None,
        boot: Configuration | None = None,
        suspect: bool = False,
    ) -> None:
        self.log = log_of() if log is None else log
        self.now_ms = START_MS
        boot = boot or Configuration(tuple(range(1, size + 1)))
        epoch = self.log.epoch if epoch is None else epoch
        self.machine = RaftMachine(PARTITION, 1, boot, self.log, epoch, 0, commit, lambda bound: bound // 2, suspect)
        for node in range(2, size + 1):
            self.machine.peer_up(node, self.now_ms)
        self.perform(self.machine.tick(self.now_ms))

    # --- driving --------------------------------------------------------------------------------------------

    def perform(self, effects: Sequence[Effect]) -> list[Effect]:
        """Apply what concerns the log; everything is sent. Answers all effects, those that followed included."""
        done: list[Effect] = []
        for effect in effects:
            done.append(effect)
            if isinstance(effect, Truncate):
                self.log.truncate(effect.offset)
                done += self.machine.configured(self.now_ms)
            elif isinstance(effect, Append):
                for entry in effect.entries:
                    self.log.append(entry)
                done += self.machine.configured(self.now_ms)
            elif isinstance(effect, AppendConfiguration):
                done += self.propose(name_of(effect.configuration))
            elif isinstance(effect, SaveVote):
                self.log.save_vote(effect.epoch, effect.voted_for)
            elif isinstance(effect, EpochStart):
                done += self.propose("start")
            elif isinstance(effect, SendEntries):
                entries = self.log.read(effect.prev_offset, 10)
                end = header_of(entries[-1]).end_offset if entries else effect.prev_offset
                done += self.perform(self.machine.sent(effect.peer, end, sum(map(len, entries))))
        return done

    def step(self, sender: int, message: RaftMessage) -> list[Effect]:
        headers = [header_of(entry) for entry in message.entries] if isinstance(message, AppendEntries) else []
        return self.perform(self.machine.step(sender, message, self.now_ms, headers))

    def tick_at(self, now_ms: int) -> list[Effect]:
        self.now_ms = now_ms
        return self.perform(self.machine.tick(now_ms))

    def tick(self) -> list[Effect]:
        """Let time pass until the machine wants to be woken."""
        assert self.machine.next_tick_ms(), "the machine has no timer"
        return self.tick_at(max(self.now_ms, self.machine.next_tick_ms()))

    def propose(self, name: str = "w", records: int = 1) -> list[Effect]:
        end = self.log.log_end + records
        self.log.append(make_entry(self.log.log_end, end, self.machine.epoch, name))
        return self.perform([*self.machine.configured(self.now_ms), *self.machine.proposed(end, self.now_ms)])

    def sync(self) -> list[Effect]:
        self.log.begin_write()
        self.log.end_write()
        return self.perform(self.machine.durable(self.log.durable_end, self.now_ms))

    # --- messages -------------------------------------------------------------------------------------------

    def append(
        self,
        sender: int,
        epoch: int,
        prev: tuple[int, int],
        entries: Sequence[bytes] = (),
        commit: int = 0,
        learner: bool = False,
    ) -> list[Effect]:
        """An append after prev = (epoch, offset)."""
        return self.step(sender, AppendEntries(PARTITION, epoch, prev[0], prev[1], commit, list(entries), 0, learner))

    def answer(self, sender: int, offset: int, known: int | None = None) -> list[Effect]:
        """A follower has fsynced up to offset, and knows that `known` is committed (by default: all it can know)."""
        known = min(self.machine.commit, offset) if known is None else known
        return self.step(sender, AppendReply(PARTITION, self.machine.epoch, True, offset, 0, known))

    def ask(self, sender: int, epoch: int, last: tuple[int, int] = (99, 99), pre_vote: bool = False) -> list[Effect]:
        """A request for a vote from a log that ends at last = (epoch, offset)."""
        return self.step(sender, VoteRequest(PARTITION, epoch, last[0], last[1], pre_vote))

    def grant(self, sender: int, pre_vote: bool = False) -> list[Effect]:
        return self.step(sender, VoteReply(PARTITION, self.machine.epoch + pre_vote, True, pre_vote))

    # --- roles ----------------------------------------------------------------------------------------------

    def follow(self, leader: int) -> Bench:
        self.append(leader, max(1, self.machine.epoch), (self.log.last_epoch, self.log.log_end))
        assert self.machine.leader == leader
        return self

    def become(self, role: Role) -> Bench:
        if role >= Role.PRE_CANDIDATE:
            self.perform(self.machine.campaign(self.now_ms))
        enough = self.machine.voters[1 : self.machine.quorum]
        if role >= Role.CANDIDATE:
            for voter in enough:
                self.grant(voter, pre_vote=True)
        if role is Role.LEADER:
            for voter in enough:
                self.grant(voter)
        assert self.machine.role is role
        return self

    def lead(self) -> Bench:
        """Leader whose log is durable everywhere, told everyone, idle."""
        self.become(Role.LEADER)
        self.sync()
        for voter in self.machine.voters[1:]:
            self.answer(voter, self.log.log_end)
        while self.machine.next_tick_ms():
            self.tick()
            for voter in self.machine.voters[1:]:
                self.answer(voter, self.log.log_end)
        assert self.machine.commit == self.log.log_end
        return self


def sends(effects: Sequence[Effect], kind: type) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)]


def reply_in(effects: Sequence[Effect]) -> Send:
    """The only message in the effects."""
    (found,) = [effect for effect in effects if isinstance(effect, Send)]
    return found


def appends_to(effects: Sequence[Effect], peer: int) -> list[SendEntries]:
    return [effect for effect in effects if isinstance(effect, SendEntries) and effect.peer == peer]
