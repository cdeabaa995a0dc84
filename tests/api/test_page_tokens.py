"""Tokens of pages, over every listing of the route tables: good for the list that they were made for, and no other."""

from __future__ import annotations

import base64
import itertools
import json
import uuid
from typing import Any
from urllib.parse import quote

import pytest

from api.limits import PAGE_TOKEN_CHARACTERS_MAX
from api.pages import PagedList
from tests.api.test_isolation_matrix import Scene, operations
from tests.api.test_isolation_matrix import scene as scene
from tests.api.test_operation_headers import documented
from tests.support.control_plane import Caller, new_caller

pytestmark = pytest.mark.django_db(transaction=True)
# What a last item may be: a name, a number, an id, a time. Each list takes one of them.
LASTS = ("a", "7", str(uuid.UUID(int=7)), "2026-01-01T00:00:00+00:00")


def listings() -> dict[str, tuple[str, dict[str, Any]]]:
    """By path as OpenAPI has it: the path of the route table, and the call."""
    patterns = {operation: pattern for operation, _, pattern in operations()}
    return {
        path: (patterns.get(call["operationId"], path), call)
        for _, path, call in documented()
        if "page_token" in parameters(call)
    }


def parameters(call: dict[str, Any]) -> set[str]:
    return {one["name"] for one in call.get("parameters", ()) if one["in"] == "query"}


def with_token(path: str, token: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}page_token={quote(token)}"


def refused(answer: Any) -> bool:
    return answer.status_code == 400 and [one["pointer"] for one in answer.json()["errors"]] == ["/page_token"]


def changed(token: str) -> list[str]:
    """By one bit of each part, cut, lengthened, and what others would make."""
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    bits = [raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :] for at in (0, 11, 12, len(raw) - 1)]
    made = [base64.urlsafe_b64encode(one).decode().rstrip("=") for one in (*bits, raw[:-1], raw + b"\0", b"a", b"7")]
    return [*made, f"{token}=", "x", "%", "é", "A" * (PAGE_TOKEN_CHARACTERS_MAX + 1)]


def test_listings_are_found_in_the_route_tables() -> None:
    answering = {call["operationId"] for _, _, call in documented() if "next_page_token" in json.dumps(answer_of(call))}
    assert {call["operationId"] for _, call in listings().values()} == answering
    assert len(answering) >= 13
    of_people = {path for path, (pattern, _) in listings().items() if "{" in pattern}
    assert of_people == {"/v1/accounts/{account_id}/members"}, "tests/api/people/test_members.py has these"


def answer_of(call: dict[str, Any]) -> dict[str, Any]:
    from tests.api.test_operation_headers import OPENAPI

    schema = call["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").split("/")[-1]
    found: dict[str, Any] = OPENAPI["components"]["schemas"].get(name, {}).get("properties", {})
    return found


def test_token_goes_on_with_its_own_list_alone(scene: Scene) -> None:
    """Another account, another listing, other filters, and a change are refused by name, before rows are looked for."""
    owner, other = scene.owner, new_caller("neighbour")
    paths = {scene.path(pattern): call for pattern, call in listings().values() if "{" not in pattern}
    assert len(paths) >= 12
    for path, call in paths.items():
        if path == "/v1/billing/usage":
            path += "?period=2026-01"
        found = [last for last in LASTS if goes_on(owner, path, last)]
        assert found, f"{path}: what is the last item of a page?"
        token = token_for(owner, path, found[0])
        assert not any(refused(owner.request("GET", with_token(f"{one}page_size=1", token))) for one in sizes(path))
        for bad in changed(token):
            assert refused(owner.request("GET", with_token(path, bad))), (path, bad)
        assert refused(owner.request("GET", with_token(path, token_for(other, path, found[0])))), path
        for elsewhere in paths:
            if elsewhere != path.partition("?")[0]:
                assert refused(owner.request("GET", with_token(path, token_for(owner, elsewhere, found[0])))), path
        for name in parameters(call) - {"page_token", "page_size", "period"}:
            filtered = f"{path}{'&' if '?' in path else '?'}{name}=a"
            assert refused(owner.request("GET", with_token(filtered, token))), filtered


def sizes(path: str) -> list[str]:
    return [path + ("&" if "?" in path else "?")]


def goes_on(caller: Caller, path: str, last: str) -> bool:
    try:
        return bool(caller.request("GET", with_token(path, token_for(caller, path, last))).status_code in (200, 404))
    except ValueError:
        return False  # it is of another kind: our own tokens are of the right one


def token_for(caller: Caller, path: str, last: str) -> str:
    path, _, query = path.partition("?")
    name, _, value = query.partition("=")
    return PagedList(caller.account_id, path, (name, "1", value) if query else ()).token(last)


def test_token_says_nothing_to_who_holds_it(scene: Scene) -> None:
    """Deleted queues go by a number that counts over all accounts."""
    for _ in range(2):
        listed = scene.owner.request("GET", "/v1/queues?page_size=1").json()
        raw = base64.urlsafe_b64decode(listed["next_page_token"] + "==")
        assert b"orders" not in raw and b"source" not in raw and len(raw) == 12 + len("orders") + 16
    tokens = {PagedList("1" * 12, "/v1/queues").token("a") for _ in range(50)}
    assert len(tokens) == 50, "equal items show in no way"


def test_filters_are_told_apart_wherever_they_are_cut() -> None:
    lists = [PagedList("1", "l", filters) for filters in (("ab",), ("a", "b"), ("", "ab"), ("ab", ""), ())]
    lists += [PagedList("1l", "", ()), PagedList("", "1l", ())]
    for one, another in itertools.permutations(lists, 2):
        with pytest.raises(ValueError):
            another.after(one.token("x"))
    assert all(one.after(one.token("ü")) == "ü" for one in lists)


def test_tokens_of_sqs_lists_are_of_their_list(scene: Scene) -> None:
    owner, other = scene.owner, new_caller("neighbour")
    for name in ("a1", "a2", "b1", "b2"):
        assert other.request("POST", "/v1/queues", {"name": name}).status_code == 201
    for name in ("source2", "source3"):
        dead = {"name": name, "dead_letter_queue": {"name": "orders", "max_receives": 3}}
        assert owner.request("POST", "/v1/queues", dead).status_code == 201
    asked: dict[str, dict[str, Any]] = {
        "ListQueues": {"MaxResults": 1},
        "ListDeadLetterSourceQueues": {"QueueName": "orders", "MaxResults": 1},
    }
    tokens = {action: owner.sqs(action, **params).json()["NextToken"] for action, params in asked.items()}
    theirs = other.sqs("ListQueues", MaxResults=1).json()["NextToken"]
    for action, params in asked.items():
        assert owner.sqs(action, **params, NextToken=tokens[action]).status_code == 200
        wrong = [*changed(tokens[action]), theirs, *(token for of, token in tokens.items() if of != action), 7]
        for token in wrong:
            answer = owner.sqs(action, **params, NextToken=token)
            assert (answer.status_code, answer.json()["code"]) == (400, "InvalidParameterValueException"), token
    filtered = owner.sqs("ListQueues", MaxResults=1, QueueNamePrefix="s", NextToken=tokens["ListQueues"])
    assert filtered.status_code == 400
    answer = owner.sqs("ListDeadLetterSourceQueues", QueueName="others", MaxResults=1, NextToken=theirs)
    assert answer.status_code == 400
