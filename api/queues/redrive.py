"""Dead-letter relations between queues of one account: which may name which, key grants, and who must hear of it.

A queue names its dead-letter queue by ARN. Three things follow from that:

    keys     the target is granted the source's data keys before storage hears of it, and along the chain of targets;
             with them go the ids of the encryption keys that its messages may be sealed under
    storage  the source's partitions are told the target's partition; 0 while the target is not there
    wake     a target that appears or goes leaves its sources pending

Granting and waking write rows of several queues: both run with the account's row locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial

from django.db import connection, transaction
from django.db.models import F, QuerySet

from api import clock, limits
from api.accounts.models import Account
from api.changes import announce, next_version
from api.encryption.selectors import existing_of
from api.hints import Hint, send_hint
from api.queues import attributes as rules
from api.queues.attributes import QueueProblem
from api.queues.models import DataKeyGrant, Queue, QueueStatus
from api.settings.environment import environment
from frontend.metadata.records import RecordKind, queue_change_key

LIVE = (QueueStatus.CREATING, QueueStatus.ACTIVE)


def check_redrive(account_id: str, name: str, change: Mapping[str, str]) -> None:
    """The dead-letter queue must be there, in this account and region, of the same type, and willing."""
    redrive = rules.redrive_of(change)
    if redrive is None:
        return
    policy, region, target = change["RedrivePolicy"], environment().region, redrive.target
    found = None
    if (target.region, target.account_id) == (region, account_id):
        found = Queue.objects.filter(account_id=account_id, name=target.name, state__in=LIVE).first()
    if found is None:
        raise rules.RedriveRefused(policy, "Dead letter target does not exist.")
    if target.name == name:
        raise rules.RedriveRefused(policy, "A queue cannot be its own dead letter target.")
    if rules.is_fifo(target.name) != rules.is_fifo(name):
        raise rules.RedriveRefused(policy, "Dead-letter queue must be same type of queue as the source.")
    if not rules.allows_source(found.attributes, rules.format_arn(region, account_id, name)):
        raise rules.RedriveRefused(policy, "The dead letter target does not allow this source.")


def target_of(queue: Queue) -> Queue | None:
    """The dead-letter queue, where it is usable."""
    redrive = rules.redrive_of(queue.attributes)
    if redrive is None:
        return None
    rows = Queue.objects.filter(account_id=queue.account_id, name=redrive.target.name, state=QueueStatus.ACTIVE)
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


def grant_keys(source: Queue) -> None:
    """Lets every queue that dead letters of `source` can come to read them."""
    assert connection.in_atomic_block
    grantor = source
    for _ in range(limits.REDRIVE_CHAIN_MAX):
        redrive = rules.redrive_of(grantor.attributes)
        if redrive is None:
            return
        rows = Queue.objects.select_for_update().filter(account_id=source.account_id, name=redrive.target.name)
        target = rows.filter(state__in=LIVE).first()
        if target is None or not _grant(grantor, target):
            return  # what it holds already was granted onward already
        grantor = target


def grant_to_new(target: Queue) -> None:
    """A queue that others name already, because one of its name was there before, reads their dead letters too."""
    for source in sources_of(target.account_id, target.name):
        grant_keys(source)


def announce_queue(queue: Queue) -> None:
    """Of a queue that is deleted and kept nobody hears: its name may be another queue's."""
    if queue.kept_until is None:
        announce(RecordKind.QUEUE, queue_change_key(queue.account_id, queue.name), queue.version)


def shred_keys(queue: Queue) -> None:
    """The data keys of the queue, and every copy of them that was granted: nothing that it took opens any more."""
    assert connection.in_atomic_block
    queue.data_keys.all().delete()
    queue.key_grants.all().delete()
    _withdraw(DataKeyGrant.objects.filter(owner_uuid=queue.uuid, queue__account_id=queue.account_id))


def withdraw_versions(owner: Queue, versions: Sequence[int]) -> None:
    """Nothing under these versions of the owner's data key is left, in any queue. The account's row is locked."""
    grants = DataKeyGrant.objects.filter(owner_uuid=owner.uuid, queue__account_id=owner.account_id)
    _withdraw(grants.filter(version__in=versions))


