"""A refusal says what is wrong and what would be right: the members, the choices, what the path names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from api import limits
from api.operation_view import OperationView
from api.query_parameters import takes_no_body
from api.unknown_members import meant_member, unknown_members
from tests.api.test_isolation_matrix import routes
from tests.support.control_plane import Caller
from tests.support.iam import caller as caller

OPENAPI = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("VisibilityTimeout", "visibility_timeout_seconds"),
        ("visibility_timeout_s", "visibility_timeout_seconds"),
        ("retention", "retention_seconds"),
        ("Name", "name"),
        ("colour", None),
        ("", None),
        ("_", None),
        ("n" * (limits.MEMBER_CHARACTERS_TOLD_MAX + 1), None),
    ],
)
def test_known_member_that_was_meant(given: str, meant: str | None) -> None:
    assert meant_member(given, ("name", "retention_seconds", "visibility_timeout_seconds")) == meant


def test_flood_of_unknown_members_is_told_in_part() -> None:
    told = unknown_members([f"{'x' * 4_000}{number}" for number in range(5_000)], ("name",))
    assert len(told) <= limits.UNKNOWN_MEMBERS_TOLD_MAX
    assert max(map(len, told)) <= limits.MEMBER_CHARACTERS_TOLD_MAX


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer", "words"),
    [
        ("POST", "/v1/queues", {"Name": "jobs"}, "/Name", ["is name meant?"]),
        ("POST", "/v1/keys", {"name": "k", "expiry": "2126-01-01"}, "/expiry", ["is expires_at meant?", "scopes"]),
        ("POST", "/v1/keys", {"name": "k", "colour": "red"}, "/colour", ["the members are name, expires_at"]),
        ("POST", "/v1/keys", {"name": "k", "scopes": ["write"]}, "/scopes/0", ["must be one of send, receive"]),
        ("POST", "/v1/keys", {"name": "k", "scopes": "send"}, "/scopes", ["must be a JSON list"]),
        ("POST", "/v1/keys", {"name": "k", "policy": "{}"}, "/policy", ["must be a JSON object"]),
        ("POST", "/v1/keys", {"name": "k", "queues": ["a"]}, "/queues", ["give scopes, too"]),
        ("POST", "/v1/keys", ["k"], "", ["must be a JSON object"]),
        ("POST", "/v1/queues/jobs/pause", {"until": "noon"}, "/until", ["takes no members"]),
        ("POST", "/v1/queues/jobs/pause", ["now"], "", ["takes no body"]),
        ("DELETE", "/v1/queues/jobs", {"shred": True}, "/shred", ["takes no members"]),
    ],
)
def test_mistake_is_told_with_what_would_be_right(
    caller: Caller, method: str, path: str, body: Any, pointer: str, words: list[str]
) -> None:
    caller.request("POST", "/v1/queues", {"name": "jobs"})
    answer = caller.request(method, path, body)
    assert answer.status_code == 400, answer.json()
    (error,) = answer.json()["errors"]
    assert error["pointer"] == pointer
    for word in words:
        assert word in error["detail"]
        assert word in answer.json()["detail"], "also for clients that show this text alone"
    assert caller.request("GET", "/v1/queues/jobs").json()["state"] != "deleting"


def test_empty_body_is_no_body(caller: Caller) -> None:
    caller.request("POST", "/v1/queues", {"name": "jobs"})
    assert caller.request("DELETE", "/v1/queues/jobs", {}).status_code == 202


def test_several_mistakes_are_counted_in_the_text(caller: Caller) -> None:
    answer = caller.request("POST", "/v1/policies/simulate", {}).json()
    assert len(answer["errors"]) == 2 and answer["detail"].endswith(", and 1 more in `errors`.")
    answer = caller.request("POST", "/v1/keys", {"x" * 5_000: 1}).json()
    assert len(answer["detail"]) < 2 * limits.FIRST_ERROR_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/v1/keys/AKPSNOPE", "access_key_id 'AKPSNOPE'"),
        ("/v1/groups/g/policies/p", "group 'g' and policy_name 'p'"),
        ("/v1/webhooks/w", "name 'w'"),
        ("/v1/alarms/a", "name 'a'"),
    ],
)
def test_what_is_not_there_is_named(caller: Caller, path: str, named: str) -> None:
    answer = caller.request("DELETE", path)
    assert answer.status_code == 404 and f"There is nothing with {named} here" in answer.json()["detail"]


def test_member_that_is_named_twice_is_told(caller: Caller) -> None:
    for body in (b'{"name": "k", "queues": [], "name": "k"}', b'{"n\\ud800": 1, "n\\ud800": 1}'):
        answer = sent(caller, body, "application/json")
        assert answer.status_code == 400 and "names the member 'n" in answer.json()["detail"]


def test_body_of_another_kind_is_told_what_it_must_be(caller: Caller) -> None:
    answer = sent(caller, b"name=k", "application/x-www-form-urlencoded")
    assert answer.status_code == 415 and "Content-Type: application/json" in answer.json()["detail"]


def sent(caller: Caller, body: bytes, kind: str) -> Any:
    headers = caller.headers("POST", "/v1/keys", body)
    return Client().generic("POST", "/v1/keys", body, content_type=kind, headers=headers)


def test_what_a_body_names_and_is_not_there_is_told(caller: Caller) -> None:
    asked = {"access_key_id": "AKPSNOPE", "actions": ["sqs:SendMessage"], "resources": ["*"]}
    answer = caller.request("POST", "/v1/policies/simulate", asked)
    assert answer.status_code == 404 and answer.json()["detail"].startswith("What the request names is not here")


def test_operations_without_a_body_are_those_of_openapi() -> None:
    for path, view in routes():
        if not issubclass(view, OperationView):
            continue
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            call = documented(path).get(method.lower())
            if call is not None:
                one = view()
                one.request, one.kwargs = None, {}
                assert takes_no_body(one, method) == ("requestBody" not in call), call["operationId"]


def documented(path: str) -> dict[str, Any]:
    found: dict[str, Any] = OPENAPI["paths"].get(re.sub(r"<\w+:(\w+)>", r"{\1}", path), {})
    return found
