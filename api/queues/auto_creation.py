"""Queues that are made by the first send to them, where the account allows that (`Account.auto_create_queues`).

One transaction decides, under the account's lock: is it allowed still, are there not too many within the hour, is the
queue there by now. Whoever misspells names meets the bound before the account fills with queues nobody wants.
"""

from __future__ import annotations

from datetime import timedelta

from asgiref.sync import sync_to_async
from django.db import transaction
from django.utils import timezone

from api import limits
from api.accounts.models import Account
from api.audit.actions import record
from api.queues import actions
from api.queues import attributes as rules
from api.queues.actions import CreateOutcome
from api.queues.attributes import QueueProblem
from api.queues.models import Queue
from api.queues.provisioning import wait_usable
from frontend.authn.principal import Principal

TAGS = {"penstock:auto-created": "true"}


async def auto_create_and_wait(actor: Principal, account_id: str, name: str) -> Queue:
    """`name` has passed `attributes.check_name`. Raises QueueProblem."""
    outcome = await sync_to_async(_auto_create)(actor, account_id, name)
    return await wait_usable(account_id, name, outcome)


@transaction.atomic
def _auto_create(actor: Principal, account_id: str, name: str) -> CreateOutcome:
    account = Account.objects.select_for_update().get(id=account_id)
    if not account.auto_create_queues:
        raise QueueProblem("QueueDoesNotExist", "The specified queue does not exist.")
    asked = {"FifoQueue": "true"} if rules.is_fifo(name) else {}
    outcome = actions.create_queue(actor, account_id, name, rules.check_new(asked, name), TAGS)
    if not outcome.created:
        return outcome
    now = timezone.now()
    since = account.auto_created_since
    if since is None or now - since >= timedelta(hours=1):
        account.auto_created_since, account.auto_created = now, 0
    if account.auto_created >= limits.AUTO_CREATED_PER_HOUR_MAX:
        # Raised through the transaction: the queue of this moment is not made.
        raise QueueProblem(
            "OverLimit", f"At most {limits.AUTO_CREATED_PER_HOUR_MAX} queues an hour are created by sends to them."
        )
    account.auto_created += 1
    account.save(update_fields=["auto_created_since", "auto_created"])
    record(actor, account_id, "queue.auto_create", f"queue:{name}")
    return outcome
