"""Who belongs to the group: configurations, and how they change (Raft thesis, chapter 4; rules R15, R34).

**One server at a time.** A change adds one learner, makes one learner a voter, or takes one member away, so that any
majority of the old voters and any of the new ones have a voter in common. A leader begins one only (`refusal_of`) once
it has committed an entry of its own epoch, since otherwise two leaders may each change the same old configuration in
another way (the bug of 2015); while no other is under way; and promotes only a learner that has caught up.

**In force when appended.** The latest configuration in the log counts, at every replica, committed or not: for
elections, for commits, for who is fed. If its entry is cut off, the one before it is in force again. The log keeps all
configurations from the one in force at the commit position on (`LogPositions.configurations`); below the first there is
the *boot* configuration, with which the replica was created. A group that never changed logs none, so its replicas must
all mean the same one, also one that is made again later, while a move is pending (seed 12001646 of the simulation).

**Who has a say** (R14). What a replica takes from whom cannot rest on its own configuration, which may be behind:

- Appends and snapshots of a current epoch, from anyone. A node sends them only if it won that epoch, and one node at
  most can: majorities of the configurations that can win an epoch have a voter in common. The epoch is the fence.
- Requests for votes, from anyone, also where this replica is no voter by what it knows. A vote is a promise about an
  epoch, kept durably whoever it was given to; whether it counts is for the candidate to say, whose log is at least as
  complete, and so knows at least as late a configuration. To refuse would leave a group without a leader whose newest
  voter has not heard yet that it is one. A removed replica disturbs nobody: pre-votes and votes are refused while a
  live leader is known, and it stops asking as soon as it knows that its removal is committed.
- Votes count from the voters of the own configuration only, answers to appends from those the leader feeds.

**Blank replicas.** A replica that is created as a learner may stand where an earlier one of the same node stood, whose
votes and acknowledgements it knows nothing of. Given a second time, in an old epoch, they could elect a second leader
of that epoch, or commit what a later one overwrote. So until it has an epoch it hears nothing but appends and snapshots
that say that they are for a learner, and its vote in the first epoch it enters belongs to the leader of that epoch.
That leader has the entry that made it a learner, and wins no epoch without the removal before it; and in earlier ones
this replica promises nothing. Promotion asks for an acknowledgement beyond the entry that added it, which the earlier
replica cannot have given.

In later epochs that is not enough. A candidate that missed the removal and what was committed since asks the voters of
long ago; the earlier replica, which held what it lacks, would have refused it, and the new one, still empty, does not
(seed 3000645 of the simulation). So a replica that comes by a move is suspect (R12) until it holds what is committed:
until then its vote counts where all voters gave theirs, and only there.

**A voter that is blank again** has lost its whole log, and its vote with it. Its leader knows it as a voter, so nothing
it sends is for a learner. That the change which brought it is done, and with it that it was made a voter, the cluster
log proves (`node/membership/assigned_replicas.py`): from then on it hears every sender, like any voter that lost its
disk, and is suspect like one (`was_made_voter`).

**A leader that is removed** leads until the entry is committed, without counting itself, then hands over.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from storage_nodes.limits import PARTITION_MEMBERS_MAX
from storage_nodes.protocol.configuration import Configuration, ConfigurationEntry

# Values that groups share.
SHARED_MAX = 1_024


class AddLearner(NamedTuple):
    node_id: int


class Promote(NamedTuple):
    """Make a learner a voter."""

    node_id: int


class Remove(NamedTuple):
    """Take a voter or a learner out of the group."""

    node_id: int


Change = AddLearner | Promote | Remove


class ConfigChangeError(enum.Enum):
    """Why a change is not begun; nothing has happened."""

    NOT_LEADER = "this replica does not lead the partition"
    NOT_SERVING = "the leader has not committed an entry of its own epoch yet"
    CHANGE_UNDER_WAY = "another change of the configuration is not committed yet"
    HANDING_OVER = "leadership is being handed over"
    ALREADY_VOTER = "the node is a voter already"
    NOT_A_LEARNER = "only a learner becomes a voter"
    NOT_CAUGHT_UP = "the learner does not hold enough of the log yet"
    SUSPECT = "the learner may lack what it acknowledged"
    LAST_VOTER = "the last voter cannot be removed"
    TOO_MANY_MEMBERS = "the group has as many members as a group may have"


def changed(configuration: Configuration, change: Change) -> Configuration:
    """The configuration after `change`; the same one where the node has that role already."""
    voters, learners = configuration
    node_id = change.node_id
    if isinstance(change, AddLearner):
        return configuration if node_id in configuration.members else Configuration(voters, (*learners, node_id))
    others = tuple(learner for learner in learners if learner != node_id)
    if isinstance(change, Promote):
        return configuration if node_id in voters else Configuration((*voters, node_id), others)
    return Configuration(tuple(voter for voter in voters if voter != node_id), others)


def config_change_error(configuration: Configuration, change: Change) -> ConfigChangeError | None:
    """Why `configuration` cannot be changed so, whatever the state of the group."""
    node_id = change.node_id
    if isinstance(change, AddLearner):
        if node_id in configuration.voters:
            return ConfigChangeError.ALREADY_VOTER
        if node_id not in configuration.learners and len(configuration.members) >= PARTITION_MEMBERS_MAX:
            return ConfigChangeError.TOO_MANY_MEMBERS
    elif isinstance(change, Promote):
        if node_id not in configuration.members:
            return ConfigChangeError.NOT_A_LEARNER
    elif configuration.voters == (node_id,):
        return ConfigChangeError.LAST_VOTER
    return None


@lru_cache(SHARED_MAX)
def node_set(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Each once, in order. Thousands of groups share the few results there are; a set would weigh more."""
    return tuple(sorted(set(nodes)))


