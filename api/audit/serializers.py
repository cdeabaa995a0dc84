"""JSON and CSV of the audit trail."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable

from rest_framework import serializers

from api.audit.models import AuditEntry
from api.spreadsheets import plain

COLUMNS = ("id", "at", "actor", "request_id", "action", "subject", "details")


class AuditEntrySerializer(serializers.Serializer):
    id = serializers.IntegerField(help_text="Ascends.")
    at = serializers.DateTimeField()
    actor = serializers.CharField(help_text="An access key id, `person:` and an id, `operator` or `lifecycle`.")
    request_id = serializers.CharField()
    action = serializers.CharField(help_text="`refused.` and the action of policies for calls that were refused.")
    subject = serializers.CharField()
    details = serializers.DictField()


class AuditPageSerializer(serializers.Serializer):
    entries = AuditEntrySerializer(many=True)
    next_page_token = serializers.CharField(allow_null=True)


def entries_as_lines(entries: Iterable[AuditEntry]) -> str:
    """JSON, one entry a line."""
    return "".join(json.dumps(AuditEntrySerializer(entry).data) + "\n" for entry in entries)


def csv_header() -> str:
    return ",".join(COLUMNS) + "\r\n"


def entries_as_csv(entries: Iterable[AuditEntry]) -> str:
    """Without the header. Names and addresses are chosen by callers."""
    out = io.StringIO()
    rows = csv.writer(out)
    for entry in entries:
        shown = {**AuditEntrySerializer(entry).data, "details": json.dumps(entry.details, sort_keys=True)}
        rows.writerow([plain(str(shown[name])) for name in COLUMNS])
    return out.getvalue()
