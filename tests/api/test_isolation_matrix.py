"""Every operation that the control plane answers, by every kind of key: made from its route tables.
tests/frontend/test_isolation_matrix.py has the data plane's, and the credentials that a front end turns away."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.urls import URLPattern, URLResolver, get_resolver

from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.encryption.actions import create_encryption_key
from api.iam.actions import groups, keys, policies
from api.iam.permission import MayDo, operation_of
from api.internal.sqs import _ACTIONS
from api.people.authentication import IsSignedIn
from api.queues import actions as queue_actions
from api.queues import spreading
from api.webhooks.actions import put_webhook
from frontend.authz.actions import MANAGEMENT_OPERATIONS
from frontend.rest.serve import _OPEN
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle.reconciling import reconcile_queue

pytestmark = pytest.mark.django_db(transaction=True)

METHODS = ("get", "post", "put", "patch", "delete")
ALLOW_ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
# The words of a path, and bodies by operation, so that each call would do something if it were allowed.
BODIES: dict[str, dict[str, Any]] = {
    "account.update": {"auto_create_queues": True},
    "keys.create": {"name": "k"},
    "keys.update": {"restricted": False},
    "keys.rotate": {},
    "keys.put_policy": {"policy": ALLOW_ALL},
    "policies.create": {"name": "new", "policy": ALLOW_ALL},
    "policies.update": {"policy": ALLOW_ALL},
    "policies.simulate": {"actions": ["sqs:SendMessage"], "resources": ["arn:aws:sqs:us-east-1:1:q"]},
    "groups.create": {"name": "new"},
    "definitions.compare": {"format": "penstock.definitions/1", "account_id": "1" * 12},
    "definitions.import": {"definitions": {"format": "penstock.definitions/1", "account_id": "1" * 12}, "digest": ""},
    "encryption_keys.create": {"name": "new"},
    "encryption_keys.update": {"description": "new"},
    "encryption_keys.schedule_deletion": {"days": 7},
    "queues.create": {"name": "new"},
    "queues.update": {"delay_seconds": 1},
    "moves.start": {"destination": "others"},
    "webhooks.rotate": {},
    "schedules.create": {"name": "s", "cron": "* * * * *", "body": "x"},
    "schedules.update": {"body": "y"},
}
SQS_PARAMS: dict[str, dict[str, Any]] = {
    "CreateQueue": {"QueueName": "new"},
    "AutoCreateQueue": {"QueueName": "new"},
    "SetQueueAttributes": {"QueueName": "orders", "Attributes": {"DelaySeconds": "1"}},
    "TagQueue": {"QueueName": "orders", "Tags": {"a": "b"}},
    "UntagQueue": {"QueueName": "orders", "TagKeys": ["a"]},
    "AddPermission": {"QueueName": "orders", "Label": "l", "AWSAccountIds": ["123456789012"], "Actions": ["*"]},
    "RemovePermission": {"QueueName": "orders", "Label": "l"},
    "ListQueues": {},
}


def routes() -> list[tuple[str, Any]]:
    """(path with <names>, view class) of everything below /v1 that is a view of DRF."""
    return [found for found in _below(get_resolver().url_patterns, "/") if hasattr(found[1], "permission_classes")]


def test_only_the_description_of_the_interface_is_open_to_all() -> None:
    """What is no view of DRF asks for no credentials; a front end passes exactly that on without any."""
    known = {path for path, _ in routes()}
    assert {path.encode() for path, _ in _below(get_resolver().url_patterns, "/") if path not in known} == _OPEN


def _below(patterns: list[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _below(pattern.url_patterns, path)
        elif isinstance(pattern, URLPattern) and path.startswith("/v1/"):
            yield path, getattr(pattern.callback, "view_class", getattr(pattern.callback, "cls", pattern.callback))


def operations() -> list[tuple[str, str, str]]:
    """(operation, method, path) of every handler that keys can call."""
    found = []
    for path, view in routes():
        if MayDo in view.permission_classes:
            instance = view()
            instance.request, instance.kwargs, instance.args = None, {}, ()
            for method in METHODS:
                if hasattr(view, method):
                    found.append((operation_of(instance, method.upper()), method.upper(), path))
    return found


class Scene:
    """An account with something of everything, and a neighbour."""

    def __init__(self) -> None:
        self.owner = new_caller()
        account_id = self.owner.account_id
        for name, content in (("others", {}), ("orders", {}), ("source", {})):
            assert self.owner.request("POST", "/v1/queues", {"name": name, **content}).status_code == 201
        dead = {"dead_letter_queue": {"name": "orders", "max_receives": 3}}
        assert self.owner.request("PATCH", "/v1/queues/source", dead).status_code == 200
        policies.create_policy(OPERATOR, account_id, "mine", json.dumps(ALLOW_ALL))
        groups.create_group(OPERATOR, account_id, "people")
        self.encryption_key = create_encryption_key(OPERATOR, account_id, "mine")
        rules = {"deletion_grace_days": 1}
        assert self.owner.request("PATCH", "/v1/account", rules).status_code == 200
        assert self.owner.request("POST", "/v1/queues", {"name": "gone"}).status_code == 201
        self.gone = self.owner.request("DELETE", "/v1/queues/gone").json()["queue_id"]
        put_webhook(OPERATOR, account_id, "orders", "https://hooks.example.com/")
        self.victim = keys.make_key(OPERATOR, account_id, keys.KeySpec("victim")).key
        words = {
            "<name:name>": "orders",
            "<name:access_key_id>": self.victim.access_key_id,
            "<name:policy>": "mine",
            "<name:policy_name>": "mine",
            "<name:group>": "people",
            "<name:encryption_key>": str(self.encryption_key.pk),
            "<name:schedule>": "s",
            "<uuid:queue_id>": self.gone,
            "<uuid:move_id>": str(uuid.UUID(int=1)),
            "<uuid:person_id>": str(uuid.UUID(int=1)),
            "<uuid:invoice_id>": str(uuid.UUID(int=1)),
            "<uuid:note_id>": str(uuid.UUID(int=1)),
            "<name:request_id>": "1",
        }
        self._words = words

    def path(self, pattern: str) -> str:
        for word, value in self._words.items():
            pattern = pattern.replace(word, value)
        assert "<" not in pattern, f"{pattern}: what stands there?"
        return pattern

    def key(self, kind: str) -> Caller:
        if kind == "other account":
            return new_caller("neighbour")
        if kind == "deleted":
            return Caller(self.owner.account_id, "AKPS" + "A" * 16)
        policy = {"no right": "", "denied": json.dumps(DENY_ALL)}[kind]
        made = keys.make_key(OPERATOR, self.owner.account_id, keys.KeySpec(kind, policy=policy))
        return Caller(self.owner.account_id, made.key.access_key_id)


DENY_ALL = {"Statement": [*ALLOW_ALL["Statement"], {"Effect": "Deny", "Action": "*", "Resource": "*"}]}


@pytest.fixture
def scene(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Scene:
    scripted = ScriptedStorage()
    monkeypatch.setattr(queue_actions, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, scripted))
    monkeypatch.setattr(spreading, "scheduled_count", scripted.scheduled_count)
    return Scene()


def dump(account_id: str) -> dict[str, list[Any]]:
    """Every row that is the account's, but for when keys were used."""
    tables = {
        "account": "id = %s", "access_key": "account_id = %s", "queue": "account_id = %s",
        "iam_policy": "account_id = %s", "iam_group": "account_id = %s", "message_move_task": "account_id = %s",
        # What was refused stands there.
        "audit_entry": "account_id = %s AND action NOT LIKE 'refused.%%'",
        "encryption_key": "account_id = %s", "webhook": "account_id = %s", "webhook_delivery": "account_id = %s",
        "quota_queue": "account_id = %s", "quota_key": "account_id = %s",
        "encryption_key_version": "key_id IN (SELECT id FROM encryption_key WHERE account_id = %s)",
        "iam_key_access": "key_id IN (SELECT access_key_id FROM access_key WHERE account_id = %s)",
    }  # fmt: skip
    found = {}
    with connection.cursor() as cursor:
        for table, condition in tables.items():
            cursor.execute(f"SELECT to_jsonb(t) - 'last_used_at' FROM {table} t WHERE {condition}", [account_id])
            found[table] = sorted(str(row[0]) for row in cursor.fetchall())
    return found


