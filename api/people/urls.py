"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

import api.converters  # noqa: F401 - registers `name`
from api.people.views import accounts, people, sessions

urlpatterns = [
    path("people", people.PeopleView.as_view()),
    path("people/confirmation", people.ConfirmationView.as_view()),
    path("people/password-reset", people.PasswordResetView.as_view()),
    path("people/password", people.PasswordView.as_view()),
    path("people/me", people.MeView.as_view()),
    path("people/me/password", people.MyPasswordView.as_view()),
    path("people/me/totp", people.TotpView.as_view()),
    path("people/me/totp/confirmation", people.TotpConfirmationView.as_view()),
    path("people/me/passkeys", people.PasskeysView.as_view()),
    path("people/me/passkeys/<uuid:passkey_id>", people.PasskeyView.as_view()),
    path("people/me/recovery-codes", people.RecoveryCodesView.as_view()),
    path("session", sessions.SessionView.as_view()),
    path("session/challenge", sessions.ChallengeView.as_view()),
    path("session/authentication", sessions.AuthenticationView.as_view()),
    path("sessions", sessions.SessionsView.as_view()),
    path("sessions/<uuid:session_id>", sessions.OneSessionView.as_view()),
    path("accounts", accounts.AccountsView.as_view()),
    path("accounts/<name:account_id>", accounts.OneAccountView.as_view()),
    path("accounts/<name:account_id>/closing", accounts.ClosingView.as_view()),
    path("accounts/<name:account_id>/members", accounts.MembersView.as_view()),
    path("accounts/<name:account_id>/members/<uuid:person_id>", accounts.MemberView.as_view()),
    path("accounts/<name:account_id>/invitations", accounts.InvitationsView.as_view()),
    path("accounts/<name:account_id>/invitations/<uuid:invitation_id>", accounts.InvitationView.as_view()),
    path("invitations/acceptance", accounts.AcceptanceView.as_view()),
]
