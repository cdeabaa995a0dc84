"""Dead-letter relations between queues of one account: who may name whom, who lends keys to whom, who must hear of it.

A queue names its dead-letter queue by ARN. Three things follow from that:

    keys     the source's data keys are lent to the target before storage hears of it, and along the chain of targets
    storage  the source's partitions are told the target's partition; 0 while the target is not there
    wake     a target that appears or goes owes its sources another configuration

Lending and waking write rows of several queues: both run with the account's row locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial

from django.db import connection, transaction
from django.db.models import F, QuerySet

from api import clock, limits
from api.changes import announce, next_version
from api.hints import Hint, send_hint
from api.queues import attributes as rules
from api.queues.attributes import QueueProblem
from api.queues.models import BorrowedKey, Queue, QueueState
from api.settings.environment import environment
from frontend.metadata.records import RecordKind, queue_change_key

LIVE = (QueueState.CREATING, QueueState.ACTIVE)


def check_redrive(account_id: str, name: str, change: Mapping[str, str]) -> None:
    """The dead-letter queue must be there, in this account and region, of the same type, and willing."""
    redrive = rules.redrive_of(change)
    if redrive is None:
        return
    region, target = environment().region, redrive.target
    found = None
    if (target.region, target.account_id) == (region, account_id):
        found = Queue.objects.filter(account_id=account_id, name=target.name, state__in=LIVE).first()
    if found is None:
        raise _refused("Dead letter target does not exist.")
    if target.name == name:
        raise _refused("A queue cannot be its own dead letter target.")
    if rules.is_fifo(target.name) != rules.is_fifo(name):
        raise _refused("Dead-letter queue must be same type of queue as the source.")
    if not rules.allows_source(found.attributes, rules.format_arn(region, account_id, name)):
        raise _refused("The dead letter target does not allow this source.")


def target_of(queue: Queue) -> Queue | None:
    """The dead-letter queue, where it is usable."""
    redrive = rules.redrive_of(queue.attributes)
    if redrive is None:
        return None
    rows = Queue.objects.filter(account_id=queue.account_id, name=redrive.target.name, state=QueueState.ACTIVE)
    return rows.first()


def sources_of(account_id: str, name: str) -> QuerySet[Queue]:
    """Live queues whose RedrivePolicy names the queue of this name."""
    return Queue.objects.filter(account_id=account_id, state__in=LIVE, dead_letter_target=name).exclude(
        dead_letter_target=""  # as the index says it
    )


def target_name(attributes: Mapping[str, str]) -> str:
    """The column by which `sources_of` finds a queue with these attributes."""
    redrive = rules.redrive_of(attributes)
    return "" if redrive is None else redrive.target.name


def lend_keys(source: Queue) -> None:
    """Lets every queue that dead letters of `source` can come to read them."""
    assert connection.in_atomic_block
    lender = source
    for _ in range(limits.REDRIVE_CHAIN_MAX):
        redrive = rules.redrive_of(lender.attributes)
        if redrive is None:
            return
        rows = Queue.objects.select_for_update().filter(account_id=source.account_id, name=redrive.target.name)
        target = rows.filter(state__in=LIVE).first()
        if target is None or not _lend(lender, target):
            return  # what it holds already was lent on already
        lender = target


def lend_to_new(target: Queue) -> None:
    """A queue that others name already, because one of its name was there before, reads their dead letters too."""
    for source in sources_of(target.account_id, target.name):
        lend_keys(source)


def wake_sources(account_id: str, name: str) -> None:
    """The queue of this name is usable now, or is no longer: its sources' partitions must hear of it."""
    assert connection.in_atomic_block
    now = clock.now()
    woken = list(sources_of(account_id, name).values_list("pk", flat=True))
    # Who holds a claim looks again when it has settled: the generation is ahead then.
    Queue.objects.filter(pk__in=woken, claim__isnull=True).update(next_attempt_at=now)
    Queue.objects.filter(pk__in=woken).update(generation=F("generation") + 1)
    for queue_id in woken:
        transaction.on_commit(partial(send_hint, Hint.CONFIGURE_QUEUE, queue_id))


def _lend(lender: Queue, target: Queue) -> bool:
    """Whether the target got anything it had not."""
    lent = [key for key in lender.borrowed_keys.all() if key.owner_uuid != target.uuid]
    readable = [(key.version, key.wrapped, lender.uuid, lender.name) for key in lender.data_keys.all()]
    readable += [(key.version, key.wrapped, key.owner_uuid, key.owner_name) for key in lent]
    keys = [
        BorrowedKey(queue=target, version=version, wrapped=bytes(wrapped), owner_uuid=owner, owner_name=name)
        for version, wrapped, owner, name in readable
    ]
    return _store_keys(target, keys)


def _store_keys(target: Queue, keys: Iterable[BorrowedKey]) -> bool:
    held = set(target.borrowed_keys.values_list("owner_uuid", "version"))
    fresh = [key for key in keys if (key.owner_uuid, key.version) not in held]
    if not fresh:
        return False
    _forget_keys_of_the_gone(target)
    if target.borrowed_keys.count() + len(fresh) > limits.BORROWED_KEYS_MAX:
        raise QueueProblem(
            "OverLimit",
            f"Dead letters of at most {limits.BORROWED_KEYS_MAX} queues can come to one queue, by way of others too.",
        )
    BorrowedKey.objects.bulk_create(fresh)
    target.version = next_version()
    target.save(update_fields=["version"])
    announce(RecordKind.QUEUE, queue_change_key(target.account_id, target.name), target.version)
    return True


def _forget_keys_of_the_gone(target: Queue) -> None:
    """Of queues deleted so long ago that none of their messages is left."""
    long_ago = clock.now() - timedelta(days=limits.BORROWED_KEY_DAYS)
    owners = Queue.objects.filter(account_id=target.account_id, state=QueueState.DELETED, deleted_at__lt=long_ago)
    target.borrowed_keys.filter(owner_uuid__in=owners.values("uuid")).delete()


def _refused(why: str) -> QueueProblem:
    text = f"Value for parameter RedrivePolicy is invalid. Reason: {why}"
    return QueueProblem("InvalidParameterValueException", text)