class Membership:
    """The configuration in force at one replica, and what follows from it. Never changed: another one takes its place
    whenever the log's configurations changed, and the thousands of groups that have that of their boot share a few.
    """

    __slots__ = (
        "_boot", "_node_id", "before", "configuration", "end_offset", "history", "is_voter", "lost_log", "quorum",
        "settled", "voters",
    )  # fmt: skip

    def __init__(
        self,
        node_id: int,
        boot: Configuration,
        history: Sequence[ConfigurationEntry],
        commit: int,
        lost_log: bool = False,
    ) -> None:
        """Use `of`."""
        self._node_id = node_id
        self._boot = boot
        # Made as a learner and a voter since, whatever its log knows of that.
        self.lost_log = lost_log
        self.history = history
        self.end_offset, self.configuration = history[-1] if history else (0, boot)
        # The one before the configuration in force: in force again if that one is cut off.
        self.before = history[-2].configuration if len(history) > 1 else boot
        self.voters = self.configuration.voters
        self.is_voter = self._node_id in self.voters
        self.quorum = len(self.voters) // 2 + 1
        # Is its entry known to be committed? The boot configuration needs no entry.
        self.settled = self.end_offset <= commit

    @staticmethod
    def of(
        node_id: int, boot: Configuration, history: Sequence[ConfigurationEntry], commit: int, lost_log: bool = False
    ) -> Membership:
        """By the latest configuration of the log, oldest first in `history`."""
        if history or lost_log:
            return Membership(node_id, boot, history, commit, lost_log)
        return _of_boot(node_id, boot)

    def read(self, history: Sequence[ConfigurationEntry], commit: int) -> Membership:
        """The log's configurations are these now."""
        return Membership.of(self._node_id, self._boot, history, commit, self.lost_log)

    def when_settled(self) -> Membership:
        """The entry of the configuration in force is committed."""
        return self.read(self.history, self.end_offset)

    def without_log(self) -> Membership:
        """It was made a voter, and its log does not know of that."""
        return Membership.of(self._node_id, self._boot, self.history, self.end_offset if self.settled else 0, True)

    def can_campaign(self) -> bool:
        """May this replica campaign? One that is removed by an entry that may yet be cut off still may: it can be the
        only one whose log is complete enough."""
        return self.is_voter or (not self.settled and self._node_id in self.before.voters)

    def all_voters(self) -> set[int]:
        """Without whom nothing can have been committed: if the latest configuration may be cut off, the voters of the
        one before it can have gone on without it."""
        return {*self.voters} if self.settled else {*self.voters, *self.before.voters}

    def is_majority(self, nodes: Collection[int]) -> bool:
        """Are more than half of the voters among `nodes`? Nobody else counts."""
        return sum(map(self.counts, nodes)) >= self.quorum

    def counts(self, node_id: int) -> bool:
        """Whose vote counts (R6): that of a voter of the latest configuration in the log."""
        return node_id in self.voters

    def uninitialized(self, epoch: int) -> bool:
        """Created as a learner, and nobody has led it in any epoch yet."""
        return epoch == 0 and not self.lost_log and self._node_id in self._boot.learners


@lru_cache(SHARED_MAX)
def _of_boot(node_id: int, boot: Configuration) -> Membership:
    return Membership(node_id, boot, (), 0)


class Grouped:
    """What others may ask a machine about its group."""

    __slots__ = ()
    epoch: int
    members: Membership

    @property
    def configuration(self) -> Configuration:
        """The latest one in the log: in force, committed or not."""
        return self.members.configuration

    @property
    def configuration_pending(self) -> bool:
        """Is it not known to be committed?"""
        return not self.members.settled

    def waits_to_be_added(self) -> bool:
        """Has no leader made this learner's acquaintance yet? It has no say, and its group none without it."""
        return not self.members.is_voter and self.members.uninitialized(self.epoch)

    @property
    def history(self) -> Sequence[ConfigurationEntry]:
        """The log's configurations as this machine knows them."""
        return self.members.history

    @property
    def voters(self) -> tuple[int, ...]:
        return self.members.voters

    @property
    def learners(self) -> tuple[int, ...]:
        return self.members.configuration.learners

    @property
    def quorum(self) -> int:
        return self.members.quorum
