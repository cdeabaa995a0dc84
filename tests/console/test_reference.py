"""The reference of the REST API at /v1/docs: every operation stands in it, and nobody needs a key for it."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.api_reference import Entry, build_reference, reference
from frontend.authz.actions import MANAGEMENT_OPERATIONS

DOCUMENT = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
OPERATIONS = [
    (path, method, operation) for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
]
ANSWER_OF_NOTHING = {"responses": {"200": {"description": ""}}, "tags": ["things"]}


def page(path: str = "/v1/docs", **headers: str) -> Any:
    return Client().get(path, headers=headers)


def entry_of(operation_id: str) -> Entry:
    entries = [one for tag in reference().tags for one in tag.entries]
    return next(one for one in entries if one.operation.operation_id == operation_id)


@pytest.fixture(scope="module")
def text() -> str:
    return str(page().content.decode())


def members(schema: dict[str, Any], schemas: dict[str, Any], seen: tuple[str, ...] = ()) -> set[str]:
    """The names of all members of a schema, found in another way than the page finds them."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if name:
        return set() if name in seen else members(schemas[name], schemas, (*seen, name))
    found = set(schema.get("properties", {}))
    below = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    below += [one for word in ("oneOf", "anyOf", "allOf") for one in schema.get(word, ())]
    return found.union(*(members(one, schemas, seen) for one in below if isinstance(one, dict)))


def test_every_operation_of_the_document_stands_on_the_page(text: str) -> None:
    for path, method, operation in OPERATIONS:
        assert text.count(f'id="{operation["operationId"]}"') == 1, operation["operationId"]
        assert f'<span class="method">{method.upper()}</span><code class="path">{path}</code>' in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids)), "an anchor leads to one place"


@pytest.mark.parametrize("operation", [one for _, _, one in OPERATIONS], ids=lambda one: str(one["operationId"]))
def test_operation_shows_its_parameters_members_and_answers(operation: dict[str, Any]) -> None:
    found = entry_of(operation["operationId"])
    schemas = DOCUMENT["components"]["schemas"]
    shown = found.html
    for parameter in operation.get("parameters", ()):
        assert f"<code>{parameter['name']}</code>" in shown
    contents = [operation.get("requestBody", {}).get("content", {})]
    contents += [one.get("content", {}) for status, one in operation["responses"].items() if status != "default"]
    for content in contents:
        for described in content.values():
            names = {name.rpartition(".")[2] for name in re.findall(r"<code>([^<]+)</code>", shown)}
            assert members(described.get("schema", {}), schemas) <= names
    for status in operation["responses"]:
        assert status == "default" or f"Answer {status}" in shown
    for demand in MANAGEMENT_OPERATIONS.get(operation["operationId"], ()):
        assert f"<code>{demand.action}</code>" in shown
    assert ("Authorization: Bearer" in found.operation.curl) == (operation.get("security") == [{"bearerAuth": []}])
    assert 'href="/v1/docs#errors"' in shown


def test_bounds_types_and_required_members_are_told() -> None:
    fields = {field.name: field for field in entry_of("queues.create").operation.body.fields}  # type: ignore[union-attr]
    assert fields["name"].is_required and not fields["delay_seconds"].is_required
    assert (fields["delay_seconds"].kind, fields["delay_seconds"].rules) == ("integer", ["0 to 900"])
    assert fields["dead_letter_queue"].kind == "object or null"
    assert fields["retry_policy.kind"].rules == ["one of fixed, linear, exponential"]
    assert fields["retry_policy.max_ms"].rules == ["1 to 43,200,000", "43,200,000 if not given"]
    send = {field.name: field.kind for field in entry_of("data.send").operation.body.fields}  # type: ignore[union-attr]
    assert send["messages"] == "array of objects or null" and "messages[].body" in send


def test_curl_line_is_what_a_shell_takes() -> None:
    curl = entry_of("data.send").operation.curl
    assert shlex.split(curl.replace("\\\n", "")) == [
        "curl", "-X", "POST", "-H", "Authorization: Bearer pstk_...", "-H", "Content-Type: application/json",
        "-d", '{"body": "hello"}', "http://127.0.0.1:9324/v1/queues/NAME/messages",
    ]  # fmt: skip


def test_schema_that_holds_itself_ends() -> None:
    tree = {
        "type": "object",
        "properties": {"below": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}},
    }
    operation = {**ANSWER_OF_NOTHING, "operationId": "things.put"}
    operation["requestBody"] = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Tree"}}}}
    schemas = {"Tree": tree, "Problem": {"type": "object"}}
    document = {"info": {"title": "T"}, "paths": {"/v1/t": {"put": operation}}, "components": {"schemas": schemas}}
    (tag,) = build_reference(document, "http://here").tags
    body = tag.entries[0].operation.body
    assert body is not None and [field.name for field in body.fields] == ["below"]


def test_text_of_the_document_is_shown_and_never_run() -> None:
    operation = {**ANSWER_OF_NOTHING, "operationId": "things.get", "description": "<script>`<b>`</script>"}
    document = {
        "info": {"title": "T"},
        "paths": {"/v1/t": {"get": operation}},
        "components": {"schemas": {"Problem": {"type": "object"}}},
    }
    (tag,) = build_reference(document, "http://here").tags
    assert "<script" not in tag.entries[0].html and "<b>" not in tag.entries[0].html
    assert "<code>&lt;b&gt;</code>" in tag.entries[0].html


def test_page_loads_nothing_from_elsewhere_and_stands_in_no_frame(text: str) -> None:
    answer = page()
    policy = answer["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert (answer["X-Frame-Options"], answer["X-Content-Type-Options"]) == ("DENY", "nosniff")
    assert not answer.cookies and "Set-Cookie" not in answer
    assert not re.search(r'(?:src|href|action)="(?:https?:)?//', text)


def test_page_is_kept_until_it_changes() -> None:
    first = page(**{"Accept-Encoding": "gzip"})
    assert first["Content-Encoding"] == "gzip" and gzip.decompress(first.content) == page().content
    assert (first["Cache-Control"], first["Vary"]) == ("no-cache", "Accept-Encoding")
    again = page(**{"If-None-Match": first["ETag"]})
    assert again.status_code == 304 and not again.content and "Content-Security-Policy" in again
    assert page(**{"If-None-Match": 'W/"other"'}).status_code == 200


@pytest.mark.parametrize("method", ["post", "put", "delete"])
def test_page_is_only_read(method: str) -> None:
    answer = getattr(Client(), method)("/v1/docs")
    assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("asked", "found"),
    [("webhooks.put", {"webhooks.put"}), ("SEND again", {"data.browser_resend"}), ("zzz", set())],
)
def test_search_works_without_a_script(asked: str, found: set[str]) -> None:
    answer = page(f"/v1/docs?q={asked}")
    shown = set(re.findall(r'class="inside" id="([^"]+)"', answer.content.decode()))
    assert found <= shown and len(shown) < 10 and bool(shown) == bool(found)
    assert ("No operation has these words" in answer.content.decode()) and answer["Cache-Control"] == "no-store"


def test_what_is_searched_for_is_shown_and_never_run() -> None:
    shown = page("/v1/docs?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").content.decode()
    assert "<script>alert" not in shown and '"><script>' in unescape(shown)
