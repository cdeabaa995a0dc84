"""`manage.py quotas VERB ...`: what operators do with quotas. One JSON object on stdout."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from api import limits
from api.accounts.selectors import account_named
from api.audit.actions import OPERATOR
from api.billing.actions.budget_effects import lift_stop
from api.billing.selectors import LiftedStop, lifted_stop
from api.quotas import actions, selectors, single
from api.quotas.errors import QuotaProblem
from api.quotas.models import QueueSending, QuotaHolder, QuotaRequest
from frontend.limits.quotas import INSTALLATION, SINGLE_QUOTAS


class Command(BaseCommand):
    help = "List and set quotas, decide requests for more, stop and resume sending."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb in ("list", "set", "stop", "resume"):
            command = verbs.add_parser(verb)
            command.add_argument("--account", default="", help="name or id; none: the installation")
            if verb in ("list", "set"):
                command.add_argument("--queue", default="", help="one queue of the account")
                command.add_argument("--key", default="", help="one key of the account, by its id")
            if verb == "set":
                command.add_argument("values", nargs="+", metavar="NAME=VALUE")
            if verb == "stop":
                command.add_argument("--reason", required=True)
        verbs.add_parser("requests")
        for verb in ("approve", "refuse"):
            command = verbs.add_parser(verb)
            command.add_argument("id", type=int)
            command.add_argument("--answer", default="")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.stdout.write(json.dumps(self._run(options)))
        except QuotaProblem as error:
            raise CommandError(str(error.detail)) from None

    def _run(self, options: dict[str, Any]) -> Any:
        verb = options["verb"]
        if verb == "requests":
            found = selectors.open_requests(limits.PAGE_SIZE_MAX)
            return {"requests": [_request_json(one) | {"account": one.account.name} for one in found]}
        if verb in ("approve", "refuse"):
            decided = actions.decide_request(OPERATOR, options["id"], verb == "approve", options["answer"])
            return _request_json(decided)
        holder = account_named(options["account"]).id if options["account"] else INSTALLATION
        queue, key = options.get("queue", ""), options.get("key", "")
        if queue or key:
            return _single(holder, queue, key, dict(map(_value, options.get("values", ()))))
        if verb == "set":
            actions.set_quotas(OPERATOR, holder, dict(map(_value, options["values"])))
        elif verb != "list" and holder == INSTALLATION:
            raise CommandError("--account must be given")
        elif verb == "stop":
            actions.stop_sending(OPERATOR, holder, options["reason"])
        elif verb == "resume":
            lift_stop(OPERATOR, holder)
            return _quotas_json(holder) | {"lifted": _lifted_json(lifted_stop(holder))}
        return _quotas_json(holder)


def _single(account_id: str, queue: str, key: str, change: dict[str, int | None]) -> dict[str, Any]:
    """The quotas of one queue or of one key, after the change."""
    if account_id == INSTALLATION or (queue and key):
        raise CommandError("--queue or --key goes with --account, and not with the other")

    def found() -> selectors.OwnQuotas:
        one = selectors.queue_quotas(account_id, queue) if queue else selectors.key_quotas(account_id, key)
        if one is None:
            raise CommandError(f"the account has no {'queue' if queue else 'key'} {queue or key!r}")
        return one

    if change:
        values = {**found().given._asdict(), **change}
        if queue:
            single.set_queue_quotas(OPERATOR, account_id, queue, values)
        else:
            single.set_key_quotas(OPERATOR, account_id, key, values)
    given = found().given._asdict()
    shown = [
        {"name": name, "unit": kind.unit, "value": given[name], "default": None, "in_use": None}
        for name, kind in SINGLE_QUOTAS.items()
    ]
    held = selectors.queue_sending(account_id, queue) if queue else None
    return {"holder": f"{account_id}/{queue or key}", "quotas": shown, **_sending_json(held)}


def _value(text: str) -> tuple[str, int | None]:
    name, _, value = text.partition("=")
    if value == "default":
        return name, None
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        raise CommandError(f"{text!r} is not NAME=VALUE with a whole number, or NAME=default")
    return name, int(value)


def _quotas_json(holder: str) -> dict[str, Any]:
    row = selectors.holder_of(holder)
    shown = [
        {"name": one.kind.name, "unit": one.kind.unit, "value": one.value, "default": one.kind.default}
        | {"in_use": one.in_use}
        for one in selectors.quotas_in_use(holder)
    ]
    return {"holder": holder, "quotas": shown, **_sending_json(row)}


def _lifted_json(lifted: LiftedStop | None) -> dict[str, str] | None:
    """The stop of a budget that does not hold now."""
    return None if lifted is None else {"budget": lifted.budget.name, "until": f"{lifted.until:%Y-%m-%d %H:%M} UTC"}


def _sending_json(row: QuotaHolder | QueueSending | None) -> dict[str, Any]:
    return {
        "sending_stopped": None if row is None else row.sending_stopped or None,
        "sends_per_s": None if row is None else row.sends_per_s or None,
    }


def _request_json(one: QuotaRequest) -> dict[str, Any]:
    shown = {"id": one.pk, "account_id": one.account_id, "name": one.name, "value": one.value, "state": one.state}
    return {**shown, "reason": one.reason, "answer": one.answer}
