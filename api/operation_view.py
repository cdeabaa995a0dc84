"""What every view of the management interface is made of: operations, some of which are carried out once."""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from django.http import HttpResponse
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from api.idempotency.asked import HEADER, outcome_asked
from api.idempotency.outcomes import answer_once

KEYED_METHODS = frozenset(("POST", "PATCH"))


class Repetition(enum.Enum):
    """How POST and PATCH of a view take an Idempotency-Key. PUT and DELETE need none, and take none."""

    # All that they do is one transaction, and the outcome is kept in it.
    ONE_TRANSACTION = enum.auto()
    # They wait for storage behind their commit, and do nothing twice.
    WAITS = enum.auto()
    # They change nothing: the header says nothing to them.
    READS = enum.auto()
    # Nobody is known who could repeat them, or their answer is bound to the moment: the header is refused.
    NEVER = enum.auto()


def takes_key(view: object, method: str) -> bool:
    """Does an Idempotency-Key count for this method of the view?"""
    kept = getattr(view, "repetition", None) in (Repetition.ONE_TRANSACTION, Repetition.WAITS)
    return kept and method in KEYED_METHODS


class OperationView(APIView):
    repetition: ClassVar[Repetition] = Repetition.ONE_TRANSACTION

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Behind this, with the caller known and allowed, `dispatch` takes the handler by its name."""
        super().initial(request, *args, **kwargs)
        name = (request.method or "").lower()
        handler = getattr(self, name, None)
        if handler is not None:
            setattr(self, name, partial(self._run, handler))

    def _run(
        self, handler: Callable[..., HttpResponse], request: Request, *args: object, **kwargs: object
    ) -> HttpResponse:
        run = partial(handler, request, *args, **kwargs)
        method = request.method or ""
        if self.repetition is Repetition.NEVER and method in KEYED_METHODS and HEADER in request.headers:
            raise ValidationError({HEADER: "is not taken by this operation"})
        asked = outcome_asked(request) if takes_key(self, method) else None
        if asked is None:
            return run()
        is_one_transaction = self.repetition is Repetition.ONE_TRANSACTION
        return answer_once(asked, is_one_transaction, partial(self._settled, run))

    def _settled(self, run: Callable[[], HttpResponse]) -> Response:
        """The answer of a handler, also where it is a refusal. Raises our own bugs."""
        try:
            response = run()
        except Exception as error:
            response = self.handle_exception(error)
        assert isinstance(response, Response)
        return response
