"""`manage.py note_messages --account=NAME -- send|receive QUEUE`: an operator's call for messages.

It notes that the call begins and prints a line: who makes the call does so after it, and makes none that cannot be
noted. Then it reads how many messages were acknowledged, or written out, and notes the end. Where its input ends
without a number, the caller was killed, and the beginning stands alone. Messages themselves have no place here.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connection, transaction

from api.accounts.selectors import account_named
from api.audit.actions import OPERATOR, record


class Command(BaseCommand):
    help = "Note in the audit trail that an operator sends or receives messages."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=["send", "receive"])
        parser.add_argument("queue")
        parser.add_argument("--account", required=True, help="name or id")

    def handle(self, *args: Any, **options: Any) -> None:
        account_id, action = account_named(options["account"]).id, f"messages.{options['verb']}"
        subject = f"queue:{options['queue']}"
        with transaction.atomic():
            record(OPERATOR, account_id, f"{action}.begin", subject)
        connection.close()  # the call may take hours
        self.stdout.write(json.dumps({}))
        self.stdout.flush()
        if told := sys.stdin.readline():
            with transaction.atomic():
                record(OPERATOR, account_id, f"{action}.end", subject, messages=int(told))
