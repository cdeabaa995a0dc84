"""Which partitions are busiest now: what their queues did in the last minutes, by each partition's share of the hour.

The series know minutes of queues, the live meter hours of partitions. Of a queue with one partition this is exact; of
several, the share of the hour stands for that of the last minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db.models import F, Sum

from api.billing.models import ProvisionalUsage
from api.billing.pricing.periods import floor_hour
from api.series.selectors import BusyQueue


class BusyPartition(NamedTuple):
    """`messages`: sent, received and deleted, of the same minutes as those of the queue."""

    partition: int
    account_id: str
    queue: str
    messages: int


def busiest_partitions(
    queues: Sequence[BusyQueue], cluster_id: str, since: datetime, limit: int
) -> list[BusyPartition]:
    """Of these queues, the busiest first."""
    sources = {f"{cluster_id}/{partition}": partition for queue in queues for partition in queue.partitions}
    rows = ProvisionalUsage.objects.filter(
        hour__gte=floor_hour(since), queue_uuid__in=[queue.queue_uuid for queue in queues], source__in=list(sources)
    )
    all_messages = Sum(F("messages_sent") + F("messages_delivered") + F("messages_deleted"))
    sums = rows.values("source").annotate(messages=all_messages).values_list("source", "messages")
    of_hour = {sources[source]: int(messages) for source, messages in sums}
    found = [
        BusyPartition(partition, queue.account_id, queue.name, messages)
        for queue in queues
        for partition, messages in shared_out(queue.messages, queue.partitions, of_hour).items()
        if messages
    ]
    return sorted(found, key=lambda one: (-one.messages, one.partition))[:limit]


def shared_out(messages: int, partitions: Sequence[int], of_hour: Mapping[int, int]) -> dict[int, int]:
    """What each partition did of `messages`; equal parts where the hour says nothing."""
    total = sum(of_hour.get(partition, 0) for partition in partitions)
    if not total:
        return {partition: messages // len(partitions) for partition in partitions}
    return {partition: messages * of_hour.get(partition, 0) // total for partition in partitions}
