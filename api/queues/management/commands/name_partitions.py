"""`manage.py name_partitions -- TAG...`: which queues of which accounts these partitions belong to.

Answers in JSON on stdout: by tag, the account's name and the queue's. What is no queue's, or one's that is gone, is
left out.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandParser

from api.queues.models import Queue
from storage_nodes.protocol.usage_records import queue_of_tag


class Command(BaseCommand):
    help = "Name the queues of partitions."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tags", nargs="+", help="of partitions, as ./penstock status shows them")

    def handle(self, *args: Any, **options: Any) -> None:
        uuids = {tag: UUID(bytes=queue_of_tag(tag)) for tag in options["tags"]}
        rows = Queue.objects.filter(uuid__in=set(uuids.values())).values_list("uuid", "account__name", "name")
        named = {queue_uuid: (account, name) for queue_uuid, account, name in rows}
        self.stdout.write(json.dumps({tag: named[found] for tag, found in uuids.items() if found in named}))
