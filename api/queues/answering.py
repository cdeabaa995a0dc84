"""How REST answers with a queue: shown, with its ETag. Changes look at the tag under the lock of the queue's row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rest_framework.response import Response

from api.etags import entity_tag
from api.operation_view import Tagged
from api.queues.models import Queue
from api.queues.serializers import QueueSerializer

# Follow what storage does, and the deletion.
_UNWRITTEN = frozenset(("state", "partitions_open", "partitions_draining", "kept_until"))
QUEUE_TAGGED = Tagged(_UNWRITTEN, lock=None, is_checked_below=True)


def queue_answer(queue: Queue, status: int = 200) -> Response:
    shown = QueueSerializer(queue).data
    return Response(shown, status=status, headers={"ETag": entity_tag(shown, _UNWRITTEN)})


def check_queue(check: Callable[[Mapping[str, Any]], None] | None) -> Callable[[Queue], None] | None:
    """For actions: the check of a view, of the queue as it is shown."""
    return None if check is None else lambda queue: check(QueueSerializer(queue).data)
