"""Every bound of this plane, in one place, with the relations between them asserted. Names end in their unit.

`gcra.py` beside this file holds the leaky buckets that enforce the request rates.

Surface: other planes may import this module.
"""

from __future__ import annotations

from storage_nodes import limits as storage_limits
from storage_nodes.limits import (
    ACQUIRE_WAIT_MS_MAX,
    BROWSE_MESSAGES_MAX,
    FRAME_BYTES_MAX,
    RECORD_BYTES_MAX,
    VISIBILITY_MS_MAX,
)

KIB = 1024
MIB = 1024 * KIB

# --- messages (SQS-compatible) ------------------------------------------------------------------------------
MESSAGE_BYTES_MAX = 1 * MIB
BATCH_BYTES_MAX = 1 * MIB
BATCH_ENTRIES_MAX = 10
BATCH_ENTRY_ID_CHARS_MAX = 80
RECEIVE_MESSAGES_MAX = 10
# Names of attributes that an SQS receive asks for. Ten messages of ten attributes have a hundred. Each attribute is
# compared with each prefix: so many cost a millisecond of the event loop. A form has no more fields either.
RECEIVE_NAMES_MAX = 1_000
RECEIVE_WAIT_S_MAX = 20
# A long poll that takes so much longer than it was asked to wait asks whether its queue is there still.
POLL_OVERDUE_MS = 500
VISIBILITY_S_MAX = 43_200
DELAY_S_MAX = 900
MESSAGE_ATTRIBUTES_MAX = 10
ATTRIBUTE_NAME_CHARS_MAX = 256
ATTRIBUTE_TYPE_CHARS_MAX = 256
# Also of deduplication ids and of receive attempts.
GROUP_ID_CHARS_MAX = 128
DEDUP_KEY_BYTES_MAX = 128
SEQUENCE_DIGITS = 20
MOVE_TASKS_LISTED_MAX = 10
MOVE_MESSAGES_PER_S_MAX = 500
TRACE_HEADER_CHARS_MAX = 2_048
QUEUE_NAME_CHARS_MAX = 80
LIST_RESULTS_MAX = 1_000
TAGS_MAX = 50
TAG_KEY_CHARS_MAX = 128
TAG_VALUE_CHARS_MAX = 256
PARTITIONS_PER_QUEUE_MAX = 64
PARTITIONS_PER_LEVEL_MAX = 16
PRIORITY_LEVELS_MAX = 10
# Of a FIFO queue that is made for throughput and does not say how many.
FIFO_PARTITIONS_DEFAULT = 4
# Sequence numbers have 20 digits: room for so many changes of a FIFO queue's partitions, and so many offsets in each.
FIFO_GENERATIONS_MAX = 9_999
FIFO_GENERATION_STEP = 10**16
# A send that comes while the partitions of its FIFO queue change is routed anew so often, after such a pause.
ROUTE_ATTEMPTS_MAX = 5
ROUTE_PAUSE_MS = 200
# A partition that was found empty is not the first one to be asked for so many receives.
EMPTY_PARTITION_BACKOFF_POLLS = 8

# Scheduled messages: a page of them, unless asked for otherwise, at most, and how many a request may change.
SCHEDULED_LISTED = 100
SCHEDULED_LISTED_MAX = 500
SCHEDULED_CHANGED_MAX = 100
# --- message browser ----------------------------------------------------------------------------------------
# One request looks at so much and answers how far it came; the caller goes on from there.
BROWSER_MESSAGES_SHOWN_MAX = 100
BROWSER_MESSAGES_SHOWN_DEFAULT = 10
BROWSER_ANSWER_BYTES_MAX = 2 * MIB
BROWSER_SCAN_MESSAGES_MAX = 10_000
BROWSER_SCAN_PAGES_MAX = 20
BROWSER_SCAN_S_MAX = 2.0
# Of one look at storage.
BROWSER_PAGE_MESSAGES_MAX = 500
# Of them so many are opened in one turn of the event loop, about a millisecond; then others have their turn.
BROWSER_TURN_MESSAGES_MAX = 25
BROWSER_CALLS_MAX = 8
# Queues whose messages one request counts.
COUNTED_QUEUES_MAX = 50
BROWSER_CONDITION_ITEMS_MAX = 10
BROWSER_CONDITION_TEXT_CHARS_MAX = 256
BROWSER_REASON_CHARS_MAX = 200
# Prefix of the deduplication id that a message sent anew has on a FIFO queue, so that the same change counts once.
BROWSER_DEDUP_PREFIX = "resend-"

