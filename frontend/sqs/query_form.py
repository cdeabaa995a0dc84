"""The query protocol's way in: fields of a form or a query string, made into the parameters of `requests.py`.

    Action=SendMessage&QueueUrl=...&MessageBody=hello&MessageAttribute.1.Name=kind&MessageAttribute.1.Value.DataType=...

Lists and maps are flattened: `TagKey.1`, `Tag.1.Key` and `Tag.1.Value`. The fields become a tree by their dots; then
one table, made from the types of the parameters, says what to read where. Unknown fields are ignored, as SQS does; a
field, an index or a key that comes twice is refused, because which of two would count is what tricks live on.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin

import msgspec

from frontend.errors import RequestError
from frontend.http import Request
from frontend.limits import FORM_FIELDS_MAX, FORM_NAME_BYTES_MAX, FORM_NAME_PARTS_MAX
from frontend.sqs import requests
from frontend.sqs.actions import ACTIONS, SqsAction
from frontend.sqs.queue_url import read_queue_path

VERSION = "2012-11-05"
# Actions that name no queue: the path of one is no endpoint of theirs.
_WITHOUT_QUEUE = frozenset(("CreateQueue", "ListQueues"))
_FORM = b"application/x-www-form-urlencoded"
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_INTEGER = re.compile(r"-?[0-9]{1,10}", re.ASCII)
_INDEX = re.compile(r"[0-9]{1,4}", re.ASCII)

# Members of the model whose fields have a name of their own; every other one is called as it is.
_FIELD_NAMES: dict[str, str] = {
    "Attributes": "Attribute",
    "AttributeNames": "AttributeName",
    "MessageAttributes": "MessageAttribute",
    "MessageAttributeNames": "MessageAttributeName",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "StringListValues": "StringListValue",
    "BinaryListValues": "BinaryListValue",
    "Tags": "Tag",
    "tags": "Tag",
    "TagKeys": "TagKey",
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
}
_ENTRY_NAMES: dict[type, str] = {
    requests.SendEntry: "SendMessageBatchRequestEntry",
    requests.ReceiptEntry: "DeleteMessageBatchRequestEntry",
    requests.VisibilityEntry: "ChangeMessageVisibilityBatchRequestEntry",
}

Node: TypeAlias = "str | dict[str, Node]"
Tree: TypeAlias = "dict[str, Node]"
Reader = Callable[[Node, str], Any]


def is_query(request: Request) -> bool:
    """Does the request speak this protocol? Decided by headers and query string alone."""
    if b"x-amz-target" in request.headers or request.method not in ("GET", "POST"):
        return False
    return request.method == "GET" or _is_form(request) or b"Action=" in request.query


def read_form(request: Request) -> Tree:
    """All fields, of the query string and of the body. Raises RequestError."""
    tree: Tree = {}
    body = request.body
    if body and not _is_form(request):
        raise RequestError("UnsupportedMediaType", "The Content-Type must be application/x-www-form-urlencoded.")
    if request.query.count(b"&") + body.count(b"&") >= FORM_FIELDS_MAX:
        raise RequestError("SerializationException", f"The request has more than {FORM_FIELDS_MAX} fields.")
    for name, value in _fields(request.query):
        _plant(tree, name, _text_of(value))
    for name, value in _fields(body):
        # Only in a body a plus is a space: in a query string it is signed as a plus.
        _plant(tree, name, _text_of(value.replace(b"+", b" ")))
    return tree


def find_query_action(form: Tree, request: Request) -> SqsAction:
    """Raises RequestError."""
    name, version = form.get("Action"), form.get("Version", VERSION)
    if not isinstance(name, str) or not name:
        if request.method == "GET":
            raise RequestError("UnknownOperation", "")
        raise RequestError("MissingAction", "The request must contain the parameter Action.")
    if version != VERSION:
        raise RequestError("NoSuchVersion", f"The version of this interface is {VERSION}.")
    action = ACTIONS.get(b"AmazonSQS." + name.encode())
    if action is None or (name in _WITHOUT_QUEUE and read_queue_path(request.path) is not None):
        raise RequestError("UnknownOperationException", f"The action {name[:80]} is not valid for this endpoint.")
    return action


def read_request(parameters: type[requests.SqsRequest], form: Tree) -> Any:
    """The parameters of an action. Raises RequestError for a field that is not of its kind."""
    return _structure(parameters)(form, parameters.__name__)


# --- from bytes to a tree ---


def _is_form(request: Request) -> bool:
    return request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == _FORM


def _fields(raw: bytes) -> Iterator[tuple[str, bytes]]:
    for field in raw.split(b"&"):
        if field:
            name, _, value = field.partition(b"=")
            if len(name) > FORM_NAME_BYTES_MAX:
                raise RequestError("SerializationException", "The name of a field is too long.")
            yield _text_of(name), value


def _text_of(raw: bytes) -> str:
    if b"%" in raw:
        if _BROKEN_ESCAPE.search(raw) is not None:
            raise RequestError("SerializationException", "A field is not percent-encoded as it should be.")
        # Quoted-printable with another sign: this decoder runs in C, and a body may hold a million escapes.
        raw = binascii.a2b_qp(raw.replace(b"=", b"=3D").replace(b"%", b"="))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise RequestError("SerializationException", "A field is not UTF-8.") from None


def _plant(tree: Tree, name: str, value: str) -> None:
    parts = name.split(".", FORM_NAME_PARTS_MAX)
    if len(parts) > FORM_NAME_PARTS_MAX:
        raise RequestError("SerializationException", "The name of a field has too many parts.")
    for part in parts[:-1]:
        below = tree.setdefault(part, {})
        if isinstance(below, str):
            raise _malformed(name, "comes twice")
        tree = below
    if parts[-1] in tree:
        raise _malformed(name, "comes twice")
    tree[parts[-1]] = value


# --- from a tree to parameters: one reader per kind of member ---


class _Member(NamedTuple):
    """`empty_field`: where a list without items may stand as an empty field instead; SDKs give that the name which the
    member has in the model."""

    attribute: str
    field: str
    read: Reader
    empty_field: str | None = None


@cache
def _structure(parameters: type[requests.SqsRequest]) -> Reader:
    members = tuple(_member(field) for field in msgspec.structs.fields(parameters))

    def read(node: Node, name: str) -> requests.SqsRequest:
        if isinstance(node, str):
            raise _malformed(name, "must have members")
        values: dict[str, Any] = {}
        for attribute, field, read_member, empty_field in members:
            if field in node:
                values[attribute] = read_member(node[field], field)
            elif empty_field is not None and node.get(empty_field) == "":
                values[attribute] = []
        return parameters(**values)

    return read


def _member(field: Any) -> _Member:
    (kind,) = (kind for kind in get_args(field.type) if kind is not NoneType)
    origin, inner = get_origin(kind), get_args(kind)
    name = _FIELD_NAMES.get(field.encode_name, field.encode_name)
    if origin is list:
        return _Member(field.name, _ENTRY_NAMES.get(inner[0], name), _list(_reader(inner[0])), field.encode_name)
    if origin is dict:
        return _Member(field.name, name, _map("Key" if name == "Tag" else "Name", _reader(inner[1])))
    return _Member(field.name, name, _reader(kind))


def _reader(kind: Any) -> Reader:
    if kind is str:
        return _text
    if kind is int:
        return _integer
    assert issubclass(kind, requests.SqsRequest), kind
    return _structure(kind)


def _text(node: Node, name: str) -> str:
    if not isinstance(node, str):
        raise _malformed(name, "must be one value")
    return node


def _integer(node: Node, name: str) -> int:
    text = _text(node, name)
    if _INTEGER.fullmatch(text) is None:
        raise _malformed(name, "must be an integer")
    return int(text)


def _list(read_item: Reader) -> Reader:
    return lambda node, name: [read_item(one, name) for one in _numbered(node, name)]


def _map(key_field: str, read_value: Reader) -> Reader:
    def read(node: Node, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for pair in _numbered(node, name):
            if isinstance(pair, str) or key_field not in pair or "Value" not in pair:
                raise _malformed(name, f"must have {key_field} and Value")
            key = _text(pair[key_field], name)
            if key in found:
                raise _malformed(name, "names a key twice")
            found[key] = read_value(pair["Value"], name)
        return found

    return read


def _numbered(node: Node, name: str) -> list[Node]:
    """The items in the order of their indices, which may have gaps. A single item may stand without an index.

    An empty list is written as an empty field.
    """
    if node == "":
        return []
    if isinstance(node, str) or not any(_INDEX.fullmatch(key) for key in node):
        return [node]
    items: dict[int, Node] = {}
    for key, item in node.items():
        if _INDEX.fullmatch(key) is None or int(key) in items:
            raise _malformed(name, "must be numbered")
        items[int(key)] = item
    return [items[index] for index in sorted(items)]


def _malformed(name: str, what: str) -> RequestError:
    return RequestError("SerializationException", f"The parameter {name[:80]} {what}.")
