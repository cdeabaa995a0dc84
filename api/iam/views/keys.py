"""REST: what a key may do, and its rotation."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from api.accounts.selectors import lock_key
from api.accounts.serializers import NewKeySerializer
from api.accounts.views import new_key_answer
from api.iam import selectors
from api.iam.actions import keys, policies
from api.iam.documents import stored_form
from api.iam.serializers import (
    AttachedSerializer,
    KeyPolicySerializer,
    PolicyDocumentSerializer,
    RotationSerializer,
    document_json,
)
from api.internal.rest import caller
from api.operation_view import OperationView, Tagged


class KeyRotationView(OperationView):
    @extend_schema(operation_id="keys.rotate", request=RotationSerializer, responses={201: NewKeySerializer})
    def post(self, request: Request, access_key_id: str) -> Response:
        """A new key with the name, policies, tags and quotas of this one, which ends after the grace period."""
        asked = RotationSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        grace_s = asked.validated_data["grace_seconds"]
        return new_key_answer(keys.rotate_key(who, who.account_id, access_key_id, grace_s))


class KeyPolicyView(OperationView):
    tagged = Tagged(lock=lambda account_id, path: lock_key(account_id, **path))

    @extend_schema(operation_id="keys.get_policy", responses=KeyPolicySerializer)
    def get(self, request: Request, access_key_id: str) -> Response:
        """What the key may do: its own policy, and those that are attached to it."""
        return _shown(request, access_key_id)

    @extend_schema(operation_id="keys.put_policy", request=PolicyDocumentSerializer, responses=KeyPolicySerializer)
    def put(self, request: Request, access_key_id: str) -> Response:
        """The key's own policy, in place of the one that it had. In force at once."""
        asked = PolicyDocumentSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        keys.put_key_policy(who, who.account_id, access_key_id, stored_form(asked.validated_data["policy"]))
        return _shown(request, access_key_id)

    @extend_schema(operation_id="keys.delete_policy", responses={200: KeyPolicySerializer})
    def delete(self, request: Request, access_key_id: str) -> Response:
        """The key stays restricted: without any policy it may do nothing."""
        who = caller(request)
        keys.delete_key_policy(who, who.account_id, access_key_id)
        return _shown(request, access_key_id)


class KeyAttachmentView(OperationView):
    @extend_schema(operation_id="keys.attach_policy", request=None, responses=AttachedSerializer)
    def put(self, request: Request, access_key_id: str, policy_name: str) -> Response:
        """From now on the key is restricted to what its policies allow."""
        who = caller(request)
        policies.attach_to_key(who, who.account_id, access_key_id, policy_name)
        return Response({"attached": selectors.attached_to_key(who.account_id, access_key_id)})

    @extend_schema(operation_id="keys.detach_policy", responses={200: AttachedSerializer})
    def delete(self, request: Request, access_key_id: str, policy_name: str) -> Response:
        """The key stays restricted: without any policy it may do nothing."""
        who = caller(request)
        policies.detach_from_key(who, who.account_id, access_key_id, policy_name)
        return Response({"attached": selectors.attached_to_key(who.account_id, access_key_id)})


def _shown(request: Request, access_key_id: str) -> Response:
    account_id = caller(request).account_id
    if selectors.key_rights(account_id, access_key_id) is None:
        raise NotFound
    access = selectors.access_of_key(account_id, access_key_id)
    own = None if access is None or not access.policy else document_json(access.policy)
    attached = selectors.attached_to_key(account_id, access_key_id)
    return Response({"restricted": access is not None, "policy": own, "attached": attached})
