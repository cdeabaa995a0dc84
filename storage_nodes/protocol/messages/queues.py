"""Messages of queue partitions: what clients ask of a queue, its settings, and what its operators look at."""

from __future__ import annotations

import enum

import msgspec

from storage_nodes.protocol.messages.core import Message

# How attempt ids begin that the storage client gives to receives whose caller named none. Callers' ids are text.
CLIENT_ATTEMPT_PREFIX = b"\0"


def is_client_attempt(attempt: bytes) -> bool:
    return attempt.startswith(CLIENT_ATTEMPT_PREFIX)


class SendRequest(Message, frozen=True):
    """Append messages. `plain` promises that no record body has headers.

    With a producer (0 to 2^63-1) a repeat is recognised: whatever attempt of the same (producer_id, producer_epoch,
    sequence) comes first is appended, the others are answered as it was. `sequence` is that of the first record, the
    others count on from it; each is used once in a partition.
    """

    partition: int
    bodies: list[bytes]
    plain: bool = True
    acks: int = 2
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1


# Stands in SendReply.duplicates for an original: no offset is below 0.
NOT_TAKEN = -1


class SendReply(Message, frozen=True):
    """Record i stands at first_offset + i; timestamp_ms is the append time of all of them.

    `duplicates` lists those that repeat a deduplication id: (index in the request, offset of the original message).
    The original is committed by then (R28). NOT_TAKEN in the place of the offset: the partition is closed, and the
    message is nowhere.
    `stretches` is of a request that an earlier leader appended in part before it was repeated: (index, offset), from
    this record on they stand side by side from this offset on.
    """

    first_offset: int
    timestamp_ms: int
    duplicates: list[tuple[int, int]] = msgspec.field(default_factory=list)
    stretches: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def offset_of(self, index: int) -> int:
        for first, offset in reversed(self.stretches):
            if index >= first:
                return offset + index - first
        return self.first_offset + index


class AcquireRequest(Message, frozen=True):
    """Lease up to max_messages for visibility_ms; wait up to wait_ms for the first one (0 = do not wait).

    `attempt` names the receive on a FIFO queue: within five minutes the same attempt gets the same messages again,
    their visibility counted again, unless one of them changed its state since. OVER_LIMIT where it would get some, and
    what such receives got already is all that can be remembered; one that the storage client named
    (CLIENT_ATTEMPT_PREFIX) is served all the same, and not remembered.
    `tags`, on a standard queue: only messages with one of them; none: whatever there is.
    """

    partition: int
    max_messages: int
    visibility_ms: int
    wait_ms: int = 0
    attempt: bytes = b""
    tags: list[bytes] = msgspec.field(default_factory=list)


class AcquiredMessage(Message, frozen=True):
    """`delivery` begins with 1 and is part of the receipt (how often the message was received is read off it:
    deliveries.py); first_received_ms and sent_ms are ms since the epoch."""

    offset: int
    delivery: int
    sent_ms: int
    first_received_ms: int
    body: bytes


class AcquireReply(Message, frozen=True):
    """`deadline_ms`, of a FIFO queue, is when the leases end, in the partition's time: a receive that is repeated gives
    the same deliveries once more, and only their deadline tells the two leases apart. 0 on a standard queue."""

    epoch: int
    messages: list[AcquiredMessage]
    deadline_ms: int = 0


class DeleteRequest(Message, frozen=True):
    """Receipts are (offset, delivery)."""

    partition: int
    receipts: list[tuple[int, int]]


class CodesReply(Message, frozen=True):
    """One ErrorCode number per item of the request, in its order."""

    codes: list[int]


class VisibilityMode(enum.IntEnum):
    """What a change of visibility means. Numbers are on the wire."""

    SET = 0  # visible when it says, 0 = at once
    NACK = 1  # the receive failed: as if its lease had run out now; visibility_ms is 0, the retry policy says when
    UNCOUNTED = 2  # as SET, and the receive does not count
    HELD = 3  # as SET, but only while the lease holds: of an attempt that may repeat one, of who gives back unasked
    UNSEEN = 4  # as UNCOUNTED at once: of who leased for another one, who never saw the message. It is not billed