def test_every_view_says_who_may_call_it() -> None:
    """A view for keys declares its operations; one for people, or for everybody, says so itself."""
    for path, view in routes():
        guards = view.permission_classes
        assert MayDo in guards or IsSignedIn in guards or (not guards and not view.authentication_classes), path
        assert not (MayDo in guards and len(guards) > 1), path
    assert {operation for operation, _, _ in operations()} | {"queues.create_on_send"} == MANAGEMENT_OPERATIONS.keys()


@pytest.mark.parametrize("kind", ["no right", "denied", "deleted", "other account"])
def test_management_operations_of_keys_without_the_right(scene: Scene, kind: str) -> None:
    key = scene.key(kind)
    before = dump(scene.owner.account_id)
    for operation, method, pattern in operations():
        answer = key.request(method, scene.path(pattern), BODIES.get(operation))
        if kind != "other account":
            assert (answer.status_code, answer.json()["code"]) == (403, "access-denied"), operation
        else:
            # Nothing of this account is there for it; what is of its own it sees and makes.
            content = answer.getvalue().decode()
            assert answer.status_code < 500 and scene.owner.account_id not in content, operation
            if "<" in pattern:
                assert answer.status_code in (400, 404), (operation, content)
        assert dump(scene.owner.account_id) == before, operation
    refused = AuditEntry.objects.filter(account_id=scene.owner.account_id, action__startswith="refused.")
    assert refused.exists() == (kind in ("no right", "denied"))


