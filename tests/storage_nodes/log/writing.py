"""What the log tests write with: small bounds, batches, commits, flushes, whole reads."""

from __future__ import annotations

from storage_nodes.log.bounds import LogBounds
from storage_nodes.log.node_log import FlushFacts, FlushPlan, NodeLog, PartitionLog
from storage_nodes.log.record_batch import build_batch, read_header

SMALL = LogBounds(
    wal_file_bytes=2_000,
    wal_grow_bytes=512,
    memtable_bytes_max=1_500,
    segment_bytes_max=1_000,
    segment_index_interval_bytes=200,
    open_segment_files_max=2,
    checkpoint_inline_bytes_max=20,
    flush_run_bytes=1,
    flush_slice_partitions=1,
)


def append(log: NodeLog, partition: int, epoch: int = 1, records: int = 1, body: bytes = b"body") -> bytes:
    batch = build_batch(log.partitions[partition].log_end, epoch, 1_000, [body] * records)
    log.append(partition, batch)
    return batch


def commit(log: NodeLog) -> list[tuple[int, int]]:
    group = log.take_group()
    assert group is not None
    log.write_group(group)
    return log.group_written(group)


def all_live(_base: int, _last: int) -> bool:
    return True


def none_live(_base: int, _last: int) -> bool:
    return False


def facts_of(log: NodeLog, live: object = all_live, checkpoint: bytes = b"state") -> object:
    """Everything durable is committed, applied and replicated."""

    def facts(partition: int) -> FlushFacts:
        end = log.partitions[partition].durable_end
        return FlushFacts(end, checkpoint, end, end, live)  # type: ignore[arg-type]

    return facts


def planned_flush(log: NodeLog, facts: object) -> FlushPlan:
    """All slices planned."""
    plan = log.begin_flush()
    assert plan is not None
    while not log.plan_flush(plan, facts):  # type: ignore[arg-type]
        pass
    return plan


def carry_out(log: NodeLog, plan: FlushPlan) -> None:
    log.run_flush(plan)
    while not log.flush_done(plan):
        pass


def flush(log: NodeLog, facts: object) -> None:
    carry_out(log, planned_flush(log, facts))


def fill_until_flush_due(log: NodeLog, partition: int, epoch: int = 1) -> list[bytes]:
    """Append and commit until a WAL file is finished and the next one begun."""
    batches = []
    while not log.flush_due():
        batches.append(append(log, partition, epoch, body=b"x" * 100))
        commit(log)
    batches.append(append(log, partition, epoch))
    commit(log)
    return batches


def read_all(log: PartitionLog, bytes_max: int = 300) -> list[bytes]:
    batches: list[bytes] = []
    offset = 0
    while True:
        more = log.read_hot(offset, bytes_max)
        if more is None:
            more = log.read_cold(offset, bytes_max)
        if not more:
            return batches
        batches += more
        offset = read_header(more[-1]).end_offset
