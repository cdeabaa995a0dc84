"""REST: encryption keys."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from api.accounts.views import PAGE_PARAMETERS
from api.encryption import actions, selectors
from api.encryption.models import EncryptionKey
from api.encryption.serializers import (
    EncryptionKeyChangeSerializer,
    EncryptionKeyPageSerializer,
    EncryptionKeySerializer,
    EncryptionKeyUsesSerializer,
    KeyDeletionSerializer,
    ListedEncryptionKeySerializer,
    NewEncryptionKeySerializer,
)
from api.iam.authorisation import allowed_items
from api.internal.rest import caller
from api.operation_view import OperationView, Tagged
from api.pages import page_asked
from frontend.authz.actions import MANAGEMENT_OPERATIONS


class EncryptionKeysView(OperationView):
    @extend_schema(
        operation_id="encryption_keys.list", parameters=PAGE_PARAMETERS, responses=EncryptionKeyPageSerializer
    )
    def get(self, request: Request) -> Response:
        """The account's encryption keys, by name."""
        page = page_asked(request)
        found = selectors.keys_of(caller(request).account_id, page.after, page.size + 1)
        shown = found[: page.size]
        token = page.token(shown[-1].name) if len(found) > page.size else None
        ids = [str(key.pk) for key in shown]
        readable = set(allowed_items(caller(request), MANAGEMENT_OPERATIONS["encryption_keys.get"], ids))
        listed = ListedEncryptionKeySerializer(shown, many=True, context={"readable": readable}).data
        return Response({"encryption_keys": listed, "next_page_token": token})

    @extend_schema(
        operation_id="encryption_keys.create",
        request=NewEncryptionKeySerializer,
        responses={201: EncryptionKeySerializer},
    )
    def post(self, request: Request) -> Response:
        """A new key, enabled. Queues use it when their KmsMasterKeyId names it."""
        asked = NewEncryptionKeySerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        made = actions.create_encryption_key(who, who.account_id, **asked.validated_data)
        return _answer(made, 201)


class EncryptionKeyView(OperationView):
    tagged = Tagged()

    @extend_schema(operation_id="encryption_keys.get", responses=EncryptionKeySerializer)
    def get(self, request: Request, encryption_key: str) -> Response:
        return _answer(_found(request, encryption_key))

    @extend_schema(
        operation_id="encryption_keys.update", request=EncryptionKeyChangeSerializer, responses=EncryptionKeySerializer
    )
    def patch(self, request: Request, encryption_key: str) -> Response:
        """Changes what is given of the key."""
        asked = EncryptionKeyChangeSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        change = actions.KeyChange(**asked.validated_data)
        who = caller(request)
        return _answer(actions.update_encryption_key(who, who.account_id, encryption_key, change))


class EncryptionKeyEnableView(OperationView):
    @extend_schema(operation_id="encryption_keys.enable", request=None, responses=EncryptionKeySerializer)
    def post(self, request: Request, encryption_key: str) -> Response:
        """Its queues take and give messages again."""
        who = caller(request)
        return _answer(actions.enable_encryption_key(who, who.account_id, encryption_key))


class EncryptionKeyDisableView(OperationView):
    @extend_schema(operation_id="encryption_keys.disable", request=None, responses=EncryptionKeySerializer)
    def post(self, request: Request, encryption_key: str) -> Response:
        """Its queues neither take nor give messages, until it is enabled."""
        who = caller(request)
        return _answer(actions.disable_encryption_key(who, who.account_id, encryption_key))


class EncryptionKeyRotationView(OperationView):
    @extend_schema(operation_id="encryption_keys.rotate", request=None, responses=EncryptionKeySerializer)
    def post(self, request: Request, encryption_key: str) -> Response:
        """A new version seals from now on; older ones still open what they sealed."""
        who = caller(request)
        return _answer(actions.rotate_encryption_key(who, who.account_id, encryption_key))


class EncryptionKeyDeletionView(OperationView):
    @extend_schema(
        operation_id="encryption_keys.schedule_deletion",
        request=KeyDeletionSerializer,
        responses={202: EncryptionKeySerializer},
    )
    def post(self, request: Request, encryption_key: str) -> Response:
        """The key cannot be used from now on. After the waiting period nothing that it sealed can be opened."""
        asked = KeyDeletionSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who, days = caller(request), asked.validated_data["days"]
        return _answer(actions.schedule_deletion(who, who.account_id, encryption_key, days), 202)

    @extend_schema(operation_id="encryption_keys.cancel_deletion", responses={200: EncryptionKeySerializer})
    def delete(self, request: Request, encryption_key: str) -> Response:
        """The key stays, and is disabled."""
        who = caller(request)
        return _answer(actions.cancel_deletion(who, who.account_id, encryption_key))


class EncryptionKeyUsesView(OperationView):
    @extend_schema(operation_id="encryption_keys.uses", responses=EncryptionKeyUsesSerializer)
    def get(self, request: Request, encryption_key: str) -> Response:
        """How many messages were sealed and opened under the key, by hour, the newest first."""
        uses = selectors.uses_of(_found(request, encryption_key))
        return Response(EncryptionKeyUsesSerializer({"uses": uses}).data)


def _found(request: Request, key_id: str) -> EncryptionKey:
    found = selectors.encryption_key_of(caller(request).account_id, key_id)
    if found is None:
        raise NotFound
    return found


def _answer(key: EncryptionKey, status: int = 200) -> Response:
    return Response(EncryptionKeySerializer(key).data, status=status)
