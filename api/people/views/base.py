"""What the views of people share: how a refusal is answered, and that no answer is cached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from api.audit.refusals import note_refusals
from api.operation_view import OperationView, Repetition
from api.people.authentication import IsSignedIn, SessionTokenAuthentication
from api.people.errors import ActDenied, PeopleError
from api.people.origin import RequestOrigin, member_refusal, origin_of


class _Refused(APIException):
    """A PeopleError in the form that `api/problems.py` writes."""

    def __init__(self, error: PeopleError) -> None:
        super().__init__(error.detail)
        self.status_code = error.status
        self.default_code = error.code
        self.wait = error.retry_after_s


class OpenView(OperationView):
    """For callers without a session."""

    authentication_classes: Sequence[type[BaseAuthentication]] = ()
    permission_classes: Sequence[type[BasePermission]] = ()
    # Most of them are about passwords, codes and sessions, or their caller is not known.
    repetition = Repetition.NEVER

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, ActDenied):
            note_refusals([member_refusal(exc.account_id, exc.person_id, exc.act, self.origin(self.request))])
        return super().handle_exception(_Refused(exc) if isinstance(exc, PeopleError) else exc)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer = super().finalize_response(request, response, *args, **kwargs)
        answer["Cache-Control"] = "no-store"
        return answer

    def asked(self, request: Request, serializer: type[Serializer]) -> dict[str, Any]:
        """The validated body. Raises ValidationError."""
        read = serializer(data=request.data)
        read.is_valid(raise_exception=True)
        given: dict[str, Any] = read.validated_data
        return given

    def origin(self, request: Request) -> RequestOrigin:
        return origin_of(request._request)


class SignedInView(OpenView):
    authentication_classes = (SessionTokenAuthentication,)
    permission_classes = (IsSignedIn,)
