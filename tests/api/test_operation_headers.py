"""Headers of management operations, over all routes: those that take no key are a list, and OpenAPI says the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from api.idempotency.outcomes import SECRET_MEMBERS
from api.operation_view import Repetition, takes_etags, takes_key
from api.query_parameters import schema_of
from tests.api.test_isolation_matrix import Scene, operations, routes

OPENAPI = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
# Operations of POST and PATCH that take none, and why.
READING = {"policies.simulate", "definitions.compare"}
OF_CREDENTIALS = {
    "people.sign_up", "people.confirm", "people.ask_for_reset", "people.reset_password", "people.change_password",
    "second_factor.begin", "second_factor.confirm", "second_factor.renew_recovery_codes", "session.begin",
    "session.answer_challenge", "session.authenticate",
}  # fmt: skip
_SHOWN_ONCE = re.compile(r"secret|token|codes|password")


def documented() -> list[tuple[str, str, dict[str, Any]]]:
    """(method, path, call) of what the control plane answers."""
    of_control = {re.sub(r"<\w+:(\w+)>", r"{\1}", path) for path, _ in routes()}
    return [(m, path, call) for path in of_control for m, call in OPENAPI["paths"][path].items()]


def header(call: dict[str, Any], name: str) -> bool:
    return any(one["in"] == "header" and one["name"] == name for one in call.get("parameters", ()))


def test_every_post_and_patch_takes_a_key_but_for_those_of_the_lists() -> None:
    taking = {call["operationId"] for _, _, call in documented() if header(call, "Idempotency-Key")}
    changing = {call["operationId"] for method, _, call in documented() if method in ("post", "patch")}
    assert changing - taking == READING | OF_CREDENTIALS
    assert taking <= changing


def test_answers_that_are_repeated_name_secrets_by_known_members() -> None:
    """A secret under another name would be kept as long as any answer."""
    for _, path, call in documented():
        if header(call, "Idempotency-Key"):
            for status, answer in call["responses"].items():
                for content in answer.get("content", {}).values() if status.startswith("2") else ():
                    shown = {name for name in members_of(content["schema"]) if _SHOWN_ONCE.search(name)}
                    assert shown <= SECRET_MEMBERS, f"{path}: {shown}"


def members_of(schema: dict[str, Any]) -> set[str]:
    """Of a schema that is named, or of each one that it may be."""
    if "$ref" in schema:
        schema = OPENAPI["components"]["schemas"][schema["$ref"].split("/")[-1]]
    if "oneOf" in schema:
        return set().union(*map(members_of, schema["oneOf"]))
    return set(schema["properties"])


def test_views_say_what_openapi_says() -> None:
    for path, view in routes():
        for method, call in OPENAPI["paths"][re.sub(r"<\w+:(\w+)>", r"{\1}", path)].items():
            assert header(call, "Idempotency-Key") == takes_key(view, method.upper()), f"{method} {path}"
            assert isinstance(view.repetition, Repetition)


@pytest.mark.django_db(transaction=True)
def test_every_operation_that_takes_a_key_looks_at_it(storage: object) -> None:
    """A key that is none is refused before the operation looks at its body, whatever stands in the path."""
    scene = Scene()
    owner = scene.owner
    looked = set()
    for operation, method, path in operations():
        if method in ("POST", "PATCH") and operation not in READING:
            answer = owner.request(method, scene.path(path), {}, **{"Idempotency-Key": "bare"})
            assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/Idempotency-Key"), operation
            looked.add(operation)
    assert len(looked) > 20


# GET of one whose PUT, PATCH or DELETE is no change of what GET shows: nothing to be overwritten.
WITHOUT_PRECONDITION = {"moves.cancel", "session.end"}


def test_every_change_of_what_can_be_read_by_itself_takes_a_precondition() -> None:
    """A resource with GET and a change at one address; those that answer lists, files and counts are none."""
    for _, path, _ in documented():
        calls = OPENAPI["paths"][path]
        if "get" in calls and not calls["get"]["operationId"].endswith((".list", ".requests")):
            for method in ("put", "patch", "delete"):
                call = calls.get(method)
                if call is not None and call["operationId"] not in WITHOUT_PRECONDITION:
                    assert header(call, "If-Match"), call["operationId"]
                    assert header(calls["get"], "If-None-Match"), calls["get"]["operationId"]
                    assert "304" in calls["get"]["responses"]


def test_openapi_says_of_etags_what_views_do() -> None:
    for path, view in routes():
        for method, call in OPENAPI["paths"][re.sub(r"<\w+:(\w+)>", r"{\1}", path)].items():
            name = "If-None-Match" if method == "get" else "If-Match"
            assert header(call, name) == takes_etags(view, method.upper()), f"{method} {path}"
            shown = any("ETag" in answer.get("headers", {}) for answer in call["responses"].values())
            assert shown or not header(call, name) or method == "delete", f"{method} {path}"


def test_every_delete_says_its_status() -> None:
    """Where a handler says none, OpenAPI has 204 without a body, also where a body is answered."""
    for path, view in routes():
        if hasattr(view, "delete"):
            one = view()
            one.request, one.kwargs = None, {}
            assert isinstance(schema_of(one, "DELETE").get_response_serializers(), dict), (
                f"{path}: responses={{200: ...}}"
            )
