"""REST: sign-in, sign-out, the sessions of a person."""

from __future__ import annotations

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from api import clock
from api.people import selectors
from api.people.actions import sessions
from api.people.authentication import signed_in
from api.people.errors import not_found
from api.people.serializers import (
    AuthenticationSerializer,
    ChallengeAnswerSerializer,
    ChallengeSerializer,
    NewSessionSerializer,
    SessionSerializer,
    SessionsSerializer,
    SignInSerializer,
)
from api.people.views.base import OpenView, SignedInView


class SessionView(SignedInView):
    """POST is for callers without a session, GET and DELETE are for those who have one."""

    def get_permissions(self) -> list[Any]:
        return [] if self.request.method == "POST" else list(super().get_permissions())

    @extend_schema(
        auth=[],
        operation_id="session.begin",
        request=SignInSerializer,
        responses={201: NewSessionSerializer, 202: ChallengeSerializer},
    )
    def post(self, request: Request) -> Response:
        """Signs in: 201 with a session, or 202 with a challenge where the second factor is on."""
        given = self.asked(request, SignInSerializer)
        found = sessions.sign_in(self.origin(request), given["email"], given["password"])
        if isinstance(found, sessions.Challenge):
            return Response({"challenge_token": found.token}, status=202)
        return _new_session(found)

    @extend_schema(operation_id="session.get", responses=SessionSerializer)
    def get(self, request: Request) -> Response:
        """The session of the token that asks."""
        return Response(SessionSerializer(signed_in(request).session).data)

    @extend_schema(operation_id="session.end", responses={204: None})
    def delete(self, request: Request) -> Response:
        """Signs out."""
        person, session = signed_in(request)
        sessions.end_session(self.origin(request), person, session.pk)
        return Response(status=204)


class ChallengeView(OpenView):
    @extend_schema(
        operation_id="session.answer_challenge",
        request=ChallengeAnswerSerializer,
        responses={201: NewSessionSerializer},
    )
    def post(self, request: Request) -> Response:
        """The second step of a sign-in: the code of the authenticator application, or a recovery code."""
        given = self.asked(request, ChallengeAnswerSerializer)
        return _new_session(sessions.answer_challenge(self.origin(request), given["challenge_token"], given["code"]))


class AuthenticationView(SignedInView):
    @extend_schema(
        operation_id="session.authenticate", request=AuthenticationSerializer, responses={200: SessionSerializer}
    )
    def post(self, request: Request) -> Response:
        """The password (and code) again: security settings may be changed for ten minutes."""
        given = self.asked(request, AuthenticationSerializer)
        session = signed_in(request).session
        sessions.authenticate_again(self.origin(request), session, given["password"], given["code"])
        return Response(SessionSerializer(session).data)


class SessionsView(SignedInView):
    @extend_schema(operation_id="sessions.list", responses=SessionsSerializer)
    def get(self, request: Request) -> Response:
        """The person's live sessions, the latest one first."""
        found = selectors.sessions_of(signed_in(request).person, clock.now())
        return Response({"sessions": SessionSerializer(found, many=True).data})

    @extend_schema(operation_id="sessions.end_all", responses={204: None})
    def delete(self, request: Request) -> Response:
        """Ends all sessions of the person, this one too."""
        sessions.end_all_sessions(self.origin(request), signed_in(request).person)
        return Response(status=204)


class OneSessionView(SignedInView):
    @extend_schema(operation_id="sessions.end", responses={204: None})
    def delete(self, request: Request, session_id: uuid.UUID) -> Response:
        """Ends one session of the person."""
        if not sessions.end_session(self.origin(request), signed_in(request).person, session_id):
            raise not_found()
        return Response(status=204)


def _new_session(new: sessions.NewSession) -> Response:
    return Response({"session": SessionSerializer(new.session).data, "session_token": new.token}, status=201)