def wake_sources(account_id: str, name: str) -> None:
    """The queue of this name is usable now, or is no longer: its sources' partitions must hear of it."""
    assert connection.in_atomic_block
    now = clock.now()
    woken = list(sources_of(account_id, name).values_list("pk", flat=True))
    # Who holds a claim looks again when it is done: the generation is ahead then.
    Queue.objects.filter(pk__in=woken, claim__isnull=True).update(next_attempt_at=now)
    Queue.objects.filter(pk__in=woken).update(generation=F("generation") + 1)
    for queue_id in woken:
        transaction.on_commit(partial(send_hint, Hint.CONFIGURE_QUEUE, queue_id))


def _grant(grantor: Queue, target: Queue) -> bool:
    """Whether the target got anything it had not."""
    grants = [key for key in grantor.key_grants.all() if key.owner_uuid != target.uuid]
    readable = [(key.version, key.wrapped, grantor.uuid, grantor.name) for key in grantor.data_keys.all()]
    readable += [(key.version, key.wrapped, key.owner_uuid, key.owner_name) for key in grants]
    keys = [
        DataKeyGrant(queue=target, version=version, wrapped=bytes(wrapped), owner_uuid=owner, owner_name=name)
        for version, wrapped, owner, name in readable
    ]
    return _store_keys(target, keys, grantor.encryption_keys)


def _store_keys(target: Queue, keys: Iterable[DataKeyGrant], encryption_keys: Sequence[str]) -> bool:
    new_ids = existing_of([key_id for key_id in encryption_keys if key_id not in target.encryption_keys])
    held = set(target.key_grants.values_list("owner_uuid", "version"))
    fresh = [key for key in keys if (key.owner_uuid, key.version) not in held]
    if not fresh and not new_ids:
        return False
    _forget_keys_of_the_gone(target)
    if target.key_grants.count() + len(fresh) > limits.KEY_GRANTS_MAX:
        raise QueueProblem(
            "OverLimit",
            f"Dead letters of at most {limits.KEY_GRANTS_MAX} queues can come to one queue, by way of others too.",
        )
    DataKeyGrant.objects.bulk_create(fresh)
    target.encryption_keys = [*existing_of(target.encryption_keys), *new_ids]
    target.version = next_version()
    target.save(update_fields=["version", "encryption_keys"])
    announce_queue(target)
    return True


def forget_expired_grants() -> int:
    """Grants of queues deleted long ago: no message of theirs is left. How many went."""
    long_ago = clock.now() - timedelta(days=limits.KEY_GRANT_DAYS)
    gone = Queue.objects.filter(state=QueueStatus.DELETED, deleted_at__lt=long_ago)
    expired = DataKeyGrant.objects.filter(owner_uuid__in=gone.values("uuid"))
    count = 0
    for account_id in set(expired.values_list("queue__account_id", flat=True)):
        with transaction.atomic():
            Account.objects.select_for_update().get(id=account_id)
            count += _withdraw(expired.filter(queue__account_id=account_id))
    return count


def _withdraw(grants: QuerySet[DataKeyGrant]) -> int:
    """Deletes them, and tells front ends of the queues that held them. How many. The account's row is locked."""
    holders = set(grants.values_list("queue_id", flat=True))
    count = grants.delete()[0]
    for holder in Queue.objects.select_for_update().filter(pk__in=holders).exclude(state=QueueStatus.DELETED):
        holder.version = next_version()
        holder.save(update_fields=["version"])
        announce_queue(holder)
    return count


def _forget_keys_of_the_gone(target: Queue) -> None:
    """Of queues deleted so long ago that none of their messages is left."""
    long_ago = clock.now() - timedelta(days=limits.KEY_GRANT_DAYS)
    owners = Queue.objects.filter(account_id=target.account_id, state=QueueStatus.DELETED, deleted_at__lt=long_ago)
    target.key_grants.filter(owner_uuid__in=owners.values("uuid")).delete()
