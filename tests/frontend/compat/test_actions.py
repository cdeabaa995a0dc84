"""Every action of botocore's model over both protocols: successes, errors, limits.

`cases.py` and `bounds.py` say what is asked of one action; what holds for every action, and what one call leaves for
the next, stands here. `test_matrix.py` says that nothing is missing.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import AccountLimits, Rates
from tests.frontend.compat.bounds import LIMITS
from tests.frontend.compat.cases import CASES
from tests.frontend.compat.control import ControlPlaneInMemory
from tests.frontend.compat.documented import DEFAULTS, MEMBERS, OPERATIONS, asked_for
from tests.frontend.compat.matrix import bound_of
from tests.frontend.compat.scene import (
    MISSING,
    NOT_FOUND,
    POLICY,
    REDRIVE,
    SIMPLE,
    TEXT,
    UNSUPPORTED,
    Case,
    Limit,
    Params,
    Scene,
    arn_of,
    url_of,
    with_sources,
)
from tests.frontend.compat.wire import PROTOCOLS, Answered, read_answer, speak
from tests.support.covers import covers
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, QUEUE_URL, Installation

GOOD = {case.action: case for case in reversed(CASES) if not case.code}

both = pytest.mark.parametrize("protocol", PROTOCOLS)


FIFO_URL = url_of("line.fifo")


async def set_scene(front: Installation) -> Scene:
    control = ControlPlaneInMemory(front)
    for number in range(3):
        params = {"QueueUrl": QUEUE_URL, "MessageBody": f"m{number}", "MessageAttributes": {"a": TEXT}}
        await speak(front, "json", "SendMessage", params)
    (message,) = (await speak(front, "json", "ReceiveMessage", {"QueueUrl": QUEUE_URL})).result["Messages"]
    front.add_queue("dead")
    front.add_queue("line.fifo", (2,))
    entries = [
        {"Id": f"{n}", "MessageBody": f"f{n}", "MessageGroupId": "ghh"[n], "MessageDeduplicationId": f"d{n + 1}"}
        for n in range(3)
    ]
    await speak(front, "json", "SendMessageBatch", {"QueueUrl": FIFO_URL, "Entries": entries})
    (ordered,) = (await speak(front, "json", "ReceiveMessage", {"QueueUrl": FIFO_URL})).result["Messages"]
    return Scene(front, control, message["ReceiptHandle"], ordered["ReceiptHandle"])


@pytest.fixture
async def scene(front: Installation) -> Scene:
    return await set_scene(front)


async def ask(scene: Scene, protocol: str, case: Case, **changes: Any) -> Answered:
    case.before(scene)
    params = {name: value for name, value in {**case.params(scene), **changes}.items() if value is not None}
    return await speak(scene.front, protocol, case.action, params)


@both
@pytest.mark.parametrize("case", CASES, ids=[f"{case.action}: {case.what}" for case in CASES])
async def test_call_ends_as_the_api_says(scene: Scene, protocol: str, case: Case) -> None:
    answered = await ask(scene, protocol, case)
    assert (answered.status, answered.code) == ((case.status, case.code) if case.code else (200, "")), answered
    assert case.code or case.check(answered.result), answered.result
    assert [one["Code"] for one in answered.result.get("Failed", ())] == [case.entry_code] * bool(case.entry_code)


@both
@pytest.mark.parametrize("limit", LIMITS, ids=[f"{limit.action}: {limit.what}" for limit in LIMITS])
async def test_limit_holds_to_the_unit(protocol: str, limit: Limit) -> None:
    bound = bound_of(limit)
    ends = (bound.low, bound.low + 1, bound.high - 1, bound.high)
    asked = {size: "" for size in ends if bound.low <= size <= bound.high} | {bound.high + 1: limit.code}
    if limit.has_below:
        asked[bound.low - 1] = limit.below or limit.code
    for size, code in asked.items():
        fresh = await set_scene(Installation())
        limit.before(fresh)
        answered = await speak(fresh.front, protocol, limit.action, limit.params(fresh, size))
        failed = [one["Code"] for one in answered.result.get("Failed", ())]
        if limit.in_entry:
            assert (answered.status, failed) == (200, [code] * bool(code)), (size, answered)
            continue
        status = 200 if not code else limit.status if code == limit.code else 400
        assert (answered.status, answered.code, failed) == (status, code, []), (size, answered)


# --- what holds for every action ---


@both
@pytest.mark.parametrize("action", OPERATIONS)
async def test_required_parameter_must_be_there(scene: Scene, protocol: str, action: str) -> None:
    for name in MEMBERS[action].get("required", ()):
        answered = await ask(scene, protocol, GOOD[action], **{name: None})
        expected = SIMPLE + "EmptyBatchRequest" if name == "Entries" else MISSING
        assert (answered.status, answered.code) == (400, expected), (name, answered)


def address(action: str, account_id: str, name: str) -> Params:
    """The members that name a queue."""
    if "QueueUrl" in MEMBERS[action]["members"]:
        return {"QueueUrl": url_of(name, account_id)}
    return {"QueueName": name, "QueueOwnerAWSAccountId": account_id}


@both
@pytest.mark.parametrize("action", asked_for("QueueDoesNotExist"))
@covers("*", error="QueueDoesNotExist")
async def test_queue_must_be_mine_and_there(scene: Scene, protocol: str, action: str) -> None:
    for name in ("unknown", "unknown.fifo"):
        answered = await ask(scene, protocol, GOOD[action], **address(action, ACCOUNT, name))
        assert (answered.status, answered.code) == (400, NOT_FOUND), (name, answered)
        assert answered.message.endswith("for this wsdl version." if protocol == "query" else "does not exist.")


@both
@pytest.mark.parametrize("action", asked_for("QueueDoesNotExist"))
async def test_queue_of_another_account_is_denied_be_it_there_or_not(scene: Scene, protocol: str, action: str) -> None:
    for name in ("secret", "orders", "line.fifo"):
        answered = await ask(scene, protocol, GOOD[action], **address(action, OTHER_ACCOUNT, name))
        if action == "GetQueueUrl":
            assert (answered.status, answered.code) == (400, NOT_FOUND), (name, answered)
        else:
            assert (answered.status, answered.code) == (403, "AccessDenied"), (name, answered)
            arn = f"arn:aws:sqs:us-east-1:{OTHER_ACCOUNT}:{name}"
            why = "because no resource-based policy allows the sqs:"
            assert f" on resource: {arn} {why}" in answered.message


@both
@pytest.mark.parametrize("action", asked_for("InvalidAddress"))
@covers("*", error="InvalidAddress")
async def test_address_must_be_one(scene: Scene, protocol: str, action: str) -> None:
    wrong: list[Params] = [address(action, account_id, "orders") for account_id in ("1", "me", ACCOUNT + "0")]
    if action != "GetQueueUrl":
        urls = ("or ders", f"http://{HOST}/{ACCOUNT}/", f"http://{HOST}/orders", "http://" + "x" * 1000)
        wrong += [{"QueueUrl": url} for url in urls]
    for members in wrong:
        answered = await ask(scene, protocol, GOOD[action], **members)
        assert (answered.status, answered.code) == (400, "InvalidAddress"), (members, answered)


@both
@pytest.mark.parametrize("action", asked_for("RequestThrottled"))
@covers("*", error="RequestThrottled")
async def test_rate_over_the_limit_is_throttled(protocol: str, action: str) -> None:
    quotas = QuotaTree(lambda _: AccountLimits(Rates(1e-3)), burst_s=7_000.0)
    scene = await set_scene(Installation(quotas=quotas))
    # The seventh and last: six made the scene.
    assert quotas.pay(ACCOUNT, scene.front.key.access_key_id, "", scene.front.clock.now_s) is None
    answered = await ask(scene, protocol, GOOD[action])
    assert (answered.status, answered.code) == (400, "RequestThrottled")
    assert int(answered.reply.headers["retry-after"]) >= 1


@both
@pytest.mark.parametrize("action", OPERATIONS)
async def test_signature_must_be_right(scene: Scene, protocol: str, action: str) -> None:
    calls = len(scene.front.control_calls)
    stranger = scene.front.key._replace(secret_access_key=scene.front.other_key.secret_access_key)
    answered = await speak(scene.front, protocol, action, {}, stranger)
    assert (answered.status, answered.code) == (403, "SignatureDoesNotMatch")
    unsigned = await by_hand(scene, protocol, action)
    assert (unsigned.status, unsigned.code) == (403, "MissingAuthenticationToken")
    assert len(scene.front.control_calls) == calls


@both
@pytest.mark.parametrize("action", asked_for("InvalidSecurity"))
@covers("*", error="InvalidSecurity")
async def test_signature_of_another_kind_is_refused(scene: Scene, protocol: str, action: str) -> None:
    calls = len(scene.front.control_calls)
    key = scene.front.key
    second = f"AWSAccessKeyId={key.access_key_id}&SignatureVersion=2&SignatureMethod=HmacSHA256&Signature=eA%3D%3D"
    asked = [await by_hand(scene, protocol, action, path=f"/?{second}")]
    kinds = (f"AWS {key.access_key_id}:eA==", f"Bearer {key.bearer_token}", "Basic eDp5", "AWS4-ECDSA-P256-SHA256 x")
    asked += [await by_hand(scene, protocol, action, authorization=kind) for kind in kinds]
    assert {(one.status, one.code) for one in asked} == {(400, "InvalidSecurity")}
    assert len(scene.front.control_calls) == calls


async def by_hand(scene: Scene, protocol: str, action: str, path: str = "/", **headers: str) -> Answered:
    """Not signed by the oracle."""
    headers |= {"host": HOST, "content-type": "application/x-www-form-urlencoded"}
    if protocol == "json":
        headers |= {"content-type": "application/x-amz-json-1.0", "x-amz-target": f"AmazonSQS.{action}"}
    reply = await scene.front.call("POST", path, headers, f"Action={action}&Version=2012-11-05".encode())
    return read_answer(protocol, action, reply)


def test_nothing_but_attribute_lists_is_unsupported() -> None:
    found = {(case.action, case.what) for case in CASES if UNSUPPORTED in (case.code, case.entry_code)}
    assert found == {("SendMessage", "attribute list"), ("SendMessageBatch", "attribute list")}


# --- what one call leaves for the next ---


@both
async def test_defaults_are_as_documented(scene: Scene, protocol: str) -> None:
    given = {
        "RedrivePolicy": json.dumps({"deadLetterTargetArn": arn_of("dead"), "maxReceiveCount": "10"}),
        "KmsMasterKeyId": "alias/mine",
    }
    await speak(scene.front, protocol, "CreateQueue", {"QueueName": "new", "Attributes": given})
    asked = {"QueueUrl": url_of("new"), "AttributeNames": ["All"]}
    attributes = (await speak(scene.front, protocol, "GetQueueAttributes", asked)).result["Attributes"]
    shown = {**attributes, **json.loads(attributes["RedrivePolicy"])}
    for permission in ("denyAll", "allowAll"):
        # Without a RedriveAllowPolicy the queue is as with that of the default, which makes it no other one.
        again = {**given, "RedriveAllowPolicy": json.dumps({"redrivePermission": permission})}
        made = await speak(scene.front, protocol, "CreateQueue", {"QueueName": "new", "Attributes": again})
        if made.status == 200:
            shown["redrivePermission"] = permission
    for (action, what), value in DEFAULTS.items():
        assert action != "CreateQueue" or str(shown[what]) == value, what
    with_sources(scene)
    for _ in range(2):
        started = await speak(scene.front, protocol, "StartMessageMoveTask", {"SourceArn": arn_of("dead")})
        scene.control.tasks[started.result["TaskHandle"]]["Status"] = "COMPLETED"
    for action, members, list_name in (
        ("ReceiveMessage", {"QueueUrl": scene.url}, "Messages"),
        ("ListMessageMoveTasks", {"SourceArn": arn_of("dead")}, "Results"),
    ):
        ((value,),) = ([value] for (of, _), value in DEFAULTS.items() if of == action)
        found = (await speak(scene.front, protocol, action, members)).result[list_name]
        assert len(found) == int(value), action


@both
async def test_policies_come_back_as_they_were_set(scene: Scene, protocol: str) -> None:
    scene.front.add_queue("dead")
    attributes = {"Policy": POLICY, "RedrivePolicy": REDRIVE, "RedriveAllowPolicy": '{"redrivePermission": "denyAll"}'}
    await speak(scene.front, protocol, "SetQueueAttributes", {"QueueUrl": QUEUE_URL, "Attributes": attributes})
    asked = {"QueueUrl": QUEUE_URL, "AttributeNames": list(attributes)}
    assert (await speak(scene.front, protocol, "GetQueueAttributes", asked)).result == {"Attributes": attributes}
    gone = {"QueueUrl": QUEUE_URL, "Attributes": dict.fromkeys(attributes, "")}
    await speak(scene.front, protocol, "SetQueueAttributes", gone)
    assert not (await speak(scene.front, protocol, "GetQueueAttributes", asked)).result.get("Attributes")


@both
async def test_permission_shows_in_the_policy_and_goes_again(scene: Scene, protocol: str) -> None:
    await ask(scene, protocol, GOOD["AddPermission"])
    asked = {"QueueUrl": QUEUE_URL, "AttributeNames": ["Policy"]}
    (policy,) = (await speak(scene.front, protocol, "GetQueueAttributes", asked)).result["Attributes"].values()
    assert f"arn:aws:iam::{OTHER_ACCOUNT}:root" in policy and '"Action":"SQS:SendMessage"' in policy
    removed = await speak(scene.front, protocol, "RemovePermission", {"QueueUrl": QUEUE_URL, "Label": "label"})
    assert removed.status == 200
    assert not (await speak(scene.front, protocol, "GetQueueAttributes", asked)).result.get("Attributes")


@both
async def test_tags_are_case_sensitive_and_go_one_by_one(scene: Scene, protocol: str) -> None:
    tags = {"key": "v", "KEY": "<&>", "ü ": ""}
    await speak(scene.front, protocol, "TagQueue", {"QueueUrl": QUEUE_URL, "Tags": tags})
    listed = await speak(scene.front, protocol, "ListQueueTags", {"QueueUrl": QUEUE_URL})
    assert listed.result == {"Tags": tags}
    await speak(scene.front, protocol, "UntagQueue", {"QueueUrl": QUEUE_URL, "TagKeys": ["key"]})
    listed = await speak(scene.front, protocol, "ListQueueTags", {"QueueUrl": QUEUE_URL})
    assert listed.result == {"Tags": {"KEY": "<&>", "ü ": ""}}


@both
async def test_pages_follow_each_other(scene: Scene, protocol: str) -> None:
    GOOD["ListDeadLetterSourceQueues"].before(scene)
    for action, member, names in (
        ("ListQueues", "QueueUrls", ["a", "b", "c", "dead", "line.fifo", "orders"]),
        ("ListDeadLetterSourceQueues", "queueUrls", ["a", "b", "c"]),
    ):
        params = {"MaxResults": 2} | ({"QueueUrl": url_of("dead")} if action != "ListQueues" else {})
        found: list[str] = []
        for _ in range(3):
            page = (await speak(scene.front, protocol, action, params)).result
            found += page[member]
            if "NextToken" not in page:
                break
            params["NextToken"] = page["NextToken"]
        assert found == [url_of(name) for name in names]


@both
async def test_duplicate_is_answered_as_its_original_and_given_once(scene: Scene, protocol: str) -> None:
    params = {"QueueUrl": FIFO_URL, "MessageGroupId": "k", "MessageDeduplicationId": "once"}
    first = await speak(scene.front, protocol, "SendMessage", {**params, "MessageBody": "a"})
    second = await speak(scene.front, protocol, "SendMessage", {**params, "MessageBody": "b"})
    for member in ("MessageId", "SequenceNumber"):
        assert first.result[member] == second.result[member]
    entries = [
        {"Id": f"{n}", "MessageBody": "c", "MessageGroupId": "k", "MessageDeduplicationId": dedup}
        for n, dedup in enumerate(("new", "once", "new"))
    ]
    batch = await speak(scene.front, protocol, "SendMessageBatch", {"QueueUrl": FIFO_URL, "Entries": entries})
    ids = [one["MessageId"] for one in batch.result["Successful"]]
    assert ids[0] == ids[2] != ids[1] == first.result["MessageId"]
    scene.front.clock.now_s += 301
    third = await speak(scene.front, protocol, "SendMessage", {**params, "MessageBody": "d"})
    assert third.result["MessageId"] != first.result["MessageId"]
    assert third.result["SequenceNumber"] > first.result["SequenceNumber"]
    asked = {"QueueUrl": FIFO_URL, "MaxNumberOfMessages": 10}
    received = (await speak(scene.front, protocol, "ReceiveMessage", asked)).result["Messages"]
    of_group = [one for one in received if one["Body"] in "abcd"]
    assert [one["Body"] for one in of_group] == ["a", "c", "d"]
    assert of_group[0]["MessageId"] == first.result["MessageId"]


@both
async def test_receive_attempt_again_gives_the_same_messages(scene: Scene, protocol: str) -> None:
    asked = {"QueueUrl": FIFO_URL, "MaxNumberOfMessages": 10, "ReceiveRequestAttemptId": "try"}
    first = (await speak(scene.front, protocol, "ReceiveMessage", asked)).result["Messages"]
    scene.front.clock.now_s += 5
    again = (await speak(scene.front, protocol, "ReceiveMessage", asked)).result["Messages"]
    assert first == again
    other = await speak(scene.front, protocol, "ReceiveMessage", {**asked, "ReceiveRequestAttemptId": "other"})
    assert not other.result.get("Messages")
