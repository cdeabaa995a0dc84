"""The query protocol's way out: the JSON result of an action, or a request error, as XML.

    <SendMessageResponse xmlns="..."><SendMessageResult>...</SendMessageResult><ResponseMetadata>...</...>

Lists and maps are flattened as in requests. Element names come from tables and from our own results only, never from
what somebody sent. A caller that accepts `application/json` gets the same tree as JSON, with the member names that SQS
uses there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from frontend.errors import NO_SUCH_QUEUE, RequestError
from frontend.http import CLOSE_CONNECTION, HttpResponse, Request
from frontend.parameters import FORBIDDEN, is_text

NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
_CONTENT_TYPE = (b"content-type", b"text/xml")
_JSON = b"application/json"
_JSON_CONTENT_TYPE = (b"content-type", _JSON)
_WITHOUT_RESULT = frozenset(
    (
        "AddPermission",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "DeleteQueue",
        "PurgeQueue",
        "RemovePermission",
        "SetQueueAttributes",
        "TagQueue",
        "UntagQueue",
    )
)
_ITEMS: dict[str, str] = {
    "Failed": "BatchResultErrorEntry",
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
}
# member -> its name where the query protocol is answered in JSON
_JSON_NAMES: dict[str, str] = {"QueueUrls": "queueUrls", "Messages": "messages"}
# member -> element of a pair, of its key and of its value
_PAIRS: dict[str, tuple[str, str, str]] = {
    "Attributes": ("Attribute", "Name", "Value"),
    "MessageAttributes": ("MessageAttribute", "Name", "Value"),
    "Tags": ("Tag", "Key", "Value"),
}
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def answer_query(action: str, result: bytes, request: Request) -> HttpResponse:
    if _wants_json(request):
        return _answer_in_json(action, result, request)
    return _answer_in_xml(action, result, request)


def refuse_query(request: Request, error: RequestError) -> HttpResponse:
    if error.code == "UnknownOperation":
        return HttpResponse(error.kind.status, (_CONTENT_TYPE,), b"<UnknownOperationException/>\n")
    if _wants_json(request):
        return _refuse_in_json(request, error)
    return _refuse_in_xml(request, error)


def _wants_json(request: Request) -> bool:
    return request.headers.get(b"accept", b"").partition(b";")[0].strip().lower() == _JSON


def _answer_in_json(action: str, result: bytes, request: Request) -> HttpResponse:
    response: dict[str, object] = {"ResponseMetadata": {"RequestId": request.request_id}}
    if action not in _WITHOUT_RESULT:
        response = {f"{action}Result": _json_result(_decode(result)), **response}
    body = msgspec.json.encode({f"{action}Response": response})
    return HttpResponse(200, (_JSON_CONTENT_TYPE, (b"x-amzn-requestid", request.request_id.encode())), body)


def _json_result(members: dict[str, Any]) -> dict[str, Any]:
    """Lists of queues and messages begin with a small letter here; maps are lists of pairs."""
    shown: dict[str, Any] = {}
    for name, value in members.items():
        if name in _PAIRS and isinstance(value, dict):
            _, key_name, value_name = _PAIRS[name]
            value = [{key_name: key, value_name: one} for key, one in value.items()]
        elif isinstance(value, list):
            value = [_json_result(one) if isinstance(one, dict) else one for one in value]
        shown[_JSON_NAMES.get(name, name)] = value
    return shown


def _refuse_in_json(request: Request, error: RequestError) -> HttpResponse:
    kind = error.kind
    shown = {"Code": kind.query_code, "Message": _query_message(error), "Type": _fault(error)}
    headers = [_JSON_CONTENT_TYPE, *_error_headers(request, error)]
    return HttpResponse(kind.status, headers, msgspec.json.encode({"Error": shown, "RequestId": request.request_id}))


def _answer_in_xml(action: str, result: bytes, request: Request) -> HttpResponse:
    parts = [f'<?xml version="1.0"?><{action}Response xmlns="{NAMESPACE}">']
    if action not in _WITHOUT_RESULT:
        members = _decode(result)
        parts.append(f"<{action}Result>" if members else f"<{action}Result/>")
        for member, value in members.items():
            _write(parts, action, member, value)
        if members:
            parts.append(f"</{action}Result>")
    parts.append(f"<ResponseMetadata><RequestId>{request.request_id}</RequestId></ResponseMetadata></{action}Response>")
    headers = (_CONTENT_TYPE, (b"x-amzn-requestid", request.request_id.encode()))
    return HttpResponse(200, headers, "".join(parts).encode())


def _refuse_in_xml(request: Request, error: RequestError) -> HttpResponse:
    kind = error.kind
    body = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error>'
        f"<Type>{_fault(error)}</Type><Code>{kind.query_code}</Code>"
        f"<Message>{_escaped(_query_message(error))}</Message><Detail/></Error>"
        f"<RequestId>{request.request_id}</RequestId></ErrorResponse>"
    )
    return HttpResponse(kind.status, [_CONTENT_TYPE, *_error_headers(request, error)], body.encode())


def _error_headers(request: Request, error: RequestError) -> list[tuple[bytes, bytes]]:
    headers = [(b"x-amzn-requestid", request.request_id.encode())]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    if request.is_unread:
        headers.append(CLOSE_CONNECTION)
    return headers


def _fault(error: RequestError) -> str:
    return "Receiver" if error.kind.status >= 500 else "Sender"


def _query_message(error: RequestError) -> str:
    if error.message == NO_SUCH_QUEUE:
        return "The specified queue does not exist for this wsdl version."
    return error.message


def _write(parts: list[str], action: str, name: str, value: Any) -> None:
    if isinstance(value, str):
        parts.append(f"<{name}>{_escaped(value)}</{name}>")
    elif isinstance(value, bool):
        parts.append(f"<{name}>{'true' if value else 'false'}</{name}>")
    elif isinstance(value, int):
        parts.append(f"<{name}>{value}</{name}>")
    elif isinstance(value, list):
        item = f"{action}ResultEntry" if name in ("Successful", "Results") else _ITEMS[name]
        for one in value:
            _write(parts, action, item, one)
    elif name in _PAIRS:
        pair, key_element, value_element = _PAIRS[name]
        for key, one in value.items():
            parts.append(f"<{pair}><{key_element}>{_escaped(key)}</{key_element}>")
            _write(parts, action, value_element, one)
            parts.append(f"</{pair}>")
    else:
        assert isinstance(value, dict), f"{name} has no form in XML"
        parts.append(f"<{name}>")
        for member, one in value.items():
            _write(parts, action, member, one)
        parts.append(f"</{name}>")


def _escaped(text: str) -> str:
    """As character data. A carriage return written plainly would be read as a line feed."""
    if not is_text(text):
        text = FORBIDDEN.sub("\ufffd", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