@pytest.mark.parametrize("kind", ["no right", "denied", "deleted", "other account"])
def test_sqs_actions_of_keys_without_the_right(scene: Scene, kind: str) -> None:
    key = scene.key(kind)
    arn = f"arn:aws:sqs:us-east-1:{scene.owner.account_id}:orders"
    task = scene.owner.sqs("StartMessageMoveTask", SourceArn=arn).json()["TaskHandle"]
    before = dump(scene.owner.account_id)
    for action in _ACTIONS:
        plain = {"SourceArn": arn} if "Move" in action else {"QueueName": "orders"}
        params = SQS_PARAMS.get(action, {"TaskHandle": task} if action == "CancelMessageMoveTask" else plain)
        answer = key.sqs(action, **params)
        if kind != "other account":
            assert (answer.status_code, answer.json()["code"]) == (403, "AccessDeniedException"), action
        else:
            assert answer.status_code < 500 and scene.owner.account_id not in answer.content.decode(), action
            if action not in ("CreateQueue", "AutoCreateQueue", "ListQueues"):
                assert answer.status_code >= 400, action
        assert dump(scene.owner.account_id) == before, action


def test_key_that_may_do_everything_is_refused_nothing(scene: Scene) -> None:
    """Or the matrix would show nothing."""
    made = keys.make_key(OPERATOR, scene.owner.account_id, keys.KeySpec("all", policy=json.dumps(ALLOW_ALL)))
    key = Caller(scene.owner.account_id, made.key.access_key_id)
    for operation, method, pattern in sorted(operations(), key=lambda one: one[1] == "DELETE"):
        answer = key.request(method, scene.path(pattern), BODIES.get(operation))
        assert answer.status_code not in (401, 403, 500), (operation, answer.content)
