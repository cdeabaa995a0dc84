"""`manage.py account_state suspend|resume ACCOUNT_ID [--reason TEXT]`: what only an operator may do with an account."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from api.audit.actions import OPERATOR
from api.people.actions.account_life import resume_account, suspend_account
from api.people.errors import PeopleError


class Command(BaseCommand):
    help = "Suspend an account (its keys open nothing), or take that back."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("move", choices=["suspend", "resume"])
        parser.add_argument("account_id")
        parser.add_argument("--reason", default="", help="kept with the account and in the audit trail")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["move"] == "suspend":
                life = suspend_account(OPERATOR, options["account_id"], options["reason"])
            else:
                life = resume_account(OPERATOR, options["account_id"])
        except PeopleError as error:
            raise CommandError(error.detail) from None
        self.stdout.write(f"{life.pk}: {life.state}")
