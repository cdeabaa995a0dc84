"""What a list shows: names to who may list, and the rest to who may read each."""

from __future__ import annotations

import json

import pytest

from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.iam.actions import keys, policies
from tests.support.control_plane import Caller
from tests.support.iam import caller as caller
from tests.support.iam import document

pytestmark = pytest.mark.django_db(transaction=True)


def test_right_to_list_gives_names_and_not_what_reading_one_asks_for(caller: Caller) -> None:
    """Settings and tags of queues, and texts of policies, are for those who may read them one by one."""
    for name in ("open", "closed"):
        made = caller.request("POST", "/v1/queues", {"name": name, "tags": {"secret": "of the shop"}})
        assert made.status_code == 201
        policies.create_policy(OPERATOR, caller.account_id, name, json.dumps(document("sqs:SendMessage")))
    dead = {"dead_letter_queue": {"name": "open", "max_receives": 3}}
    assert caller.request("PATCH", "/v1/queues/closed", dead).status_code == 200
    read = ["sqs:GetQueueAttributes", "sqs:ListQueueTags", "penstock:GetPolicy"]
    statements = [
        {"Effect": "Allow", "Action": ["sqs:List*", "penstock:ListPolicies"], "Resource": "*"},
        {"Effect": "Allow", "Action": read, "Resource": ["arn:aws:sqs:*:*:open", "arn:aws:penstock:*:*:policy/open"]},
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    made_key = keys.make_key(OPERATOR, caller.account_id, keys.KeySpec("lister", policy=policy)).key
    lister = Caller(caller.account_id, made_key.access_key_id)
    assert lister.request("GET", "/v1/queues/closed").status_code == 403
    closed, opened, orders = lister.request("GET", "/v1/queues").json()["queues"]
    assert closed == {"name": "closed", "fifo": False, "arn": f"arn:aws:sqs:us-east-1:{caller.account_id}:closed"}
    assert opened == caller.request("GET", "/v1/queues/open").json() and set(orders) == set(closed)
    assert lister.request("GET", "/v1/queues/open/sources").json()["queues"] == [closed]
    closed, opened = lister.request("GET", "/v1/policies").json()["policies"]
    assert (closed["name"], "policy" in closed, set(opened)) == ("closed", False, {*closed, "policy"})
    whole = caller.request("GET", "/v1/queues").json()["queues"]
    assert [one["tags"] for one in whole] == [{"secret": "of the shop"}] * 2 + [{"env": "test"}]
    refused = AuditEntry.objects.filter(action="refused.sqs:GetQueueAttributes")
    assert refused.count() == 1, "what is left out of a list is no refusal"


def test_keys_that_may_not_be_read_one_by_one_are_listed_by_name(caller: Caller) -> None:
    """Also where a policy denies single ones."""
    hidden, shown = (
        keys.make_key(OPERATOR, caller.account_id, keys.KeySpec(name, policy=json.dumps(document("sqs:SendMessage"))))
        for name in ("hidden", "shown")
    )
    made = [caller.request("POST", "/v1/encryption-keys", {"name": name}).json() for name in ("alpha", "beta")]
    statements = [
        {"Effect": "Allow", "Action": ["penstock:*Key", "penstock:*Keys"], "Resource": "*"},
        {
            "Effect": "Deny",
            "Action": "penstock:Get*",
            "Resource": [
                f"arn:aws:penstock:*:*:key/{hidden.key.access_key_id}",
                f"arn:aws:penstock:*:*:encryption-key/{made[0]['id']}",
            ],
        },
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    lister = Caller(
        caller.account_id,
        keys.make_key(OPERATOR, caller.account_id, keys.KeySpec("lister", policy=policy)).key.access_key_id,
    )
    listed = {one["name"]: one for one in lister.request("GET", "/v1/keys").json()["keys"]}
    assert listed["hidden"] == {"access_key_id": hidden.key.access_key_id, "name": "hidden"}
    assert listed["shown"] == lister.request("GET", f"/v1/keys/{shown.key.access_key_id}").json()
    alpha, beta = lister.request("GET", "/v1/encryption-keys").json()["encryption_keys"]
    assert alpha == {name: made[0][name] for name in ("id", "name", "arn")}
    assert beta == lister.request("GET", f"/v1/encryption-keys/{made[1]['id']}").json()
