"""`manage.py create_key --account NAME [--key-name N] --json`: a key of an account, which is made if absent.

The secrets go to stdout, this once; everything else goes to stderr.
"""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from api.accounts.actions import AccountError, get_or_create_account
from api.audit.actions import OPERATOR
from api.iam.actions.keys import KeySpec, make_key
from api.iam.documents import scoped_text, stored_text
from api.iam.errors import IamError
from api.settings.environment import environment


class Command(BaseCommand):
    help = "Create an access key, and its account if that does not exist."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--account", required=True, help="name of the account")
        parser.add_argument("--key-name", default="default", help="name of the key")
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
                raise CommandError("queues are of scopes")
            account = get_or_create_account(OPERATOR, options["account"])
            if options["scope"]:
                policy = scoped_text(account.id, options["scope"], options["queue"])
            new = make_key(OPERATOR, account.id, KeySpec(options["key_name"], policy=policy))
        except (AccountError, IamError) as error:
            raise CommandError(str(error)) from None
        env = environment()
        result = {
            "account_id": account.id,
            "access_key_id": new.key.access_key_id,
            "secret_access_key": new.secret_access_key,
            "bearer_token": new.bearer_token,
            "endpoint": env.endpoint,
            "region": env.region,
        }
        if options["json"]:
            self.stdout.write(json.dumps(result))
            return
        for name, value in result.items():
            self.stdout.write(f"{name}: {value}")
