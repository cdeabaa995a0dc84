"""Tags, permissions and dead-letter sources through the internal endpoint, on a real database."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.audit.models import AuditEntry
from api.queues import actions
from api.queues.models import Queue
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle.reconciling import reconcile_queue

pytestmark = pytest.mark.django_db(transaction=True)
DENY_ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "*", "Resource": "*"}]}
OTHERS = ["111122223333", "444455556666"]


@pytest.fixture
def caller(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """With the queue `orders`; every hint is taken at once."""
    scripted = ScriptedStorage()
    monkeypatch.setattr(actions, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, scripted))
    found = new_caller()
    assert found.sqs("CreateQueue", QueueName="orders", tags={"team": "a"}).status_code == 200
    return found


def refused(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def orders() -> Queue:
    return Queue.objects.get(name="orders")


def policy() -> Any:
    return json.loads(orders().attributes["Policy"])


def add(caller: Caller, label: str, accounts: Any = OTHERS, names: Any = ("SendMessage",)) -> Any:
    params = {"Label": label, "AWSAccountIds": accounts, "Actions": list(names)}
    return caller.sqs("AddPermission", QueueName="orders", **params)


def test_tags_are_added_replaced_and_taken_away(caller: Caller) -> None:
    assert caller.sqs("TagQueue", QueueName="orders", Tags={"team": "b", "Team": "c"}).json() == {}
    assert caller.sqs("ListQueueTags", QueueName="orders").json() == {"Tags": {"team": "b", "Team": "c"}}
    assert caller.sqs("UntagQueue", QueueName="orders", TagKeys=["team", "unknown"]).json() == {}
    assert caller.sqs("ListQueueTags", QueueName="orders").json() == {"Tags": {"Team": "c"}}
    assert AuditEntry.objects.filter(action="queue.tag").count() == 2


def test_tags_of_a_queue_stay_within_fifty(caller: Caller) -> None:
    assert caller.sqs("TagQueue", QueueName="orders", Tags={f"k{n}": "" for n in range(49)}).status_code == 200
    answer = caller.sqs("TagQueue", QueueName="orders", Tags={"one more": ""})
    assert refused(answer) == (400, "InvalidParameterValueException")
    assert caller.sqs("TagQueue", QueueName="orders", Tags={"k0": "changed"}).status_code == 200
    assert len(orders().tags) == 50 and orders().tags["k0"] == "changed"


def test_more_tags_than_a_queue_can_have_are_refused_before_they_are_weighed(caller: Caller) -> None:
    made = caller.request("POST", "/v1/keys", {"name": "k", "policy": DENY_ALL}).json()
    nothing = Caller(caller.account_id, made["access_key_id"])
    for count, status in ((50, 403), (51, 400)):
        keys = [f"k{number}" for number in range(count)]
        tags = dict.fromkeys(keys, "v")
        for answer in (
            nothing.sqs("UntagQueue", QueueName="orders", TagKeys=keys),
            nothing.sqs("TagQueue", QueueName="orders", Tags=tags),
            nothing.sqs("CreateQueue", QueueName="new", tags=tags),
            nothing.request("POST", "/v1/queues", {"name": "new", "tags": tags}),
        ):
            assert answer.status_code == status, answer.content


@pytest.mark.parametrize(
    "tags", [{"": "x"}, {"k" * 129: ""}, {"k": "v" * 257}, {"aws:k": ""}, {"AWS:k": ""}, {"k": "\0"}, {"k": 1}]
)
def test_bad_tag_is_refused(caller: Caller, tags: dict[str, Any]) -> None:
    assert refused(caller.sqs("TagQueue", QueueName="orders", Tags=tags))[1] == "InvalidParameterValueException"
    assert orders().tags == {"team": "a"}


def test_permission_becomes_a_statement_of_the_policy(caller: Caller) -> None:
    assert add(caller, "one", names=("SendMessage", "ReceiveMessage")).json() == {}
    assert add(caller, "two", OTHERS[:1]).json() == {}
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:orders"
    assert policy()["Id"] == f"{arn}/SQSDefaultPolicy"
    assert policy()["Statement"] == [
        {
            "Sid": "one",
            "Effect": "Allow",
            "Principal": {"AWS": [f"arn:aws:iam::{account}:root" for account in OTHERS]},
            "Action": ["SQS:SendMessage", "SQS:ReceiveMessage"],
            "Resource": arn,
        },
        {
            "Sid": "two",
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{OTHERS[0]}:root"},
            "Action": "SQS:SendMessage",
            "Resource": arn,
        },
    ]
    assert caller.sqs("RemovePermission", QueueName="orders", Label="one").json() == {}
    assert [one["Sid"] for one in policy()["Statement"]] == ["two"]
    assert caller.sqs("RemovePermission", QueueName="orders", Label="two").json() == {}
    assert "Policy" not in orders().attributes


def test_permission_joins_a_policy_set_by_hand(caller: Caller) -> None:
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:orders"
    statement = {"Sid": "mine", "Effect": "Deny", "Principal": "*", "Action": "SQS:PurgeQueue", "Resource": arn}
    mine = {"Version": "2008-10-17", "Statement": statement}
    caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"Policy": json.dumps(mine)})
    assert add(caller, "one").status_code == 200
    assert (policy()["Version"], [one["Sid"] for one in policy()["Statement"]]) == ("2008-10-17", ["mine", "one"])


def test_permission_label_is_used_once_and_must_be_known(caller: Caller) -> None:
    assert add(caller, "one").status_code == 200
    again = add(caller, "one")
    assert refused(again) == (400, "InvalidParameterValueException") and "Already exists" in again.json()["message"]
    unknown = caller.sqs("RemovePermission", QueueName="orders", Label="two")
    assert refused(unknown) == (400, "InvalidParameterValueException")
    assert "can't find label" in unknown.json()["message"]


SEVEN = (
    "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes", "GetQueueUrl",
    "PurgeQueue",
)  # fmt: skip


@pytest.mark.parametrize(
    ("label", "accounts", "names", "code"),
    [
        ("l" * 80, OTHERS, SEVEN, None),
        ("l" * 81, OTHERS, SEVEN, "InvalidParameterValueException"),
        ("a b", OTHERS, SEVEN, "InvalidParameterValueException"),
        ("", OTHERS, SEVEN, "MissingRequiredParameterException"),
        ("l", OTHERS, ("*",), None),
        ("l", OTHERS, (*SEVEN, "*"), "OverLimit"),
        ("l", OTHERS, ("DeleteQueue",), "InvalidParameterValueException"),
        ("l", OTHERS, (), "MissingRequiredParameterException"),
        ("l", [], SEVEN, "InvalidParameterValueException"),
        ("l", ["11112222333"], SEVEN, "InvalidParameterValueException"),
        ("l", ["1" * 12] * 50, SEVEN, None),
        ("l", ["1" * 12] * 51, SEVEN, "OverLimit"),
        ("l", "1" * 12, SEVEN, "MissingRequiredParameterException"),
    ],
)
def test_permission_bounds(caller: Caller, label: str, accounts: Any, names: Any, code: str | None) -> None:
    answer = add(caller, label, accounts, names)
    if code is None:
        assert answer.status_code == 200
    else:
        assert refused(answer) == (403 if code == "OverLimit" else 400, code)
        assert "Policy" not in orders().attributes


def test_policy_stays_within_twenty_statements(caller: Caller) -> None:
    for number in range(20):
        assert add(caller, f"l{number}", OTHERS[:1]).status_code == 200
    assert refused(add(caller, "l20", OTHERS[:1])) == (403, "OverLimit")
    assert len(policy()["Statement"]) == 20
    one = {"Effect": "Allow", "Principal": "*", "Action": "SQS:SendMessage", "Resource": "*"}
    many = json.dumps({"Version": "2012-10-17", "Statement": [one] * 21})
    answer = caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"Policy": many})
    assert refused(answer) == (403, "OverLimit")


def test_policy_names_no_more_principals_in_all_its_statements_than_it_may(caller: Caller) -> None:
    accounts = [f"{number:012}" for number in range(51)]
    assert add(caller, "first", accounts[:30]).status_code == 200
    assert refused(add(caller, "second", accounts[30:])) == (403, "OverLimit")
    assert add(caller, "second", accounts[30:50]).status_code == 200
    assert len(orders().attributes["Policy"]) <= 8_192


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"Version": "2012-10-17", "Statement": []}',
        '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sqs:Send"}]}',
        '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}]}',
    ],
)
def test_policy_that_would_not_be_understood_is_not_stored(caller: Caller, text: str) -> None:
    answer = caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"Policy": text})
    assert refused(answer) == (400, "InvalidAttributeValue")
    assert answer.json()["message"].startswith("Invalid value for the parameter Policy. Reason: $")
    assert "Policy" not in orders().attributes


def test_dead_letter_sources_are_listed_by_page(caller: Caller) -> None:
    def source_of(target: str) -> dict[str, str]:
        arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:{target}"
        return {"RedrivePolicy": json.dumps({"maxReceiveCount": "3", "deadLetterTargetArn": arn})}

    for name in ("dead", "dead-2", "deadXletters"):
        caller.sqs("CreateQueue", QueueName=name)
    for name, target in (("b", "dead"), ("a", "dead"), ("c", "dead"), ("d", "dead-2"), ("e", "deadXletters")):
        assert caller.sqs("CreateQueue", QueueName=name, Attributes=source_of(target)).status_code == 200
    assert caller.sqs("ListDeadLetterSourceQueues", QueueName="dead").json() == {"names": ["a", "b", "c"]}
    page = caller.sqs("ListDeadLetterSourceQueues", QueueName="dead", MaxResults=2).json()
    assert page["names"] == ["a", "b"]
    rest = {"MaxResults": 2, "NextToken": page["NextToken"]}
    assert caller.sqs("ListDeadLetterSourceQueues", QueueName="dead", **rest).json() == {"names": ["c"]}
    caller.sqs("SetQueueAttributes", QueueName="a", Attributes={"RedrivePolicy": ""})
    caller.sqs("DeleteQueue", QueueName="b")
    assert caller.sqs("ListDeadLetterSourceQueues", QueueName="dead").json() == {"names": ["c"]}
    assert caller.sqs("ListDeadLetterSourceQueues", QueueName="orders").json() == {"names": []}


@pytest.mark.parametrize(
    ("action", "params"),
    [
        ("TagQueue", {"Tags": {"a": "b"}}),
        ("UntagQueue", {"TagKeys": ["team"]}),
        ("ListQueueTags", {}),
        ("AddPermission", {"Label": "l", "AWSAccountIds": OTHERS, "Actions": ["*"]}),
        ("RemovePermission", {"Label": "l"}),
        ("ListDeadLetterSourceQueues", {}),
    ],
)
def test_queue_of_another_account_does_not_exist(caller: Caller, action: str, params: dict[str, Any]) -> None:
    other = new_caller("other")
    assert refused(other.sqs(action, QueueName="orders", **params)) == (400, "QueueDoesNotExist")
    url = f"http://h/{caller.account_id}/orders"
    assert refused(other.sqs(action, QueueUrl=url, **params)) == (400, "QueueDoesNotExist")
    assert (orders().tags, orders().attributes.get("Policy")) == ({"team": "a"}, None)
