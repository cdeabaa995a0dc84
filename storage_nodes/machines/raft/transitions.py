"""Every role and every input, as data: the roles a replica may be in afterwards.

`ILLEGAL` pairs are bugs of the driver and stopped by an assertion. Inputs are named after what is special about
them; `current` means "of the own epoch", `stale` of a lower, `newer` of a higher one. The unit tests walk the whole
table in both directions (nothing else happens; everything named does), the simulation checks every step it takes
against it.
"""

from __future__ import annotations

import enum

from storage_nodes.machines.raft.effects import Role

F, P, C, L = Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEADER


class Input(enum.Enum):
    PROPOSED = "proposed"
    DURABLE = "durable"
    SENT = "sent"
    CAMPAIGN = "campaign"
    TICK = "tick"
    PEER_UP = "peer up"
    PEER_DOWN = "peer down"
    APPEND_STALE = "append, stale"
    APPEND_CURRENT = "append, current"
    APPEND_NEWER = "append, newer"
    APPEND_REPLY_STALE = "append reply, stale"
    APPEND_REPLY_CURRENT = "append reply, current"
    APPEND_REPLY_NEWER = "append reply, newer"
    PRE_VOTE_REQUEST = "pre-vote request"
    VOTE_REQUEST_STALE = "vote request, stale"
    VOTE_REQUEST_CURRENT = "vote request, current"
    VOTE_REQUEST_NEWER = "vote request, newer"
    PRE_VOTE_GRANTED = "pre-vote granted"
    VOTE_GRANTED = "vote granted"
    REFUSED = "vote or pre-vote refused, not newer"
    REFUSED_NEWER = "vote or pre-vote refused, newer"
    TRANSFER = "transfer"
    SNAPSHOT_ENDED = "snapshot ended"
    STOOD_STILL = "stood still"
    INSTALLED = "installed"
    SNAPSHOT_STALE = "snapshot, stale"
    SNAPSHOT_CURRENT = "snapshot, current"
    SNAPSHOT_NEWER = "snapshot, newer"
    TIMEOUT_NOW = "timeout now"
    CHANGE_CONFIGURATION = "change of the configuration"
    CONFIGURED = "configured"
    PROMISED = "promised"
    CONFIRM = "confirm"
    BECAME_SUSPECT = "became suspect"


ILLEGAL: frozenset[Role] = frozenset()

# Of two that ask each other for pre-votes at the same moment one lets the other go first. A LEADER whose successor did
# not take over stands again. A single voter goes straight from FOLLOWER to LEADER when it campaigns. APPEND_CURRENT at
# a LEADER raises SafetyViolation: two leaders in one epoch. A vote request that a hand-over caused deposes the LEADER.
# Whoever learns, from its log or by a snapshot, that it is no voter any more campaigns no more; a LEADER that is
# removed hands over. Answers of nodes that are no members change nothing, however new their epoch.
TRANSITIONS: dict[Input, dict[Role, frozenset[Role]]] = {
    Input.PROPOSED: {F: ILLEGAL, P: ILLEGAL, C: ILLEGAL, L: frozenset({L})},
    Input.DURABLE: {role: frozenset({role}) for role in Role},
    Input.SENT: {role: frozenset({role}) for role in Role},
    Input.CAMPAIGN: {F: frozenset({F, P, L}), P: frozenset({P}), C: frozenset({C}), L: frozenset({L})},
    Input.TICK: {F: frozenset({F, P, L}), P: frozenset({P}), C: frozenset({C, P}), L: frozenset({L, F, P})},
    Input.PEER_UP: {role: frozenset({role}) for role in Role},
    Input.PEER_DOWN: {role: frozenset({role}) for role in Role},
    Input.APPEND_STALE: {role: frozenset({role}) for role in Role},
    Input.APPEND_CURRENT: {F: frozenset({F}), P: frozenset({F}), C: frozenset({F}), L: ILLEGAL},
    Input.APPEND_NEWER: {role: frozenset({F}) for role in Role},
    Input.APPEND_REPLY_STALE: {role: frozenset({role}) for role in Role},
    Input.APPEND_REPLY_CURRENT: {role: frozenset({role}) for role in Role},
    Input.APPEND_REPLY_NEWER: {role: frozenset({F, role}) for role in Role},
    Input.PRE_VOTE_REQUEST: {F: frozenset({F}), P: frozenset({P, F}), C: frozenset({C}), L: frozenset({L})},
    Input.VOTE_REQUEST_STALE: {role: frozenset({role}) for role in Role},
    Input.VOTE_REQUEST_CURRENT: {role: frozenset({role}) for role in Role},
    Input.VOTE_REQUEST_NEWER: {F: frozenset({F}), P: frozenset({F}), C: frozenset({F}), L: frozenset({L, F})},
    Input.PRE_VOTE_GRANTED: {F: frozenset({F}), P: frozenset({P, C}), C: frozenset({C}), L: frozenset({L})},
    Input.VOTE_GRANTED: {F: frozenset({F}), P: frozenset({P}), C: frozenset({C, L}), L: frozenset({L})},
    Input.REFUSED: {role: frozenset({role}) for role in Role},
    Input.REFUSED_NEWER: {role: frozenset({F, role}) for role in Role},
    Input.SNAPSHOT_ENDED: {role: frozenset({role}) for role in Role},
    # A single voter needs nobody else, and leads on.
    Input.STOOD_STILL: {F: frozenset({F}), P: frozenset({P}), C: frozenset({C}), L: frozenset({L, F})},
    Input.INSTALLED: {F: frozenset({F}), P: frozenset({P, F}), C: frozenset({C, F}), L: ILLEGAL},
    Input.SNAPSHOT_STALE: {role: frozenset({role}) for role in Role},
    Input.SNAPSHOT_CURRENT: {F: frozenset({F}), P: frozenset({F}), C: frozenset({F}), L: ILLEGAL},
    Input.SNAPSHOT_NEWER: {role: frozenset({F}) for role in Role},
    Input.TRANSFER: {role: frozenset({role}) for role in Role},
    Input.CHANGE_CONFIGURATION: {F: ILLEGAL, P: ILLEGAL, C: ILLEGAL, L: frozenset({L})},
    Input.CONFIGURED: {F: frozenset({F}), P: frozenset({P, F}), C: frozenset({C, F}), L: frozenset({L})},
    Input.PROMISED: {role: frozenset({role}) for role in Role},
    Input.CONFIRM: {role: frozenset({role}) for role in Role},
    # A single voter elects itself at once.
    Input.BECAME_SUSPECT: {F: frozenset({F}), P: frozenset({F}), C: frozenset({F}), L: frozenset({P, L})},
    Input.TIMEOUT_NOW: {F: frozenset({F, C, L}), P: frozenset({P}), C: frozenset({C}), L: frozenset({L})},
}

assert all(set(row) == set(Role) for row in TRANSITIONS.values()) and set(TRANSITIONS) == set(Input)
