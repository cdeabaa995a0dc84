"""`manage.py note_messages --account=NAME [--messages=N] -- send|receive QUEUE`: an operator's call for messages.

Without `--messages` it begins: who makes the call does so before it, and makes none that cannot be noted. With it, it
has ended. Messages themselves have no place here.
"""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from api.accounts.selectors import account_named
from api.audit.actions import OPERATOR, record


class Command(BaseCommand):
    help = "Note in the audit trail that an operator sends or receives messages."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=["send", "receive"])
        parser.add_argument("queue")
        parser.add_argument("--account", required=True, help="name or id")
        parser.add_argument("--messages", type=int, help="how many were acknowledged, or written out")

    def handle(self, *args: Any, **options: Any) -> None:
        account_id, action = account_named(options["account"]).id, f"messages.{options['verb']}"
        subject, count = f"queue:{options['queue']}", options["messages"]
        with transaction.atomic():
            if count is None:
                record(OPERATOR, account_id, f"{action}.begin", subject)
            else:
                record(OPERATOR, account_id, f"{action}.end", subject, messages=count)
        self.stdout.write(json.dumps({}))