# --- bulk: REST, and the bulk socket -------------------------------------------------------------------------
# Of one call or frame: messages sent, given out or settled; and its bytes, as they come over the network.
BULK_MESSAGES_MAX = 500
BULK_BYTES_MAX = 4 * MIB
# Sends of more than BATCH_ENTRIES_MAX messages under way at a front end. Accounts share them (routing/bulkhead.py).
BULK_SENDS_MAX = 64
# Bodies that one storage call carries; what goes beyond it goes in several, one after the other where order counts.
STORAGE_SEND_BYTES_MAX = BATCH_BYTES_MAX + 64 * KIB
# msgpack: how deep it may be, and how many values it may have. 500 messages with all that one may have make 50,000.
MSGPACK_DEPTH_MAX = 8
MSGPACK_VALUES_MAX = 60_000
# JSON: the same, names of members included.
JSON_VALUES_MAX = 60_000

# --- HTTP ---------------------------------------------------------------------------------------------------
# A message of 1 MiB arrives as JSON in which a character takes up to three times its UTF-8 bytes.
REQUEST_BODY_BYTES_MAX = 4 * MIB
# A body over the limit is read and thrown away up to here, so that the connection stays usable; beyond, it is closed.
REQUEST_DRAIN_BYTES_MAX = 16 * MIB
# Of what a client still sends after its request was refused, so much is thrown away, for so long, before the
# connection is closed: bytes that are unread then would have the kernel reset it, and the client lose the answer.
LINGER_BYTES_MAX = 64 * MIB
LINGER_S_MAX = 5.0
REQUEST_READ_S_MAX = 30.0
# Besides, a body must have arrived at this rate once it is so old. A body of the largest size needs a hundred times it.
BODY_GRACE_S = 10.0
BODY_BYTES_PER_S_MIN = 1 * KIB
REQUEST_HEADER_BYTES_MAX = 32 * KIB
REQUEST_HEADERS_MAX = 100
# Of what is passed on to the control plane.
PATH_BYTES_MAX = 1 * KIB
QUERY_BYTES_MAX = 8 * KIB
# The SQS query protocol: a full batch with all its attributes has some 450 fields.
FORM_FIELDS_MAX = 1_000
FORM_NAME_BYTES_MAX = 256
FORM_NAME_PARTS_MAX = 8
# Bytes of an unfinished header that a connection may hold; one read of the event loop may come on top.
PARTIAL_HEADER_BYTES_MAX = 64 * KIB
# Held of all unfinished headers: 1,024 of the largest size, or 60,000 of 1 KiB. Addresses share it.
HEADERS_HELD_BYTES_MAX = 64 * MIB
# Requests of one connection that wait behind the one being answered; with more of them nothing further is read.
PIPELINED_MAX = 4
HEADER_READ_S_MAX = 10.0
KEEP_ALIVE_S = 75
CONNECTIONS_BACKLOG_MAX = 2_048
# Accepted in one turn of the event loop, some 10 ms of work; and the pause where no descriptor is free.
ACCEPTED_PER_TURN_MAX = 128
ACCEPT_PAUSE_S = 0.1
# Parked polls, sockets, and as many again for requests. Fewer where the process may not open so many files: some are
# kept for storage nodes, metadata and the control plane.
CONNECTIONS_MAX = 60_000
FILES_KEPT = 1_024
REFUSALS_TOLD_EVERY_S = 10.0
# Where there are as many: a look at all of them (some 60 to 90 ms at 60,000) makes room for this part of them at once,
# or there is no other look for a while.
CROWD_PARTS = 64
CROWD_LOOK_EVERY_S = 0.1
# Connections that were refused, and whose clients may still send what they are about to: of the files that are kept.
REFUSED_LINGERING_MAX = 128
REFUSED_LINGER_S_MAX = 1.0
# A client that sends no more, to which an answer is due: the longest that the control plane may take; the time in which
# the host of one that has left altogether says so; and how often it is looked at from then on.
HALF_CLOSED_S_MAX = 30.0
HALF_CLOSED_FIRST_LOOK_S = 0.02
HALF_CLOSED_LOOK_S = 0.5
# Of each kind of warning that clients can cause at will.
FLOOD_TOLD_EVERY_S = 1.0
# TLS: handshakes that are under way, which stand under FILES_KEPT, and how often the certificate's files are looked at.
TLS_HANDSHAKE_S_MAX = 10.0
TLS_HANDSHAKES_MAX = 512
TLS_CERTIFICATE_LOOK_S = 2.0
# One that was refused is tried again at each so many-th look.
TLS_CERTIFICATE_RETRY_LOOKS = 30
# A client that does not take what it asked for: in each window it must take this much, once more than the event loop's
# high-water mark (64 KiB) is held for it. 4 KiB/s is a tenth of what a bad mobile network gives.
WRITE_WINDOW_S = 20.0
WRITE_BYTES_PER_S_MIN = 4 * KIB
# Held for one connection: never more than one answer and the marks of its protocol.
CONNECTION_HELD_BYTES_MAX = 64 * MIB
# Held for all connections of a front end.
ANSWERS_HELD_BYTES_MAX = 256 * MIB
# Held of all request bodies that come in several reads or are large, until they are answered. Addresses share it.
BODIES_HELD_BYTES_MAX = 256 * MIB
# A body that comes in one read counts from here on. Smaller ones are bounded by the number of calls under way.
BODY_COUNTED_BYTES_MIN = 32 * KIB
# A body that waits for its room holds its first read (256 KiB), and what the server reads before it stops (64 KiB and
# one read more). Addresses share the sum: some 450 bodies may wait, 225 of one address alone.
BODY_WAITING_BYTES = 576 * KIB
BODIES_WAITING_BYTES_MAX = 256 * MIB
# Less than BODY_GRACE_S: a body that is not read is not late.
BODY_WAIT_S_MAX = 8.0
# Longer than a storage call may take: those that are under way end before the process does.
SHUTDOWN_GRACE_S = 17
SLOW_REQUEST_MS = 1_000
# Of the garbage collector: objects that may be new before they are looked at, and how many such looks go before one at
# the older ones, and at all. Few enough that what bodies are in cycles of references is not held for long.
COLLECTOR_GENERATIONS = (5_000, 20, 20)
RETRY_AFTER_S = 1
# A receipt handle or an id that is refused is told whole, as SQS does, up to this: an answer must not grow with the
# question.
REFUSED_CHARS_SHOWN_MAX = 1_024

