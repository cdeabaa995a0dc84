"""`manage.py wait_database [--seconds N]`: returns as soon as PostgreSQL answers, or fails."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser

from api import limits
from api.settings.environment import environment

POLL_S = 0.1


class Command(BaseCommand):
    help = "Wait until the database answers."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--seconds", type=float, default=limits.DATABASE_WAIT_S_MAX)

    def handle(self, *args: Any, **options: Any) -> None:
        deadline = time.monotonic() + options["seconds"]
        while True:
            try:
                psycopg.connect(environment().database_url, connect_timeout=2).close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() >= deadline:
                    reason = str(error).strip().splitlines()[0]
                    raise CommandError(f"the database does not answer: {reason}") from None
            time.sleep(POLL_S)
