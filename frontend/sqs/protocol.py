"""The SQS protocols: one request in, one answer out, whatever comes.

    JSON     POST /     X-Amz-Target: AmazonSQS.<Action>   Content-Type: application/x-amz-json-1.0   JSON
    query    POST or GET     a form, or a query string, with Action=<Action>&Version=2012-11-05       XML

Both run the same actions; `query_form.py` and `query_answer.py` are the two ends of the older one. JSON errors carry
`__type` (namespace and name), and `x-amzn-query-error` with the code that older SDKs know. The order is: headers, body
under its cap, who asks, what is asked. So nothing of a body is looked into before its sender is known.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from frontend.authn.principal import Principal
from frontend.errors import MethodNotAllowed, RequestError, invalid, unavailable
from frontend.http import CLOSE_CONNECTION, Disconnected, HttpResponse, Request
from frontend.limits import BATCH_BYTES_MAX, MESSAGE_BYTES_MAX, SLOW_REQUEST_MS
from frontend.messages.admission import count_failure, pay_unpaid
from frontend.metadata.interface import MetadataUnavailable
from frontend.queues.names import Address
from frontend.sqs.actions import ACTIONS, SqsAction
from frontend.sqs.call import SqsCall
from frontend.sqs.query_answer import answer_query, refuse_query
from frontend.sqs.query_form import find_query_action, is_query, read_form, read_request
from frontend.sqs.queue_url import make_queue_url, read_queue_path, read_queue_url
from frontend.sqs.requests import SendMessageBatch
from frontend.strict_json import FEW_VALUES_BYTES, TooManyValues, check_values, repeated_member

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_CONTENT_TYPE = (b"content-type", b"application/x-amz-json-1.0")
_CONTENT_TYPES = frozenset((b"application/x-amz-json-1.0", b"application/x-amz-json-1.1", b"application/json"))
_RETRY_AFTER = b"retry-after"
# Errors whose text SQS puts into a member with a capital letter.
_CAPITAL_MESSAGE = frozenset(("AccessDeniedException",))
# A member that decides something may be named once; a string that merely ends so only costs the closer look.
_MESSAGE_BODY = b'"MessageBody"'
_DECISIVE = (b'"QueueUrl"', _MESSAGE_BODY, b'"Entries"')
# A name that is not written as above. In a string the same only costs the closer look.
_ESCAPED_NAME = re.compile(rb'\\u[^"\\]*"\s*:')
# The end of a name, unless an escape of another kind is the last of it. To look back from one takes 500 ns, to look on
# from an escape 60: in a body of so many bytes a quote the names are few, and the escapes may be many.
_NAME_END = re.compile(rb'"(?<![\\"]")\s*+:')
_BYTES_PER_QUOTE = 64
_UNKNOWN = "unknown"
_SLOW_S = SLOW_REQUEST_MS / 1000


class _Named(msgspec.Struct):
    """What is looked for in a refused body."""

    queue_url: str | None = msgspec.field(name="QueueUrl", default=None)


_decode_named = msgspec.json.Decoder(_Named).decode
_log = structlog.get_logger("frontend.sqs")


async def answer_sqs(services: FrontendServices, request: Request) -> HttpResponse | None:
    """The answer to one request; None: the client has left. Never raises for anything a caller can do."""
    started_s = time.perf_counter()
    action_name, outcome, refuse = _UNKNOWN, "ok", _refuse
    said: HttpResponse | None = None
    caller: Principal | None = None
    payments = 0
    try:
        request.read_headers()
        if is_query(request):
            refuse = refuse_query
            await request.read_body()
            caller = await services.authenticator.signature(request)
            payments = services.quotas.payments
            form = read_form(request)
            action = find_query_action(form, request)
            action_name = action.name
            parameters = _with_queue_of_path(read_request(action.parameters, form), request)
            said = answer_query(action_name, await action.run(SqsCall(services, request, caller), parameters), request)
        else:
            action = find_action(request)
            action_name = action.name
            if not request.has_body():
                await request.read_body()
            caller = await services.authenticator.signature(request)
            payments = services.quotas.payments
            body = await action.run(SqsCall(services, request, caller), decode(action, request))
            said = HttpResponse(200, (_CONTENT_TYPE, (b"x-amzn-requestid", request.request_id.encode())), body)
    except Disconnected:
        outcome = "disconnected"
    except Exception as error:
        failure: Exception = error
        if caller is not None:
            address = _address_of(request, caller)
            failure = pay_unpaid(services, caller, address, error, payments)
            count_failure(services, caller, address, failure)
        refused = _refusal_of(request, action_name, failure)
        outcome = refused.code
        said = refuse(request, _named_for(action_name, refused))
    seconds = time.perf_counter() - started_s
    services.meters.observe("sqs", action_name, outcome, seconds)
    if seconds > _SLOW_S and action_name != "ReceiveMessage":
        _log_slow(request, action_name, outcome, seconds)
    return said


def find_action(request: Request) -> SqsAction:
    """What is asked, from the headers alone. Raises RequestError."""
    if request.method != "POST":
        raise MethodNotAllowed("POST")
    action = ACTIONS.get(request.headers.get(b"x-amz-target", b""))
    if action is None:
        raise RequestError("UnknownOperationException", "There is no such action.")
    content_type = request.headers.get(b"content-type", b"")
    if content_type not in _CONTENT_TYPES and content_type.partition(b";")[0].strip().lower() not in _CONTENT_TYPES:
        raise RequestError("UnsupportedMediaType", "The Content-Type must be application/x-amz-json-1.0.")
    return action


def decode(action: SqsAction, request: Request) -> Any:
    """The parameters, typed. Raises RequestError for anything that is not JSON of the right shape."""
    body = request.body
    try:
        if len(body) > FEW_VALUES_BYTES:
            check_values(body)
        parameters = action.decode(body)
    except msgspec.ValidationError as error:
        raise RequestError("SerializationException", f"A parameter has the wrong type: {error}") from None
    except TooManyValues as error:
        raise RequestError("SerializationException", f"The body of the request is not taken: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RequestError("SerializationException", "The body of the request is not valid JSON.") from None
    for member in _DECISIVE:
        count = body.count(member)
        if count < 2 or (member is _MESSAGE_BODY and _has_one_each(parameters, count, body)):
            continue
        if _repeats_member(body):
            raise RequestError("SerializationException", "The body of the request names a member twice.")
    if b"\\u" in body and has_escaped_name(body) and _repeats_member(body):
        raise RequestError("SerializationException", "The body of the request names a member twice.")
    return parameters if request.path == b"/" else _with_queue_of_path(parameters, request)


def has_escaped_name(body: bytes) -> bool:
    """The same either way: on from each escape, or back from each name. A text of another alphabet is nothing but
    escapes from clients that write ASCII alone."""
    if len(body) < _BYTES_PER_QUOTE * body.count(b'"'):
        return _ESCAPED_NAME.search(body) is not None
    for found in _NAME_END.finditer(body):
        end = found.start()
        escape = body.rfind(b"\\u", body.rfind(b'"', 0, end) + 1, end)
        if escape >= 0 and body.find(b"\\", escape + 1, end) < 0:
            return True
    return False


def _with_queue_of_path(parameters: Any, request: Request) -> Any:
    """A request to the path of a queue need not name it again."""
    if getattr(parameters, "queue_url", "") is None:
        address = read_queue_path(request.path)
        if address is not None:
            parameters.queue_url = make_queue_url(request.base_url, address)
    return parameters


def _has_one_each(parameters: Any, count: int, body: bytes) -> bool:
    """A batch whose entries each have a body, named so many times in all, where no name can be written otherwise: then
    none has two."""
    entries = parameters.entries if type(parameters) is SendMessageBatch else None
    return (
        entries is not None
        and len(entries) == count
        and b"\\u" not in body
        and None not in [entry.message_body for entry in entries]
    )


def _repeats_member(body: bytes) -> bool:
    """The slow and certain answer, asked only for when the quick look found a reason."""
    try:
        return repeated_member(body) is not None
    except (ValueError, RecursionError):
        return True


def _refusal_of(request: Request, action_name: str, error: Exception) -> RequestError:
    """What a caller is told of an error. Of a bug it learns the request id and nothing else; the log has the rest."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, MetadataUnavailable):
        return unavailable("The service is not available. Try again.", error.retry_after_s)
    _log.error("request_failed", request_id=request.request_id, action=action_name, exc_info=error)
    return RequestError("InternalFailure", "The request could not be completed.")


