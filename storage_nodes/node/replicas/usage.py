"""The closed windows of a queue's meter on their way to the usage stream (docs/usage_records.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog
from prometheus_client import Counter

from storage_nodes.machines.queue.effects import Effect, ExportUsage
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.node.replicas.leader_context import LeaderContext
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.usage_records import queue_of_tag, window_record

WINDOWS_EXPORTED = Counter("penstock_node_usage_windows_exported", "Windows of usage appended to the usage stream")
EXPORTS_FAILED = Counter("penstock_node_usage_exports_failed", "Appends to the usage stream that failed")

_log = structlog.get_logger()


def export_usage(
    context: LeaderContext, machine: QueueMachine, effect: ExportUsage, stage: Callable[[Iterable[Effect]], None]
) -> None:
    replica = context.replica
    host, last = replica.host, effect.windows[-1]
    account_id = machine.config.account_id
    queue_uuid = queue_of_tag(replica.tag)
    bodies = [
        window_record(
            host.cluster_id, replica.partition, account_id, queue_uuid, window, effect.is_final and window is last
        )
        for window in effect.windows
    ]

    def ended(error: StorageError | None) -> None:
        if error is None:
            WINDOWS_EXPORTED.inc(len(bodies))
        else:
            EXPORTS_FAILED.inc()
            _log.warning("usage could not be exported", partition=replica.partition, error=str(error))
        note(error)

    def exported(error: StorageError | None) -> None:
        if error is None:
            stage(machine.usage.exported(last.hour_ms, last.until_ms, replica.now_ms()))
        else:
            machine.usage.not_exported(replica.now_ms())
        replica.schedule()

    note = context.then(exported)  # a later leader exports the same windows again
    host.other_partitions.append_usage(bodies, ended)