# Parked groups in one page of a list.
PARKED_GROUPS_PER_PAGE_DEFAULT = 100
PARKED_GROUPS_PER_PAGE_MAX = 1_000

# --- authentication -----------------------------------------------------------------------------------------
CLOCK_SKEW_S_MAX = 900
PRESIGN_EXPIRES_S_MAX = 604_800
AUTHORIZATION_BYTES_MAX = 4 * KIB
SIGNED_HEADERS_MAX = 50
SIGNING_KEYS_CACHED_MAX = 20_000
# Parts of Authorization headers whose signature matched, each of so many bytes at most: SDKs send some 250.
CREDENTIALS_CACHED_MAX = 20_000
CREDENTIAL_CACHED_BYTES_MAX = 512
# Principals that were made, each by what its client says of itself, which has so many bytes at most.
PRINCIPALS_CACHED_MAX = 10_000
CALLER_TEXTS_CACHED_BYTES_MAX = 1_024
DATES_CACHED_MAX = 1_024

# Uses of keys that the control plane was not told of yet, how often it is told, and of how many at a time.
KEY_USES_HELD_MAX = 20_000
KEY_USES_TOLD_EVERY_S = 30.0
KEY_USES_TOLD_MAX = 5_000
KEY_USES_TOLD_AT_STOP_S = 1.0
# A front end that stops waits so long for leases that are on their way back.
LEASES_BACK_AT_STOP_S = 1.0
# Messages that were sealed under a data key are told from so many on; of so many keys at a time.
DATA_KEY_USES_TOLD_MIN = 2**20
DATA_KEYS_COUNTED_MAX = 100_000
# Those of receipts and of tokens: 9 MB each when full; one that is found again costs 10 us.
PARTITION_MASKS_KEPT_MAX = 50_000
# Kinds of refused calls that are counted until they are told, with the uses of keys.
REFUSED_CALLS_HELD_MAX = 20_000
REFUSED_CALLS_PER_ACCOUNT_MAX = 200
REFUSED_CALLS_TOLD_MAX = 1_000
# A refusal about a queue of another account is told after so long, or a multiple of it: how long it took to find out
# tells nothing. Many times what a look-up takes.
REFUSAL_STEP_S = 0.05
# What the audit trail keeps of a resource and of an address.
REFUSED_RESOURCE_CHARS_MAX = 200
SOURCE_CHARS_MAX = 45

