"""The reference of the REST API, as its page shows it: made from the OpenAPI document, with every schema resolved."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from django.template.loader import render_to_string
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from api.schema import openapi_document_bytes
from api.settings.environment import environment
from frontend.authz.actions import MANAGEMENT_OPERATIONS, Target, When

_TITLES = {"data": "Messages", "session": "Sign-in"}
_CREDENTIALS = {
    "bearerAuth": ("An API key", "Authorization: Bearer pstk_..."),
    "sessionToken": ("The session of a person", "Session-Token: TOKEN"),
}
_PLACES = {"path": "path", "query": "query", "header": "header"}
_EXAMPLES_BY_FORMAT = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "uri": "https://example.com/",
    "email": "person@example.com",
    "uuid": "0190d0c8-0000-7000-8000-000000000000",
}
_COUNTED = ("string", "integer", "number", "object", "boolean")
_CODE = re.compile(r"`([^`]+)`")

Schema = dict[str, Any]


class ReferenceField(NamedTuple):
    """A parameter, a header, or a member of a body: `messages[].body`."""

    name: str
    kind: str
    is_required: bool
    rules: list[str]
    text: SafeString
    place: str = ""


class Body(NamedTuple):
    kind: str
    types: list[str]
    fields: list[ReferenceField]


class Answer(NamedTuple):
    status: str
    text: SafeString
    headers: list[ReferenceField]
    body: Body | None


class Operation(NamedTuple):
    operation_id: str
    method: str
    path: str
    # The first sentence, for the line that is always in sight, and all of them.
    title: SafeString
    text: SafeString
    credential: str
    # Of policies, each with whether every request needs it.
    actions: list[tuple[str, bool]]
    parameters: list[ReferenceField]
    body: Body | None
    answers: list[Answer]
    curl: str


class Entry(NamedTuple):
    """An operation as the page shows it. `words` is what the search looks at."""

    operation: Operation
    words: str
    html: SafeString


class Tag(NamedTuple):
    name: str
    title: str
    entries: list[Entry]


class Reference(NamedTuple):
    title: str
    tags: list[Tag]
    problem: list[ReferenceField]

    def found(self, asked: str) -> list[Tag]:
        """What has every word that is asked for."""
        words = asked.lower().split()
        kept = [(tag, [one for one in tag.entries if all(word in one.words for word in words)]) for tag in self.tags]
        return [tag._replace(entries=entries) for tag, entries in kept if entries]


@functools.cache
def reference() -> Reference:
    return build_reference(msgspec.json.decode(openapi_document_bytes()), environment().endpoint)


def build_reference(document: dict[str, Any], endpoint: str) -> Reference:
    schemas = document["components"]["schemas"]
    by_tag: dict[str, list[Entry]] = {"data": []}
    for path, item in document["paths"].items():
        for method, described in item.items():
            entry = _entry(_Reader(schemas).operation(path, method.upper(), described, endpoint))
            by_tag.setdefault(described["tags"][0], []).append(entry)
    tags = [Tag(name, _title_of(name), entries) for name, entries in by_tag.items() if entries]
    return Reference(document["info"]["title"], tags, _Reader(schemas).fields(schemas["Problem"]))


def _title_of(tag: str) -> str:
    return _TITLES.get(tag) or tag.replace("-", " ").capitalize()


def _entry(operation: Operation) -> Entry:
    said = f"{operation.method} {operation.path} {operation.operation_id} {operation.text} "
    said += " ".join(name for name, _ in operation.actions)
    named = [field.name for field in operation.parameters]
    named += [field.name for field in (operation.body.fields if operation.body else ())]
    html = render_to_string("console/reference/operation.html", {"operation": operation})
    return Entry(operation, f"{said} {' '.join(named)}".lower(), html)


class _Reader:
    """Reads the parts of a document whose schemas refer to each other."""

    def __init__(self, schemas: dict[str, Schema]) -> None:
        self._schemas = schemas

    def operation(self, path: str, method: str, described: dict[str, Any], endpoint: str) -> Operation:
        text = described.get("description") or described.get("summary", "")
        (scheme,) = [*described.get("security", [{}])[0]] or [""]
        credential, header = _CREDENTIALS.get(scheme, ("", ""))
        body = described.get("requestBody", {}).get("content")
        return Operation(
            operation_id=described["operationId"],
            method=method,
            path=path,
            title=_marked(re.split(r"(?<=[.;:]) |\n\n", " ".join(text.split()))[0].rstrip(".;:")),
            text=_marked(" ".join(text.split())),
            credential=credential,
            actions=list(_actions(described["operationId"])),
            parameters=[self._parameter(one) for one in described.get("parameters", ())],
            body=self._body(body) if body else None,
            answers=[self._answer(*one) for one in described["responses"].items() if one[0] != "default"],
            curl=self._curl(method, f"{endpoint}{path}", header, described),
        )

    def fields(self, schema: Schema, prefix: str = "", seen: Sequence[str] = ()) -> list[ReferenceField]:
        """Every member below, down to the last; where a schema holds itself, no further."""
        return list(self._below(schema, prefix, seen))

    def _below(self, schema: Schema, prefix: str, seen: Sequence[str]) -> Iterator[ReferenceField]:
        name = _name_of(schema)
        if name:
            if name not in seen:
                yield from self._below(self._schemas[name], prefix, [*seen, name])
            return
        for one in _choices(schema):
            yield from self._below(one, prefix, seen)
        if "items" in schema:
            yield from self._below(schema["items"], f"{prefix}[]", seen)
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            yield from self._below(more, f"{prefix}.*" if prefix else "*", seen)
        for member, one in schema.get("properties", {}).items():
            path = f"{prefix}.{member}" if prefix else member
            yield self._field(path, one, member in schema.get("required", ()))
            yield from self._below(one, path, seen)

    def _field(self, name: str, schema: Schema, is_required: bool, text: str = "", place: str = "") -> ReferenceField:
        told = text or schema.get("description", "")
        return ReferenceField(name, self._kind(schema), is_required, list(self._rules(schema)), _marked(told), place)

    def _parameter(self, one: dict[str, Any]) -> ReferenceField:
        return self._field(
            one["name"], one["schema"], one.get("required", False), one.get("description", ""), _PLACES[one["in"]]
        )

    def _body(self, content: dict[str, Any]) -> Body:
        schema = next(iter(content.values())).get("schema", {})
        return Body(self._kind(schema), list(content), self.fields(schema))

    def _answer(self, status: str, described: dict[str, Any]) -> Answer:
        headers = [
            self._field(name, one["schema"], False, one.get("description", ""), "header")
            for name, one in described.get("headers", {}).items()
        ]
        content = described.get("content")
        return Answer(status, _marked(described["description"]), headers, self._body(content) if content else None)

    def _kind(self, schema: Schema) -> str:
        """In words: `array of objects`, `string or null`."""
        name = _name_of(schema)
        if name:
            return self._kind(self._schemas[name])
        choices = _choices(schema)
        if choices:
            return " or ".join(dict.fromkeys(self._kind(one) for one in choices))
        types = schema.get("type", "string" if "enum" in schema else "any value")
        return " or ".join(self._one_kind(one, schema) for one in ([types] if isinstance(types, str) else types))

    def _one_kind(self, kind: str, schema: Schema) -> str:
        if kind == "array" and "items" in schema:
            items = self._kind(schema["items"])
            return f"array of {items}s" if items in _COUNTED else f"array ({items})"
        more = schema.get("additionalProperties")
        if kind == "object" and isinstance(more, dict) and more:
            return f"object with values: {self._kind(more)}"
        return f"{kind} ({schema['format']})" if kind == "string" and "format" in schema else kind

    def _rules(self, schema: Schema) -> Iterator[str]:
        name = _name_of(schema)
        if name:
            target = self._schemas[name]
            if "properties" not in target:
                yield from self._rules(target)
            return
        for one in _choices(schema):
            if "properties" not in one:
                yield from self._rules(one)
        if "enum" in schema:
            yield "one of " + ", ".join("null" if one is None else str(one) for one in schema["enum"])
        for low, high, unit in (
            ("minimum", "maximum", ""),
            ("minLength", "maxLength", " characters"),
            ("minItems", "maxItems", " elements"),
        ):
            if low in schema and high in schema:
                yield f"{schema[low]:,} to {schema[high]:,}{unit}"
            elif high in schema:
                yield f"at most {schema[high]:,}{unit}"
            elif low in schema:
                yield f"at least {schema[low]:,}{unit}"
        if "pattern" in schema:
            yield f"matches {schema['pattern']}"
        if schema.get("default") is not None:
            value = schema["default"]
            is_large = isinstance(value, int) and not isinstance(value, bool)
            yield f"{value:,} if not given" if is_large else f"{json.dumps(value)} if not given"

    def _curl(self, method: str, url: str, header: str, described: dict[str, Any]) -> str:
        needed = [one for one in described.get("parameters", ()) if one["in"] == "query" and one.get("required")]
        query = "&".join(f"{one['name']}={one['name'].upper()}" for one in needed)
        lines = ["curl" if method == "GET" else f"curl -X {method}"]
        if header:
            lines.append(f"-H {shlex.quote(header)}")
        content = described.get("requestBody", {}).get("content")
        if content:
            media = content.get("application/json") or next(iter(content.values()))
            example = media.get("example", self._example(media.get("schema", {}), ()))
            lines += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(json.dumps(example))}"]
        target = re.sub(r"\{([a-z_]+)\}", lambda found: found[1].upper(), url) + (f"?{query}" if query else "")
        return " \\\n  ".join([*lines, shlex.quote(target)])

    def _example(self, schema: Schema, seen: Sequence[str]) -> Any:
        """The members that a request must have; of one that needs none, the first."""
        name = _name_of(schema)
        if name:
            return {} if name in seen else self._example(self._schemas[name], [*seen, name])
        for one in ("example", "default"):
            if schema.get(one) is not None:
                return schema[one]
        if "enum" in schema:
            return next(one for one in schema["enum"] if one is not None)
        choices = [one for one in _choices(schema) if one.get("type") != "null"]
        if choices:
            return self._example(choices[0], seen)
        types = schema.get("type", "object")
        kind = types if isinstance(types, str) else types[0]
        if kind == "array":
            return [self._example(schema.get("items", {}), seen)]
        if kind == "object":
            members = schema.get("properties", {})
            shown = schema.get("required") or list(members)[:1]
            return {member: self._example(members[member], seen) for member in shown}
        if kind == "string":
            return _EXAMPLES_BY_FORMAT.get(schema.get("format", ""), "...")
        return {"integer": schema.get("minimum", 1), "number": 1, "boolean": True}.get(kind)


def _actions(operation_id: str) -> Iterator[tuple[str, bool]]:
    for demand in MANAGEMENT_OPERATIONS.get(operation_id, ()):
        yield demand.action, demand.when is When.ALWAYS and demand.target is not Target.LETTER_HOLDERS


def _name_of(schema: Schema) -> str:
    """Of the schema that it refers to; "" where it refers to none."""
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _choices(schema: Schema) -> list[Schema]:
    return [one for word in ("oneOf", "anyOf", "allOf") for one in schema.get(word, ())]


def _marked(text: str) -> SafeString:
    """What stands between backticks is code."""
    return mark_safe(_CODE.sub(r"<code>\1</code>", str(escape(text))))
