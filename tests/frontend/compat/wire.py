"""One call, over either protocol: written by botocore's serializer, signed by its signer, read by its parser."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlencode

import botocore.parsers
import botocore.serialize

from frontend.authn.tokens import MintedKey
from tests.frontend.compat.query_model import service_model
from tests.support.frontend_plane import Installation, Reply, sign

PROTOCOLS = ("json", "query")
FORM = "application/x-www-form-urlencoded; charset=utf-8"
QUERY_TEXT = "The specified queue does not exist for this wsdl version."


class Answered(NamedTuple):
    """`code` is the error's query code: what SDKs of both protocols show. Empty for a success."""

    status: int
    code: str
    message: str
    result: dict[str, Any]
    reply: Reply


@cache
def _parts(protocol: str) -> tuple[Any, Any, Any]:
    model = service_model(protocol)
    serializer = botocore.serialize.create_serializer(protocol, include_validation=False)
    return model, serializer, botocore.parsers.ResponseParserFactory().create_parser(protocol)


async def speak(
    front: Installation, protocol: str, action: str, params: dict[str, Any], key: MintedKey | None = None
) -> Answered:
    if protocol == "json":
        made = _serialized(protocol, action, params)
        raw, target, content_type = made["body"], made["headers"]["X-Amz-Target"], "application/x-amz-json-1.0"
    else:
        raw, target, content_type = urlencode(form_fields(action, params)).encode(), "", FORM
    headers = sign(key or front.key, "POST", "/", raw, target, front.clock.now_s, content_type)
    return read_answer(protocol, action, await front.call("POST", "/", headers, raw))


def form_fields(action: str, params: dict[str, Any]) -> dict[str, Any]:
    """The fields of a form, not encoded yet."""
    fields: dict[str, Any] = _serialized("query", action, params)["body"]
    return fields


def read_answer(protocol: str, action: str, reply: Reply) -> Answered:
    model, _, parser = _parts(protocol)
    described = {"status_code": reply.status, "headers": reply.headers, "body": reply.body}
    parsed = parser.parse(described, model.operation_model(action).output_shape)
    error = parsed.pop("Error", {})
    metadata = parsed.pop("ResponseMetadata")
    assert metadata["RequestId"] == reply.headers["x-amzn-requestid"]
    assert bool(error) == (reply.status != 200), reply
    code = error.get("Code", "")
    if protocol == "json" and code:
        # botocore has read it from the header x-amzn-query-error
        assert code == reply.headers["x-amzn-query-error"].partition(";")[0]
    return Answered(reply.status, code, error.get("Message", ""), parsed, reply)


def _serialized(protocol: str, action: str, params: dict[str, Any]) -> dict[str, Any]:
    model, serializer, _ = _parts(protocol)
    made: dict[str, Any] = serializer.serialize_to_request(params, model.operation_model(action))
    return made
