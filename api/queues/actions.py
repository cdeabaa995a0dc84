"""Every change of a queue's desired state: one call = one transaction = row + audit + version + announcement; then the
hint goes out.

Lock order: account, then queue. CreateQueue locks the account's row, so that names, the quota and versions are decided
one at a time within an account. So does whatever touches dead-letter relations (redrive.py) or encryption keys.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from django.db import transaction

from api import clock, limits
from api.accounts.models import Account
from api.audit.actions import record
from api.changes import next_version
from api.encryption.selectors import existing_of, named_key
from api.hints import Hint, send_hint
from api.queues import attributes as rules
from api.queues import layout
from api.queues.attributes import QueueProblem
from api.queues.data_keys import add_data_key
from api.queues.keeping import check_deletion, keep, move_extension
from api.queues.models import Queue, QueueStatus
from api.queues.permissions import Permission, with_permission, without_permission
from api.queues.redrive import (
    LIVE,
    announce_queue,
    check_redrive,
    grant_keys,
    grant_to_new,
    shred_keys,
    target_name,
    wake_sources,
)
from api.queues.selectors import queue_count
from api.quotas.notices import note_count
from api.quotas.selectors import quota_value
from api.settings.environment import environment
from frontend.authn.principal import Principal
from frontend.queues import extensions
from frontend.queues.encryption import KMS_KEY, names_customer_key

_Check = Callable[[Queue], None] | None
# What the partitions of a queue are told of its attributes (lifecycle.py, `claim_queue`).
ENFORCED_BY_STORAGE = ("MessageRetentionPeriod", "RedrivePolicy", *extensions.ENFORCED_BY_STORAGE)
# What says which keys open messages, here and in queues that dead letters come to.
_RELATIONS = ("RedrivePolicy", KMS_KEY, "SqsManagedSseEnabled")
# What its partitions are (layout.py).
SPREAD = ("Penstock.Partitions", "Penstock.PriorityLevels", "FifoThroughputLimit", "DeduplicationScope")


class CreateOutcome(NamedTuple):
    """`created` is false where the queue was there already with the same attributes."""

    queue: Queue
    created: bool


@transaction.atomic
def create_queue(
    actor: Principal, account_id: str, name: str, asked: Mapping[str, str], tags: Mapping[str, str]
) -> CreateOutcome:
    """`name`, `asked` and `tags` have passed `attributes.check_*`. Raises QueueProblem."""
    account = Account.objects.select_for_update().get(id=account_id)
    if not account.active:  # since the call was allowed; one that is closed for good would keep the queue
        raise QueueProblem("AccessDeniedException", "The account is not active: no queue can be created in it.")
    of_this_name = Queue.objects.filter(account=account, name=name)
    found = of_this_name.filter(state__in=LIVE).first()
    if found is not None:
        return CreateOutcome(_same_or_refuse(found, asked), False)
    deleted = of_this_name.filter(deleted_at__isnull=False).order_by("-deleted_at").first()
    if deleted is not None:
        _reject_name_in_cooldown(deleted)
    _pay_for_queue(actor, account_id)
    attributes = rules.merged(rules.defaults_of(name), asked)
    rules.check_spread(attributes, attributes, asked)
    check_redrive(account_id, name, asked)
    queue = _insert(account, name, attributes, tags)
    grant_keys(queue)
    grant_to_new(queue)
    record(actor, account_id, "queue.create", f"queue:{name}", uuid=str(queue.uuid), attributes=dict(asked))
    _announce_and_hint(queue, Hint.PROVISION_QUEUE)
    return CreateOutcome(queue, True)


@transaction.atomic
def set_queue_attributes(
    actor: Principal, account_id: str, name: str, change: Mapping[str, str], check: _Check = None
) -> Queue:
    """`change` has passed `attributes.check_change`. `check` is asked about the queue under its lock, and raises where
    it is not the one that is meant. Raises QueueProblem."""
    is_relation = not change.keys().isdisjoint(_RELATIONS)
    if is_relation:
        _lock_account(account_id)
    queue = _lock_live(account_id, name)
    if check is not None:
        check(queue)
    attributes = rules.merged(queue.attributes, change)
    key_id = _key_after(queue, attributes, change)
    if attributes == queue.attributes and key_id == queue.encryption_key:
        return queue
    rules.check_together(attributes)
    rules.check_spread(queue.attributes, attributes, change)
    check_redrive(account_id, name, change)
    # Only what the partitions enforce themselves needs the lifecycle; the rest is read by the front end.
    pending = any(attributes.get(one) != queue.attributes.get(one) for one in (*ENFORCED_BY_STORAGE, *SPREAD))
    per_group = layout.wanted_of(queue.attributes, queue.fifo).per_group
    rows = layout.rows_of(queue.layout, queue.partitions, per_group)
    if not change.keys().isdisjoint(SPREAD):
        _refuse_generations(rows)
    queue.layout = layout.after_change(rows, attributes, queue.fifo)
    move_extension(queue, *(int(one["MessageRetentionPeriod"]) for one in (queue.attributes, attributes)))
    before = {one: queue.attributes.get(one) for one in change}
    queue.attributes = attributes
    queue.dead_letter_target = target_name(attributes)
    queue.modified_at = clock.now()
    queue.version = next_version()
    if pending:
        queue.generation += 1
        queue.next_attempt_at = queue.modified_at if queue.claim is None else queue.next_attempt_at
    _use_key(queue, key_id)
    changed = ["attributes", "layout", "dead_letter_target", "modified_at", "version", "generation", "next_attempt_at"]
    queue.save(update_fields=[*changed, "encryption_key", "encryption_keys", "retention_extra_until"])
    if is_relation:
        grant_keys(queue)
    record(actor, account_id, "queue.configure", f"queue:{name}", attributes=dict(change), before=before)
    _announce_and_hint(queue, Hint.CONFIGURE_QUEUE if pending else None)
    return queue


def of_version(version: int) -> Callable[[Queue], None]:
    """A check that the row is the one that was read. It raises QueueProblem."""

    def check(queue: Queue) -> None:
        if queue.version != version:
            raise QueueProblem("PreconditionFailed", "The queue has changed since it was read.")

    return check


@transaction.atomic
def tag_queue(actor: Principal, account_id: str, name: str, change: Mapping[str, str]) -> None:
    """`change` has passed `attributes.check_tags`. Raises QueueProblem."""
    queue = _lock_live(account_id, name)
    _save_tags(actor, queue, rules.merged_tags(queue.tags, change, queue.name))


@transaction.atomic
def untag_queue(actor: Principal, account_id: str, name: str, keys: Sequence[str]) -> None:
    """Raises QueueProblem."""
    queue = _lock_live(account_id, name)
    _save_tags(actor, queue, {key: value for key, value in queue.tags.items() if key not in keys})


@transaction.atomic
def add_permission(actor: Principal, account_id: str, name: str, permission: Permission) -> None:
    """`permission` has passed `permissions.check_permission`. Raises QueueProblem."""
    queue = _lock_live(account_id, name)
    arn = rules.QueueArn(environment().region, account_id, name)
    set_queue_attributes(actor, account_id, name, {"Policy": with_permission(queue.attributes, arn, permission)})


@transaction.atomic
def remove_permission(actor: Principal, account_id: str, name: str, label: str) -> None:
    """Raises QueueProblem."""
    queue = _lock_live(account_id, name)
    set_queue_attributes(actor, account_id, name, {"Policy": without_permission(queue.attributes, label)})


@transaction.atomic
def delete_queue(
    actor: Principal, account_id: str, name: str, shred: bool = False, at_once: bool = False, check: _Check = None
) -> Queue:
    """From the commit on the queue takes and gives no messages. Its partitions go in the background, and then its data
    keys; in an account with a period of grace when that is over (keeping.py). `shred`: with the copies that dead-letter
    queues were granted, so that no dead letter of this queue can be read any more. `at_once`: the account itself ends,
    what it chose about deletions does not count. `check` as of a change. Raises QueueProblem."""
    account = _lock_account(account_id)
    queue = _lock_live(account_id, name)
    if not at_once:
        check_deletion(account)
    if check is not None:
        check(queue)
    is_kept = account.deletion_grace_days > 0 and queue.state == QueueStatus.ACTIVE and not at_once
    now = clock.now()
    queue.deleted_at = queue.modified_at = now
    queue.generation += 1
    queue.version = next_version()
    queue.next_attempt_at = now if queue.claim is None else queue.next_attempt_at
    # With its own name: that nobody has the name any more is what front ends must hear.
    announce_queue(queue)
    if is_kept:
        keep(queue, timedelta(days=account.deletion_grace_days), shred)
    else:
        queue.state = QueueStatus.DELETING
        queue.retention_extra_until = None
    queue.save()
    kept_until = {} if queue.kept_until is None else {"kept_until": queue.kept_until.isoformat()}
    record(actor, account_id, "queue.delete", f"queue:{name}", uuid=str(queue.uuid), shred=shred, **kept_until)
    if shred and not is_kept:
        shred_keys(queue)
    wake_sources(account_id, name)
    transaction.on_commit(partial(send_hint, Hint.CONFIGURE_QUEUE if is_kept else Hint.DELETE_QUEUE, queue.pk))
    return queue


def _pay_for_queue(actor: Principal, account_id: str) -> None:
    """Raises QueueProblem."""
    queues_max = quota_value(account_id, "queues")
    count = queue_count(account_id)
    if count >= queues_max:
        raise QueueProblem("OverLimit", f"An account has at most {queues_max} queues.")
    note_count(actor, account_id, "queues", count + 1, queues_max)


def _insert(account: Account, name: str, attributes: dict[str, str], tags: Mapping[str, str]) -> Queue:
    now = clock.now()
    queue_uuid = uuid.uuid4()
    key_id = _encryption_key_of(account.pk, attributes)
    queue = Queue.objects.create(
        account=account,
        name=name,
        uuid=queue_uuid,
        attributes=attributes,
        tags=dict(tags),
        fifo=rules.is_fifo(name),
        dead_letter_target=target_name(attributes),
        encryption_key=key_id,
        encryption_keys=[key_id] if key_id else [],
        state=QueueStatus.CREATING,
        created_at=now,
        modified_at=now,
        next_attempt_at=now,
        version=next_version(),
    )
    add_data_key(account, queue)
    return queue


def _encryption_key_of(account_id: str, attributes: Mapping[str, str]) -> str:
    """The id of the customer's key that the attributes name; "" where they name none. As in SQS a name of nothing is
    stored all the same: sends and receives are refused then."""
    named = attributes.get(KMS_KEY, "")
    key = named_key(account_id, named) if names_customer_key(named) else None
    return "" if key is None else str(key.pk)


def _key_after(queue: Queue, attributes: Mapping[str, str], change: Mapping[str, str]) -> str:
    """A name is looked up only by the call that sets it: that is the call which is asked for the right to the key."""
    if KMS_KEY in change:
        return _encryption_key_of(queue.account_id, attributes)
    return queue.encryption_key if KMS_KEY in attributes else ""


def _use_key(queue: Queue, key_id: str) -> None:
    """Messages under the keys that it used before may be there for long, so those are not forgotten."""
    if key_id != queue.encryption_key:
        queue.encryption_key = key_id
        queue.encryption_keys = existing_of(queue.encryption_keys)
        if key_id and key_id not in queue.encryption_keys:
            queue.encryption_keys.append(key_id)


def _refuse_generations(rows: Sequence[layout.LayoutRow]) -> None:
    """Sequence numbers have room for so many sets of partitions."""
    if any(row.generation >= limits.FIFO_GENERATIONS_MAX for row in rows):
        raise QueueProblem("OverLimit", "The partitions of this queue were changed too often: create another queue.")


def _save_tags(actor: Principal, queue: Queue, tags: dict[str, str]) -> None:
    """Front ends hear of tags, because conditions of policies look at them; storage does not."""
    if tags == queue.tags:
        return
    before, queue.tags = queue.tags, tags
    queue.version = next_version()
    queue.save(update_fields=["tags", "version"])
    record(actor, queue.account_id, "queue.tag", f"queue:{queue.name}", tags=tags, before=before)
    announce_queue(queue)


def _lock_account(account_id: str) -> Account:
    """Before the queue's row: relations between queues are written one at a time within an account."""
    return Account.objects.select_for_update().get(id=account_id)


