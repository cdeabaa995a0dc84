"""REST: named policies of the account, and the members who have them."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from api.accounts.views import PAGE_PARAMETERS
from api.iam import selectors
from api.iam.actions import policies
from api.iam.authorisation import allowed_items
from api.iam.documents import stored_form
from api.iam.serializers import (
    AttachedSerializer,
    ListedPolicySerializer,
    NewPolicySerializer,
    PolicyDocumentSerializer,
    PolicyPageSerializer,
    PolicySerializer,
)
from api.internal.rest import caller
from api.operation_view import OperationView, Tagged
from api.pages import page_asked
from frontend.authz.actions import MANAGEMENT_OPERATIONS


class PoliciesView(OperationView):
    @extend_schema(operation_id="policies.list", parameters=PAGE_PARAMETERS, responses=PolicyPageSerializer)
    def get(self, request: Request) -> Response:
        """The account's named policies, by name."""
        page = page_asked(request)
        found = selectors.policies_of(caller(request).account_id, page.after, page.size + 1)
        shown = found[: page.size]
        token = page.token(shown[-1].name) if len(found) > page.size else None
        names = [policy.name for policy in shown]
        readable = set(allowed_items(caller(request), MANAGEMENT_OPERATIONS["policies.get"], names))
        listed = ListedPolicySerializer(shown, many=True, context={"readable": readable}).data
        return Response({"policies": listed, "next_page_token": token})

    @extend_schema(operation_id="policies.create", request=NewPolicySerializer, responses={201: PolicySerializer})
    def post(self, request: Request) -> Response:
        """A policy that keys, members and groups can be given."""
        asked = NewPolicySerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        given, who = asked.validated_data, caller(request)
        text = stored_form(given["policy"])
        return Response(PolicySerializer(policies.create_policy(who, who.account_id, given["name"], text)).data, 201)


class PolicyView(OperationView):
    tagged = Tagged()

    @extend_schema(operation_id="policies.get", responses=PolicySerializer)
    def get(self, request: Request, policy: str) -> Response:
        found = selectors.policy_of(caller(request).account_id, policy)
        if found is None:
            raise NotFound
        return Response(PolicySerializer(found).data)

    @extend_schema(operation_id="policies.update", request=PolicyDocumentSerializer, responses=PolicySerializer)
    def put(self, request: Request, policy: str) -> Response:
        """Another document, for all who have the policy."""
        asked = PolicyDocumentSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        text = stored_form(asked.validated_data["policy"])
        return Response(PolicySerializer(policies.update_policy(who, who.account_id, policy, text)).data)

    @extend_schema(operation_id="policies.delete", responses={204: None})
    def delete(self, request: Request, policy: str) -> Response:
        """A policy that is attached to nothing."""
        who = caller(request)
        policies.delete_policy(who, who.account_id, policy)
        return Response(status=204)


class MemberPoliciesView(OperationView):
    tagged = Tagged()

    @extend_schema(operation_id="member_policies.list", responses=AttachedSerializer)
    def get(self, request: Request, person_id: uuid.UUID) -> Response:
        """The policies that are attached to a member, not those of the member's groups."""
        return _of_member(request, person_id)


class MemberAttachmentView(OperationView):
    @extend_schema(operation_id="member_policies.attach", request=None, responses=AttachedSerializer)
    def put(self, request: Request, person_id: uuid.UUID, policy_name: str) -> Response:
        """In addition to what the role allows."""
        who = caller(request)
        policies.attach_to_member(who, who.account_id, person_id, policy_name)
        return _of_member(request, person_id)

    @extend_schema(operation_id="member_policies.detach", responses={200: AttachedSerializer})
    def delete(self, request: Request, person_id: uuid.UUID, policy_name: str) -> Response:
        """What the role and the groups allow stays."""
        who = caller(request)
        policies.detach_from_member(who, who.account_id, person_id, policy_name)
        return _of_member(request, person_id)


def _of_member(request: Request, person_id: uuid.UUID) -> Response:
    attached = selectors.attached_to_member(caller(request).account_id, person_id)
    if attached is None:
        raise NotFound
    return Response({"attached": attached})
