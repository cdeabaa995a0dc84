"""Every action of botocore's model over both protocols: successes, errors, limits. `cases.py` says what is asked."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.limits.gcra import RateLimits, RateTree
from tests.frontend.compat.cases import (
    CASES,
    LIMITS,
    MISSING,
    NOT_FOUND,
    POLICY,
    REDRIVE,
    SIMPLE,
    TEXT,
    UNSUPPORTED,
    Case,
    Limit,
    Scene,
    url_of,
)
from tests.frontend.compat.control import ControlPlaneInMemory
from tests.frontend.compat.document import NOT_APPLICABLE, QUERY_CODES, STANDARD
from tests.frontend.compat.query_model import json_model
from tests.frontend.compat.wire import PROTOCOLS, Answered, read_answer, speak
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, QUEUE_URL, Installation

OPERATIONS: dict[str, Any] = json_model()["operations"]
SERVED = list(OPERATIONS)
MEMBERS = {name: json_model()["shapes"][one["input"]["shape"]] for name, one in OPERATIONS.items()}
WITH_QUEUE = [name for name in SERVED if "QueueUrl" in MEMBERS[name]["members"]]
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


@both
@pytest.mark.parametrize("limit", LIMITS, ids=[f"{limit.action}: {limit.what}" for limit in LIMITS])
async def test_limit_holds_to_the_unit(scene: Scene, protocol: str, limit: Limit) -> None:
    asked = {limit.low: "", limit.high: "", limit.high - 1: "", limit.low + 1: "", limit.high + 1: limit.code}
    if limit.has_below:
        asked[limit.low - 1] = limit.below or limit.code
    for size, code in asked.items():
        fresh = await set_scene(Installation())
        limit.before(fresh)
        answered = await speak(fresh.front, protocol, limit.action, limit.params(fresh, size))
        status = 200 if not code else limit.status if code == limit.code else 400
        assert (answered.status, answered.code) == (status, code), (size, answered)
        assert not answered.result.get("Failed"), (size, answered)


# --- what holds for every action ---


@both
@pytest.mark.parametrize("action", SERVED)
async def test_required_parameter_must_be_there(scene: Scene, protocol: str, action: str) -> None:
    for name in MEMBERS[action].get("required", ()):
        answered = await ask(scene, protocol, GOOD[action], **{name: None})
        expected = SIMPLE + "EmptyBatchRequest" if name == "Entries" else MISSING
        assert (answered.status, answered.code) == (400, expected), (name, answered)


@both
@pytest.mark.parametrize("action", WITH_QUEUE)
async def test_queue_must_be_mine_and_there(scene: Scene, protocol: str, action: str) -> None:
    foreign = (url_of("secret", OTHER_ACCOUNT), url_of("orders", OTHER_ACCOUNT), url_of("line.fifo", OTHER_ACCOUNT))
    for url in (url_of("unknown"), url_of("unknown.fifo"), *foreign):
        answered = await ask(scene, protocol, GOOD[action], QueueUrl=url)
        assert (answered.status, answered.code) == (400, NOT_FOUND), (url, answered)
        assert answered.message.endswith("for this wsdl version." if protocol == "query" else "does not exist.")
    for url in ("orders", f"http://{HOST}/{ACCOUNT}/", f"ftp://{HOST}/{ACCOUNT}/orders", "http://" + "x" * 1000):
        answered = await ask(scene, protocol, GOOD[action], QueueUrl=url)
        assert (answered.status, answered.code) == (400, "InvalidAddress"), (url, answered)


@both
@pytest.mark.parametrize("action", SERVED)
async def test_rate_over_the_limit_is_throttled(protocol: str, action: str) -> None:
    scene = await set_scene(Installation(rates=(rates := RateTree(RateLimits(1e-3, 1.0, 1.0, 7_500.0)))))
    assert rates.admit((ACCOUNT,), scene.front.clock.now_s) == 0.0  # the seventh and last: six made the scene
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
    headers = {"host": HOST, "content-type": "application/x-www-form-urlencoded"}
    if protocol == "json":
        headers |= {"content-type": "application/x-amz-json-1.0", "x-amz-target": f"AmazonSQS.{action}"}
    reply = await scene.front.call("POST", "/", headers, f"Action={action}".encode())
    unsigned = read_answer(protocol, action, reply)
    assert (unsigned.status, unsigned.code) == (403, "MissingAuthenticationToken")
    assert len(scene.front.control_calls) == calls


@pytest.mark.parametrize("action", OPERATIONS)
def test_every_error_of_the_model_is_caused_or_cannot_be(action: str) -> None:
    caused = {case.code for case in CASES if case.action == action} | {
        code for limit in LIMITS if limit.action == action for code in (limit.code, limit.below)
    }
    for error in OPERATIONS[action]["errors"]:
        name = error["shape"]
        excused = name in STANDARD or name in NOT_APPLICABLE
        assert excused or QUERY_CODES.get(name, name) in caused, f"{action} is never seen to end in {name}"
    assert action in GOOD


def test_nothing_but_attribute_lists_is_unsupported() -> None:
    assert {(case.action, case.what) for case in CASES if case.code == UNSUPPORTED} == {
        ("SendMessage", "attribute list")
    }


# --- what one call leaves for the next ---


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
    again = (await speak(scene.front, protocol, "ReceiveMessage", asked)).result["Messages"]
    assert first == again
    other = await speak(scene.front, protocol, "ReceiveMessage", {**asked, "ReceiveRequestAttemptId": "other"})
    assert not other.result.get("Messages")
