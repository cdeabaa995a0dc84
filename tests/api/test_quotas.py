"""Quotas in the control plane: values, requests for more, sending that is stopped, and how the data plane hears."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import msgspec
import psycopg.conninfo
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from api.accounts.models import Account
from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.metadata.store import MetadataStore
from api.models import FeedChange
from api.quotas import actions, selectors
from api.quotas.errors import QuotaProblem
from api.quotas.models import QuotaHolder
from frontend.limits.quotas import ACCOUNT_QUOTAS, INSTALLATION
from frontend.metadata.messages import AccountReply
from frontend.metadata.records import AccountRecord, RecordKind
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def caller(transactional_db: None) -> Caller:
    return new_caller()


def record_of(key: str) -> AccountRecord | None:
    """As front ends get it."""
    values = connection.get_connection_params()
    database_url = psycopg.conninfo.make_conninfo(host=values["host"], user=values["user"], dbname=values["dbname"])

    async def read() -> Any:
        store = MetadataStore(database_url)
        try:
            return await store.row(RecordKind.ACCOUNT, key)
        finally:
            await store.drop_connections()

    row = asyncio.run(read())
    return None if row is None else msgspec.msgpack.decode(row.reply, type=AccountReply).record


def audit(account_id: str) -> list[tuple[str, dict[str, Any]]]:
    rows = AuditEntry.objects.filter(account_id=account_id).order_by("pk")
    return [(row.action, row.details) for row in rows if row.action.partition(".")[0] in ("quota", "sending")]


def test_new_account_has_the_defaults(caller: Caller) -> None:
    shown = caller.request("GET", "/v1/quotas").json()
    values = {one["name"]: one["value"] for one in shown["quotas"]}
    assert values == {name: kind.default for name, kind in ACCOUNT_QUOTAS.items()}
    assert values["requests_per_s"] >= 10_000 and shown["sending_stopped"] is None
    record = record_of(caller.account_id)
    assert record is not None and (record.quotas, record.sending_stopped) == ({}, "")


def test_quota_that_is_set_reaches_the_record_the_feed_and_the_trail(caller: Caller) -> None:
    before = Account.objects.get(pk=caller.account_id).version
    actions.set_quotas(OPERATOR, caller.account_id, {"requests_per_s": 5, "queues": 7})
    record = record_of(caller.account_id)
    assert record is not None and record.quotas == {"requests_per_s": 5, "queues": 7} and record.version > before
    assert FeedChange.objects.filter(kind="account", key=caller.account_id, version=record.version).exists()
    assert audit(caller.account_id) == [("quota.set", {"quotas": {"requests_per_s": [None, 5], "queues": [None, 7]}})]
    actions.set_quotas(OPERATOR, caller.account_id, {"requests_per_s": None})
    record = record_of(caller.account_id)
    assert record is not None and record.quotas == {"queues": 7}
    other = record_of(new_caller("other").account_id)
    assert other is not None and other.quotas == {}


def test_same_value_again_changes_nothing(caller: Caller) -> None:
    actions.set_quotas(OPERATOR, caller.account_id, {"queues": 7})
    version = Account.objects.get(pk=caller.account_id).version
    actions.set_quotas(OPERATOR, caller.account_id, {"queues": 7})
    assert Account.objects.get(pk=caller.account_id).version == version and len(audit(caller.account_id)) == 1


def test_quotas_of_the_installation_are_a_record(caller: Caller) -> None:
    assert record_of(INSTALLATION) is None
    actions.set_quotas(OPERATOR, INSTALLATION, {"requests_per_s": 5})
    record = record_of(INSTALLATION)
    assert record is not None and record.quotas == {"requests_per_s": 5} and record.version > 0
    assert FeedChange.objects.filter(kind="account", key=INSTALLATION, version=record.version).exists()
    with pytest.raises(QuotaProblem):
        actions.set_quotas(OPERATOR, INSTALLATION, {"queues": 5})


@pytest.mark.parametrize(
    "change", [{"nothing": 5}, {"queues": 0}, {"queues": 10**12}, {"queues": "5"}, {"queues": True}, {"nothing": None}]
)
def test_what_is_no_quota_is_not_stored(caller: Caller, change: dict[str, Any]) -> None:
    with pytest.raises(QuotaProblem) as raised:
        actions.set_quotas(OPERATOR, caller.account_id, {"requests_per_s": 5, **change})
    assert raised.value.status_code == 400
    assert not QuotaHolder.objects.exists() and audit(caller.account_id) == []


def test_account_that_is_not_there_has_no_quotas(caller: Caller) -> None:
    with pytest.raises(QuotaProblem) as raised:
        actions.set_quotas(OPERATOR, "000000000000", {"queues": 5})
    assert raised.value.status_code == 404 and not QuotaHolder.objects.exists()


def test_sending_is_stopped_and_resumed(caller: Caller) -> None:
    actions.stop_sending(OPERATOR, caller.account_id, "spend cap of 10.00 EUR reached")
    record = record_of(caller.account_id)
    assert record is not None and record.sending_stopped == "spend cap of 10.00 EUR reached"
    assert caller.request("GET", "/v1/quotas").json()["sending_stopped"] == "spend cap of 10.00 EUR reached"
    actions.resume_sending(OPERATOR, caller.account_id)
    record = record_of(caller.account_id)
    assert record is not None and record.sending_stopped == ""
    assert [action for action, _ in audit(caller.account_id)] == ["sending.stop", "sending.resume"]
    for wrong in ("", "x" * 201, "a\nb"):
        with pytest.raises(QuotaProblem):
            actions.stop_sending(OPERATOR, caller.account_id, wrong)


def test_queues_are_refused_at_the_quota_and_told_before(caller: Caller, storage: ScriptedStorage) -> None:
    actions.set_quotas(OPERATOR, caller.account_id, {"queues": 5})
    for number in range(5):
        assert caller.request("POST", "/v1/queues", {"name": f"q{number}"}).status_code == 201
    refused = caller.request("POST", "/v1/queues", {"name": "q5"})
    assert refused.json()["code"] == "over-limit" and "5" in refused.json()["detail"]
    assert ("quota.warning", {"percent": 80}) in audit(caller.account_id)
    assert len([action for action, _ in audit(caller.account_id) if action == "quota.warning"]) == 1
    shown = {one["name"]: one for one in caller.request("GET", "/v1/quotas").json()["quotas"]}
    assert (shown["queues"]["in_use"], shown["queues"]["value"], shown["queues"]["soft_level"]) == (5, 5, 4)
    assert new_caller("other").request("POST", "/v1/queues", {"name": "q5"}).status_code == 201


# --- requests for more ---


def ask(caller: Caller, **members: Any) -> Any:
    return caller.request("POST", "/v1/quota-requests", members)


def test_request_that_is_approved_gives_the_value(caller: Caller) -> None:
    asked = ask(caller, name="queues", value=200_000, reason="many shops")
    assert asked.status_code == 201 and asked.json()["state"] == "open"
    assert ask(caller, name="queues", value=300_000).json()["code"] == "quota-request-open"
    actions.decide_request(OPERATOR, int(asked.json()["id"]), True, "granted")
    assert selectors.quota_value(caller.account_id, "queues") == 200_000
    read = caller.request("GET", f"/v1/quota-requests/{asked.json()['id']}").json()
    assert (read["state"], read["answer"]) == ("approved", "granted") and read["decided_at"]
    actions_seen = [action for action, _ in audit(caller.account_id)]
    assert actions_seen == ["quota.request", "quota.request.approved", "quota.set"]
    with pytest.raises(QuotaProblem) as raised:
        actions.decide_request(OPERATOR, int(asked.json()["id"]), False)
    assert raised.value.status_code == 409


def test_request_that_is_refused_changes_nothing(caller: Caller) -> None:
    asked = ask(caller, name="queues", value=200_000)
    actions.decide_request(OPERATOR, int(asked.json()["id"]), False, "no")
    assert selectors.quota_value(caller.account_id, "queues") == 100_000
    assert ask(caller, name="queues", value=150_000).status_code == 201, "another one may be made"


def test_requests_of_others_are_not_seen(caller: Caller) -> None:
    asked = ask(caller, name="queues", value=200_000)
    other = new_caller("other")
    assert other.request("GET", f"/v1/quota-requests/{asked.json()['id']}").status_code == 404
    assert other.request("GET", "/v1/quota-requests").json()["requests"] == []
    assert len(caller.request("GET", "/v1/quota-requests").json()["requests"]) == 1


def test_requests_come_by_page(caller: Caller) -> None:
    for name in ("queues", "polls", "sockets"):
        assert ask(caller, name=name, value=5).status_code == 201
    first = caller.request("GET", "/v1/quota-requests?page_size=2").json()
    token = first["next_page_token"]
    rest = caller.request("GET", f"/v1/quota-requests?page_size=2&page_token={token}").json()
    names = [one["name"] for one in first["requests"] + rest["requests"]]
    assert names == ["sockets", "polls", "queues"] and rest["next_page_token"] is None


@pytest.mark.parametrize(
    "members",
    [
        {}, {"name": "queues"}, {"value": 5}, {"name": "queues", "value": "5"}, {"name": "queues", "value": 5.5},
        {"name": "queues", "value": True}, {"name": "queues", "value": None}, {"name": "queues", "value": [5]},
        {"name": "queues", "value": 0}, {"name": "queues", "value": 10**30}, {"name": 5, "value": 5},
        {"name": "nothing", "value": 5}, {"name": "queues\0", "value": 5}, {"name": "queues", "value": 5, "more": 1},
        {"name": "queues", "value": 5, "reason": "x" * 501}, {"name": "queues", "value": 5, "reason": "\0"},
    ],
)  # fmt: skip
def test_request_that_is_none_is_refused(caller: Caller, members: dict[str, Any]) -> None:
    refused = ask(caller, **members)
    assert refused.status_code == 400 and refused["Content-Type"] == "application/problem+json"
    assert caller.request("GET", "/v1/quota-requests").json()["requests"] == []


@pytest.mark.parametrize("request_id", ["0", "-1", "x", "9" * 30, "%00"])
def test_request_that_is_not_there_is_not_found(caller: Caller, request_id: str) -> None:
    assert caller.request("GET", f"/v1/quota-requests/{request_id}").status_code == 404


# --- the operator's command ---


def command(*arguments: str) -> Any:
    out = io.StringIO()
    call_command("quotas", *arguments, stdout=out)
    return json.loads(out.getvalue())


def test_operator_lists_and_sets(caller: Caller) -> None:
    said = command("set", "--account", "tests", "queues=5", "requests_per_s=9")
    values = {one["name"]: one["value"] for one in said["quotas"]}
    assert (values["queues"], values["requests_per_s"], said["holder"]) == (5, 9, caller.account_id)
    said = command("set", "--account", caller.account_id, "queues=default")
    assert {one["name"]: one["value"] for one in said["quotas"]}["queues"] == 100_000
    assert {one["name"] for one in command("list")["quotas"]} == {"requests_per_s", "messages_per_s", "bytes_per_s"}
    assert command("stop", "--account", "tests", "--reason", "late")["sending_stopped"] == "late"
    assert command("resume", "--account", "tests")["sending_stopped"] is None


def test_operator_decides_requests(caller: Caller) -> None:
    asked = ask(caller, name="queues", value=200_000)
    (listed,) = command("requests")["requests"]
    assert (listed["account"], listed["name"], listed["value"]) == ("tests", "queues", 200_000)
    assert command("approve", asked.json()["id"])["state"] == "approved"
    assert command("requests")["requests"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--account", "nobody"), ("set", "--account", "tests", "queues"), ("set", "queues=5"),
        ("set", "--account", "tests", "queues=-1"), ("set", "--account", "tests", "queues=1e3"), ("approve", "5"),
        ("stop", "--reason", "x"),
    ],
)  # fmt: skip
def test_operator_is_told_what_is_wrong(caller: Caller, arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        command(*arguments)
    assert not QuotaHolder.objects.exists()