def _address_of(request: Request, caller: Principal) -> Address:
    """The queue that a refused request names; without a name where it names none."""
    try:
        url = read_form(request).get("QueueUrl") if is_query(request) else _decode_named(request.body).queue_url
        return read_queue_url(url if isinstance(url, str) else None, caller.account_id)
    except (RequestError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read_queue_path(request.path) or Address(caller.account_id, "")


def _named_for(action_name: str, error: RequestError) -> RequestError:
    """SQS has names of its own for a body that is too large."""
    if error.code != "RequestTooLarge":
        return error
    if action_name == "SendMessageBatch":
        return RequestError("BatchRequestTooLong", f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes.")
    if action_name == "SendMessage":
        return invalid(
            f"One or more parameters are invalid. Reason: Message must be shorter than {MESSAGE_BYTES_MAX} bytes."
        )
    return error


def _refuse(request: Request, error: RequestError) -> HttpResponse:
    kind = error.kind
    headers = [
        _CONTENT_TYPE,
        (b"x-amzn-requestid", request.request_id.encode()),
        (b"x-amzn-query-error", f"{kind.query_code};{'Receiver' if kind.status >= 500 else 'Sender'}".encode()),
    ]
    if error.retry_after_s is not None:
        headers.append((_RETRY_AFTER, str(error.retry_after_s).encode()))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allowed.encode()))
    if request.is_unread:
        headers.append(CLOSE_CONNECTION)
    member = "Message" if error.code in _CAPITAL_MESSAGE else "message"
    body = msgspec.json.encode({"__type": f"{kind.namespace}#{error.code}", member: error.message})
    return HttpResponse(kind.status, headers, body)


def _log_slow(request: Request, action_name: str, outcome: str, seconds: float) -> None:
    _log.warning(
        "request_slow",
        request_id=request.request_id,
        action=action_name,
        outcome=outcome,
        duration_ms=round(seconds * 1000),
    )
