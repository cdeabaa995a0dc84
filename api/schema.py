"""The OpenAPI description of the REST interface: generated from the views, committed as docs/openapi.json. The data
routes, which front ends answer, come from data_paths.json (tests/support/data_routes.py).

Write it again with: python manage.py spectacular --format openapi-json --file docs/openapi.json
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import msgspec
from django.http import HttpRequest, HttpResponse
from drf_spectacular.generators import SchemaGenerator

from api.problems import CONTENT_TYPE

_PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "An RFC 9457 problem. `code` is stable.",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri", "description": "`urn:penstock:problem:` and the code."},
        "title": {"type": "string", "description": "The code in words."},
        "status": {"type": "integer", "description": "That of the answer."},
        "code": {"type": "string", "description": "For programs.", "examples": ["queue-does-not-exist"]},
        "detail": {"type": "string", "description": "For people: what happened, and what to do."},
        "request_id": {"type": "string", "description": "For the operator, who finds the request in the logs by it."},
        "errors": {
            "type": "array",
            "description": "What is wrong with members of the request.",
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {"type": "string", "description": "The member, as RFC 6901 names it."},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}


# Members that a list has of a key which its caller may not read by itself.
_LISTED_MEMBERS = {"ListedKey": ["access_key_id", "name"], "ListedEncryptionKey": ["arn", "id", "name"]}


def relax_lists(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Postprocessing hook: what is listed may lack members that one that is read has."""
    for name, members in _LISTED_MEMBERS.items():
        result["components"]["schemas"][name]["required"] = members
    return result


def add_data_paths(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Postprocessing hook: the calls that front ends answer themselves."""
    described = msgspec.json.decode((Path(__file__).with_name("data_paths.json")).read_bytes())
    for part, added in ((result["paths"], "paths"), (result["components"].setdefault("schemas", {}), "schemas")):
        assert not part.keys() & described[added].keys(), "the management interface has one of that name"
        part.update(described[added])
    return result


def add_problems(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Postprocessing hook: every call may answer with a problem."""
    result["components"].setdefault("schemas", {})["Problem"] = _PROBLEM_SCHEMA
    reference = {"schema": {"$ref": "#/components/schemas/Problem"}}
    for item in result["paths"].values():
        for method, operation in item.items():
            if method == "get" and any(one["name"] == "If-None-Match" for one in operation.get("parameters", ())):
                operation["responses"]["304"] = {"description": "Nothing has changed."}
            failed = {"description": "The call failed.", "content": {CONTENT_TYPE: reference}}
            operation["responses"]["default"] = failed
    return result


@functools.cache
def openapi_document_bytes() -> bytes:
    return msgspec.json.encode(SchemaGenerator().get_schema(request=None, public=True))


def openapi_document(request: HttpRequest) -> HttpResponse:
    return HttpResponse(openapi_document_bytes(), content_type="application/vnd.oai.openapi+json")
