"""The REST management interface, and the files that must stay in step with it."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from api.accounts.models import AccessKey, Account
from api.audit.actions import OPERATOR
from api.observability import configure_logging
from api.queues import actions, spreading
from api.queues.attributes import format_arn
from api.queues.models import MessageMoveTask, Queue
from api.queues.moves import start_move
from api.schema import openapi_document_bytes
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle.reconciling import reconcile_queue

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def caller(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Caller:
    scripted = ScriptedStorage()
    monkeypatch.setattr(actions, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, scripted))
    monkeypatch.setattr(spreading, "scheduled_count", scripted.scheduled_count)
    return new_caller()


def code(answer: Any) -> tuple[int, str]:
    assert answer["Content-Type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


def test_queue_is_created_read_changed_and_deleted(caller: Caller) -> None:
    made = caller.request("POST", "/v1/queues", {"name": "orders", "delay_seconds": 3, "tags": {"a": "b"}})
    assert made.status_code == 201
    assert made.json()["state"] == "active"
    assert made.json()["delay_seconds"] == 3
    read = caller.request("GET", "/v1/queues/orders")
    assert read.json()["arn"] == f"arn:aws:sqs:us-east-1:{caller.account_id}:orders"
    changed = caller.request("PATCH", "/v1/queues/orders", {"delay_seconds": 4}, **{"If-Match": read["ETag"]})
    assert (changed.status_code, changed.json()["delay_seconds"]) == (200, 4)
    stale = caller.request("PATCH", "/v1/queues/orders", {"delay_seconds": 5}, **{"If-Match": read["ETag"]})
    assert code(stale) == (412, "precondition-failed")
    assert caller.request("DELETE", "/v1/queues/orders").status_code == 202
    assert code(caller.request("GET", "/v1/queues/orders")) == (404, "not-found")
    assert code(caller.request("POST", "/v1/queues", {"name": "orders"})) == (409, "queue-deleted-recently")


def test_queue_of_another_account_is_not_found(caller: Caller) -> None:
    caller.request("POST", "/v1/queues", {"name": "orders"})
    other = new_caller("other")
    for method in ("GET", "PATCH", "DELETE"):
        content = {"delay_seconds": 1} if method == "PATCH" else None
        assert other.request(method, "/v1/queues/orders", content).status_code == 404
    assert other.request("GET", "/v1/queues").json() == {"queues": [], "next_page_token": None}
    assert Queue.objects.get().state == "active"


def test_invalid_queue_is_refused_with_pointers(caller: Caller) -> None:
    answer = caller.request("POST", "/v1/queues", {"name": "orders", "delay_seconds": 901, "retention_seconds": 1})
    assert code(answer) == (400, "invalid-request")
    assert {item["pointer"] for item in answer.json()["errors"]} == {"/delay_seconds", "/retention_seconds"}
    for name in ("a.b", "x" * 81):
        answer = caller.request("POST", "/v1/queues", {"name": name})
        assert answer.status_code == 400 and [item["pointer"] for item in answer.json()["errors"]] == ["/name"], name
    assert code(caller.request("POST", "/v1/queues", {"name": "a", "delay": 1}))[0] == 400


def test_queues_are_listed_by_page(caller: Caller) -> None:
    for name in ("a", "b", "c"):
        caller.request("POST", "/v1/queues", {"name": name})
    first = caller.request("GET", "/v1/queues?page_size=2").json()
    assert [queue["name"] for queue in first["queues"]] == ["a", "b"]
    second = caller.request("GET", f"/v1/queues?page_size=2&page_token={first['next_page_token']}").json()
    assert ([queue["name"] for queue in second["queues"]], second["next_page_token"]) == (["c"], None)
    for bad in ("page_size=0", "page_size=1001", "page_size=x", "page_token=%25"):
        assert code(caller.request("GET", f"/v1/queues?{bad}")) == (400, "invalid-request")


def test_key_secrets_are_shown_once(caller: Caller) -> None:
    made = caller.request("POST", "/v1/keys", {"name": "second"})
    assert made.status_code == 201
    key = made.json()
    assert len(key["secret_access_key"]) == 40 and key["bearer_token"].startswith("pstk_")
    listed = caller.request("GET", "/v1/keys").content.decode()
    assert key["access_key_id"] in listed
    assert key["secret_access_key"] not in listed and key["bearer_token"] not in listed
    stored = AccessKey.objects.get(pk=key["access_key_id"])
    assert key["secret_access_key"].encode() not in bytes(stored.secret_sealed)
    assert new_caller("other").request("DELETE", f"/v1/keys/{key['access_key_id']}").status_code == 404
    assert caller.request("DELETE", f"/v1/keys/{key['access_key_id']}").status_code == 204
    assert not AccessKey.objects.filter(pk=key["access_key_id"]).exists()


def test_request_without_principal_is_refused(caller: Caller) -> None:
    from django.test import Client

    for path in ("/v1/account", "/v1/queues", "/v1/keys"):
        assert code(Client().get(path)) == (401, "authentication-failed")
    assert caller.request("GET", "/v1/account").json()["account_id"] == caller.account_id


def test_create_key_command_makes_the_account_once(transactional_db: None) -> None:
    results = []
    for _ in range(2):
        out = io.StringIO()
        call_command("create_key", "--account", "demo", "--json", stdout=out)
        results.append(json.loads(out.getvalue()))
    assert results[0].pop("account_created") is True, "of the second one it is not said"
    assert results[0].keys() == results[1].keys()
    assert results[0].keys() == {
        "account_id",
        "access_key_id",
        "secret_access_key",
        "bearer_token",
        "endpoint",
        "region",
    }
    assert results[0]["account_id"] == results[1]["account_id"] == Account.objects.get().id
    assert results[0]["access_key_id"] != results[1]["access_key_id"]
    assert len(results[0]["account_id"]) == 12 and results[0]["account_id"].isdigit()


def test_models_match_their_migrations(transactional_db: None) -> None:
    call_command("makemigrations", "--check", "--dry-run", stdout=io.StringIO())


def test_committed_openapi_is_fresh() -> None:
    """If this fails: python manage.py spectacular --format openapi-json --file docs/openapi.json"""
    committed = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
    assert json.loads(openapi_document_bytes()) == committed
    assert committed["openapi"].startswith("3.1")


def test_fifo_queue_shows_and_changes_its_rules(caller: Caller) -> None:
    made = caller.request("POST", "/v1/queues", {"name": "line.fifo", "content_based_deduplication": True})
    assert made.status_code == 201, made.json()
    assert (made.json()["fifo"], made.json()["content_based_deduplication"]) == (True, True)
    change = {"deduplication_scope": "group", "throughput_limit": "group"}
    changed = caller.request("PATCH", "/v1/queues/line.fifo", change).json()
    assert {name: changed[name] for name in change} == change
    wide = caller.request("PATCH", "/v1/queues/line.fifo", {"deduplication_scope": "queue"})
    assert code(wide) == (400, "invalid-attribute-value")
    plain = caller.request("POST", "/v1/queues", {"name": "plain"}).json()
    assert plain["fifo"] is False and plain["deduplication_scope"] is None
    refused = caller.request("PATCH", "/v1/queues/plain", {"content_based_deduplication": True})
    assert code(refused) == (400, "invalid-attribute-name")


def test_dead_letter_queue_is_named_taken_away_and_lists_its_sources(caller: Caller) -> None:
    caller.request("POST", "/v1/queues", {"name": "dead"})
    settings = {"dead_letter_queue": {"name": "dead", "max_receives": 3}}
    made = caller.request("POST", "/v1/queues", {"name": "orders", **settings})
    assert made.json()["dead_letter_queue"] == settings["dead_letter_queue"]
    sources = caller.request("GET", "/v1/queues/dead/sources").json()["queues"]
    assert [queue["name"] for queue in sources] == ["orders"]
    caller.request("PATCH", "/v1/queues/orders", {"dead_letter_queue": None})
    assert caller.request("GET", "/v1/queues/dead/sources").json()["queues"] == []
    closed = caller.request("PATCH", "/v1/queues/dead", {"dead_letter_sources": {"allow": "none"}})
    assert closed.json()["dead_letter_sources"] == {"allow": "none", "queues": []}
    refused = caller.request("PATCH", "/v1/queues/orders", settings)
    assert code(refused) == (400, "invalid-parameter-value")
    listed = {"dead_letter_sources": {"allow": "listed", "queues": ["orders"]}}
    assert caller.request("PATCH", "/v1/queues/dead", listed).json()["dead_letter_sources"]["queues"] == ["orders"]
    assert caller.request("PATCH", "/v1/queues/orders", settings).status_code == 200
    for bad in ({"name": "dead", "max_receives": 0}, {"name": "dead", "max_receives": 1001}, {"max_receives": 1}, 1):
        assert caller.request("PATCH", "/v1/queues/orders", {"dead_letter_queue": bad}).status_code == 400
    for bad in ({"allow": "listed"}, {"allow": "all", "queues": ["x"]}, {"allow": "x"}, {}):
        assert caller.request("PATCH", "/v1/queues/dead", {"dead_letter_sources": bad}).status_code == 400


def test_move_is_started_listed_and_cancelled(caller: Caller) -> None:
    caller.request("POST", "/v1/queues", {"name": "dead"})
    caller.request("POST", "/v1/queues", {"name": "orders", "dead_letter_queue": {"name": "dead"}})
    assert code(caller.request("POST", "/v1/queues/orders/moves", {}))[0] == 400
    assert code(caller.request("POST", "/v1/queues/nowhere/moves", {})) == (404, "resource-not-found")
    asked = {"destination": "orders", "messages_per_second": 5}
    made = caller.request("POST", "/v1/queues/dead/moves", asked)
    assert made.status_code == 201
    expected = {"status": "running", "source": "dead", **asked, "moved": 0, "to_move": None, "ended_at": None}
    expected |= {"scanned": 0, "matched": 0, "skipped": 0, "returned": 0}
    assert {name: made.json()[name] for name in expected} == expected
    assert code(caller.request("POST", "/v1/queues/dead/moves", {}))[0] == 400, "one at a time"
    assert code(caller.request("POST", "/v1/queues/dead/moves", {"messages_per_second": 501})) == (
        400,
        "invalid-request",
    )
    path = f"/v1/queues/dead/moves/{made.json()['id']}"
    other = new_caller("other")
    assert other.request("DELETE", path).status_code == 404
    assert other.request("GET", "/v1/queues/dead/moves").status_code == 404
    assert caller.request("DELETE", path.replace("dead", "orders")).status_code == 404
    cancelled = caller.request("DELETE", path)
    assert (cancelled.status_code, cancelled.json()["status"]) == (202, "cancelling")
    assert [one["status"] for one in caller.request("GET", "/v1/queues/dead/moves").json()["moves"]] == ["cancelling"]
    assert code(caller.request("DELETE", path))[0] == 400


def test_move_of_sqs_shows_no_figure_that_it_does_not_count(caller: Caller) -> None:
    caller.request("POST", "/v1/queues", {"name": "dead"})
    caller.request("POST", "/v1/queues", {"name": "orders", "dead_letter_queue": {"name": "dead"}})
    task = start_move(OPERATOR, caller.account_id, format_arn("us-east-1", caller.account_id, "dead"), None, None)
    MessageMoveTask.objects.filter(pk=task.pk).update(moved=4, to_move=4)
    shown = caller.request("GET", f"/v1/queues/dead/moves/{task.uuid}").json()
    assert (shown["moved"], shown["to_move"]) == (4, 4)
    assert [shown[name] for name in ("scanned", "matched", "skipped", "returned")] == [None] * 4


# --- requests that no view gets to see, and bodies that are no JSON ---


@pytest.mark.parametrize(
    ("method", "target", "body", "expected"),
    [
        ("GET", "/v1/nothing", b"", (404, "not-found")),
        ("GET", "/nothing", b"", (404, "not-found")),
        ("POST", "/v1/queues", b"x" * (1024 * 1024 + 1), (413, "request-too-large")),
        ("POST", "/v1/queues", b"[" * 20_000, (400, "parse-error")),
        ("POST", "/v1/queues", b'{"name": "a", "name": "b"}', (400, "parse-error")),
        ("POST", "/v1/queues", b'{"name": "a", "delay_seconds": NaN}', (400, "parse-error")),
        ("POST", "/v1/queues", b'{"name": "a", "delay_seconds": ' + b"1" * 10_000 + b"}", (400, "parse-error")),
        ("POST", "/v1/queues", b'{"name": "\xff"}', (400, "parse-error")),
        ("POST", "/v1/queues", b'{"name": "a\\u0000"}', (400, "invalid-request")),
        ("GET", "/v1/queues?prefix=%00", b"", (400, "invalid-request")),
        ("GET", "/v1/queues?page_token=AA", b"", (400, "invalid-request")),
        ("GET", "/v1/queues/a%00b", b"", (404, "not-found")),
    ],
)
def test_what_cannot_be_read_is_answered_with_a_problem(
    caller: Caller, method: str, target: str, body: bytes, expected: tuple[int, str]
) -> None:
    client = Client(raise_request_exception=False)
    headers = caller.headers(method, target, body)
    answer = client.generic(method, target, body, content_type="application/json", headers=headers)
    assert code(answer) == expected


def test_prefix_with_a_nul_is_refused(caller: Caller) -> None:
    answer = caller.sqs("ListQueues", QueueNamePrefix="a\0")
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidParameterValueException")


def test_own_bug_is_answered_with_a_problem(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.queues.selectors.queues_of", lambda *_: 1 / 0)
    client = Client(raise_request_exception=False)
    answer = client.get("/v1/queues", headers=caller.headers("GET", "/v1/queues"))
    assert code(answer) == (500, "internal-failure") and "division" not in answer.content.decode()


def test_checks_of_django_find_nothing() -> None:
    """Commands of the launcher skip them."""
    call_command("check", fail_level="WARNING", stdout=io.StringIO())


def test_application_role_is_one_that_can_be_bounded(transactional_db: None) -> None:
    with pytest.raises(CommandError, match="there is no database role 'absent'"):
        call_command("grant_application", "absent")
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        owner = cursor.fetchone()[0]
    with pytest.raises(CommandError, match=f"role '{owner}' is (a superuser|the owner)"):
        call_command("grant_application", owner)


def test_application_role_is_made_with_a_password_and_may_not_change_the_audit_trail(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = "penstock_test_application"
    with pytest.raises(CommandError, match="NO_SUCH_VARIABLE holds no password"):
        call_command("grant_application", role, "--password-from", "NO_SUCH_VARIABLE")
    monkeypatch.setenv("ITS_PASSWORD", "o'clock")
    with connection.cursor() as cursor:
        try:
            for more in ([], ["--migrate"]):
                call_command("grant_application", role, "--password-from", "ITS_PASSWORD", *more)
            names = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE")
            for table, expected in (("audit_entry", names[:2]), ("queue", names[:4])):
                cursor.execute(
                    "SELECT name FROM unnest(%s::text[]) AS name WHERE has_table_privilege(%s, %s, name)",
                    [list(names), role, table],
                )
                assert tuple(name for (name,) in cursor.fetchall()) == expected
            cursor.execute("GRANT UPDATE ON audit_entry TO PUBLIC")
            with pytest.raises(CommandError, match="may still change audit_entry"):
                call_command("grant_application", role)
        finally:
            cursor.execute("REVOKE UPDATE ON audit_entry FROM PUBLIC")
            cursor.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize(
    "body", [{"\ud800": 1}, {"name": "\udc00"}, {"name": "orders", "tags": {"a": "\ud83d"}}]
)  # fmt: skip
def test_half_of_a_surrogate_pair_is_refused_wherever_it_stands(caller: Caller, body: dict[str, Any]) -> None:
    answer = caller.request("POST", "/v1/queues", body)
    assert code(answer) == (400, "parse-error")


@pytest.mark.parametrize(
    "content",
    [
        b'{"name": "orders", "\xed\xa0\x80": 1}',
        b'{"name": "orders", "tags": {"\xed\xa0\x80": "a"}}',
        '{"name": "orders"}'.encode("utf-16"),
        b'\xef\xbb\xbf{"name": "orders"}',
        b'{"name": 1e999}',
    ],
)
def test_body_that_is_no_utf8_or_holds_an_infinite_number_is_refused(caller: Caller, content: bytes) -> None:
    headers = caller.headers("POST", "/v1/queues", content)
    answer = Client().generic("POST", "/v1/queues", content, content_type="application/json", headers=headers)
    assert code(answer) == (400, "parse-error")


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer"),
    [
        ("POST", "/v1/keys", {"name": "a", "polcy": {}}, "/polcy"),
        ("PATCH", "/v1/account", {"deletion_protecton": True}, "/deletion_protecton"),
        ("POST", "/v1/queues", {"name": "a", "dead_letter_queue": {"name": "b", "max": 1}}, "/dead_letter_queue/max"),
        (
            "POST",
            "/v1/queues",
            {"name": "a", "dead_letter_sources": {"allow": "all", "que": []}},
            "/dead_letter_sources/que",
        ),
    ],
)
def test_member_that_is_misspelt_is_refused(
    caller: Caller, method: str, path: str, body: dict[str, Any], pointer: str
) -> None:
    """A key whose policy is left out in silence could do everything."""
    answer = caller.request(method, path, body)
    assert answer.status_code == 400 and pointer in [error["pointer"] for error in answer.json()["errors"]]


def test_whole_surrogate_pair_is_one_character(caller: Caller) -> None:
    """It is written as two escapes."""
    answer = caller.request("POST", "/v1/queues", {"name": "orders", "tags": {"a": "\U0001f600"}})
    assert (answer.status_code, answer.json()["tags"]) == (201, {"a": "\U0001f600"})


def test_body_that_is_too_large_is_a_line_in_the_log_and_no_error_with_a_trace(caller: Caller) -> None:
    logged = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure_logging("info")
        root.handlers[0].setStream(logged)  # type: ignore[attr-defined]
        body = b"x" * (1024 * 1024 + 1)
        headers = caller.headers("POST", "/v1/queues", body)
        client = Client(raise_request_exception=False)
        refused = client.post("/v1/queues", body, content_type="application/json", headers=headers)
    finally:
        root.handlers[:], root.level = handlers, level
    assert refused.status_code == 413
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert any("DATA_UPLOAD_MAX_MEMORY_SIZE" in line["event"] for line in lines)
    assert {line["level"] for line in lines} == {"warning"} and "Traceback" not in logged.getvalue()
