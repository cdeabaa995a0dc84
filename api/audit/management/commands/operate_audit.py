"""`manage.py operate_audit --account=NAME [--form jsonl|csv] -- export` | `--older-than-days=N -- trim`: for operators.

An export goes to stdout as it is. Trimming needs the owner of the schema: the application may only add to the trail.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from api import clock, limits
from api.accounts.selectors import account_named
from api.audit.actions import OPERATOR, record
from api.audit.exporting import FORMS
from api.audit.models import AuditEntry
from api.audit.selectors import AuditQuery, entries_with, ids_after


class Command(BaseCommand):
    help = "Export the audit trail of an account, or remove old entries of all accounts."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=["export", "trim"])
        parser.add_argument("--account", default="", help="name or id")
        parser.add_argument("--form", choices=["jsonl", "csv"], default="jsonl")
        parser.add_argument("--older-than-days", type=int, default=0)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] == "trim":
            self.stdout.write(json.dumps({"removed": _trim(options["older_than_days"])}))
        else:
            self.stdout.write(_export(options["account"], options["form"]), ending="")


def _export(account: str, form: str) -> str:
    account_id = account_named(account).id
    ids: list[int] = []
    while page := ids_after(account_id, ids[-1] if ids else 0, limits.AUDIT_EXPORT_ENTRIES_MAX, AuditQuery()):
        ids += page
    with transaction.atomic():
        record(OPERATOR, account_id, "audit.export", f"account:{account_id}", entries=len(ids), form=form)
    return FORMS[form].header + "".join(map(FORMS[form].write, entries_with(account_id, ids)))


def _trim(days: int) -> int:
    if days < limits.AUDIT_DAYS_MIN:
        raise CommandError(f"entries are kept for {limits.AUDIT_DAYS_MIN} days at least")
    with transaction.atomic():
        removed, _ = AuditEntry.objects.filter(at__lt=clock.now() - timedelta(days=days)).delete()
        record(OPERATOR, "", "audit.trim", "audit", older_than_days=days, removed=removed)
    return removed
