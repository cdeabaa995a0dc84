"""The policy of a queue over REST: the Policy attribute of SQS as a member."""

from __future__ import annotations

import json
from typing import Any

from api.queues.models import Queue
from tests.support.control_plane import Caller
from tests.support.iam import caller as caller
from tests.support.iam import document, restricted

JOBS = "/v1/queues/jobs"


def opening(caller: Caller, effect: str = "Allow", principal: object = "*") -> dict[str, Any]:
    resource = f"arn:aws:sqs:us-east-1:{caller.account_id}:jobs"
    statement = {"Sid": "all", "Effect": effect, "Principal": principal, "Action": "sqs:*", "Resource": resource}
    return {"Version": "2012-10-17", "Statement": [statement]}


def stored(caller: Caller) -> Any:
    """The Policy attribute of SQS."""
    queue = Queue.objects.get(account_id=caller.account_id, name="jobs")
    return json.loads(queue.attributes.get("Policy", "null"))


def test_queue_is_made_with_a_policy_which_is_changed_and_taken_away(caller: Caller) -> None:
    shared = opening(caller, principal={"AWS": "111122223333"})
    made = caller.request("POST", "/v1/queues", {"name": "jobs", "policy": shared})
    assert (made.status_code, made.json()["policy"]) == (201, shared) and stored(caller) == shared
    wider = opening(caller)
    changed = caller.request("PATCH", JOBS, {"policy": wider}, **{"If-Match": made.headers["ETag"]})
    assert (changed.status_code, changed.json()["policy"]) == (200, wider) and stored(caller) == wider
    stale = caller.request("PATCH", JOBS, {"policy": shared}, **{"If-Match": made.headers["ETag"]})
    assert stale.status_code == 412 and stored(caller) == wider
    assert caller.request("PATCH", JOBS, {"delay_seconds": 3}).json()["policy"] == wider, "what is not given stays"
    assert caller.request("PATCH", JOBS, {"policy": None}).json()["policy"] is None and stored(caller) is None


def test_policy_that_cannot_be_understood_is_refused_with_its_place(caller: Caller) -> None:
    assert caller.request("POST", "/v1/queues", {"name": "jobs"}).json()["policy"] is None
    wrong = opening(caller, effect="allow")
    for method, path, more in (("PATCH", JOBS, {}), ("POST", "/v1/queues", {"name": "others"})):
        answer = caller.request(method, path, {**more, "policy": wrong})
        assert answer.status_code == 400 and "$.Statement[0].Effect" in answer.json()["detail"]
        assert caller.request(method, path, {**more, "policy": "{}"}).json()["errors"][0]["pointer"] == "/policy"
    assert stored(caller) is None


def test_policy_asks_for_the_right_to_set_attributes(caller: Caller) -> None:
    assert caller.request("POST", "/v1/queues", {"name": "jobs"}).status_code == 201
    may_not = restricted(caller, document("sqs:GetQueueAttributes"))
    assert may_not.request("PATCH", JOBS, {"policy": opening(caller)}).status_code == 403
    may = restricted(caller, document("sqs:SetQueueAttributes"))
    closed = opening(caller, principal={"AWS": "111122223333"})
    assert may.request("PATCH", JOBS, {"policy": closed}).status_code == 200
    lister = restricted(caller, document("sqs:ListQueues"))
    assert all("policy" not in queue for queue in lister.request("GET", "/v1/queues").json()["queues"])


def test_root_replaces_a_policy_that_denies_all(caller: Caller) -> None:
    closed = opening(caller, effect="Deny")
    assert caller.request("POST", "/v1/queues", {"name": "jobs", "policy": closed}).status_code == 201
    assert caller.request("GET", JOBS).status_code == 403, "it shows tags, which the policy denies to all"
    assert caller.request("PATCH", JOBS, {"policy": None}).status_code == 200
    assert caller.request("GET", JOBS).json()["policy"] is None


def test_change_of_nothing_is_refused(caller: Caller) -> None:
    assert caller.request("POST", "/v1/queues", {"name": "jobs"}).status_code == 201
    answer = caller.request("PATCH", JOBS, {})
    assert answer.status_code == 400 and "names no setting" in answer.json()["detail"]
