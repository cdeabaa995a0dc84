"""`manage.py console_link --account NAME [--operator] [--json]`: a one-time sign-in link to the console."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from django.core.management.base import BaseCommand, CommandError, CommandParser

from api.accounts.selectors import account_named
from api.people import limits
from api.people.actions.console_links import make_operator_link, make_owner_link
from api.settings.environment import environment


class Command(BaseCommand):
    help = "Print a one-time sign-in link, as the owner of an account or as the operator."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--account", help="name or id of the account")
        parser.add_argument("--operator", action="store_true", help="as the operator of the installation")
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["operator"]:
            token, query = make_operator_link(), ""
        elif options["account"]:
            link = make_owner_link(account_named(options["account"]).name)
            token, query = link.token, "?" + urlencode({"account": link.account_id})
        else:
            raise CommandError("give --account NAME or --operator")
        url = f"{environment().endpoint}/console/link{query}#{token}"
        told = {"url": url, "good_for_seconds": limits.CONSOLE_LINK_TOKEN_S}
        self.stdout.write(json.dumps(told) if options["json"] else url)
