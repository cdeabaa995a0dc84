"""REST: groups of people of the account."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from api.accounts.views import PAGE_PARAMETERS
from api.iam import selectors
from api.iam.actions import groups, policies
from api.iam.serializers import GroupNameSerializer, GroupPageSerializer, GroupSerializer, NewGroupSerializer
from api.internal.rest import caller
from api.operation_view import OperationView, Tagged
from api.pages import page_asked


class GroupsView(OperationView):
    @extend_schema(operation_id="groups.list", parameters=PAGE_PARAMETERS, responses=GroupPageSerializer)
    def get(self, request: Request) -> Response:
        """The account's groups, by name."""
        page = page_asked(request)
        found = selectors.groups_of(caller(request).account_id, page.after, page.size + 1)
        shown = found[: page.size]
        token = page.token(shown[-1].name) if len(found) > page.size else None
        return Response({"groups": GroupNameSerializer(shown, many=True).data, "next_page_token": token})

    @extend_schema(operation_id="groups.create", request=NewGroupSerializer, responses={201: GroupSerializer})
    def post(self, request: Request) -> Response:
        """A group without members and policies."""
        asked = NewGroupSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        group = groups.create_group(who, who.account_id, asked.validated_data["name"])
        return Response(GroupSerializer(group).data, status=201)


class GroupView(OperationView):
    tagged = Tagged()

    @extend_schema(operation_id="groups.get", responses=GroupSerializer)
    def get(self, request: Request, group: str) -> Response:
        return _shown(request, group)

    @extend_schema(operation_id="groups.delete", responses={204: None})
    def delete(self, request: Request, group: str) -> Response:
        """Its members lose the policies that it gave them."""
        who = caller(request)
        groups.delete_group(who, who.account_id, group)
        return Response(status=204)


class GroupMemberView(OperationView):
    @extend_schema(operation_id="groups.add_member", request=None, responses=GroupSerializer)
    def put(self, request: Request, group: str, person_id: uuid.UUID) -> Response:
        """A member of the account has the policies of the group as well."""
        who = caller(request)
        groups.add_member(who, who.account_id, group, person_id)
        return _shown(request, group)

    @extend_schema(operation_id="groups.remove_member", responses={200: GroupSerializer})
    def delete(self, request: Request, group: str, person_id: uuid.UUID) -> Response:
        who = caller(request)
        groups.remove_member(who, who.account_id, group, person_id)
        return _shown(request, group)


class GroupAttachmentView(OperationView):
    @extend_schema(operation_id="groups.attach_policy", request=None, responses=GroupSerializer)
    def put(self, request: Request, group: str, policy_name: str) -> Response:
        """All members of the group have the policy."""
        who = caller(request)
        policies.attach_to_group(who, who.account_id, group, policy_name)
        return _shown(request, group)

    @extend_schema(operation_id="groups.detach_policy", responses={200: GroupSerializer})
    def delete(self, request: Request, group: str, policy_name: str) -> Response:
        who = caller(request)
        policies.detach_from_group(who, who.account_id, group, policy_name)
        return _shown(request, group)


def _shown(request: Request, name: str) -> Response:
    found = selectors.group_of(caller(request).account_id, name)
    if found is None:
        raise NotFound
    return Response(GroupSerializer(found).data)