def _lock_live(account_id: str, name: str) -> Queue:
    live = Queue.objects.select_for_update().filter(account_id=account_id, name=name)
    queue = live.filter(state__in=LIVE).first()
    if queue is None:
        raise QueueProblem("QueueDoesNotExist", "The specified queue does not exist.")
    return queue


def _same_or_refuse(found: Queue, asked: Mapping[str, str]) -> Queue:
    different = rules.first_difference(found.attributes, asked)
    if different is not None:
        raise QueueProblem(
            "QueueNameExists",
            f"A queue already exists with the same name and a different value for attribute {different}",
        )
    return found


def _reject_name_in_cooldown(deleted: Queue) -> None:
    """The name of a queue that is kept is free after the same while as any other: clients are used to that."""
    assert deleted.deleted_at is not None
    is_over = clock.now() - deleted.deleted_at >= timedelta(seconds=limits.QUEUE_NAME_COOLDOWN_S)
    has_name = deleted.state != QueueStatus.DELETED and deleted.kept_until is None
    if has_name or not is_over:
        raise QueueProblem(
            "QueueDeletedRecently",
            f"You must wait {limits.QUEUE_NAME_COOLDOWN_S} seconds after deleting a queue before you can create "
            "another with the same name.",
        )


def _announce_and_hint(queue: Queue, hint: Hint | None) -> None:
    announce_queue(queue)
    if hint is not None:
        transaction.on_commit(partial(send_hint, hint, queue.pk))
