"""The OpenAPI description of the data routes, made from their tables. The control plane, which serves the description
of everything, has it as a file, for it knows no route of a front end: api/data_paths.json.

Write it again with: python -m tests.support.data_routes, then docs/openapi.json as api/schema.py says.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from frontend.rest.call import Route
from frontend.rest.counts import COUNTS_PATH, COUNTS_ROUTE
from frontend.rest.message_browser import BROWSER_ROUTES
from frontend.rest.messages import ROUTES
from frontend.rest.parked import PARKED_ROUTES
from frontend.rest.scheduled import SCHEDULED_ROUTES

_QUEUE = "/v1/queues/{name}"
_OF_ACCOUNT = "/v1/accounts/{account_id}/queues/{name}"
_ACCOUNT = {
    "name": "account_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[0-9]{12}$"},
}
_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
# What each does and answers, by the action of its route.
SUMMARIES = {
    "send": "Send a message or a batch: id and md5, or one outcome for each message.",
    "receive": "Receive messages; they are held until the visibility timeout is over.",
    "ack": "Delete messages by their receipts: done, failed.",
    "extend": "Hold messages for longer; 0 gives them back: done, failed.",
    "release": "Give messages back; the receive does not count unless count is true: done, failed.",
    "peek": "Look at messages without receiving them.",
    "find": "Look at messages that match a filter.",
    "browser_delete": "Delete a message that peek or find showed.",
    "browser_dead_letter": "Move a message to the dead-letter queue.",
    "browser_resend": "Send a message again, changed, and remove the old one.",
    "browser_purge": "Delete all messages.",
    "parked-groups": "Parked groups of a FIFO queue: groups, total, next_after.",
    "release-groups": "Hand parked groups out again: released, not_parked.",
    "list_scheduled": "Messages that wait for their time: messages, next_cursor.",
    "cancel_scheduled": "Cancel scheduled messages: done, failed.",
    "reschedule": "Give scheduled messages another time: done, failed.",
    "message_counts": "Counts of many queues: waiting, in_flight and others, or the error of each.",
}
# Of the routes that have no body.
_QUERIES = {
    "parked-groups": {"after": "string", "limit": "integer"},
    "list_scheduled": {"limit": "integer", "cursor": "string", "until_ms": "integer"},
}
# Bodies, none of whose members every call needs.
_RECEIPTS = {"receipts": ["AQ..."]}
_EXAMPLES: dict[str, dict[str, Any]] = {
    "send": {"body": "hello"},
    "receive": {"max_messages": 10, "wait_seconds": 20},
    "ack": _RECEIPTS,
    "extend": {**_RECEIPTS, "visibility_seconds": 60},
    "release": _RECEIPTS,
    "peek": {"limit": 10},
    "find": {"filter": {"body_contains": "order"}, "limit": 10},
    "release-groups": {"groups": ["customer-7"]},
    "cancel_scheduled": {"ids": ["..."]},
    "reschedule": {"ids": ["..."], "delay_ms": 60_000},
}


def described_routes() -> dict[str, Route]:
    """Every data route, by its path."""
    named = {COUNTS_PATH.decode(): COUNTS_ROUTE}
    for folder, routes in (
        ("messages", ROUTES | BROWSER_ROUTES),
        ("parked-groups", PARKED_ROUTES),
        ("scheduled", SCHEDULED_ROUTES),
    ):
        for name, route in routes.items():
            named["/".join([_QUEUE, folder, *([name.decode()] if name else [])])] = route
    for name, route in ROUTES.items():
        named["/".join([_OF_ACCOUNT, "messages", *([name.decode()] if name else [])])] = route
    return named


def description() -> dict[str, Any]:
    """`paths` and `schemas`, as OpenAPI has them."""
    routes = described_routes()
    types = {path: body_type(route) for path, route in routes.items() if route.method == "POST"}
    schemas, components = msgspec.json.schema_components(types.values(), ref_template="#/components/schemas/{name}")
    bodies = dict(zip(types, schemas, strict=True))
    paths = {path: {route.method.lower(): _operation(path, route, bodies.get(path))} for path, route in routes.items()}
    return {"paths": paths, "schemas": components}


def body_type(route: Route) -> Any:
    """What the decoder of the route reads."""
    decoder: Any = getattr(route.decode, "__self__")  # noqa: B009 - a bound method, which its type does not say
    return decoder.type


def _operation(path: str, route: Route, body: dict[str, Any] | None) -> dict[str, Any]:
    queries = _QUERIES.get(route.action, {})
    parameters = [{"name": name, "in": "query", "schema": {"type": kind}} for name, kind in queries.items()]
    operation: dict[str, Any] = {
        "operationId": f"data.{route.action.replace('-', '_')}{'_of_account' if '{account_id}' in path else ''}",
        "summary": SUMMARIES[route.action],
        "security": [{"bearerAuth": []}],
        "tags": ["data"],
        "parameters": [one for one in (_ACCOUNT, _NAME) if f"{{{one['name']}}}" in path] + parameters,
        "responses": {"200": {"description": SUMMARIES[route.action]}},
    }
    if body is not None:
        content = {"schema": body} | ({"example": _EXAMPLES[route.action]} if route.action in _EXAMPLES else {})
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    return operation


if __name__ == "__main__":
    described = json.dumps(description(), indent=1, sort_keys=True)
    with open("api/data_paths.json", "w") as file:
        file.write(described + "\n")
