"""Quotas of one queue and of one key in the control plane: values, who may set them, how the data plane hears."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg.conninfo
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from api.accounts.models import Account
from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.iam.actions import keys
from api.metadata.store import MetadataStore
from api.models import FeedChange
from api.queues.actions import create_queue, delete_queue
from api.quotas import actions
from api.quotas.models import KeyQuotas, QueueQuotas
from frontend.limits.quotas import BYTES_PER_S_MAX, BYTES_PER_S_MIN, RATE_PER_S_MAX, SINGLE_QUOTAS
from frontend.metadata.messages import AccountReply, KeyReply, QueueReply
from frontend.metadata.records import RecordKind
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db(transaction=True)
_REPLIES: dict[RecordKind, Any] = {
    RecordKind.ACCOUNT: AccountReply,
    RecordKind.KEY: KeyReply,
    RecordKind.QUEUE: QueueReply,
}


@pytest.fixture
def caller(transactional_db: None, storage: ScriptedStorage) -> Iterator[Caller]:
    found = new_caller()
    create_queue(OPERATOR, found.account_id, "orders", {}, {})
    yield found


def record_of(kind: RecordKind, key: str) -> Any:
    """As front ends get it."""
    values = connection.get_connection_params()
    database_url = psycopg.conninfo.make_conninfo(host=values["host"], user=values["user"], dbname=values["dbname"])

    async def read() -> Any:
        store = MetadataStore(database_url)
        try:
            return await store.row(kind, key)
        finally:
            await store.drop_connections()

    row = asyncio.run(read())
    return None if row is None else msgspec.msgpack.decode(row.reply, type=_REPLIES[kind]).record


def queue_record(caller: Caller, name: str = "orders") -> Any:
    return record_of(RecordKind.QUEUE, f"{caller.account_id}/{name}")


def addresses(caller: Caller) -> tuple[str, str]:
    return "/v1/queues/orders/quotas", f"/v1/keys/{caller.access_key_id}/quotas"


def audit(caller: Caller) -> list[tuple[str, str, dict[str, Any]]]:
    rows = AuditEntry.objects.filter(account_id=caller.account_id, action__endswith=".set_quotas").order_by("pk")
    return [(row.action, row.subject, row.details) for row in rows]


def test_new_queue_and_key_have_none(caller: Caller) -> None:
    for address in addresses(caller):
        shown = caller.request("GET", address).json()
        assert shown["quotas"] == dict.fromkeys(SINGLE_QUOTAS)
        assert shown["in_force"] == {"requests_per_s": 20_000, "messages_per_s": 200_000, "bytes_per_s": 536_870_912}
    assert queue_record(caller).quotas == {} and record_of(RecordKind.KEY, caller.access_key_id).quotas == {}
    assert record_of(RecordKind.ACCOUNT, caller.account_id).queues_differ is False


def test_quotas_of_a_queue_reach_the_records_the_feed_and_the_trail(caller: Caller) -> None:
    before = queue_record(caller).version
    account_before = Account.objects.get(pk=caller.account_id).version
    answer = caller.request("PUT", addresses(caller)[0], {"requests_per_s": 5, "bytes_per_s": 2_000})
    assert answer.status_code == 200, answer.content
    assert answer.json()["quotas"] == {"requests_per_s": 5, "messages_per_s": None, "bytes_per_s": 2_000}
    assert answer.json()["in_force"] == {"requests_per_s": 5, "messages_per_s": 200_000, "bytes_per_s": 2_000}
    record = queue_record(caller)
    assert record.quotas == {"requests_per_s": 5, "bytes_per_s": 2_000} and record.version > before
    name = f"{caller.account_id}/orders"
    assert FeedChange.objects.filter(kind="queue", key=name, version=record.version).exists()
    account = record_of(RecordKind.ACCOUNT, caller.account_id)
    assert account.queues_differ is True and account.version > account_before
    assert FeedChange.objects.filter(kind="account", key=caller.account_id, version=account.version).exists()
    assert audit(caller) == [
        ("queue.set_quotas", "queue:orders", {"quotas": {"requests_per_s": [None, 5], "bytes_per_s": [None, 2_000]}})
    ]


def test_quotas_of_a_key_reach_the_record_the_feed_and_the_trail(caller: Caller) -> None:
    before = record_of(RecordKind.KEY, caller.access_key_id).version
    answer = caller.request("PUT", addresses(caller)[1], {"messages_per_s": 7})
    assert answer.status_code == 200 and answer.json()["quotas"]["messages_per_s"] == 7
    record = record_of(RecordKind.KEY, caller.access_key_id)
    assert record.quotas == {"messages_per_s": 7} and record.version > before
    assert FeedChange.objects.filter(kind="key", key=caller.access_key_id, version=record.version).exists()
    key = f"key:{caller.access_key_id}"
    assert audit(caller) == [("key.set_quotas", key, {"quotas": {"messages_per_s": [None, 7]}})]


def test_what_is_put_takes_the_place_of_what_was(caller: Caller) -> None:
    for address in addresses(caller):
        caller.request("PUT", address, {"requests_per_s": 5, "messages_per_s": 6})
        shown = caller.request("PUT", address, {"requests_per_s": 5, "messages_per_s": None}).json()
        assert shown["quotas"] == {"requests_per_s": 5, "messages_per_s": None, "bytes_per_s": None}
        assert audit(caller)[-1][2] == {"quotas": {"messages_per_s": [6, None]}}
        assert caller.request("PUT", address, {"bytes_per_s": None}).json()["quotas"] == dict.fromkeys(SINGLE_QUOTAS)
    assert not QueueQuotas.objects.exists() and not KeyQuotas.objects.exists()
    assert record_of(RecordKind.ACCOUNT, caller.account_id).queues_differ is False
    version = Account.objects.get(pk=caller.account_id).version
    assert FeedChange.objects.filter(kind="account", key=caller.account_id, version=version).exists()


def test_same_quotas_again_change_nothing(caller: Caller) -> None:
    for address in addresses(caller):
        assert caller.request("PUT", address, {"requests_per_s": 5}).status_code == 200
    versions = (queue_record(caller).version, record_of(RecordKind.KEY, caller.access_key_id).version)
    for address in addresses(caller):
        assert caller.request("PUT", address, {"requests_per_s": 5}).status_code == 200
    assert (queue_record(caller).version, record_of(RecordKind.KEY, caller.access_key_id).version) == versions
    assert len(audit(caller)) == 2


def test_lowest_of_the_levels_is_in_force(caller: Caller) -> None:
    given = {"requests_per_s": 100, "queue_requests_per_s": 50, "key_requests_per_s": 60, "queue_messages_per_s": 500}
    actions.set_quotas(OPERATOR, caller.account_id, given)
    queue, key = addresses(caller)
    for value, of_queue, of_key in ((10, 10, 10), (55, 50, 55), (1_000, 50, 60)):
        assert caller.request("PUT", queue, {"requests_per_s": value}).json()["in_force"]["requests_per_s"] == of_queue
        assert caller.request("PUT", key, {"requests_per_s": value}).json()["in_force"]["requests_per_s"] == of_key
    assert caller.request("GET", queue).json()["in_force"]["messages_per_s"] == 500


BOUNDS = {"requests_per_s": (1, RATE_PER_S_MAX), "messages_per_s": (1, RATE_PER_S_MAX)}


@pytest.mark.parametrize("name", SINGLE_QUOTAS)
def test_value_lies_between_its_bounds(caller: Caller, name: str) -> None:
    least, most = BOUNDS.get(name, (BYTES_PER_S_MIN, BYTES_PER_S_MAX))
    for address in addresses(caller):
        for value in (least, most):
            assert caller.request("PUT", address, {name: value}).json()["quotas"][name] == value
        for wrong in (least - 1, most + 1, -1, 0, 10**30, 5.5, 5.0, "5", "", True, False, [5], {}, {"value": 5}):
            refused = caller.request("PUT", address, {"messages_per_s": 9, name: wrong})
            assert refused.status_code == 400 and refused["Content-Type"] == "application/problem+json", wrong
            assert [one["pointer"] for one in refused.json()["errors"]] == [f"/{name}"], wrong
        assert caller.request("GET", address).json()["quotas"] == {**dict.fromkeys(SINGLE_QUOTAS), name: most}


@pytest.mark.parametrize(
    "body",
    [
        b'{"requests_per_s": 5, "requests_per_s": 6}', b'{"requests_per_s": NaN}', b'{"requests_per_s": 1e400}',
        b'{"requests_per_s\\u0000": 5}', b'{"queues": 5}', b'{"key_requests_per_s": 5}', b"[5]", b"5", b"null", b"",
        b"{}", b'"requests_per_s"', b"{", b'{"requests_per_s": ' + b"[" * 2_000 + b"]" * 2_000 + b"}", b"\xff\xfe",
        b'{"requests_per_s": 5, "\\ud800": 1}', b'{"requests_per_s": ' + b"9" * 5_000 + b"}",
    ],
)  # fmt: skip
def test_body_that_is_none_is_refused_and_nothing_stored(caller: Caller, body: bytes) -> None:
    from django.test import Client

    for address in addresses(caller):
        headers = caller.headers("PUT", address, body)
        refused = Client().generic("PUT", address, body, content_type="application/json", headers=headers)
        assert refused.status_code == 400, (address, refused.content)
        assert refused["Content-Type"] == "application/problem+json"
    assert not QueueQuotas.objects.exists() and not KeyQuotas.objects.exists() and audit(caller) == []


@pytest.mark.parametrize("name", ["absent", "a" * 81, "%00", "or%20ders", "..%2forders"])
def test_what_is_not_there_has_no_quotas(caller: Caller, name: str) -> None:
    for address in (f"/v1/queues/{name}/quotas", f"/v1/keys/{name}/quotas"):
        for method, body in (("GET", None), ("PUT", {"requests_per_s": 5})):
            assert caller.request(method, address, body).status_code == 404, (method, address)


def test_what_is_anothers_is_not_there(caller: Caller) -> None:
    neighbour = new_caller("neighbour")
    for address in addresses(caller):
        assert neighbour.request("PUT", address, {"requests_per_s": 5}).status_code == 404
        assert neighbour.request("GET", address).status_code == 404
    assert not QueueQuotas.objects.exists() and not KeyQuotas.objects.exists()


def test_deleted_queue_leaves_its_quotas_behind(caller: Caller) -> None:
    caller.request("PUT", addresses(caller)[0], {"requests_per_s": 5})
    delete_queue(OPERATOR, caller.account_id, "orders", at_once=True)
    assert caller.request("GET", addresses(caller)[0]).status_code == 404
    from api.queues.models import Queue, QueueStatus

    Queue.objects.filter(account_id=caller.account_id).update(state=QueueStatus.DELETED, deleted_at="2020-01-01T00:00Z")
    create_queue(OPERATOR, caller.account_id, "orders", {}, {})
    assert queue_record(caller).quotas == {} and record_of(RecordKind.ACCOUNT, caller.account_id).queues_differ is False


def test_deleted_key_is_gone_with_its_quotas(caller: Caller) -> None:
    made = keys.make_key(OPERATOR, caller.account_id, keys.KeySpec("other")).key.access_key_id
    assert caller.request("PUT", f"/v1/keys/{made}/quotas", {"requests_per_s": 5}).status_code == 200
    assert caller.request("DELETE", f"/v1/keys/{made}").status_code == 204
    assert not KeyQuotas.objects.exists()


def test_rotation_takes_the_quotas_along(caller: Caller) -> None:
    made = keys.make_key(OPERATOR, caller.account_id, keys.KeySpec("other")).key.access_key_id
    assert caller.request("PUT", f"/v1/keys/{made}/quotas", {"requests_per_s": 5}).status_code == 200
    new = caller.request("POST", f"/v1/keys/{made}/rotation", {"grace_seconds": 60}).json()["access_key_id"]
    for key in (made, new):
        assert record_of(RecordKind.KEY, key).quotas == {"requests_per_s": 5}


# --- the operator's command ---


def command(*arguments: str) -> Any:
    out = io.StringIO()
    call_command("quotas", *arguments, stdout=out)
    return json.loads(out.getvalue())


def test_operator_lists_and_sets(caller: Caller) -> None:
    for which, key in (("--queue", "orders"), ("--key", caller.access_key_id)):
        said = command("set", "--account", "tests", which, key, "requests_per_s=5", "bytes_per_s=2000")
        assert said["holder"] == f"{caller.account_id}/{key}"
        said = command("set", "--account", "tests", which, key, "requests_per_s=default")
        values = {one["name"]: one["value"] for one in said["quotas"]}
        assert values == {"requests_per_s": None, "messages_per_s": None, "bytes_per_s": 2_000}
        assert command("list", "--account", "tests", which, key)["quotas"] == said["quotas"]
    rows = AuditEntry.objects.filter(account_id=caller.account_id, action__endswith=".set_quotas")
    assert rows.count() == 4 and {row.actor for row in rows} == {OPERATOR.name}


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "--queue", "orders", "requests_per_s=5"), ("list", "--account", "tests", "--queue", "absent"),
        ("set", "--account", "tests", "--queue", "orders", "--key", "AKPS", "requests_per_s=5"),
        ("set", "--account", "tests", "--queue", "orders", "queues=5"), ("list", "--account", "tests", "--key", "AKPS"),
        ("set", "--account", "tests", "--queue", "orders", "requests_per_s=0"),
        ("set", "--account", "tests", "--queue", "orders", "requests_per_s=1e3"),
        ("set", "--account", "tests", "--queue", "orders", "nothing=default"),
    ],
)  # fmt: skip
def test_operator_is_told_what_is_wrong(caller: Caller, arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        command(*arguments)
    assert not QueueQuotas.objects.exists() and audit(caller) == []
