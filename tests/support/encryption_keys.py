"""Encryption keys over REST, and whether a queue still opens what was sealed for it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from api import clock
from api.encryption.models import EncryptionKey
from api.queues.models import Queue
from api.queues.moving import record_of, view_of
from frontend.crypto.envelope import Content, EnvelopeError, key_names, open_envelope, seal
from frontend.queues.resolver import ResolvedQueue
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

KEYS = "/v1/encryption-keys"


@pytest.fixture
def caller(transactional_db: None, storage: ScriptedStorage) -> Caller:
    return new_caller()


def make(caller: Caller, name: str = "orders-key", **more: Any) -> dict[str, Any]:
    answer = caller.request("POST", KEYS, {"name": name, **more})
    assert answer.status_code == 201, answer.content
    made: dict[str, Any] = answer.json()
    return made


def do(caller: Caller, key: dict[str, Any], what: str, method: str = "POST", body: Any = None) -> Any:
    return caller.request(method, f"{KEYS}/{key['id']}/{what}", body)


def make_queue(caller: Caller, name: str, **attributes: str) -> None:
    answer = caller.sqs("CreateQueue", QueueName=name, Attributes=attributes)
    assert answer.status_code == 200, answer.content


def view(name: str) -> ResolvedQueue:
    """The queue as a worker sees it now."""
    found = record_of(Queue.objects.get(name=name, state="active"))
    assert found is not None
    return view_of(found)


def sealed_in(name: str) -> bytes:
    return seal(view(name).sealing_key(1_700_000_000), b"AKPS", Content("secret"))[1]


def opens(name: str, envelope: bytes) -> bool:
    """By any key that the queue has, its own or granted."""
    queue, names = view(name), key_names(envelope)
    found = [grant.key for grant in queue.key_grants(names)]
    own = queue.opening_key(names)
    for key in [*found, *(() if own is None else (own,))]:
        try:
            return open_envelope(key, envelope).content.body == "secret"
        except EnvelopeError:
            continue
    return False


def end_waiting_period(key: dict[str, Any]) -> None:
    EncryptionKey.objects.filter(pk=key["id"]).update(deletes_at=clock.now() - timedelta(seconds=1))


def dead_letters_to(caller: Caller, name: str) -> dict[str, str]:
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:{name}"
    return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})}
