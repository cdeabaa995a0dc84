"""The query protocol's way out: the JSON result of an action, or a refusal, as XML.

    <SendMessageResponse xmlns="..."><SendMessageResult>...</SendMessageResult><ResponseMetadata>...</...>

Lists and maps are flattened as in requests. Element names come from tables and from our own results only, never from
what somebody sent.
"""

from __future__ import annotations

from typing import Any

import msgspec

from frontend.errors import Refusal
from frontend.http import Request, Send, answer
from frontend.sqs.validation import FORBIDDEN, is_text

NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
_CONTENT_TYPE = (b"content-type", b"text/xml")
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
# member -> element of a pair, of its key and of its value
_PAIRS: dict[str, tuple[str, str, str]] = {
    "Attributes": ("Attribute", "Name", "Value"),
    "MessageAttributes": ("MessageAttribute", "Name", "Value"),
    "Tags": ("Tag", "Key", "Value"),
}
_decode = msgspec.json.Decoder(dict[str, Any]).decode


async def answer_in_xml(action: str, result: bytes, request: Request, send: Send) -> None:
    parts = [f'<?xml version="1.0"?><{action}Response xmlns="{NAMESPACE}">']
    if action not in _WITHOUT_RESULT:
        parts.append(f"<{action}Result>")
        for member, value in _decode(result).items():
            _write(parts, action, member, value)
        parts.append(f"</{action}Result>")
    parts.append(f"<ResponseMetadata><RequestId>{request.request_id}</RequestId></ResponseMetadata></{action}Response>")
    headers = (_CONTENT_TYPE, (b"x-amzn-requestid", request.request_id.encode()))
    await answer(send, 200, headers, "".join(parts).encode())


async def refuse_in_xml(request: Request, send: Send, refusal: Refusal) -> None:
    kind = refusal.kind
    message = refusal.message
    if refusal.code == "QueueDoesNotExist":
        message = "The specified queue does not exist for this wsdl version."
    headers = [_CONTENT_TYPE, (b"x-amzn-requestid", request.request_id.encode())]
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", str(refusal.retry_after_s).encode()))
    body = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error>'
        f"<Type>{'Receiver' if kind.status >= 500 else 'Sender'}</Type><Code>{kind.query_code}</Code>"
        f"<Message>{_escaped(message)}</Message><Detail/></Error>"
        f"<RequestId>{request.request_id}</RequestId></ErrorResponse>"
    )
    await answer(send, kind.status, headers, body.encode())


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