# Requests that are counted for the usage stream: rows (account, queue, key) of an hour, beyond which accounts alone are
# told apart; hours that wait for a stream that is away; and how they are told.
REQUEST_ROWS_MAX = 20_000
REQUEST_HOURS_HELD_MAX = 3
REQUEST_REPORT_INTERVAL_S = 30.0
REQUEST_REPORT_ROWS_MAX = 1_000
REQUEST_REPORT_S_MAX = 10.0
REQUEST_REPORT_AT_STOP_S = 1.0

# --- principals between the planes --------------------------------------------------------------------------
PRINCIPAL_AGE_MS_MAX = 60_000
PRINCIPAL_CHARACTERS_MAX = 4_096

# --- authorisation ------------------------------------------------------------------------------------------
# Keys with policies, and policies, that are kept compiled; what has been allowed to one key of late.
KEY_RIGHTS_CACHED_MAX = 4_096
# Accounts and people that policies take callers for.
CALLERS_KEPT_MAX = 4_096
POLICIES_COMPILED_MAX = 1_024
KEY_DECISIONS_KEPT_MAX = 256

# --- caches -------------------------------------------------------------------------------------------------
QUEUES_RESOLVED_MAX = 20_000
DATA_KEYS_CACHED_MAX = 40_000
# Keys that one queue derives from encryption keys: one a period (KmsDataKeyReusePeriodSeconds) of messages at hand.
DERIVED_KEYS_KEPT_MAX = 1_024
# Pairs of key versions of one queue that are known to be gone: their messages cost no look-up.
LOST_KEYS_KEPT_MAX = 1_024
QUEUE_URLS_CACHED_MAX = 20_000
RATE_BUCKETS_MAX = 100_000

# --- rates --------------------------------------------------------------------------------------------------
# What an account may do in a second: `quotas.py`. How much of a second's worth may come at once.
RATE_BURST_S = 2.0
# A change of an account's quotas is seen within this time, beside that of the change feed.
QUOTA_RECHECK_S = 1.0
# What accounts asked for is told so often; the shares that come back hold for as long.
QUOTA_REPORT_S = 1.0
# Only of accounts that asked for more than this part of a quota: the others get along with an equal share.
QUOTA_REPORTED_FROM = 0.05
QUOTA_REPORTED_ACCOUNTS_MAX = 1_000
# A warning or refusal of one quota of one account is written into the audit trail so often.
QUOTA_NOTED_EVERY_S = 3_600.0
# And of so many queues and keys of one account after a report.
QUOTA_SINGLE_NOTES_MAX = 20
# Calls without a key, by the address that they come from (IPv6: its /64).
ADDRESS_REQUESTS_PER_S = 200
# Keys that are not at hand and turn out to be none, by address and in all: what invented keys may cost others.
UNKNOWN_KEYS_PER_ADDRESS_PER_S = 20
UNKNOWN_KEYS_PER_S = 200
# Requests that wait for one of those look-ups to end, and for how long: twice (address, all), less than clients do.
LOOKUPS_WAITING_MAX = 4_096
LOOKUP_WAIT_S_MAX = 2.0

