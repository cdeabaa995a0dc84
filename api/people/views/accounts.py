"""REST: the accounts of a person, their members, invitations and closing."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from api import clock
from api.accounts.views import PAGE_PARAMETERS
from api.operation_view import Repetition, Tagged
from api.pages import page_asked
from api.people import selectors
from api.people.actions import account_life, invitations, members
from api.people.actions.sessions import require_recent
from api.people.authentication import signed_in
from api.people.errors import not_found
from api.people.models import AccountMembership
from api.people.origin import origin_of
from api.people.roles import Act, MemberRole
from api.people.serializers import (
    InvitationRequestSerializer,
    InvitationSerializer,
    InvitationsSerializer,
    MemberAccountSerializer,
    MemberAccountsSerializer,
    MemberPageSerializer,
    MemberSerializer,
    RoleSerializer,
    TokenSerializer,
)
from api.people.views.base import SignedInView


class AccountsView(SignedInView):
    @extend_schema(operation_id="accounts.list", responses=MemberAccountsSerializer)
    def get(self, request: Request) -> Response:
        """The accounts that the person is a member of, with the role in each."""
        found = selectors.memberships_of(signed_in(request).person)
        return Response({"accounts": MemberAccountSerializer(found, many=True).data})


class OneAccountView(SignedInView):
    tagged = Tagged(lock=None)

    @extend_schema(operation_id="accounts.get", responses=MemberAccountSerializer)
    def get(self, request: Request, account_id: str) -> Response:
        """One account of the person."""
        return Response(MemberAccountSerializer(_mine(request, account_id, Act.READ_ACCOUNT)).data)


class ClosingView(SignedInView):
    repetition = Repetition.ONE_TRANSACTION

    @extend_schema(operation_id="accounts.close", request=None, responses={200: MemberAccountSerializer})
    def post(self, request: Request, account_id: str) -> Response:
        """Its keys open nothing from now on; it is closed for good after 30 days. Needs a recent authentication."""
        person, session = signed_in(request)
        require_recent(session, clock.now())
        account_life.close_account(self.origin(request), person, account_id)
        return Response(MemberAccountSerializer(_mine(request, account_id, Act.READ_ACCOUNT)).data)

    @extend_schema(operation_id="accounts.reopen", responses={200: MemberAccountSerializer})
    def delete(self, request: Request, account_id: str) -> Response:
        """Takes the closing back, within the 30 days. Needs a recent authentication."""
        person, session = signed_in(request)
        require_recent(session, clock.now())
        account_life.reopen_account(self.origin(request), person, account_id)
        return Response(MemberAccountSerializer(_mine(request, account_id, Act.READ_ACCOUNT)).data)


class MembersView(SignedInView):
    @extend_schema(operation_id="members.list", parameters=PAGE_PARAMETERS, responses=MemberPageSerializer)
    def get(self, request: Request, account_id: str) -> Response:
        """The account's members, by page."""
        _mine(request, account_id, Act.READ_MEMBERS)
        page = page_asked(request)
        found = selectors.members_of(account_id, uuid.UUID(page.after) if page.after else None, page.size + 1)
        shown = found[: page.size]
        token = page.token(shown[-1].person_id) if len(found) > page.size else None
        return Response({"members": MemberSerializer(shown, many=True).data, "next_page_token": token})


class MemberView(SignedInView):
    repetition = Repetition.ONE_TRANSACTION

    @extend_schema(operation_id="members.change_role", request=RoleSerializer, responses={200: MemberSerializer})
    def patch(self, request: Request, account_id: str, person_id: uuid.UUID) -> Response:
        """Another role. Only owners make or change owners. Needs a recent authentication."""
        given = self.asked(request, RoleSerializer)
        person, session = signed_in(request)
        require_recent(session, clock.now())
        member = members.change_role(self.origin(request), person, account_id, person_id, MemberRole(given["role"]))
        return Response(MemberSerializer(member).data)

    @extend_schema(operation_id="members.remove", responses={204: None})
    def delete(self, request: Request, account_id: str, person_id: uuid.UUID) -> Response:
        """Removes a member, which needs a recent authentication; with one's own id: leaves. The last owner stays."""
        person, session = signed_in(request)
        if person_id != person.pk:
            require_recent(session, clock.now())
        members.remove_member(self.origin(request), person, account_id, person_id)
        return Response(status=204)


class InvitationsView(SignedInView):
    repetition = Repetition.ONE_TRANSACTION

    @extend_schema(operation_id="invitations.list", responses=InvitationsSerializer)
    def get(self, request: Request, account_id: str) -> Response:
        """Invitations that can still be accepted."""
        _mine(request, account_id, Act.MANAGE_MEMBERS)
        found = selectors.invitations_of(account_id, clock.now())
        return Response({"invitations": InvitationSerializer(found, many=True).data})

    @extend_schema(
        operation_id="invitations.create", request=InvitationRequestSerializer, responses={201: InvitationSerializer}
    )
    def post(self, request: Request, account_id: str) -> Response:
        """Invites an address; the token is mailed to it. Inviting an owner needs a recent authentication."""
        given = self.asked(request, InvitationRequestSerializer)
        person, session = signed_in(request)
        if given["role"] == MemberRole.OWNER:
            require_recent(session, clock.now())
        origin = self.origin(request)
        made = invitations.invite(origin, person, account_id, given["email"], MemberRole(given["role"]))
        return Response(InvitationSerializer(made).data, status=201)


class InvitationView(SignedInView):
    @extend_schema(operation_id="invitations.withdraw", responses={204: None})
    def delete(self, request: Request, account_id: str, invitation_id: uuid.UUID) -> Response:
        """Its token is good no more."""
        invitations.withdraw(self.origin(request), signed_in(request).person, account_id, invitation_id)
        return Response(status=204)


class AcceptanceView(SignedInView):
    repetition = Repetition.ONE_TRANSACTION

    @extend_schema(operation_id="invitations.accept", request=TokenSerializer, responses={201: MemberAccountSerializer})
    def post(self, request: Request) -> Response:
        """Accepts an invitation that was mailed to the address of the person who is signed in."""
        given = self.asked(request, TokenSerializer)
        person = signed_in(request).person
        joined = invitations.accept(self.origin(request), person, given["token"])
        return Response(MemberAccountSerializer(_mine(request, joined.account_id, Act.READ_ACCOUNT)).data, status=201)


def _mine(request: Request, account_id: str, act: Act) -> AccountMembership:
    """What the person is in the account. An account of others is not found."""
    mine = selectors.membership_of(signed_in(request).person, account_id)
    if mine is None:
        raise not_found()
    members.require(mine, act, origin_of(request._request))
    return mine
