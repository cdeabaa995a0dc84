"""`manage.py people_upkeep`: closes accounts whose grace period is over, forgets what has expired. At once what the
schedule does (workers/tasks.py)."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from api.people.actions.account_life import finish_closing
from api.people.actions.upkeep import forget_expired


class Command(BaseCommand):
    help = "Close accounts whose grace period is over, and remove expired tokens, sessions and invitations."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"accounts closed: {finish_closing()}, rows removed: {forget_expired()}")