# --- bulkheads ----------------------------------------------------------------------------------------------
STORAGE_CALLS_IN_FLIGHT_MAX = 10_000
# Of them for one node, and for one partition (frontend/routing/guarded.py).
STORAGE_CALLS_PER_NODE_MAX = 5_000
STORAGE_CALLS_PER_PARTITION_MAX = 2_500
# Of them sends with acks `all`, which wait for their deadline while one replica is away. Accounts share them.
SENDS_TO_ALL_MAX = 2_000
# Calls in a row that found nobody to serve a partition, until it is given up; while it is, one a second probes.
STORAGE_FAILURES_MAX = 5
STORAGE_PROBE_INTERVAL_MS = 1_000
# Partitions of which calls are counted; beyond, those are forgotten that have none under way and did not fail.
STORAGE_TARGETS_MAX = 100_000
POLLS_PARKED_MAX = 20_000
CONTROL_CALLS_IN_FLIGHT_MAX = 128
# Of them without a key: people who sign in, pages.
CONTROL_OPEN_CALLS_MAX = 32
CONTROL_STREAMS_MAX = 512
# An answer of the control plane up to this size is taken over before the client reads it.
CONTROL_ANSWER_BYTES_MAX = 4 * MIB
CONTROL_TIMEOUT_S = 30.0
CONTROL_CONNECT_S = 2.0
# Shorter than the control plane's own (uvicorn: 5 s): a connection that it is about to close must not be used.
CONTROL_KEEP_ALIVE_S = 2.0
# A call that takes longer has the control plane asked whether it and its database are there, so often, and with so
# long for the answer.
CONTROL_PATIENCE_MS = 50
CONTROL_PROBE_INTERVAL_MS = 150
CONTROL_PROBE_MS_MAX = 900
# So many questions in a row without any answer, and it is taken for hung. A busy machine may leave out one.
CONTROL_SILENT_MAX = 2
CONTROL_RETRY_AFTER_S = 2

# --- push ---------------------------------------------------------------------------------------------------
SOCKETS_MAX = 20_000
# Those whose key is not known yet: they have SOCKET_AUTH_S_MAX to show one.
SOCKETS_WITHOUT_KEY_MAX = 1_000
# Frames of a client over its rate wait so long for it; what would have to wait longer is closed.
SOCKET_PAUSE_S_MAX = 5.0
# A fetch takes what is left of the rates' bursts, and what they grant within this time.
SOCKET_FETCH_AHEAD_S = 1.0
SOCKET_CREDIT_MAX = 1_000
SOCKET_FETCH_MESSAGES_MAX = 100
SOCKET_FRAME_BYTES_MAX = 256 * KIB
# Held of all sockets of a front end: frames that are not whole, and those that wait to be worked on. Accounts share it.
FRAMES_HELD_BYTES_MAX = 256 * MIB
# What a frame that waits for the application holds besides its own bytes.
FRAME_OVERHEAD_BYTES = 512
# So much of what a socket reads is parsed at a time: hundreds of the smallest frames.
SOCKET_PARSE_BYTES = 4 * KIB
# Frames that bring the application nothing: pings, pongs, and parts of a frame that are smaller than any need be. Of
# one connection, so many a second, and so many at once.
IDLE_FRAMES_PER_S = 100
IDLE_FRAMES_AT_ONCE_MAX = 200
FRAME_PART_BYTES_MIN = 64
# How often a frame that is not whole yet is looked at.
FRAME_LOOK_S = 5.0
# Of a close frame, by RFC 6455: 125 with its code.
SOCKET_CLOSE_REASON_BYTES_MAX = 123
SOCKET_IDS_PER_FRAME_MAX = 1_000
SOCKET_AUTH_S_MAX = 10.0
# Messages a socket may hold unacknowledged; beyond it no more are fetched, whatever the credit.
SOCKET_LEASES_MAX = 10_000
SOCKET_ACKS_PENDING_MAX = 10_000
SOCKET_WAIT_MS = 20_000
# Leases of a socket are short and renewed while it lives: a consumer that dies delays its messages this much.
SOCKET_VISIBILITY_S = 30
SOCKET_RENEW_S = 10.0
# How often an idle socket's key is looked at again: a revoked key is cut off within this time. It is given no message
# from the moment on at which the change is heard.
SOCKET_RECHECK_S = 10.0
SOCKET_RETRY_S = 1.0
SOCKET_PING_S = 20.0
# Of a bulk socket: publish frames that are being stored; while there are so many, no frame is read.
SOCKET_PUBLISHES_MAX = 8
# So long a socket that the service ends waits for their confirms: longer than a storage call takes.
SOCKET_FINISH_S_MAX = 16.0
# The first publish frame of an account that waits looks so often for a place among the BULK_SENDS_MAX.
SOCKET_PLACE_RETRY_S = 0.02
# --- live tail ----------------------------------------------------------------------------------------------
# At one front end. Accounts share them; one account has at most as many as searches of the message browser.
TAILS_MAX = 64
# Between two looks at the queue; the longer one when several looks in a row found nothing.
TAIL_LOOK_S = 0.25
TAIL_LOOK_IDLE_S = 1.0
TAIL_IDLE_LOOKS = 8
# One look opens so many messages at most: TAIL_LOOK_MESSAGES_MAX / TAIL_LOOK_S = 4,000 a second.
TAIL_LOOK_MESSAGES_MAX = 1_000
TAIL_LOOK_BYTES_MAX = 4 * MIB
# Of those, a frame shows the newest; the others are counted.
TAIL_SHOWN_MAX = 100
TAIL_BODY_CHARS = 1_024
# A tail that is further behind the end of a log goes on nearer to it.
TAIL_BEHIND_MAX = 4_000
TAIL_AHEAD = 500
# The control plane is asked so often whether the people of all tails may still look.
TAIL_CONFIRM_S = 0.8
# So long after it was asked last, nothing more is shown until it has answered.
TAIL_CONFIRMED_S_MAX = 2.0
# After so long without its answer a tail ends.
TAIL_UNCONFIRMED_S_MAX = 30.0
TAIL_TICKET_CHARS_MAX = 64
# A number that JavaScript still holds exactly.
SEQUENCE_MAX = 2**53 - 1

