"""One authenticated request of the REST data API, the routes that answer it, and what their answers share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from frontend.authn.principal import Principal
from frontend.errors import RequestError
from frontend.http import Request
from frontend.queues.names import Address
from frontend.rest.problems import in_members, problem_code

if TYPE_CHECKING:
    from frontend.services import FrontendServices

encode_answer = msgspec.json.Encoder().encode


class RestCall(msgspec.Struct, frozen=True):
    """The request with the proof of who sent it, and the queue that its path names. `encode` makes its answer."""

    services: FrontendServices
    request: Request
    caller: Principal
    address: Address
    encode: Callable[[object], bytes] = encode_answer


class Route(NamedTuple):
    """`decode` reads the body of a request, `run` makes the answer; `action` is what metrics call it.

    decode_msgpack  reads bodies in msgpack; None where there are none, and answers are JSON
    """

    action: str
    decode: Callable[[bytes], Any]
    run: Callable[[RestCall, Any], Awaitable[bytes]]
    method: str = "POST"
    decode_msgpack: Callable[[bytes], Any] | None = None


def raise_if_none_done(outcomes: Sequence[RequestError | None]) -> None:
    """A batch is refused where it is one entry that failed, or where the service failed with all of it: else each entry
    is told its own outcome. Raises RequestError."""
    first = outcomes[0]
    if first is not None and (
        len(outcomes) == 1 or all(one is not None and one.kind.status >= 500 for one in outcomes)
    ):
        raise first


def error_json(error: RequestError) -> dict[str, object]:
    """The outcome of one message or receipt of a batch."""
    return {"error": {"code": problem_code(error), "detail": in_members(error.message)}}
