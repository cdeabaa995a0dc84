"""`manage.py create_key --account NAME [--key-name N] [--expires TIME] --json`: a key of an account, made if absent.

The secrets go to stdout, this once; everything else goes to stderr. `account_created` is there where the account was
made: a misspelt name makes another one. `notes` are there where the policy does other than it seems to.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from api import clock
from api.accounts.actions import AccountError, get_or_create_account
from api.accounts.selectors import found_account
from api.audit.actions import OPERATOR
from api.clock import WRITTEN_TIME, parse_time
from api.iam.actions.keys import KeySpec, make_key
from api.iam.documents import lint_policy, scoped_text, stored_text
from api.iam.errors import IamError
from api.settings.environment import environment
from frontend.authz import PolicyKind


class Command(BaseCommand):
    help = "Create an access key, and its account if that does not exist."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--account", required=True, help="name of the account, or its id")
        parser.add_argument("--key-name", default="default", help="name of the key")
        parser.add_argument("--expires", help="when it ends, as 2026-12-01T06:30, in UTC where it names no offset")
        parser.add_argument("--policy", help="text of an identity policy; without one the key may do everything")
        parser.add_argument("--scope", action="append", default=[], help="instead of a policy; may be repeated")
        parser.add_argument("--queue", action="append", default=[], help="of the scopes; may be repeated")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            policy = None if options["policy"] is None else stored_text(options["policy"])
            if options["scope"] and policy is not None:
                raise CommandError("a key has scopes or a policy")
            if options["queue"] and not options["scope"]:
                raise CommandError("--queue says which queues a --scope is about: give a --scope, too")
            expires_at = None if options["expires"] is None else end_of(options["expires"])
            with transaction.atomic():  # no account without its key
                found = found_account(options["account"])
                account = found or get_or_create_account(OPERATOR, options["account"])
                if options["scope"]:
                    policy = scoped_text(account.id, options["scope"], options["queue"])
                new = make_key(OPERATOR, account.id, KeySpec(options["key_name"], expires_at, policy))
        except (AccountError, IamError) as error:
            raise CommandError(str(error)) from None
        env = environment()
        result: dict[str, str | bool | list[str]] = {
            "account_id": account.id,
            "access_key_id": new.key.access_key_id,
            "secret_access_key": new.secret_access_key,
            "bearer_token": new.bearer_token,
            "endpoint": env.endpoint,
            "region": env.region,
        }
        if found is None:
            result["account_created"] = True
        if notes := notes_on(options["policy"]):
            result["notes"] = notes
        if options["json"]:
            self.stdout.write(json.dumps(result))
            return
        for name, value in result.items():
            self.stdout.write(f"{name}: {value}")


def notes_on(policy: str | None) -> list[str]:
    """What the policy does other than it seems to."""
    remarks = [] if policy is None else lint_policy(policy, PolicyKind.IDENTITY)
    return [f"line {one.line} of the policy: {one.path}: {one.text}" for one in remarks]


def end_of(text: str) -> datetime:
    try:
        end = parse_time(text)
    except ValueError:
        raise CommandError(f"--expires must be {WRITTEN_TIME}") from None
    if end <= clock.now():
        raise CommandError("--expires must be in the future")
    return end