assert RECEIVE_WAIT_S_MAX * 1000 <= ACQUIRE_WAIT_MS_MAX and SOCKET_WAIT_MS <= ACQUIRE_WAIT_MS_MAX
assert SCHEDULED_LISTED_MAX <= storage_limits.SCHEDULE_PAGE_MESSAGES_MAX
assert SCHEDULED_CHANGED_MAX <= storage_limits.SCHEDULE_CHANGES_PER_CALL_MAX
assert BROWSER_MESSAGES_SHOWN_MAX <= BROWSER_PAGE_MESSAGES_MAX <= BROWSE_MESSAGES_MAX
assert VISIBILITY_S_MAX * 1000 <= VISIBILITY_MS_MAX
assert PARKED_GROUPS_PER_PAGE_MAX <= storage_limits.PARKED_GROUPS_PER_PAGE_MAX
assert BATCH_ENTRIES_MAX <= storage_limits.UNPARK_GROUPS_MAX
assert MESSAGE_BYTES_MAX + 8 * KIB < RECORD_BYTES_MAX, "a sealed message with its attributes must fit one record"
assert BATCH_BYTES_MAX + 64 * KIB < FRAME_BYTES_MAX, "a sealed batch must fit one frame"
assert GROUP_ID_CHARS_MAX <= DEDUP_KEY_BYTES_MAX, "an id is a key where the queue is the scope"
assert REQUEST_BODY_BYTES_MAX > 3 * BATCH_BYTES_MAX and REQUEST_BODY_BYTES_MAX >= BULK_BYTES_MAX
assert BULK_MESSAGES_MAX <= storage_limits.RECORDS_PER_SEND_MAX, "they fit one storage call"
assert BULK_MESSAGES_MAX <= storage_limits.ACQUIRE_MESSAGES_MAX
assert BULK_MESSAGES_MAX <= storage_limits.RECEIPTS_PER_CALL_MAX
assert STORAGE_SEND_BYTES_MAX <= RECORD_BYTES_MAX < storage_limits.BATCH_BYTES_MAX, "one storage call fits one batch"
assert SOCKET_IDS_PER_FRAME_MAX <= storage_limits.RECEIPTS_PER_CALL_MAX
assert REQUEST_DRAIN_BYTES_MAX > REQUEST_BODY_BYTES_MAX
assert CONNECTIONS_MAX > POLLS_PARKED_MAX + SOCKETS_MAX
assert 4 * (TLS_HANDSHAKES_MAX + REFUSED_LINGERING_MAX) <= 3 * FILES_KEPT
assert 2 * TLS_HANDSHAKES_MAX <= FILES_KEPT, "handshakes leave files to storage nodes, metadata and the control plane"
assert BODY_GRACE_S < REQUEST_READ_S_MAX and BODY_BYTES_PER_S_MIN * REQUEST_READ_S_MAX < REQUEST_BODY_BYTES_MAX
# XML makes six characters of a quotation mark.
assert CONNECTION_HELD_BYTES_MAX > 6 * RECEIVE_MESSAGES_MAX * MESSAGE_BYTES_MAX, "a whole answer may be held"
assert ANSWERS_HELD_BYTES_MAX >= 4 * CONNECTION_HELD_BYTES_MAX
assert BODY_WAIT_S_MAX < BODY_GRACE_S
assert BODY_COUNTED_BYTES_MIN * STORAGE_CALLS_IN_FLIGHT_MAX < 2 * BODIES_HELD_BYTES_MAX, "small ones need no count"
assert BODIES_HELD_BYTES_MAX >= BULK_SENDS_MAX * REQUEST_BODY_BYTES_MAX, "bulk sends are bounded by their own number"
assert HEADERS_HELD_BYTES_MAX >= 64 * PARTIAL_HEADER_BYTES_MAX, "addresses that share it have room for large headers"
assert FRAMES_HELD_BYTES_MAX >= 16 * BULK_BYTES_MAX, "accounts that share it have room for frames of the largest size"
assert SOCKET_PARSE_BYTES <= 16 * KIB, "a turn of the event loop has some thousand of the smallest frames at most"
assert IDLE_FRAMES_AT_ONCE_MAX >= IDLE_FRAMES_PER_S >= 100 / SOCKET_PING_S, "a client that pings is not cut"
assert CONTROL_ANSWER_BYTES_MAX < CONNECTION_HELD_BYTES_MAX
assert SOCKET_RENEW_S * 2 < SOCKET_VISIBILITY_S, "one renewal may be lost"
assert QUOTA_RECHECK_S <= QUOTA_REPORT_S, "who asked for nothing between two reports looks again before it counts"
assert SOCKET_FETCH_AHEAD_S < SOCKET_PAUSE_S_MAX, "a frame behind a fetch does not wait too long"
assert SOCKET_FINISH_S_MAX < SHUTDOWN_GRACE_S
assert SOCKET_PAUSE_S_MAX < SOCKET_VISIBILITY_S - SOCKET_RENEW_S, "leases are renewed while frames wait"
assert TAIL_SHOWN_MAX <= BROWSER_PAGE_MESSAGES_MAX <= TAIL_LOOK_MESSAGES_MAX
assert TAIL_LOOK_MESSAGES_MAX >= 1_000 * TAIL_LOOK_S, "a thousand messages a second are followed"
assert TAIL_AHEAD < TAIL_BEHIND_MAX
assert 2 * TAIL_CONFIRM_S < TAIL_CONFIRMED_S_MAX, "one answer may be late"
assert SOCKET_RECHECK_S <= 60, "a revoked key is cut off within a minute"
assert SHUTDOWN_GRACE_S < CONTROL_TIMEOUT_S <= HALF_CLOSED_S_MAX
assert SENDS_TO_ALL_MAX < STORAGE_CALLS_PER_PARTITION_MAX, "they leave room to others of the same partition"
assert STORAGE_CALLS_PER_PARTITION_MAX < STORAGE_CALLS_PER_NODE_MAX < STORAGE_CALLS_IN_FLIGHT_MAX
assert STORAGE_CALLS_IN_FLIGHT_MAX < STORAGE_TARGETS_MAX, "all that have calls under way fit"
