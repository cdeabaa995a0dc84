"""Requests for every operation of the REST API and every SQS action, right, nearly right and not at all: made from
docs/openapi.json and from the model of SQS in botocore, by a random number generator with a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from botocore.loaders import Loader

OPENAPI = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
METHODS = ("get", "post", "put", "patch", "delete")
REMEMBERED_MAX = 400
DEPTH_MAX = 5
JSON = "application/json"
# In every place where a text may stand.
HOSTILE_TEXTS = (
    "", " ", "\x00", "a\x00b", "\r\nx: y", "../..", "..", "%00", "%2f", "\u202e", "\ufffe", "𝄞" * 40,
    "x" * 300, "x" * 70_000, "=1+1",
    "<script>", "' OR 1=1 --", "-1", "0", "1e999", "NaN", "null", "true", "{}", "[]", "*",
    "arn:aws:sqs:us-east-1:1:q",
    "arn:aws:sqs:::", "9" * 5_000, "2026-02-30T25:61:61Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
    "١٢", "a@b",
    "00000000-0000-0000-0000-000000000000", "* * * * *", "Europe/Berlin", "http://127.0.0.1/", "$ref",
)  # fmt: skip
HOSTILE_VALUES = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, [], {}, [[]],
    [None], {"": None},
    {"a": {"b": {"c": [1]}}}, ["x"] * 600,
)  # fmt: skip
# Instead of a body: what no parser may take, or what few expect.
RAW_BODIES = (
    b"", b"[", b"{", b"null", b'"x"', b"1", b"\xff", b"\xef\xbb\xbf{}", b'{"a":1,"a":2}', b'{"a":NaN}',
    b'{"a":1e999}',
    b'{"a":"\\ud800"}', b'{"\\u0000":1}', b'{"a":' + b"9" * 5_000 + b"}", b"[" * 5_000, b'{"a":' * 5_000,
    b"{}{}", b"\x80\x81",
    '{"a":"ä"}'.encode("latin-1"), b"{}\x00", b"\x1f\x8b\x08\x00", b"a=b&a=c",
)  # fmt: skip
CONTENT_TYPES = (
    "", "text/plain", "application/xml", "application/msgpack", "application/json; charset=utf-16", "x",
    "multipart/form-data",
    "application/x-www-form-urlencoded", "application/x-amz-json-1.0", JSON + "; charset=\xff",
)  # fmt: skip
EXTRA_HEADERS = (
    ("content-encoding", "gzip"), ("accept", "text/html"), ("accept", "x"), ("accept-language", "\xff" * 20),
    ("if-match", '"x'),
    ("idempotency-key", "x" * 300), ("x-http-method-override", "DELETE"), ("x-forwarded-for", "::1"),
    ("cookie", "sessionid=x; a"),
    ("range", "bytes=9-1"), ("expect", "x"), ("x-request-id", "\x80"), ("origin", "null"),
    ("x-penstock-principal", "x"),
)  # fmt: skip


class Asked(NamedTuple):
    """One request, but for who asks."""

    operation: str  # the method and the path with its names in braces, or `SQS ` and the action
    plane: str  # data, management, people, sqs
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


class Inputs:
    """What `next` gives depends on the seed, and on what was remembered of the answers."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._document: dict[str, Any] = json.loads(OPENAPI.read_text())
        self._model: dict[str, Any] = Loader().load_service_model("sqs", "service-2")
        self._texts: list[str] = ["orders", "line.fifo", "dead", "all", "us-east-1"]
        self.operations = [f"{method.upper()} {path}" for path, methods in self._document["paths"].items()
                           for method in METHODS if method in methods]  # fmt: skip
        self.operations += [f"SQS {action}" for action in sorted(self._model["operations"])]
        self._turns: list[str] = []
        # Never named: the trial would lose its own way in.
        self.kept_out: set[str] = set()

    def remember(self, answer: object) -> None:
        """Names and ids that the installation has told: later requests name what is there."""
        for text in _texts_of(answer):
            if 0 < len(text) <= 200 and text not in self._texts and not any(one in text for one in self.kept_out):
                self._texts.append(text)
        if len(self._texts) > REMEMBERED_MAX:
            self._texts = self._texts[:5] + self._texts[-REMEMBERED_MAX + 5 :]

    def next(self) -> Asked:
        """Operations in turns, in an order that changes: each is asked as often as the others."""
        if not self._turns:
            self._turns = self._random.sample(self.operations, len(self.operations))
        operation = self._turns.pop()
        method, _, rest = operation.partition(" ")
        return self._sqs(operation, rest) if method == "SQS" else self._rest(operation, method, rest)

    # --- REST ---

    def _rest(self, operation: str, method: str, path: str) -> Asked:
        described = self._document["paths"][path][method.lower()]
        security = json.dumps(described.get("security"))
        plane = "data" if "data" in described.get("tags", ()) else "management"
        if "bearerAuth" not in security:
            plane = "people"
        words = [self._word() if part.startswith("{") else part for part in path.split("/")]
        for place, part in enumerate(path.split("/")):
            if part.startswith("{") and "}." in part:
                words[place] += part.partition("}")[2]
        target = "/".join(words) + self._query(described.get("parameters", ()))
        headers, body = self._headers(), b""
        if "requestBody" in described:
            body = self._body(described["requestBody"]["content"].get(JSON, {}).get("schema", {}))
        elif self._once_in(10):
            body = self._random.choice(RAW_BODIES)
        if self._once_in(25):
            method = self._random.choice([*METHODS, "options", "head", "trace"]).upper()
        return Asked(operation, plane, method, target, headers, body)

    def _word(self) -> str:
        """One segment of a path; percent signs as they come now and then."""
        text = self._random.choice(self._texts) if not self._once_in(4) else self._random.choice(HOSTILE_TEXTS)[:2_000]
        if self._once_in(10):
            return "".join(sign for sign in text if "!" <= sign <= "~" and sign not in "?#") or "%zz"
        return quote(text, safe="")

    def _query(self, parameters: Any) -> str:
        pairs = []
        for parameter in parameters:
            if parameter.get("in") == "query" and not self._once_in(3):
                pairs.append((parameter["name"], self._text_of(self._value(parameter.get("schema", {})))))
        if pairs and self._once_in(8):
            pairs.append(pairs[0])
        if self._once_in(20):
            pairs.append((self._text()[:50], self._text()[:500]))
        text = urlencode(pairs)
        if self._once_in(30):
            text += self._random.choice(("&&=", "%", "&%zz", "&%ff=%fe", "&a[]=1"))
        return f"?{text}" if text else ""

    @staticmethod
    def _text_of(value: object) -> str:
        text = value if isinstance(value, str) else json.dumps(value)
        return text[:2_000]

    def _headers(self) -> list[tuple[str, str]]:
        headers = [("content-type", self._random.choice(CONTENT_TYPES) if self._once_in(20) else JSON)]
        if self._once_in(15):
            headers.append(self._random.choice(EXTRA_HEADERS))
        return headers

    def _body(self, schema: Mapping[str, Any]) -> bytes:
        if self._once_in(12):
            return self._random.choice(RAW_BODIES)
        body = json.dumps(self._value(schema), ensure_ascii=self._once_in(2)).encode("utf-8", "surrogatepass")
        if self._once_in(40):
            body = body[: self._random.randrange(len(body) + 1)]
        if self._once_in(40):
            body = body.replace(b'"', b'"\\u0000', 1) if self._once_in(2) else body.replace(b"x", b"\\ud800", 1)
        return body

    # --- values of a schema ---

    def _value(self, schema: Mapping[str, Any], depth: int = 0) -> Any:
        """Of the schema's type in nine of ten places, so that most requests come through to what is behind."""
        if depth > DEPTH_MAX:
            return None
        if self._once_in(10 if depth else 30):
            return self._wrong()
        if "$ref" in schema:
            return self._value(self._document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], depth)
        for name in ("anyOf", "oneOf", "allOf"):
            if name in schema:
                return self._value(self._random.choice(schema[name]), depth)
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        if "const" in schema:
            return schema["const"]
        kind = schema.get("type", "string")
        if isinstance(kind, list):
            kind = self._random.choice(kind)
        return self._of_kind(kind, schema, depth)

    def _of_kind(self, kind: str, schema: Mapping[str, Any], depth: int) -> Any:
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            count = self._random.choice((0, 1, 1, 2, 11))
            return [self._value(schema.get("items", {}), depth + 1) for _ in range(count)]
        if kind in ("integer", "number"):
            low, high = schema.get("minimum", 0), schema.get("maximum", 100)
            return self._random.choice((low, high, low - 1, high + 1, (low + high) // 2, 1, 2, 5))
        if kind == "boolean":
            return self._random.choice((True, False))
        return None if kind == "null" else self._text(schema)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        wanted = set(schema.get("required", ()))
        found = {
            name: self._value(one, depth + 1)
            for name, one in schema.get("properties", {}).items()
            if (name in wanted and not self._once_in(20)) or (name not in wanted and self._once_in(2))
        }
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            found |= {self._text()[:80]: self._value(more, depth + 1) for _ in range(self._random.randrange(3))}
        if self._once_in(40):
            found[self._text()[:80]] = self._wrong()
        return found

    def _text(self, schema: Mapping[str, Any] | None = None) -> str:
        if self._once_in(12):
            return self._random.choice(HOSTILE_TEXTS)
        if schema and schema.get("maxLength") and self._once_in(8):
            return "x" * (schema["maxLength"] + self._random.choice((0, 1)))
        if schema and "time" in schema.get("format", "") and not self._once_in(4):
            return self._random.choice(("2026-01-01T00:00:00Z", "2030-01-01T00:00:00+14:00", "2026-01-01"))
        if self._once_in(3):
            return f"n{self._random.randrange(30)}"
        return self._random.choice(self._texts)

    def _wrong(self) -> Any:
        return self._random.choice(HOSTILE_VALUES) if self._once_in(2) else self._random.choice(HOSTILE_TEXTS)

    def _once_in(self, times: int) -> bool:
        return self._random.randrange(times) == 0

    # --- SQS ---

    def _sqs(self, operation: str, action: str) -> Asked:
        shape = self._model["operations"][action]["input"]["shape"]
        body = json.dumps(self._shape(shape)).encode("utf-8", "surrogatepass")
        if self._once_in(15):
            body = self._random.choice(RAW_BODIES)
        headers = [("content-type", "application/x-amz-json-1.0"), ("x-amz-target", f"AmazonSQS.{action}")]
        if self._once_in(20):
            headers[0] = ("content-type", self._random.choice(CONTENT_TYPES))
        return Asked(operation, "sqs", "POST", "/" if not self._once_in(20) else f"/{self._word()}", headers, body)

    def _shape(self, name: str, depth: int = 0) -> Any:
        shape = self._model["shapes"][name]
        kind = shape["type"]
        if depth > DEPTH_MAX or self._once_in(12 if depth else 40):
            return self._wrong()
        if kind == "structure":
            wanted = set(shape.get("required", ()))
            return {
                member: self._shape(one["shape"], depth + 1)
                for member, one in shape["members"].items()
                if (member in wanted and not self._once_in(20)) or self._once_in(4)
            }
        if kind == "list":
            return [
                self._shape(shape["member"]["shape"], depth + 1) for _ in range(self._random.choice((0, 1, 1, 2, 11)))
            ]
        if kind == "map":
            keys = [self._shape(shape["key"]["shape"], depth + 1) for _ in range(self._random.randrange(3))]
            return {str(key)[:100]: self._shape(shape["value"]["shape"], depth + 1) for key in keys}
        if kind in ("integer", "long"):
            return self._random.choice((0, 1, 2, 10, 11, 20, 30, -1, 900, 901, 43_200, 43_201, 2**31))
        if kind == "boolean":
            return self._random.choice((True, False))
        if "enum" in shape:
            return self._random.choice(shape["enum"])
        return self._text()


def _texts_of(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for one in value[:20] for text in _texts_of(one)]
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts_of(one)]
    return []