class ChangeVisibilityRequest(Message, frozen=True):
    """Changes are (offset, delivery, visibility_ms from now; 0 makes the message available at once).

    `epoch` of the leadership that gave the leases, 0 = not named. A standard queue's lease may be lost with its leader
    and be given by the next one under the same numbers: that one is not meant.
    `deadline_ms` of the answer that brought the leases, where they are handed back because nobody has them, 0 = not
    named. A FIFO queue's leases with another deadline are not meant: the receive was repeated, or its consumer acted.
    """

    partition: int
    changes: list[tuple[int, int, int]]
    mode: int = 0
    epoch: int = 0
    deadline_ms: int = 0


class PurgeRequest(Message, frozen=True):
    """`attempt` names the call: tried again, it hears what its earlier attempt did."""

    partition: int
    attempt: bytes = b""


class PurgeReply(Message, frozen=True):
    purged: int


class RetryKind(enum.IntEnum):
    """How the pause before another receive grows. Numbers are on disk; 0 = there is none."""

    FIXED = 1
    LINEAR = 2
    EXPONENTIAL = 3


class QueueConfig(Message, frozen=True):
    """The part of a queue's configuration that its partitions enforce.

    fifo                   order within message groups; fixed when the partition is made
    dedup_window_ms        how long a deduplication id is remembered
    max_receives           a message received so often and not deleted moves to the dead-letter queue; 0 = it has none
    dead_letter_partition  where it moves to
    paused                 nothing is handed out; everything else goes on
    park_groups            FIFO: a group whose message became a dead letter is held until it is unparked
    retry_*                the pause before a message whose receive failed is available again
                           (machines/queue/state/retry.py)
    closed                 FIFO: takes no message any more, and only says which it took already (by deduplication id);
                           for good, whatever a later configuration says
    dead_letter_groups     FIFO: partitions over which the groups of the dead-letter queue are spread; () = it has one
    account_id             who is billed for it; "" = nobody, and nothing is metered
    """

    retention_ms: int = 345_600_000
    in_flight_max: int = 120_000
    fifo: bool = False
    dedup_window_ms: int = 300_000
    max_receives: int = 0
    dead_letter_partition: int = 0
    paused: bool = False
    retry_kind: int = 0
    retry_delay_ms: int = 0
    retry_max_ms: int = 0
    retry_jitter_permille: int = 0
    park_groups: bool = False
    closed: bool = False
    dead_letter_groups: tuple[int, ...] = ()
    account_id: str = ""


class ConfigureRequest(Message, frozen=True):
    partition: int
    config: QueueConfig


class ConfigureReply(Message, frozen=True):
    """How many messages the partition held, in whatever state, where its log took the configuration over."""

    messages: int = 0


class RetireRequest(Message, frozen=True):
    """The partition is to be deleted: from its commit on it takes no requests, and its last usage is exported. Asked
    again until the answer says that this is confirmed. id and tag must both match."""

    partition: int
    tag: str


class RetireReply(Message, frozen=True):
    """`is_confirmed`: the usage stream has all of the partition's usage, or it is gone; then it may be deleted."""

    is_confirmed: bool


class QueueStatsRequest(Message, frozen=True):
    partition: int


class QueueStats(Message, frozen=True):
    """Counts of messages: waiting (visible), in flight, delayed; oldest_sent_ms is 0 where nothing waits.

    On FIFO queues `groups` are the message groups with messages in view of the leader, `locked_groups` those of them
    that have messages in flight. Totals since the partition was made: `duplicates` that were dropped, `dead_lettered`,
    `expired`, which outlived their retention, and `purged`.
    `parked_groups` are held. On standard queues `groups` are those with messages in flight,
    `noisy_groups` those of them that are noisy now, `noisy_waiting` messages of such groups that others go before.
    `scheduled` messages are delayed ones that have a due time of their own.
    """

    waiting: int
    in_flight: int
    delayed: int
    oldest_sent_ms: int = 0
    groups: int = 0
    locked_groups: int = 0
    duplicates: int = 0
    dead_lettered: int = 0
    parked_groups: int = 0
    noisy_groups: int = 0
    noisy_waiting: int = 0
    scheduled: int = 0
    expired: int = 0
    purged: int = 0


