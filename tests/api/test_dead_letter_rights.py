"""Who may give a queue a dead-letter queue: it is a way to write into that one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from api.queues import actions, spreading
from api.queues.models import DataKeyGrant, Queue
from tests.support.control_plane import Caller, copy_queue, new_caller
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle.reconciling import reconcile_queue

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def caller(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The key of an account, which may do everything; the queue `orders`."""
    scripted = ScriptedStorage()
    monkeypatch.setattr(actions, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, scripted))
    monkeypatch.setattr(spreading, "scheduled_count", scripted.scheduled_count)
    found = new_caller()
    assert found.request("POST", "/v1/queues", {"name": "orders"}).status_code == 201
    return found


def restricted(caller: Caller, statements: list[dict[str, Any]]) -> Caller:
    policy = {"Version": "2012-10-17", "Statement": statements}
    made = caller.request("POST", "/v1/keys", {"name": "k", "policy": policy})
    assert made.status_code == 201, made.content
    return Caller(caller.account_id, made.json()["access_key_id"])


def redrive_to(caller: Caller, name: str) -> dict[str, str]:
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:{name}"
    return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})}


def tries_to_name(caller: Caller, key: Caller, source: str, target: str) -> list[int]:
    """What is said to all ways to give a queue a dead-letter queue: on both wires, new and later."""
    settings = {"dead_letter_queue": {"name": target, "max_receives": 1}}
    answers = [key.request("POST", "/v1/queues", {"name": f"{source}r", **settings})]
    answers.append(key.sqs("CreateQueue", QueueName=f"{source}s", Attributes=redrive_to(caller, target)))
    assert key.request("POST", "/v1/queues", {"name": source}).status_code == 201
    answers.append(key.request("PATCH", f"/v1/queues/{source}", settings))
    assert caller.request("PATCH", f"/v1/queues/{source}", {"dead_letter_queue": None}).status_code == 200
    answers.append(key.sqs("SetQueueAttributes", QueueName=source, Attributes=redrive_to(caller, target)))
    named = Queue.objects.filter(dead_letter_target=target).count()
    assert named == (3 if answers[0].status_code < 300 else 0)
    return [answer.status_code for answer in answers]


def test_dead_letter_queue_is_named_by_who_may_send_to_it_or_change_it(caller: Caller) -> None:
    def arn(name: str) -> str:
        return f"arn:aws:sqs:*:{caller.account_id}:{name}"

    on_target = {"Effect": "Allow", "Resource": arn("orders")}
    deny = {"Effect": "Deny", "Action": "sqs:SendMessage", "Resource": arn("orders")}
    cases: list[tuple[list[dict[str, str]], bool]] = [
        ([], False),
        ([{**on_target, "Action": "sqs:ReceiveMessage"}], False),
        ([{**on_target, "Action": "sqs:SendMessage"}], True),
        ([{**on_target, "Action": "sqs:SetQueueAttributes"}], True),
        ([{**on_target, "Action": "sqs:*"}, deny], False),
    ]
    for number, (more, is_allowed) in enumerate(cases):
        Queue.objects.filter(dead_letter_target="orders").update(dead_letter_target="")
        source = {"Effect": "Allow", "Action": ["sqs:*", "penstock:*"], "Resource": arn(f"q{number}*")}
        key = restricted(caller, [source, *more])
        statuses = tries_to_name(caller, key, f"q{number}", "orders")
        assert statuses == ([201, 200, 200, 200] if is_allowed else [403] * 4), more


def test_dead_letter_queue_whose_policy_denies_sends_is_named_by_nobody_it_denies(caller: Caller) -> None:
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:orders"
    statement = {"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": arn}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    set_policy = caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"Policy": policy})
    assert set_policy.status_code == 200
    assert tries_to_name(caller, caller, "q1", "orders") == [403] * 4
    assert caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"Policy": ""}).status_code == 200
    assert tries_to_name(caller, caller, "q2", "orders") == [201, 200, 200, 200]


def test_queue_is_shredded_by_who_may_empty_the_queues_with_its_dead_letters(caller: Caller) -> None:
    def arn(name: str) -> str:
        return f"arn:aws:sqs:*:{caller.account_id}:{name}"

    on_target = {"Effect": "Allow", "Resource": arn("orders")}
    deny = {"Effect": "Deny", "Action": "sqs:PurgeQueue", "Resource": arn("orders")}
    cases: list[tuple[list[dict[str, str]], bool]] = [
        ([], False),
        ([{**on_target, "Action": "sqs:DeleteMessage"}], False),
        ([{**on_target, "Action": "sqs:PurgeQueue"}], True),
        ([{**on_target, "Action": "sqs:DeleteQueue"}], True),
        ([{**on_target, "Action": "sqs:*"}, deny], False),
    ]
    for number, (more, is_allowed) in enumerate(cases):
        name = f"q{number}"
        dead = {"dead_letter_queue": {"name": "orders", "max_receives": 1}}
        assert caller.request("POST", "/v1/queues", {"name": name, **dead}).status_code == 201
        key = restricted(caller, [{"Effect": "Allow", "Action": ["sqs:*", "penstock:*"], "Resource": arn(name)}, *more])
        copies = DataKeyGrant.objects.filter(owner_name=name)
        assert copies.count() == 1
        answer = key.request("DELETE", f"/v1/queues/{name}?shred=true")
        assert (answer.status_code, copies.count()) == ((202, 0) if is_allowed else (403, 1)), more
        if not is_allowed:
            assert "sqs:purgequeue" in answer.json()["detail"].lower() and ":orders" in answer.json()["detail"]
            assert key.request("DELETE", f"/v1/queues/{name}").status_code == 202, "what was there stays readable"
            assert copies.count() == 1


