"""What operators do with messages by commands stands in the account's audit trail."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command
from django.db import connection

from api.audit.models import AuditEntry
from tests.support.control_plane import new_caller

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("verb", ["send", "receive"])
def test_operator_call_for_messages_has_who_what_which_queue_and_how_many(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = new_caller("shop")
    monkeypatch.setattr(connection, "close", lambda: None)
    monkeypatch.setattr("sys.stdin", io.StringIO("7\n"))
    call_command("note_messages", "--account=shop", "--", verb, "orders")
    begun, ended = AuditEntry.objects.filter(action__startswith=f"messages.{verb}").order_by("pk")
    assert [(one.account_id, one.actor, one.subject) for one in (begun, ended)] == [
        (caller.account_id, "operator", "queue:orders")
    ] * 2
    assert (begun.action, begun.details) == (f"messages.{verb}.begin", {})
    assert (ended.action, ended.details) == (f"messages.{verb}.end", {"messages": 7})


def test_call_whose_caller_was_killed_has_a_beginning_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    new_caller("shop")
    monkeypatch.setattr(connection, "close", lambda: None)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    call_command("note_messages", "--account=shop", "--", "send", "orders")
    assert [one.action for one in AuditEntry.objects.filter(action__startswith="messages.")] == ["messages.send.begin"]
