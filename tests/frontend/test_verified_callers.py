"""What is kept of callers that were verified: bounded, and of no use once the record of their key is another one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from frontend.authn import authenticator as module
from frontend.authn.authenticator import Authenticator
from frontend.authn.principal import Principal
from frontend.errors import RequestError
from frontend.http import Request
from frontend.limits import CALLER_TEXTS_CACHED_BYTES_MAX
from frontend.metadata.records import PolicyRecord
from tests.support.frontend_plane import ACCOUNT, QUEUE_URL, Installation, sign

BODY = json.dumps({"QueueUrl": QUEUE_URL, "MessageBody": "hello"}).encode()
DENY = json.dumps({"Version": "2012-10-17", "Statement": {"Effect": "Deny", "Action": "sqs:*", "Resource": "*"}})


async def never() -> Any:
    raise AssertionError("the body is here")


def request_of(front: Installation, client_host: str = "192.0.2.1", **more: str) -> Request:
    headers = sign(front.key, "POST", "/", BODY, "AmazonSQS.SendMessage", front.clock.now_s) | more
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    request = Request("POST", b"/", b"", "http", client_host, raw, never, BODY)
    request.read_headers()
    return request


async def verified(front: Installation, client_host: str = "192.0.2.1", **more: str) -> Principal:
    return await front.plane.authenticator.signature(request_of(front, client_host, **more))


def change_key(front: Installation, **changes: Any) -> None:
    keys, name = front.metadata.keys, front.key.access_key_id
    keys[name] = msgspec.structs.replace(keys[name], version=keys[name].version + 1, **changes)


async def test_same_caller_is_the_same_principal(front: Installation) -> None:
    first = await verified(front, **{"User-Agent": "sdk"})
    assert await verified(front, **{"User-Agent": "sdk"}) is first
    assert (first.user_agent, first.source_ip) == ("sdk", "192.0.2.1")


async def test_what_a_policy_can_look_at_tells_callers_apart(front: Installation) -> None:
    callers = [
        await verified(front),
        await verified(front, client_host="192.0.2.2"),
        await verified(front, **{"User-Agent": "sdk"}),
        await verified(front, Referer="sdk"),
        await verified(front, Referer="other"),
    ]
    seen = [(one.source_ip, one.user_agent, one.referer) for one in callers]
    assert seen == [
        ("192.0.2.1", None, None),
        ("192.0.2.2", None, None),
        ("192.0.2.1", "sdk", None),
        ("192.0.2.1", None, "sdk"),
        ("192.0.2.1", None, "other"),
    ]


async def test_key_that_is_switched_off_or_expires_opens_nothing_more(front: Installation) -> None:
    await verified(front)
    change_key(front, expires_at_ms=int(front.clock.now_s * 1000))
    with pytest.raises(RequestError, match="security token"):
        await verified(front)
    change_key(front, expires_at_ms=None)
    await verified(front)
    change_key(front, active=False)
    with pytest.raises(RequestError, match="security token"):
        await verified(front)


async def test_new_policies_of_a_key_are_those_of_its_next_request(front: Installation) -> None:
    assert (await verified(front)).rights is None
    change_key(front, policies=(PolicyRecord("deny", DENY),))
    rights = (await verified(front)).rights
    assert rights is not None
    assert (await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})).status == 403
    change_key(front, policies=None)
    assert (await verified(front)).rights is None


async def test_another_secret_is_another_key_for_what_was_prepared(front: Installation) -> None:
    await verified(front)
    sealed = front.keyring.seal_secret(ACCOUNT, front.key.access_key_id, "another secret")
    change_key(front, secret_sealed=sealed)
    with pytest.raises(RequestError) as refused:
        await verified(front)
    assert refused.value.code == "SignatureDoesNotMatch"


async def test_signature_is_looked_at_each_time(front: Installation) -> None:
    await verified(front)
    request = request_of(front)
    request.body = BODY + b" "
    with pytest.raises(RequestError) as refused:
        await front.plane.authenticator.signature(request)
    assert refused.value.code == "SignatureDoesNotMatch"


async def test_what_is_kept_is_bounded(front: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    authenticator: Authenticator = front.plane.authenticator
    monkeypatch.setattr(module, "PRINCIPALS_CACHED_MAX", 3)
    monkeypatch.setattr(module, "CREDENTIALS_CACHED_MAX", 2)
    for number in range(5):
        front.clock.now_s += 86_400  # a claim is of its day
        await verified(front, **{"User-Agent": f"sdk {number}"})
    assert len(authenticator._principals) == 3
    assert len(authenticator._credentials) == len(authenticator._prepared) == 2
    assert {name[3] for name in authenticator._principals} == {b"sdk 2", b"sdk 3", b"sdk 4"}
    await verified(front, **{"User-Agent": "x" * (CALLER_TEXTS_CACHED_BYTES_MAX + 1)})
    assert {name[3] for name in authenticator._principals} == {b"sdk 2", b"sdk 3", b"sdk 4"}, "long texts are not kept"


async def test_former_record_is_replaced_and_not_kept_beside(front: Installation) -> None:
    for _ in range(3):
        await verified(front)
        change_key(front)
    authenticator = front.plane.authenticator
    assert len(authenticator._principals) == len(authenticator._prepared) == 1
