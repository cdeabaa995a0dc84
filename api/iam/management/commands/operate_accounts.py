"""`manage.py operate_accounts list | create NAME | suspend|resume|close|reopen ACCOUNT [--reason TEXT]
                                  | configure ACCOUNT [--deletion-protection on|off] [--deletion-grace-days N]`: for
operators.

Answers are JSON on stdout.
"""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Count, QuerySet

from api.accounts.actions import AccountError, get_or_create_account, set_deletion_rules
from api.accounts.models import AccessKey, Account
from api.accounts.selectors import account_named, found_account
from api.audit.actions import OPERATOR
from api.people.actions import account_life
from api.people.errors import PeopleError
from api.people.models import AccountState
from api.queues.models import Queue, QueueStatus


class Command(BaseCommand):
    help = "List accounts, or move one to another state."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=["list", "create", "suspend", "resume", "close", "reopen", "configure"])
        parser.add_argument("account", nargs="?", default="", help="name or id; the name of a new one")
        parser.add_argument("--deletion-protection", choices=["on", "off"])
        parser.add_argument("--deletion-grace-days", type=int)
        parser.add_argument("--reason", default="", help="kept with the account and in the audit trail")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["verb"]:
            case "list":
                answer: Any = _list()
            case "create":
                answer = _create(options["account"])
            case "configure":
                answer = _configure(options)
            case _:
                answer = _move(options)
        self.stdout.write(json.dumps(answer, cls=DjangoJSONEncoder))


def _create(name: str) -> dict[str, Any]:
    found = found_account(name)
    if found is not None:
        raise CommandError(f"there is an account {name!r} already, with the id {found.id}")
    try:
        account = get_or_create_account(OPERATOR, name)
    except AccountError as error:
        raise CommandError(str(error)) from None
    return {"account_id": account.id, "name": account.name}


def _list() -> list[dict[str, Any]]:
    keys = _counts(AccessKey.objects.values_list("account_id"))
    queues = _counts(Queue.objects.exclude(state=QueueStatus.DELETED).values_list("account_id"))
    return [
        {
            **_state_of(account),
            "account_id": account.id,
            "name": account.name,
            "keys": keys.get(account.id, 0),
            "queues": queues.get(account.id, 0),
            "created_at": account.created_at,
        }
        for account in Account.objects.select_related("life").order_by("id")
    ]


def _counts(rows: QuerySet[Any, Any]) -> dict[str, int]:
    return dict(rows.annotate(count=Count("pk")).order_by())


def _state_of(account: Account) -> dict[str, str]:
    """An account that was made by the command line has no life until an operator moves it."""
    if not hasattr(account, "life"):
        state = AccountState.ACTIVE if account.active else AccountState.SUSPENDED
        return {"title": account.name, "state": state.value, "reason": ""}
    return {"title": account.life.title, "state": account.life.state, "reason": account.life.reason}


def _move(options: dict[str, Any]) -> dict[str, Any]:
    account_id, reason = account_named(options["account"]).id, options["reason"]
    try:
        match options["verb"]:
            case "suspend":
                life = account_life.suspend_account(OPERATOR, account_id, reason)
            case "resume":
                life = account_life.resume_account(OPERATOR, account_id)
            case "close":
                life = account_life.close_by_operator(OPERATOR, account_id, reason)
            case _:
                life = account_life.reopen_by_operator(OPERATOR, account_id)
    except PeopleError as error:
        raise CommandError(error.detail) from None
    return {"account_id": account_id, "state": life.state, "closes_at": life.closes_at}


def _configure(options: dict[str, Any]) -> dict[str, Any]:
    account_id, protection = account_named(options["account"]).id, options["deletion_protection"]
    wanted = None if protection is None else protection == "on"
    try:
        account = set_deletion_rules(OPERATOR, account_id, wanted, options["deletion_grace_days"])
    except AccountError as error:
        raise CommandError(str(error)) from None
    said = "on" if account.deletion_protection else "off"
    rules = f"deletion protection {said}, deleted queues are kept for {account.deletion_grace_days} days"
    return {"account_id": account_id, "rules": rules}