class ParkedGroupsRequest(Message, frozen=True):
    """Groups that are held, by name, from the first one behind `after` on."""

    partition: int
    after: bytes = b""
    groups_max: int = 100


class ParkedGroup(Message, frozen=True):
    """Held since since_ms (ms since the epoch), when its message at `offset` became a dead letter. `messages` stand in
    it, as far as the leader has looked ahead."""

    group: bytes
    since_ms: int
    offset: int
    messages: int


class ParkedGroupsReply(Message, frozen=True):
    """`total` counts all of the partition."""

    groups: list[ParkedGroup]
    total: int


class UnparkRequest(Message, frozen=True):
    """Hand these groups out again, in their order; none named = all. Answered with CodesReply after commit, one code a
    group: UNKNOWN_RECORD for one that is not held."""

    partition: int
    groups: list[bytes]


class MessageState(enum.IntEnum):
    """Where a message stands. Bits, so that a browse can ask for several. Numbers are on the wire."""

    WAITING = 1
    IN_FLIGHT = 2
    DELAYED = 4


class QueueBrowseRequest(Message, frozen=True):
    """Look at messages from an offset on, in log order, without leasing them; `states` is a sum of MessageState."""

    partition: int
    from_offset: int
    messages_max: int
    states: int = 7


class BrowsedMessage(Message, frozen=True):
    """`deadline_ms` is when an in-flight or delayed message is visible; 0 for one that waits. `delivery`: how often it
    was received."""

    offset: int
    state: int
    delivery: int
    deadline_ms: int
    sent_ms: int
    body: bytes
    first_received_ms: int = 0


class QueueBrowseReply(Message, frozen=True):
    """Look on at next_offset; it is the log's end when nothing is left to look at."""

    messages: list[BrowsedMessage]
    next_offset: int
    log_end: int


class ScheduledRequest(Message, frozen=True):
    """Look at scheduled messages beyond (after_due_ms, after_offset), in the order in which they are due, those due by
    until_ms."""

    partition: int
    messages_max: int
    after_due_ms: int = -1
    after_offset: int = -1
    until_ms: int = 2**63 - 1


class ScheduledMessage(Message, frozen=True):
    offset: int
    due_ms: int
    body: bytes


class ScheduledReply(Message, frozen=True):
    """Look on beyond (last_due_ms, last_offset); a page may be empty and not the last."""

    messages: list[ScheduledMessage]
    last_due_ms: int
    last_offset: int
    more: bool


class RescheduleRequest(Message, frozen=True):
    """Changes are (offset, due_ms; 0 = cancel). Answered with a CodesReply: OK, or NOT_SCHEDULED for a message that is
    due, gone, or never was scheduled, to which nothing happens."""

    partition: int
    changes: list[tuple[int, int]]


class QueueRemoveRequest(Message, frozen=True):
    """Remove the messages at these offsets, whoever has leased them; answered with one code each, UNKNOWN_RECORD for
    what is gone. `moved`: they stand in the dead-letter queue by now, and count as such."""

    partition: int
    offsets: list[int]
    moved: bool = False


class DeathReason(enum.IntEnum):
    """Why a message became a dead letter. Numbers are in messages: never reuse one. 0 = it was not noted yet."""

    MAX_RECEIVES = 1  # it was received as often as its queue allows, and not deleted
    MOVED = 2  # somebody moved it, and says why in the note


class DeadSource(Message, frozen=True):
    """Content of HEADER_DEAD_SOURCE: where a dead letter stood, and its life there (ms since the epoch).

    It died when its last lease ended, at died_ms, for a `DeathReason`, in a queue that allowed receives_max receives.
    `note` is of who moved it there by hand. `offset` is where it was sent to, `place` where it lay at last; the others
    say what the queue it goes to may forget (machines/queue/state/taken_letters.py), and are 0 where a hand moved it.
    """

    partition: int
    offset: int
    sent_ms: int
    first_received_ms: int
    receives: int
    reason: int = 0
    died_ms: int = 0
    receives_max: int = 0
    note: str = ""
    place: int = -1
    term: int = 0
    move: int = 0
    kept: int = 0
