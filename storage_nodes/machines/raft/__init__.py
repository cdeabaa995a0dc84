"""Raft, one machine per partition; docs/storage.md, section "Raft". Elections, and why they come about.

**Elections.** A replica without a leader asks for *pre-votes*, which change nothing anywhere; with a majority of
them it raises the epoch, votes for itself (durably, before anyone hears of it, R1) and asks for votes. Both are
refused to a less complete log, and while a live leader is known (R10), unless that leader itself hands over; also for
as long after that as the leader may count on the vote (`leadership.py`, "Lease"), by which it answers (R8). The winner
appends an epoch-start entry and serves once that is committed (R13).

**Liveness of a leader is the liveness of its node**: heartbeats are per pair of nodes and say nothing about groups,
so an idle group costs nothing: a follower whose leader's node is up has no timer at all. That a replica never waits
for ever for a leader that is none rests on four rules.

  1. *Whoever has no leader campaigns.* A voter that is neither leader nor follows one keeps a timer, and asks for
     pre-votes again and again (rarely while a majority of nodes is down: it could not win). A leader that steps
     down, for whatever reason, becomes such a replica; so does one that starts, and one whose leader's node goes
     down.
  2. *Who asks does not lead.* A request for an epoch above the receiver's, from the node the receiver takes for its
     leader, proves that this node does not lead the receiver's epoch: the receiver forgets its leader, and rule 1
     holds for it too. A node restart is announced by the driver as peer_down followed by peer_up, with the same
     effect.
  3. *Who leads insists.* A leader sends to every peer whose node is up until that peer has answered, again after
     every peer_up, and at once to a peer that asks it for votes.
  4. *Who may have left must be heard of.* A leader that is no voter by the follower's configuration is followed with a
     timer, which its appends put off: it may leave, and its replica be dropped, while its node stays up. And who
     refuses a vote to somebody who could win, because its own leader's node is up, asks that leader to go on sending,
     and forgets it if it does not.

Suppose F follows L, and L's node is up for F. If L leads F's epoch, then all is well: by rule 3, F gets whatever
there is to get, however many messages are lost. If L does not, it either has no leader, and then by rules 1 and 2 F
hears of it; or follows N in a higher epoch. Then either N leads, and by rule 3 N's append reaches F (or N's node is
down for F alone, and does so when it is up again), or the same argument holds for L and N, with a higher epoch. If
N's node goes down, L has no leader: the first case. Epochs are finitely many, so the chain ends. A replica that is
ahead in epoch of a working leader (it was a candidate while cut off) cannot be led by it; it asks for pre-votes,
the leader answers by rule 3, is refused with the higher epoch, steps down, and campaigns. A hand-over changes none
of this: its target becomes a candidate, which keeps a timer, and whoever voted for it has no leader, and keeps one.
Where L's replica left the group, most of the voters that are left hold the entry that removed it, and keep a timer by
rule 4; when one of them campaigns, so do, by rule 4 again, those that do not hold it yet.

**Suspect replicas** (R12): one whose disk may have lost what it acknowledged, or votes it gave: its directory was empty
when it should not have been, or a checksum failed. Its votes are marked, and a candidate, suspect or not, wins with a
majority of unmarked votes, or with the votes of *all* voters (R12b: then the most complete log of all there are wins; a
new cluster, where everybody's directory is empty, starts this way). All are also those of the configuration before,
while the entry of the present one may yet be cut off: they can have gone on without it. Its acknowledgements count,
being of its present disk. It is trusted again once it holds, in an epoch that a leader serves, everything committed:
what it lost that had counted is among that. But it may have forgotten a vote, or an acknowledgement, in a later epoch
than that of whoever speaks to it first; a deposed leader that does not know so yet would commit with it what the later
epoch committed otherwise (seed 7000868, three voters). So a suspect voter deposes the first leader that speaks to it,
unless it voted for that one since its loss: whoever leads then has the votes of a majority that lost nothing, given
after the loss. Left open: a vote that was given before the loss, in an epoch above that one too, to a candidate that a
majority without it knows nothing of (five voters or more).
"""
