"""`manage.py review_policies [--account ACCOUNT]`: stored policies that cannot be understood; of an account: all named
ones. Answers are JSON on stdout."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from api.accounts.selectors import account_named
from api.iam import limits, selectors
from api.iam.review import review_stored
from api.iam.serializers import PolicySerializer


class Command(BaseCommand):
    help = "List stored policies that cannot be understood, or the named policies of an account."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--account", help="name or id: its named policies")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["account"] is None:
            answer: Any = [finding._asdict() for finding in review_stored()]
        else:
            found = selectors.policies_of(account_named(options["account"]).id, "", limits.POLICIES_PER_ACCOUNT_MAX)
            answer = PolicySerializer(found, many=True).data
        self.stdout.write(json.dumps(answer, cls=DjangoJSONEncoder))
