"""REST: sign-up, passwords, the person who is signed in, the second factor."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from api import clock
from api.operation_view import Tagged
from api.people import selectors
from api.people.actions import enrolment, factors, new_passwords, passkeys
from api.people.actions.sessions import require_recent
from api.people.authentication import signed_in
from api.people.errors import not_found
from api.people.serializers import (
    CodeSerializer,
    ConfirmationSerializer,
    EmailSerializer,
    EnrolledSerializer,
    NewPasswordSerializer,
    PasskeysSerializer,
    PersonSerializer,
    RecoveryCodesSerializer,
    ResetSerializer,
    SignUpSerializer,
    TotpSerializer,
)
from api.people.views.base import OpenView, SignedInView


class PeopleView(OpenView):
    @extend_schema(operation_id="people.sign_up", request=SignUpSerializer, responses={202: None})
    def post(self, request: Request) -> Response:
        """A mail follows: a token to confirm with, or, to a person who has an account, that there is one."""
        given = self.asked(request, SignUpSerializer)
        enrolment.sign_up(self.origin(request), given["email"], given["password"])
        return Response(status=202)


class ConfirmationView(OpenView):
    @extend_schema(operation_id="people.confirm", request=ConfirmationSerializer, responses={201: EnrolledSerializer})
    def post(self, request: Request) -> Response:
        """Confirms the address of a sign-up, with its password. Creates an account of which the person is the owner."""
        given = self.asked(request, ConfirmationSerializer)
        origin = self.origin(request)
        enrolled = enrolment.confirm(origin, given["token"], given["password"], given["name"], given["account_title"])
        content = {**PersonSerializer(enrolled.person).data, "account_id": enrolled.account_id}
        return Response(content, status=201)


class PasswordResetView(OpenView):
    @extend_schema(operation_id="people.ask_for_reset", request=EmailSerializer, responses={202: None})
    def post(self, request: Request) -> Response:
        """A mail with a token follows if there is such a person. The answer does not tell."""
        given = self.asked(request, EmailSerializer)
        new_passwords.ask_for_reset(self.origin(request), given["email"])
        return Response(status=202)


class PasswordView(OpenView):
    @extend_schema(operation_id="people.reset_password", request=ResetSerializer, responses={204: None})
    def post(self, request: Request) -> Response:
        """A new password by the token of a mail. All sessions of the person end."""
        given = self.asked(request, ResetSerializer)
        new_passwords.reset_password(self.origin(request), given["token"], given["new_password"])
        return Response(status=204)


class MeView(SignedInView):
    tagged = Tagged(lock=None)

    @extend_schema(operation_id="people.me", responses=PersonSerializer)
    def get(self, request: Request) -> Response:
        """The person who is signed in."""
        return Response(PersonSerializer(signed_in(request).person).data)


class MyPasswordView(SignedInView):
    @extend_schema(operation_id="people.change_password", request=NewPasswordSerializer, responses={204: None})
    def post(self, request: Request) -> Response:
        """A new password. All other sessions of the person end. Needs a recent authentication."""
        given = self.asked(request, NewPasswordSerializer)
        session = signed_in(request).session
        current, new = given["current_password"], given["new_password"]
        new_passwords.change_password(self.origin(request), session, current, new)
        return Response(status=204)


class TotpView(SignedInView):
    @extend_schema(operation_id="second_factor.begin", request=None, responses={201: TotpSerializer})
    def post(self, request: Request) -> Response:
        """A secret for an authenticator application; on once a code confirms it. Needs a recent authentication."""
        session = signed_in(request).session
        require_recent(session, clock.now())
        return Response(factors.begin_totp(self.origin(request), session)._asdict(), status=201)

    @extend_schema(operation_id="second_factor.remove", responses={204: None})
    def delete(self, request: Request) -> Response:
        """The application is forgotten; without a passkey the second factor is off. Needs a recent authentication."""
        session = signed_in(request).session
        require_recent(session, clock.now())
        factors.remove_totp(self.origin(request), session)
        return Response(status=204)


class TotpConfirmationView(SignedInView):
    @extend_schema(
        operation_id="second_factor.confirm", request=CodeSerializer, responses={200: RecoveryCodesSerializer}
    )
    def post(self, request: Request) -> Response:
        """The second factor is on. The recovery codes are in this answer and nowhere else; there are none in it where a
        passkey had brought them."""
        given = self.asked(request, CodeSerializer)
        session = signed_in(request).session
        require_recent(session, clock.now())
        return Response({"recovery_codes": factors.confirm_totp(self.origin(request), session, given["code"])})


class RecoveryCodesView(SignedInView):
    @extend_schema(
        operation_id="second_factor.renew_recovery_codes", request=None, responses={200: RecoveryCodesSerializer}
    )
    def post(self, request: Request) -> Response:
        """New recovery codes; those before no longer work. Needs a recent authentication."""
        session = signed_in(request).session
        require_recent(session, clock.now())
        return Response({"recovery_codes": factors.renew_recovery_codes(self.origin(request), session)})


class PasskeysView(SignedInView):
    @extend_schema(operation_id="passkeys.list", responses=PasskeysSerializer)
    def get(self, request: Request) -> Response:
        """The person's passkeys, the oldest one first. They are added in the console, whose pages they are bound to."""
        found = selectors.passkeys_of(signed_in(request).person)
        return Response(PasskeysSerializer({"passkeys": found}).data)


class PasskeyView(SignedInView):
    @extend_schema(operation_id="passkeys.remove", responses={204: None})
    def delete(self, request: Request, passkey_id: uuid.UUID) -> Response:
        """The passkey no longer signs in; with the last factor the recovery codes go, too. Needs a recent
        authentication."""
        session = signed_in(request).session
        require_recent(session, clock.now())
        if not passkeys.remove_passkey(self.origin(request), session, passkey_id):
            raise not_found()
        return Response(status=204)
