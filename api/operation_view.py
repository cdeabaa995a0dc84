"""What every view of the management interface is made of: operations that happen once, and to what was read."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

from django.db import transaction
from django.http import HttpResponse
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from api.accounts.selectors import locked_account
from api.etags import IF_MATCH, IF_NONE_MATCH, AskedTags, PreconditionFailed, entity_tag, tags_asked
from api.idempotency.asked import HEADER, outcome_asked
from api.idempotency.outcomes import answer_once
from api.internal.rest import caller
from api.query_parameters import check_body, check_query

KEYED_METHODS = frozenset(("POST", "PATCH"))
WRITING_METHODS = frozenset(("PUT", "PATCH", "DELETE"))


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


def _no_row(account_id: str, path: Mapping[str, Any]) -> None:
    """All writers of the resource lock the account."""


class Tagged(NamedTuple):
    """That GET of a view answers one resource, with an ETag. `unwritten` are members that change by themselves.

    `lock` locks the row that all writers lock, behind that of the account; None where PUT, PATCH and DELETE take no
    ETags, or `is_checked_below`: by the action itself, which is given `OperationView.check_of`. With `creates` a PUT
    may be of something that is not there.
    """

    unwritten: frozenset[str] = frozenset()
    lock: Callable[[str, Mapping[str, Any]], object] | None = _no_row
    creates: bool = False
    is_checked_below: bool = False


def takes_key(view: object, method: str) -> bool:
    """Does an Idempotency-Key count for this method of the view?"""
    kept = getattr(view, "repetition", None) in (Repetition.ONE_TRANSACTION, Repetition.WAITS)
    return kept and method in KEYED_METHODS


def takes_etags(view: object, method: str) -> bool:
    """Do If-Match, or If-None-Match of a GET, count for this method of the view?"""
    tagged: Tagged | None = getattr(view, "tagged", None)
    if tagged is None:
        return False
    can_check = tagged.lock is not None or tagged.is_checked_below
    return method == "GET" or (method in WRITING_METHODS and can_check)


def takes_new_only(view: object, method: str) -> bool:
    """Does If-None-Match of a PUT count for this view?"""
    tagged: Tagged | None = getattr(view, "tagged", None)
    return tagged is not None and tagged.creates and method == "PUT"


class OperationView(APIView):
    repetition: ClassVar[Repetition] = Repetition.ONE_TRANSACTION
    tagged: ClassVar[Tagged | None] = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Behind this, with the caller known and allowed, `dispatch` takes the handler by its name."""
        super().initial(request, *args, **kwargs)
        name = (request.method or "").lower()
        handler = getattr(self, name, None)
        if handler is not None:
            setattr(self, name, partial(self._run, handler))

    def check_of(self, request: Request) -> Callable[[Mapping[str, Any]], None] | None:
        """What an action calls with the resource as it is shown, under its lock; None where any will do. It raises
        PreconditionFailed."""
        asked, tagged = tags_asked(request, IF_MATCH), self.tagged
        if asked is None or asked.is_any or tagged is None:
            return None

        def check(shown: Mapping[str, Any]) -> None:
            if not asked.match(entity_tag(shown, tagged.unwritten)):
                raise PreconditionFailed

        return check

    def with_tag(self, response: Response) -> Response:
        """An answer that shows the resource, with its ETag."""
        assert self.tagged is not None
        response["ETag"] = entity_tag(response.data, self.tagged.unwritten)
        return response

    def _run(
        self, handler: Callable[..., HttpResponse], request: Request, *args: object, **kwargs: object
    ) -> HttpResponse:
        method = "GET" if request.method == "HEAD" else request.method or ""
        self._refuse_what_is_not_taken(request, method)
        run = partial(handler, request, *args, **kwargs)
        if takes_etags(self, method):
            if method == "GET":
                return self._read(request, run)
            if self.tagged is not None and not self.tagged.is_checked_below:
                run = partial(self._write, self.tagged, request, method, kwargs, run)
        asked = outcome_asked(request) if takes_key(self, method) else None
        if asked is None:
            return run()
        is_one_transaction = self.repetition is Repetition.ONE_TRANSACTION
        return answer_once(asked, is_one_transaction, partial(self._settled, run))

    def _refuse_what_is_not_taken(self, request: Request, method: str) -> None:
        """What a client relies on must not be left out in silence."""
        check_query(request, self, method)
        check_body(request, self, method)
        if self.repetition is Repetition.NEVER and method in KEYED_METHODS and HEADER in request.headers:
            raise ValidationError({HEADER: "is not taken by this operation"})
        taken = {IF_MATCH: takes_etags(self, method), IF_NONE_MATCH: takes_new_only(self, method)}
        for header, is_taken in taken.items() if method != "GET" else ():
            if header in request.headers and not is_taken:
                raise ValidationError({header: "is not taken by this operation"})

    def _read(self, request: Request, run: Callable[[], HttpResponse]) -> HttpResponse:
        asked, response = tags_asked(request, IF_NONE_MATCH), run()
        if response.status_code != 200 or not isinstance(response, Response):
            return response
        tag = self.with_tag(response)["ETag"]
        if asked is not None and asked.name(tag):
            return Response(status=304, headers={"ETag": tag})
        return response

    def _write(
        self, tagged: Tagged, request: Request, method: str, path: Mapping[str, Any], run: Callable[[], HttpResponse]
    ) -> HttpResponse:
        """Looks at the resource and changes it in one transaction, with the locks of all its writers."""
        only, only_new = tags_asked(request, IF_MATCH), tags_asked(request, IF_NONE_MATCH)
        with transaction.atomic():
            if only is not None or only_new is not None:
                self._require(tagged, request, path, only, only_new)
            response = self._settled(run)
            if response.status_code >= 500:
                transaction.set_rollback(True)
            elif response.status_code < 300 and method != "DELETE":
                response["ETag"] = self._now(request, path)["ETag"]
        return response

    def _require(
        self,
        tagged: Tagged,
        request: Request,
        path: Mapping[str, Any],
        only: AskedTags | None,
        only_new: AskedTags | None,
    ) -> None:
        """Raises PreconditionFailed. What is absent, and is not made by this, is left to the handler to refuse."""
        account_id = caller(request).account_id
        locked_account(account_id)
        if tagged.lock is not None:
            tagged.lock(account_id, path)
        found = self._now(request, path)
        if found.status_code != 200:
            if only is not None and tagged.creates and request.method == "PUT":
                raise PreconditionFailed
            return
        tag = found["ETag"]
        if (only is not None and not only.match(tag)) or (only_new is not None and only_new.match(tag)):
            raise PreconditionFailed

    def _now(self, request: Request, path: Mapping[str, Any]) -> Response:
        """What GET would answer."""
        read: Callable[..., HttpResponse] = getattr(self, "get")  # noqa: B009 - of the view that is tagged
        response = self._settled(partial(read, request, **path))
        return self.with_tag(response) if response.status_code == 200 else response

    def _settled(self, run: Callable[[], HttpResponse]) -> Response:
        """The answer of a handler, also where it is a refusal. Raises our own bugs."""
        try:
            response = run()
        except Exception as error:
            response = self.handle_exception(error)
        assert isinstance(response, Response)
        return response
