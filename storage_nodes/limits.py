"""The bounds of the storage plane, with the relations between them asserted.

Names end in their unit. Nothing in this plane may grow without a bound. A few pauses and time-outs that one file alone
uses stand in that file (node/transport/peer_link.py, client/leaders.py, client/pauses.py, machines/raft/timing.py).
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# --- wire ---------------------------------------------------------------------------------------------------
# The largest frame a peer or client may send. The largest SQS batch is 1 MiB of plaintext; encryption adds
# 64 bytes a message, attributes and headers a little more.
FRAME_BYTES_MAX = 4 * MIB
CORRELATION_ID_MAX = 2**32 - 1
RECORDS_PER_SEND_MAX = 1_000
RECORD_BYTES_MAX = 1 * MIB + 64 * KIB
ACQUIRE_MESSAGES_MAX = 1_000
ACQUIRE_BYTES_MAX = 2 * MIB
ACQUIRE_WAIT_MS_MAX = 20_000
RECEIPTS_PER_CALL_MAX = 1_000
REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX = 20_000
# What a client hands to the operating system ahead of the node's reading; the rest waits, in order, in the client.
CLIENT_WRITE_BUFFER_BYTES = 1 * MIB
# Sends to one partition that a client has under way at a time; more wait in the client, in order. Several front ends
# together stay below what a leader takes before a majority has it (UNCOMMITTED_BYTES_MAX).
SENDS_UNDER_WAY_BYTES_MAX = 8 * MIB
# How long a client connection with calls outstanding may hear nothing before it asks whether the node is there, and how
# long it waits for any sign of it then.
PING_AFTER_MS = 1_000
PING_ANSWER_MS = 1_000

# --- connections and memory of a node (docs/backpressure.md) ----------------------------------------------------
# One write to a transport, and what a transport may hold; what is beyond waits in the connection, where it is counted.
WRITE_BYTES = 256 * KIB
TRANSPORT_BYTES_MAX = 256 * KIB
# A connection is cut when nothing of what its transport holds left for so long.
WRITE_STALL_MS_MAX = 10_000
# Answers that wait for one client; beyond, its requests are not read, and at twice as much leases are given back.
CONNECTION_ANSWERS_BYTES_MAX = 8 * MIB
# Appends that wait for one peer; beyond, leaders here do not feed it. Other messages are dropped at twice as much.
LINK_BYTES_MAX = 16 * MIB
LINK_RESUMES_PER_TURN = 64
# A connection says who it is within the first; a frame is whole within the second, and longer only while it comes at
# this rate at least.
GREETING_MS_MAX = 5_000
FRAME_MS_MAX = 10_000
# Who was refused has so long to read why.
REFUSED_CLOSE_MS = 200
# Of one port: connections that have not shown a certificate yet.
HANDSHAKES_MAX = 1_024
# Lines of the log about connections and calls of other processes that were refused.
REFUSALS_TOLD_PER_S_MAX = 10
# Files of the own certificate are looked at no more often than this; the log tells of its end from so long before on.
CREDENTIALS_LOOK_S = 10
CREDENTIALS_ENDING_S = 7 * 86_400
FRAME_BYTES_PER_S_MIN = 64 * KIB
# Where frames that are not whole take too much memory: so long one client is read while the others wait.
FRAMES_TURN_MS_MAX = 2_000
# Half a greeting that is read in any case.
GREETING_BYTES_MAX = 4 * KIB
# Of their share: below it all are read again.
FRAMES_AGAIN_PERCENT = 70
CONNECTION_LOOK_MS = 500
# Connections are judged by time in which this node could see them move: of the time between two looks no more counts.
LOOK_COUNTS_MS_MAX = 1_000
CONNECTIONS_MAX = 4_096
# Clients among them, so that there is always room for peers.
CLIENT_CONNECTIONS_MAX = 3_072
# What a node holds in memory for others (`PENSTOCK_NODE_MEMORY_BYTES`), and the share of each kind.
NODE_MEMORY_BYTES_DEFAULT = 256 * MIB
NODE_MEMORY_BYTES_MIN = 128 * MIB
MEMORY_SHARES_PERCENT = {"sends": 20, "staged": 30, "answers": 20, "links": 10, "inbox": 10, "frames": 10}
# Of the share of what peers send: from when on they are asked to stop, and until when. Of the whole: below it client
# requests are read again.
CROWDED_FROM_PERCENT = 50
CROWDED_UNTIL_PERCENT = 25
READ_AGAIN_PERCENT = 75
# What a refusal for want of room says: come again after so long. Longer the longer the disk has been at its group.
RETRY_AFTER_MS_MIN = 200
RETRY_AFTER_MS_MAX = 5_000

# --- log ----------------------------------------------------------------------------------------------------
WAL_FILE_BYTES = 64 * MIB
# One group commit; what does not fit waits for the next one.
WAL_GROUP_BYTES_MAX = 8 * MIB
BATCH_BYTES_MAX = 2 * MIB
# Payload bytes of recent entries kept in memory; older ones are read back from the WAL file (page cache).
MEMTABLE_BYTES_MAX = 8 * MIB
SEGMENT_BYTES_MAX = 64 * MIB
SEGMENT_SMALL_BYTES = 4 * MIB
SEGMENT_INDEX_INTERVAL_BYTES = 16 * KIB
OPEN_SEGMENT_FILES_MAX = 256
READ_BYTES_MAX = 1 * MIB
# How often the mark of the synced end is made to survive a power loss; a WAL roll and a clean stop do so too.
MARK_SYNC_INTERVAL_MS = 5_000
# Incarnations of a node whose last one is ahead of its clock lie this far apart at most.
INCARNATIONS_SPREAD = 65_536
# Notes of damage that was found; older ones are kept in a second file of at most this length.
DAMAGE_NOTES_BYTES_MAX = 1 * MIB

# --- care for the disk ----------------------------------------------------------------------------------------
CARE_INTERVAL_MS = 1_000
# The scrub reads all stored files, this fast at most (F15: damage is found within 24 h), a piece at a time.
SCRUB_INTERVAL_MS = 24 * 3_600_000
SCRUB_BYTES_PER_SECOND = 16 * MIB
SCRUB_PIECE_BYTES = 1 * MIB
SCRUB_NOTE_INTERVAL_MS = 30_000
# Below this much free space a node takes no messages; below a quarter of it, nothing from other leaders either. What is
# needed to free space again must fit: the write-ahead log's files, segments of a flush, checkpoints and manifests.
DISK_METADATA_BYTES = 64 * MIB
DISK_RESERVE_BYTES = 4 * WAL_FILE_BYTES + 2 * SEGMENT_BYTES_MAX + DISK_METADATA_BYTES
DISK_RESERVE_BYTES_MIN = 4 * WAL_GROUP_BYTES_MAX
# While it is so, the write-ahead log is flushed and trash emptied this often.
SPACE_FLUSH_INTERVAL_MS = 10_000
# Trash: files of dropped partitions, and damaged ones, which somebody may want to look at.
TRASH_INTERVAL_MS = 600_000
TRASH_AGE_MS_MAX = 24 * 3_600_000
TRASH_DAMAGED_AGE_MS_MAX = 7 * 24 * 3_600_000
TRASH_BYTES_MAX = 2 * 1024 * MIB
# A few segments are looked at this often, whether they should be merged or written anew; oftener while room is short.
REWRITE_INTERVAL_MS = 5_000
REWRITE_LOOKS_MAX = 8
# When a disk counts as slow (F18): see node/disk/slow_disk.py. Looks are CARE_INTERVAL_MS apart.
SLOW_SYNC_US_MIN = 50_000
SLOW_SYNC_US_MAX = 1_000_000
SLOW_SYNC_FACTOR = 10
SLOW_WINDOW_LOOKS = 10
SLOW_LOOKS_MIN = 3
SLOW_RECOVERY_LOOKS_MIN = 10
# How long a replica that stopped, be it for damage its group could not repair, stays closed before it is tried again;
# how many are tried in one look (CARE_INTERVAL_MS); what is kept of the reason.
STOPPED_RETRY_MS = 30_000
STOPPED_RETRIES_AT_ONCE_MAX = 16
# One that stops at the same entry in the same way rests twice as long each time: a restart or another version helps.
STOPPED_RETRY_DOUBLINGS_MAX = 4
STOPPED_REASON_CHARS_MAX = 300
# What it holds beyond the commit that it knows is carried forward once it lies so many files of the write-ahead log
# back; how much at most: more than a leader takes before a majority has it, and its own last batch.
STOPPED_WAL_FILES_MAX = 4
STOPPED_TAIL_BYTES_MAX = 64 * MIB

# --- replication --------------------------------------------------------------------------------------------
HEARTBEAT_INTERVAL_MS = 150
# A node whose heartbeat is so late sends it before it handles what came in.
HEARTBEAT_LATE_MS = 200
# A peer that did not answer for this long is down: its leaders are replaced, and a leader that lost a majority
# this way steps down. Three heartbeats may be lost before that.
PEER_TIMEOUT_MS = 600
ELECTION_JITTER_MS = 200
# Leases of leaders (docs/decisions/0053-leases-of-leaders.md). A replica that heard of its leader's node votes for no
# other one for so long; the leader counts from when it sent what was heard, and gives away LEASE_DRIFT_MS of it: for
# clocks that do not run alike, and for both ends being rounded down to a millisecond.
VOTE_HOLD_MS = PEER_TIMEOUT_MS
LEASE_DRIFT_MS = 15
LEADER_LEASE_MS = VOTE_HOLD_MS - LEASE_DRIFT_MS
# A leader that sees no majority of nodes up waits for so long whether one comes back, then steps down.
QUORUM_LOST_MS = 100
# A node whose clock is off lets so many of its turns to stand for election pass: others that can win have by then.
TURNS_PASSED_MAX = 4
# Uncommitted bytes a leader sends a follower ahead of its answers.
APPEND_IN_FLIGHT_BYTES_MAX = 8 * MIB
APPEND_BYTES_MAX = 1 * MIB
# How long a follower may lag behind on the commit position of an otherwise idle partition.
COMMIT_NOTICE_MS = 20
PROPOSALS_PENDING_MAX = 50_000
# Bytes of appends that wait, per partition, for the disk to be free; more are refused until it is.
PROPOSALS_PENDING_BYTES_MAX = 32 * MIB

# Bytes of sends in a leader's log that no majority has yet; more are refused until it has.
UNCOMMITTED_BYTES_MAX = 32 * MIB
# Sends that wait for all voters (acks = ALL); more are refused. Whoever gives up waits no longer.
ALL_WAITERS_PER_PARTITION_MAX = 5_000
# When whoever was refused for want of room may try again.
OVERLOADED_RETRY_MS = 200

# Clocks (docs/clocks.md). One that differs by more than this from those of a majority is off, until it differs by less
# than the second number for a while. A peer's clock is what the latest of its last few heartbeats said.
CLOCK_OFFSET_MS_MAX = 1_000
CLOCK_OFFSET_BACK_MS_MAX = 500
CLOCK_BACK_MS_MIN = 2_000
CLOCK_SAMPLES_MAX = 6
# What a peer says of the clock of a node that is away counts for so long after that node was heard, and takes the place
# of what another one said where it is younger by more than this.
CLOCK_WORD_AGE_MS_MAX = 15 * 60_000
CLOCK_WORD_NEWER_MS_MIN = 5_000
# So long after it began to look a node that has not heard the clocks of a majority lets others stand for election.
CLOCK_WAIT_MS_MAX = 3_000
# Two monotonic clocks differ by no more than this much of a time that both measure (quartz: 0.1).
MONOTONIC_DRIFT_PERMILLE = 1
# A leader's time that is further than that from what a majority says runs so much faster or slower; of a stretch in
# which nobody asked for it, only so much counts for that.
CLOCK_SLEW_PERMILLE = 50
CLOCK_SLEW_AT_ONCE_MS_MAX = 1_000
# What is due by the leader's time alone is looked at this often.
CLOCK_LOOK_MS = 1_000

# What one turn of a node's event loop may hold of Raft messages, of partitions whose timers ring and of those that are
# told of a peer, so that heartbeats go out however many groups elect at once. Where more than INBOX_MESSAGES_MAX wait
# the oldest are dropped. A slice of messages, or of those that are told, ends earlier where it takes so long: a node
# that is given a tenth of a processor needs ten times as long for the same slice, but its peers wait no longer.
TURN_SLICE_MS_MAX = 10
INBOX_SLICE_MESSAGES = 256
INBOX_MESSAGES_MAX = 100_000
# Raft messages for partitions that are not made here yet.
EARLY_BYTES_MAX = 8 * MIB
TIMERS_SLICE_PARTITIONS = 64
PEER_NEWS_SLICE_PARTITIONS = 64
# Of those that step down after the node stood still.
STALL_SLICE_PARTITIONS = 64
# While so many messages wait that timers would ring for what is among them, due timers wait too, at most so long.
TIMERS_HELD_MS_MAX = 600
# A flush asks each partition for a checkpoint.
FLUSH_SLICE_PARTITIONS = 64
# How many groups of a node that starts may begin to wait for their leaders in one millisecond.
STARTS_PER_MS_MAX = 10

# A node that stops hands its leaders over first, for at most this long, this many at a time.
RETIRE_MS_MAX = 2_000
HAND_OVERS_AT_ONCE_MAX = 256
# Leadership goes back to a partition's preferred replica once that has been up and level for a while; a few at a time.
BALANCE_INTERVAL_MS = 2_000
BALANCE_LEVEL_MS_MIN = 10_000
BALANCE_TRANSFERS_MAX = 64

# One chunk of a snapshot; it is sent again while no answer comes, and the snapshot given up after so many times.
SNAPSHOT_CHUNK_BYTES_MAX = 1 * MIB
SNAPSHOT_RESEND_MS = 1_000
SNAPSHOT_RESENDS_MAX = 10
SNAPSHOT_CHECKPOINT_BYTES_MAX = 640 * MIB
# How many snapshots a node sends at a time; more wait.
SNAPSHOTS_SENDING_MAX = 4
# A learner that lacks more records than this is not made a voter: a commit that needs it would wait for too long.
PROMOTION_LAG_RECORDS_MAX = 4_096
# Dead entries that some voter does not hold yet are kept for it, so that it can be fed from the log. Beyond this much
# log, or when no voter caught up for this long, they are not: it gets a snapshot when it is back.
LAGGARD_BYTES_MAX = 2 * WAL_FILE_BYTES
LAGGARD_MS_MAX = 600_000

# What is read back from disk for peers that are behind: at least so fast, and at least so many times as fast as leaders
# of the node append (measured over the window), so that everybody catches up in the end.
FEED_BYTES_PER_S_MIN = 16 * MIB
FEED_SHARE = 1.5
FEED_WINDOW_MS = 1_000

# --- producers (machines/producers.py) ------------------------------------------------------------------------
# What a partition remembers of a producer: so many sequence numbers back from its highest one, for so long by the clock
# of the partition's log, which is longer than any call tries on. A client has no more than that window outstanding.
PRODUCER_WINDOW_RECORDS = 65_536
PRODUCER_MEMORY_MS = 60_000
# Beyond this no call that sends is tried on, a short suspension of its machine included.
PRODUCER_CALL_MS_MAX = 30_000
# A producer that was silent for so long is forgotten; so is the one that was silent longest, where there are too many.
PRODUCER_FORGET_MS = 900_000
PRODUCERS_PER_PARTITION_MAX = 128
# Between two entries the clock of that memory moves by no more than this, however far the log's time jumps.
PRODUCER_JUMP_MS_MAX = 10_000
PRODUCER_SEQUENCE_MAX = 2**31 - 1
# Bytes in a checkpoint, at most, of a stretch of sequence numbers.
PRODUCER_ROW_BYTES = 12
# Partitions a client counts sequences for (twice: apart for acks ALL); beyond, it begins anew as another producer.
PRODUCER_PARTITIONS_MAX = 100_000

# --- queue machine ------------------------------------------------------------------------------------------
IN_FLIGHT_MESSAGES_MAX = 120_000
# Messages of a partition that failed and wait for their next try, beside those in flight; what exceeds it counts as in
# flight, so that no queue holds more of both.
RETRIES_PAUSED_MAX = 120_000
# Messages of a partition that came back and may be received again: beyond, fresh ones wait for them.
AGAIN_READY_MAX = 30_000
# Messages that one input of a leader looks at because their lease or delay is over; the rest is next.
LEASE_STEPS_PER_INPUT_MAX = 4_000
VISIBILITY_MS_MAX = 43_200_000
DELAY_MS_MAX = 900_000
# Delayed messages that a partition holds by themselves, some 200 bytes each, with those in flight. Of a standard queue
# more wait as scheduled ones do, of a FIFO queue more are refused.
DELAYED_LIVE_MAX = 150_000
DELAYED_MESSAGES_MAX = 5_500_000
# Scheduled messages: how far ahead, how many a partition holds, each with so many bytes in memory and in a checkpoint;
# how many a call changes or shows, and how many become messages of the queue together; the pause after that failed.
SCHEDULE_MS_MAX = 366 * 24 * 3_600_000
SCHEDULED_MESSAGES_MAX = 4_000_000
SCHEDULED_MESSAGE_BYTES = 32
# With so many messages, ids, or messages of remembered receives a checkpoint is packed by the thread that writes it.
CHECKPOINT_PIECES_MESSAGES = 10_000
# Scheduled messages leave in an order of their own, so each is read alone, with the batch it is in.
SCHEDULED_BATCH_BYTES_MAX = 32 * KIB
SCHEDULE_CHANGES_PER_CALL_MAX = 100
SCHEDULE_PAGE_MESSAGES_MAX = 500
RELEASES_AT_ONCE_MAX = 1_000
RELEASES_AT_ONCE_BYTES_MAX = 1 * MIB
RELEASE_PAUSE_MS = 200
WAITERS_PER_PARTITION_MAX = 10_000
PURGE_INTERVAL_MS = 60_000
RETENTION_MS_MIN = 60_000
RETENTION_MS_MAX = 1_209_600_000
RETENTION_MS_DEFAULT = 345_600_000
# Undelivered messages whose offsets a leader keeps at hand ahead of its consumers.
READ_AHEAD_MESSAGES_MAX = 2_000
READ_AHEAD_BYTES_MAX = 2 * MIB
# Fair queues: a group is noisy with at least so many messages in flight, and more than this share of all of them.
NOISY_IN_FLIGHT_MIN = 30
NOISY_SHARE_PERCENT = 10
# What a leader sees of the backlog of a standard queue whose messages have groups or tags (backlog.py): neighbours of
# one group and tag are one run, about 100 bytes. It takes in what arrives while it knows fewer runs than NEAR; beyond,
# it reads on for who finds nothing, up to the second number, and up to so many tags (about a kilobyte each).
SIGHT_RUNS_NEAR = 10_000
LOOKAHEAD_RUNS_MAX = 100_000
LOOKAHEAD_TAG_QUEUES_MAX = 10_000
# Runs of noisy groups that one acquire steps over in search of a quiet one.
LOOKAHEAD_STEPS_MAX = 5_000
# Stretches of messages taken out from among waiting ones, 16 bytes each on every replica and some four in a checkpoint.
# At the bound messages are handed out in order again, whatever their groups, and filtered receives are refused.
TAKEN_AHEAD_RANGES_MAX = 100_000
# Groups and tags that one command names.
KEYS_PER_COMMAND_BYTES_MAX = 400_000
TAG_BYTES_MAX = 128
TAGS_PER_ACQUIRE_MAX = 16
# Ids that FIFO queues and deduplication go by.
GROUP_BYTES_MAX = 128
DEDUP_ID_BYTES_MAX = 128
ATTEMPT_BYTES_MAX = 128
# Undelivered messages of a FIFO queue among which the leader looks for groups that are not locked. It reads on beyond
# READ_AHEAD_MESSAGES_MAX only while acquires come up short.
FIFO_READ_AHEAD_MESSAGES_MAX = 120_000
# Deduplication ids remembered per partition, about 150 bytes each in memory and 24 in a checkpoint: 3,300 messages a
# second with the default window. At the bound sends with such ids are refused (OVER_LIMIT) before they are appended.
DEDUP_IDS_MAX = 1_000_000
DEDUP_WINDOW_MS_DEFAULT = 300_000
DEDUP_WINDOW_MS_MAX = 3_600_000
# Receives with an attempt id that a FIFO partition remembers, and for how long; beyond, the oldest are forgotten. Of
# what they got: so many messages, 16 bytes each; from the first number on only of receives that their callers named.
ATTEMPTS_MAX = 10_000
ATTEMPT_MS_MAX = 300_000
REMEMBERED_UNASKED_MESSAGES_MAX = 100_000
REMEMBERED_MESSAGES_MAX = 200_000
# The longest pause before a message is given again (retry policy).
RETRY_PAUSE_MS_MAX = VISIBILITY_MS_MAX
# Dead letters: how many move together, receives before they do, and the pause after a move that failed.
DEAD_LETTERS_PER_MOVE_MAX = 100
DEAD_LETTERS_PER_MOVE_BYTES_MAX = 1 * MIB
RECEIVES_MAX = 1_000
# Groups of a FIFO queue that are held because a message of theirs became a dead letter; at the bound no more dead
# letters are moved. About 300 bytes each. And how many groups one call names.
PARKED_GROUPS_MAX = 10_000
UNPARK_GROUPS_MAX = 10
PARKED_GROUPS_PER_PAGE_MAX = 1_000
# Dead letters (with leased and delayed messages) that a standard queue holds by their first send time, for retention;
# what arrives beyond counts as sent when it arrived. About 250 bytes each.
DEAD_LETTERS_BY_AGE_MAX = 200_000
# Letters that a queue remembers to have taken of one partition, and of all together, so that none comes twice: beyond,
# the oldest are forgotten, or those of the partition that sent none for longest. About 200 bytes each.
LETTERS_TAKEN_PER_SOURCE_MAX = 1_000
LETTERS_TAKEN_MAX = 100_000
# Partitions of a FIFO dead-letter queue among which a source tells its groups apart.
DEAD_LETTER_GROUPS_MAX = 64
DEAD_LETTER_PAUSE_MS_MIN = 200
DEAD_LETTER_PAUSE_MS_MAX = 10_000
# How long a lease that was handed out may wait for company on its way to the log. Leases are not waited for, so this
# costs nobody time; a crash within it hands the message out again, as a crash before the commit does anyway.
LEASE_LINGER_MS = 3
# One answer to a browse, and what is read of a FIFO queue's log at a time to find the groups of its messages.
BROWSE_MESSAGES_MAX = 1_000
BROWSE_BYTES_MAX = 1 * MIB
FIFO_READ_AHEAD_BYTES_MAX = 512 * KIB
# Messages that one call may remove by their places.
REMOVES_PER_CALL_MAX = 100
# Bodies at hand for delivery, over all queues of a node, and how long those of a queue stay that nobody receives from.
BODY_CACHE_BYTES_MAX = 24 * MIB
BODY_CACHE_IDLE_MS = 10_000
# Of them batches that one FIFO queue keeps parsed, whose messages leave in another order than they came in.
FIFO_PARSED_BYTES_MAX = 16 * MIB

# --- streams and their consumer groups -----------------------------------------------------------------------
# Groups of one partition (at the coordinator of a stream: of the stream), members and partitions of one group.
CONSUMER_GROUPS_MAX = 256
CONSUMER_MEMBERS_MAX = 256
CONSUMER_PARTITIONS_MAX = 1_024
CONSUMER_NAME_BYTES_MAX = 128
CONSUMER_SESSION_MS_MIN = 1_000
CONSUMER_SESSION_MS_MAX = 600_000
# Commands of groups in one batch.
CONSUMER_COMMANDS_PER_BATCH_MAX = 1_000
CONSUMER_COMMANDS_PER_BATCH_BYTES_MAX = 256 * KIB
# How many partitions a coordinator fences at a time before it gives them to their new owners, and the pause after one
# that failed.
CONSUMER_FENCES_AT_ONCE_MAX = 64
CONSUMER_FENCE_PAUSE_MS = 300
# Records of commands at the end of a stream that holds no messages; beyond, they are trimmed.
STREAM_COMMANDS_LEFT_MAX = 1_000

# --- event loop -----------------------------------------------------------------------------------------------
# How often a node looks whether its event loop stood still, and from when on that is counted.
LOOP_LOOK_MS = 20
# What all replicas of a node fold in one turn, or one entry: some 10 to 15 us a small message.
FOLD_TURN_BYTES = 256 * KIB
LOOP_STALL_MS_MIN = 20

# --- metering -------------------------------------------------------------------------------------------------
# Closed windows of one queue partition that wait for their export; beyond, the open one goes on.
USAGE_WINDOWS_HELD_MAX = 48
# Windows that a partition exports at once, and the pause after an export that failed.
USAGE_WINDOWS_PER_EXPORT_MAX = 8
# Windows of all partitions of a node in one append. A window takes up to some 600 bytes.
USAGE_RECORDS_PER_APPEND_MAX = 256
USAGE_EXPORT_PAUSE_MS = 5_000
# The log says so long after an export that it was one, spread over so long where many were at once.
USAGE_NOTE_AFTER_MS = 5_000
USAGE_NOTE_SPREAD_MS = 30_000
# The hour of a quiet queue is closed so long after its end, at the latest.
USAGE_CLOSE_SPREAD_MS = 60_000
# What became of leases is told in the log with the next commands, or alone after so long.
HANDED_OVER_MS = 1_000

# --- cluster ------------------------------------------------------------------------------------------------
REPLICATION_FACTOR = 3
CLUSTER_VOTERS_MAX = 7
# Voters and learners of one partition.
PARTITION_MEMBERS_MAX = 2 * CLUSTER_VOTERS_MAX
PARTITIONS_PER_NODE_MAX = 200_000
# The manager creates no more while so many new partitions have no leader yet; one that finds none in this time is not
# waited for, since its nodes may be away.
CREATING_AT_ONCE_MAX = 256
CREATING_MS_MAX = 2_000
# Partitions in one answer to DESCRIBE_CLUSTER; who asked for all asks again.
DESCRIBE_PARTITIONS_MAX = 4_096
DESCRIBE_ROW_BYTES_MAX = 768
# Partitions that a node names as quarantined; how many more there are its metrics say.
QUARANTINED_TOLD_MAX = 100
# Replicas that one node gives away or takes at a time; what they send is bounded by SNAPSHOTS_SENDING_MAX besides.
MOVES_PER_NODE_MAX = 16
# Partitions the manager looks at in one turn when it looks for those that may grow.
PLAN_PARTITIONS_MAX = 64
# How often moves under way are looked at, where no commit says earlier that there is something to do.
MOVE_INTERVAL_MS = 100

assert sum(MEMORY_SHARES_PERCENT.values()) == 100, "the shares are the whole"
assert (
    NODE_MEMORY_BYTES_MIN * MEMORY_SHARES_PERCENT["staged"] // 100 * CROWDED_UNTIL_PERCENT // 100 > WAL_GROUP_BYTES_MAX
), "what a node appends itself does not make it crowded"
assert CROWDED_UNTIL_PERCENT < CROWDED_FROM_PERCENT < 100
assert NODE_MEMORY_BYTES_MIN * MEMORY_SHARES_PERCENT["frames"] // 100 > FRAME_BYTES_MAX, "the largest frame fits"
assert NODE_MEMORY_BYTES_MIN * MEMORY_SHARES_PERCENT["inbox"] // 100 > FRAME_BYTES_MAX, "the largest frame fits"
assert NODE_MEMORY_BYTES_MIN * MEMORY_SHARES_PERCENT["sends"] // 100 > 2 * FRAME_BYTES_MAX, "half of it takes a frame"
assert ACQUIRE_BYTES_MAX + RECORD_BYTES_MAX < CONNECTION_ANSWERS_BYTES_MAX, "one answer does not fill a connection"
assert APPEND_BYTES_MAX + RECORD_BYTES_MAX < LINK_BYTES_MAX
assert RETRY_AFTER_MS_MIN < RETRY_AFTER_MS_MAX < WRITE_STALL_MS_MAX
assert CLIENT_CONNECTIONS_MAX < CONNECTIONS_MAX
assert ALL_WAITERS_PER_PARTITION_MAX < REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX, "one partition does not use up a client"
assert FRAME_BYTES_MAX <= EARLY_BYTES_MAX, "the largest message fits"
assert RECORD_BYTES_MAX < BATCH_BYTES_MAX < FRAME_BYTES_MAX
assert APPEND_BYTES_MAX + RECORD_BYTES_MAX < FRAME_BYTES_MAX, "one append must fit one frame"
assert SNAPSHOT_CHUNK_BYTES_MAX + BATCH_BYTES_MAX < FRAME_BYTES_MAX, "one chunk must fit one frame"
assert DESCRIBE_PARTITIONS_MAX * DESCRIBE_ROW_BYTES_MAX < FRAME_BYTES_MAX, "one page must fit one frame"
assert ACQUIRE_BYTES_MAX + RECORD_BYTES_MAX < FRAME_BYTES_MAX, "one answer must fit one frame"
assert DISK_RESERVE_BYTES_MIN <= DISK_RESERVE_BYTES
assert (SLOW_LOOKS_MIN + 1) * CARE_INTERVAL_MS < 15_000, "a slow leader gives way within 15 s"
assert BATCH_BYTES_MAX < WAL_GROUP_BYTES_MAX < PROPOSALS_PENDING_BYTES_MAX < WAL_FILE_BYTES
assert BROWSE_BYTES_MAX + BATCH_BYTES_MAX + 100 * BROWSE_MESSAGES_MAX < FRAME_BYTES_MAX, "one page must fit one frame"
assert (SCHEDULED_MESSAGES_MAX + DELAYED_MESSAGES_MAX) * SCHEDULED_MESSAGE_BYTES < SNAPSHOT_CHECKPOINT_BYTES_MAX // 2
assert IN_FLIGHT_MESSAGES_MAX < DELAYED_LIVE_MAX, "what is in flight leaves room for delayed ones"
assert max(RELEASES_AT_ONCE_BYTES_MAX, RECORD_BYTES_MAX) + 64 * RELEASES_AT_ONCE_MAX < BATCH_BYTES_MAX
assert BROWSE_BYTES_MAX + RECORD_BYTES_MAX + 32 * SCHEDULE_PAGE_MESSAGES_MAX < FRAME_BYTES_MAX, "one page fits a frame"
assert FIFO_PARSED_BYTES_MAX + READ_AHEAD_BYTES_MAX < BODY_CACHE_BYTES_MAX
assert READ_AHEAD_MESSAGES_MAX < FIFO_READ_AHEAD_MESSAGES_MAX
assert READ_AHEAD_MESSAGES_MAX < SIGHT_RUNS_NEAR < LOOKAHEAD_RUNS_MAX
assert DEAD_LETTERS_PER_MOVE_MAX <= RECORDS_PER_SEND_MAX
assert DEAD_LETTERS_PER_MOVE_MAX < LETTERS_TAKEN_PER_SOURCE_MAX < LETTERS_TAKEN_MAX, "a move under way is not forgotten"
assert DEAD_LETTERS_PER_MOVE_BYTES_MAX + RECORD_BYTES_MAX + KIB * DEAD_LETTERS_PER_MOVE_MAX < FRAME_BYTES_MAX
assert HEARTBEAT_INTERVAL_MS * 3 < PEER_TIMEOUT_MS
assert HEARTBEAT_INTERVAL_MS < HEARTBEAT_LATE_MS < PEER_TIMEOUT_MS // 2
assert 3 * TURN_SLICE_MS_MAX < HEARTBEAT_INTERVAL_MS, "slices of all kinds fit between two heartbeats"
assert PEER_TIMEOUT_MS < CLOCK_OFFSET_MS_MAX, "no delay of a beat that counts makes a right clock look wrong"
assert CLOCK_SAMPLES_MAX * HEARTBEAT_INTERVAL_MS < CLOCK_BACK_MS_MIN, "a clock that was set is known before it counts"
assert CLOCK_OFFSET_BACK_MS_MAX < CLOCK_OFFSET_MS_MAX
assert CLOCK_WORD_AGE_MS_MAX * MONOTONIC_DRIFT_PERMILLE // 1_000 < CLOCK_OFFSET_MS_MAX, "words are nearly right"
assert 0 < CLOCK_SLEW_PERMILLE < 1_000, "slewed time still runs on"
assert PEER_TIMEOUT_MS + ELECTION_JITTER_MS <= 1_000, "failover target: another leader within 1 s"
assert VOTE_HOLD_MS * 4 * MONOTONIC_DRIFT_PERMILLE // 1_000 + 2 < LEASE_DRIFT_MS, "clocks that drift, both rounded"
assert VOTE_HOLD_MS <= PEER_TIMEOUT_MS, "a vote is free when its leader's node is down: elections wait for nothing else"
assert CONNECTION_LOOK_MS < FRAMES_TURN_MS_MAX < FRAME_MS_MAX
assert CONNECTION_LOOK_MS < LOOK_COUNTS_MS_MAX < min(GREETING_MS_MAX, WRITE_STALL_MS_MAX, FRAME_MS_MAX)
assert PEER_TIMEOUT_MS < CLOCK_WAIT_MS_MAX
assert PEER_TIMEOUT_MS < RETIRE_MS_MAX, "a stopping node may try a second target"
assert TIMERS_HELD_MS_MAX <= PEER_TIMEOUT_MS, "a leader without a majority steps down soon, however busy its node is"
assert PRODUCERS_PER_PARTITION_MAX * PRODUCER_WINDOW_RECORDS * PRODUCER_ROW_BYTES < SNAPSHOT_CHECKPOINT_BYTES_MAX // 2
assert USAGE_WINDOWS_PER_EXPORT_MAX < USAGE_WINDOWS_HELD_MAX, "what is exported makes room before there is none"
assert USAGE_WINDOWS_PER_EXPORT_MAX <= USAGE_RECORDS_PER_APPEND_MAX <= RECORDS_PER_SEND_MAX
assert RECORDS_PER_SEND_MAX < PRODUCER_WINDOW_RECORDS < PRODUCER_SEQUENCE_MAX
assert PRODUCER_JUMP_MS_MAX < PRODUCER_CALL_MS_MAX < PRODUCER_MEMORY_MS < PRODUCER_FORGET_MS
assert UNCOMMITTED_BYTES_MAX + WAL_GROUP_BYTES_MAX < STOPPED_TAIL_BYTES_MAX
assert WAL_GROUP_BYTES_MAX < UNCOMMITTED_BYTES_MAX < WAL_FILE_BYTES
assert FRAME_BYTES_MAX < SENDS_UNDER_WAY_BYTES_MAX <= UNCOMMITTED_BYTES_MAX // 4, "a few front ends fill no leader"
assert FEED_SHARE > 1, "a peer that is behind must gain on what is written"
assert REPLICATION_FACTOR <= CLUSTER_VOTERS_MAX
assert CONSUMER_COMMANDS_PER_BATCH_BYTES_MAX + 16 * CONSUMER_PARTITIONS_MAX < BATCH_BYTES_MAX
# In a checkpoint, at most: a member its name and 24 bytes more, a partition of the stream 64.
_GROUP_BYTES = CONSUMER_MEMBERS_MAX * (CONSUMER_NAME_BYTES_MAX + 24) + 64 * CONSUMER_PARTITIONS_MAX + KIB
assert CONSUMER_GROUPS_MAX * _GROUP_BYTES < SNAPSHOT_CHECKPOINT_BYTES_MAX, "all groups must fit a checkpoint"
