"""`manage.py operate_queues --account=NAME [--as=NAME] -- list|deleted|restore|let-go [QUEUE]`: for operators.

QUEUE is the id of a deleted queue, or its name where one alone had that. Answers are JSON on stdout.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from api.accounts.selectors import account_named
from api.audit.actions import OPERATOR
from api.limits import PAGE_SIZE_MAX
from api.queues import attributes as rules
from api.queues import keeping
from api.queues.attributes import QueueProblem
from api.queues.models import Queue
from api.queues.selectors import deleted_queues_of, queues_of


class Command(BaseCommand):
    help = "List queues of an account, and restore or end deleted ones."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=["list", "deleted", "restore", "let-go"])
        parser.add_argument("queue", nargs="?", default="", help="id or name of a deleted queue")
        parser.add_argument("--account", required=True, help="name or id")
        parser.add_argument("--as", dest="new_name", default="", help="the name that a restored queue gets")

    def handle(self, *args: Any, **options: Any) -> None:
        account_id, verb = account_named(options["account"]).id, options["verb"]
        if verb == "list":
            answer: Any = [_row(queue) for queue in _all_of(account_id)]
        elif verb == "deleted":
            answer = [_row(queue) for queue in _all_deleted_of(account_id)]
        else:
            answer = _row(_change(account_id, verb, options["queue"], options["new_name"]))
        self.stdout.write(json.dumps(answer, cls=DjangoJSONEncoder))


def _change(account_id: str, verb: str, named: str, new_name: str) -> Queue:
    queue = _deleted_queue(account_id, named)
    try:
        if verb == "let-go":
            return keeping.let_go(OPERATOR, account_id, queue.uuid)
        checked = rules.check_name(new_name) if new_name else ""
        return keeping.restore_queue(OPERATOR, account_id, queue.uuid, checked)
    except QueueProblem as problem:
        raise CommandError(problem.message) from None


def _deleted_queue(account_id: str, named: str) -> Queue:
    try:
        wanted = uuid.UUID(named)
    except ValueError:
        wanted = None
    found = [one for one in _all_deleted_of(account_id) if named == one.name or wanted == one.uuid]
    if not found:
        raise CommandError(f"no deleted queue {named!r} is kept for this account; see ./penstock queues deleted")
    if len(found) > 1:
        ids = ", ".join(str(one.uuid) for one in found)
        raise CommandError(f"several deleted queues had the name {named!r}; give the id: {ids}")
    return found[0]


def _all_of(account_id: str) -> list[Queue]:
    queues: list[Queue] = []
    while page := queues_of(account_id, "", queues[-1].name if queues else "", PAGE_SIZE_MAX):
        queues += page
    return queues


def _all_deleted_of(account_id: str) -> list[Queue]:
    queues: list[Queue] = []
    while page := deleted_queues_of(account_id, queues[-1].pk if queues else 0, PAGE_SIZE_MAX):
        queues += page
    return queues


def _row(queue: Queue) -> dict[str, Any]:
    fields = ("name", "fifo", "state", "created_at", "deleted_at", "kept_until")
    return {"queue_id": queue.uuid, **{name: getattr(queue, name) for name in fields}}
