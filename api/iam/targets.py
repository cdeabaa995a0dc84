"""What a REST management call is about: from its path, and from its body where the target stands there.

What is asked of the database is the same for an SQS call: queues that messages of a dead-letter queue may go to, the
encryption key that a queue is given. So is what its RedrivePolicy names.

A body is read as the view reads it, by the same serializer. One that does not validate names nothing: the view refuses
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rest_framework.request import Request

from api.encryption.selectors import named_key
from api.iam.authorisation import Targets
from api.queues import moves
from api.queues.attributes import check_tags, parse_arn, redrive_target
from api.queues.selectors import letter_holders_of, letter_owners_of, queue_of, queue_of_id
from api.queues.serializers import (
    MoveRequestSerializer,
    QueueRequestSerializer,
    QueueSettingsSerializer,
    RestorationSerializer,
)
from api.settings.environment import environment
from frontend.queues.encryption import KMS_KEY, names_customer_key

# What names a target in the address of a call or page.
ITEMS = ("access_key_id", "policy", "group", "encryption_key")


def targets_of(operation: str, account_id: str, request: Request, path: Mapping[str, Any]) -> Targets | None:
    """`path` is what the address names. None: the body, which would say, does not validate, or no queue ever had the id
    of the path."""
    read = _READERS.get(operation)
    if read is not None:
        return read(account_id, request, path)
    item = next((path[name] for name in ITEMS if name in path), "")
    return Targets(path.get("name", ""), item=item)


def destinations_of(account_id: str, source: str, destination: str | None) -> tuple[str, ...]:
    """The destination; without one every queue that a message of the source may go back to."""
    return (destination,) if destination else letter_owners_of(account_id, source)


def encryption_key_of(account_id: str, attributes: object) -> str:
    """The id of the encryption key of the account that SQS attributes name, "" without one."""
    named = attributes.get(KMS_KEY) if isinstance(attributes, dict) else None
    if not isinstance(named, str) or "\0" in named or not names_customer_key(named):
        return ""
    key = named_key(account_id, named)
    return "" if key is None else str(key.pk)


def with_attributes(targets: Targets, account_id: str, attributes: object) -> Targets:
    """With what the SQS attributes name that the queue is given."""
    return targets._replace(
        encryption_key=encryption_key_of(account_id, attributes),
        dead_letter_queue=dead_letter_queue_of(account_id, attributes),
    )


def dead_letter_queue_of(account_id: str, attributes: object) -> str:
    """The queue of the account that the RedrivePolicy of SQS attributes names, "" without one and for one that is
    refused when it is set."""
    text = attributes.get("RedrivePolicy") if isinstance(attributes, dict) else None
    target = redrive_target(text) if isinstance(text, str) and text else None
    if target is None or (target.region, target.account_id) != (environment().region, account_id):
        return ""
    return target.name


def _new_queue(account_id: str, request: Request, path: Mapping[str, Any]) -> Targets | None:
    asked = QueueRequestSerializer(data=request.data)
    if not asked.is_valid():
        return None
    # More than a queue can have are not weighed: a policy may compare each with each of its patterns.
    tags, attributes = check_tags(asked.validated_data["tags"]), asked.attributes(account_id)
    targets = Targets(asked.validated_data["name"], tags=tags, tag_keys=tuple(tags))
    return with_attributes(targets, account_id, attributes)


def _changed_queue(account_id: str, request: Request, path: Mapping[str, Any]) -> Targets | None:
    asked = QueueSettingsSerializer(data=request.data)
    if not asked.is_valid():
        return Targets(path["name"])
    return with_attributes(Targets(path["name"]), account_id, asked.attributes(account_id))


def _deleted_queue(account_id: str, request: Request, path: Mapping[str, Any]) -> Targets | None:
    queue = queue_of(account_id, path["name"]) if request.query_params.get("shred") == "true" else None
    return Targets(path["name"], letter_holders=() if queue is None else letter_holders_of(queue))


def _new_move(account_id: str, request: Request, path: Mapping[str, Any]) -> Targets | None:
    source = path["name"]
    asked = MoveRequestSerializer(data=request.data)
    if not asked.is_valid():
        return Targets(source)
    return Targets(source, destinations_of(account_id, source, asked.validated_data["destination"]))


def _resumed_move(account_id: str, request: Request, path: Mapping[str, Any]) -> Targets | None:
    task = moves.move_of(account_id, path["name"], path["move_id"])
    if task is None:
        return Targets(path["name"])
    named = parse_arn(task.destination_arn)
    return Targets(path["name"], destinations_of(account_id, path["name"], None if named is None else named.name))


def _restored_queue(account_id: str, request: Request, path: Mapping[str, Any]) -> Targets | None:
    queue = queue_of_id(account_id, path["queue_id"])
    if queue is None:
        return None
    asked = RestorationSerializer(data=request.data)
    name = asked.validated_data["name"] if asked.is_valid() else ""
    return Targets(queue.name, (name or queue.name,), queue_id=queue.uuid)


def _ended_queue(account_id: str, request: Request, path: Mapping[str, Any]) -> Targets | None:
    queue = queue_of_id(account_id, path["queue_id"])
    return None if queue is None else Targets(queue.name, queue_id=queue.uuid)


_READERS: Mapping[str, Callable[[str, Request, Mapping[str, Any]], Targets | None]] = {
    "queues.create": _new_queue,
    "queues.update": _changed_queue,
    "queues.delete": _deleted_queue,
    "deleted_queues.restore": _restored_queue,
    "deleted_queues.end": _ended_queue,
    "moves.start": _new_move,
    "moves.resume": _resumed_move,
}