def test_former_dead_letter_queues_and_those_behind_are_asked_too(caller: Caller) -> None:
    last = {"name": "last"}
    assert caller.request("POST", "/v1/queues", last).status_code == 201
    behind = {"dead_letter_queue": {"name": "last", "max_receives": 1}}
    assert caller.request("PATCH", "/v1/queues/orders", behind).status_code == 200
    dead = {"dead_letter_queue": {"name": "orders", "max_receives": 1}}
    assert caller.request("POST", "/v1/queues", {"name": "source", **dead}).status_code == 201
    assert caller.request("PATCH", "/v1/queues/source", {"dead_letter_queue": None}).status_code == 200
    arns = [f"arn:aws:sqs:*:{caller.account_id}:{name}" for name in ("source", "orders", "last")]
    for count, status in ((1, 403), (2, 403), (3, 202)):
        key = restricted(caller, [{"Effect": "Allow", "Action": "sqs:*", "Resource": arns[:count]}])
        assert key.request("DELETE", "/v1/queues/source?shred=true").status_code == status


def test_policy_of_the_queue_with_the_dead_letters_keeps_them(caller: Caller) -> None:
    dead = {"dead_letter_queue": {"name": "orders", "max_receives": 1}}
    assert caller.request("POST", "/v1/queues", {"name": "source", **dead}).status_code == 201
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:orders"
    statement = {"Effect": "Deny", "Principal": "*", "Action": "sqs:PurgeQueue", "Resource": arn}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    assert caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"Policy": policy}).status_code == 200
    assert caller.request("DELETE", "/v1/queues/source?shred=true").status_code == 403
    assert caller.request("DELETE", "/v1/queues/source").status_code == 202


# --- who takes dead letters back writes into the queues that they came from ---


@pytest.mark.parametrize("now", ["another-dead", None])
def test_move_back_asks_at_queues_that_had_the_source_as_their_dead_letter_queue(
    caller: Caller, now: str | None
) -> None:
    """Their letters lie there still, and go back to them."""
    for name in ("another-dead", "mine", "payroll"):
        assert caller.request("POST", "/v1/queues", {"name": name}).status_code == 201
    for name in ("mine", "payroll"):
        assert name_dead_letter_queue(caller, name, "orders") == 200
    assert name_dead_letter_queue(caller, "payroll", now) == 200
    key = mover(caller, "orders", "mine")
    assert starts_moving(key) == [403, 403]
    assert starts_moving(mover(caller, "orders", "mine", "payroll")) == [201, 400], "one is running then"


def test_move_back_asks_at_queues_whose_dead_letters_come_by_way_of_others(caller: Caller) -> None:
    """A letter remembers where it died first."""
    for name, target in (("dead", "orders"), ("payroll", "dead")):
        assert caller.request("POST", "/v1/queues", {"name": name}).status_code == 201
        assert name_dead_letter_queue(caller, name, target) == 200
    assert starts_moving(mover(caller, "orders", "dead")) == [403, 403]
    assert starts_moving(mover(caller, "orders", "dead", "payroll")) == [201, 400]


def test_queue_that_is_gone_is_not_asked_about(caller: Caller) -> None:
    """Nothing can go back to it, and another one may have its name."""
    for name in ("mine", "payroll"):
        assert caller.request("POST", "/v1/queues", {"name": name}).status_code == 201
        assert name_dead_letter_queue(caller, name, "orders") == 200
    assert caller.request("DELETE", "/v1/queues/payroll").status_code == 202
    assert starts_moving(mover(caller, "orders", "mine")) == [201, 400]


def name_dead_letter_queue(caller: Caller, source: str, target: str | None) -> int:
    settings = {"dead_letter_queue": None if target is None else {"name": target, "max_receives": 1}}
    status: int = caller.request("PATCH", f"/v1/queues/{source}", settings).status_code
    return status


def mover(caller: Caller, source: str, *destinations: str) -> Caller:
    """A key that may do everything with the source, and send to these."""
    arns = [f"arn:aws:sqs:*:{caller.account_id}:{name}" for name in destinations]
    on_source = {"Effect": "Allow", "Action": "sqs:*", "Resource": f"arn:aws:sqs:*:{caller.account_id}:{source}"}
    return restricted(caller, [on_source, {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": arns}])


def starts_moving(key: Caller) -> list[int]:
    """What is said on both wires."""
    arn = f"arn:aws:sqs:us-east-1:{key.account_id}:orders"
    first = key.request("POST", "/v1/queues/orders/moves", {})
    return [first.status_code, key.sqs("StartMessageMoveTask", SourceArn=arn).status_code]


def test_queues_that_a_move_back_asks_about_are_read_together(caller: Caller) -> None:
    """Dead letters of thousands of queues can come to one queue."""
    key = mover(caller, "orders", "*")
    assert caller.request("POST", "/v1/queues", {"name": "source"}).status_code == 201
    assert name_dead_letter_queue(caller, "source", "orders") == 200
    assert starts_moving(key) == [201, 400]
    counts = []
    for more in ([], [f"source-{number}" for number in range(20)]):
        copy_queue("source", more)
        with CaptureQueriesContext(connection) as asked:
            assert starts_moving(key) == [400, 400], "one is running"
        counts.append(len(asked))
    assert counts[0] == counts[1]
