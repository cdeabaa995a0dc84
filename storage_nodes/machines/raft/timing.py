"""Delays of the Raft machine, derived from the bounds in `storage_nodes/limits.py`."""

from __future__ import annotations

from storage_nodes.limits import COMMIT_NOTICE_MS, ELECTION_JITTER_MS, PEER_TIMEOUT_MS

# How long a leader keeps leading without a majority of nodes up, and a fresh replica waits to hear from a leader.
ELECTION_TIMEOUT_MS = PEER_TIMEOUT_MS
# An append or commit notice that was not answered for this long is sent again. Longer than any healthy fsync,
# because what was not lost would be sent twice.
RETRANSMIT_MS = PEER_TIMEOUT_MS
# A candidate that did not win waits 1, 2, 4, 8 times the jitter (and as much again, at random): after the loss of a
# node with thousands of leaders the disks are busy with votes, and impatience would only add to them.
BACKOFF_DOUBLINGS_MAX = 3
RETRY_MS_MAX = 2 * (ELECTION_JITTER_MS << BACKOFF_DOUBLINGS_MAX)
# Appends tracked one by one per follower; what comes on top is added to the last one's bytes.
APPENDS_TRACKED_MAX = 64

assert COMMIT_NOTICE_MS < RETRANSMIT_MS, "a notice must go out before it is repeated"
assert ELECTION_JITTER_MS > 0
