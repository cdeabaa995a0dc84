"""Which requests are hot, by the head alone; and the function of the wire that answers them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from frontend.express.call import Answering
from frontend.http import Request
from frontend.rest.messages import ROUTES
from frontend.rest.serve import answer_rest, find_route
from frontend.sqs.protocol import answer_sqs

if TYPE_CHECKING:
    from frontend.services import FrontendServices

AnswerRequest = Callable[[Request], Answering]

_SQS_TARGETS = frozenset(
    b"AmazonSQS." + action
    for action in (
        b"SendMessage",
        b"SendMessageBatch",
        b"ReceiveMessage",
        b"DeleteMessage",
        b"DeleteMessageBatch",
        b"ChangeMessageVisibility",
        b"ChangeMessageVisibilityBatch",
    )
)
_REST_ROUTES = frozenset(ROUTES.values())
_REST_START = b"/v1/queues/"
# Each asks for something that uvicorn's class does: another protocol, a word before the body, chunks put together.
_MORE = frozenset((b"expect", b"upgrade", b"transfer-encoding"))


class HotRequests:
    """Of one front end."""

    __slots__ = ("_answer_rest", "_answer_sqs")

    def __init__(self, services: FrontendServices) -> None:
        self._answer_sqs = partial(answer_sqs, services)
        self._answer_rest = partial(answer_rest, services)

    def find(self, url: bytes, named: dict[bytes, bytes]) -> AnswerRequest | None:
        """What answers a POST with this head; None where it is not hot. Names of headers are in lower case; of one that
        is repeated any stands there: the wire refuses it. A head without a host is refused elsewhere."""
        if b"host" not in named or not _MORE.isdisjoint(named):
            return None
        if url == b"/":
            return self._answer_sqs if named.get(b"x-amz-target") in _SQS_TARGETS else None
        if url.startswith(_REST_START) and _is_hot_route(url):
            return self._answer_rest
        return None


def _is_hot_route(url: bytes) -> bool:
    found = find_route(url)
    return found is not None and found[0] in _REST_ROUTES
