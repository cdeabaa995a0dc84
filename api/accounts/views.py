"""REST: the account and its keys."""

from __future__ import annotations

from django.db import transaction
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from api.accounts import actions, selectors
from api.accounts.serializers import (
    AccountSerializer,
    AccountSettingsSerializer,
    KeyPageSerializer,
    KeyRequestSerializer,
    KeySerializer,
    ListedKeySerializer,
    NewKeySerializer,
)
from api.iam.actions import keys
from api.iam.authorisation import allowed_items
from api.iam.documents import scoped_text, stored_form
from api.iam.serializers import KeyChangeSerializer
from api.internal.rest import caller
from api.operation_view import OperationView, Tagged
from api.pages import page_asked
from api.people.actions.account_life import rename_account
from frontend.authz.actions import MANAGEMENT_OPERATIONS

PAGE_PARAMETERS = [
    OpenApiParameter("page_size", OpenApiTypes.INT, description="1 to 1000, 100 if not given."),
    OpenApiParameter("page_token", OpenApiTypes.STR, description="`next_page_token` of the page before."),
]


def new_key_answer(new: actions.NewKey) -> Response:
    secrets = {"secret_access_key": new.secret_access_key, "bearer_token": new.bearer_token}
    return Response({**KeySerializer(new.key).data, **secrets}, status=201, headers={"Cache-Control": "no-store"})


class AccountView(OperationView):
    tagged = Tagged()

    @extend_schema(operation_id="account.get", responses=AccountSerializer)
    def get(self, request: Request) -> Response:
        """The account of the key that asks."""
        account = selectors.account_of(caller(request).account_id)
        if account is None:
            raise NotFound
        return Response(AccountSerializer(account).data)

    @extend_schema(operation_id="account.update", request=AccountSettingsSerializer, responses=AccountSerializer)
    def patch(self, request: Request) -> Response:
        """Changes the account's title and settings."""
        asked = AccountSettingsSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        given, who = asked.validated_data, caller(request)
        protection, grace_days = given.get("deletion_protection"), given.get("deletion_grace_days")
        with transaction.atomic():
            if "title" in given:
                rename_account(who, who.account_id, given["title"])
            account = actions.set_deletion_rules(who, who.account_id, protection, grace_days)
            if "auto_create_queues" in given:
                account = actions.set_auto_create(who, who.account_id, given["auto_create_queues"])
        return Response(AccountSerializer(account).data)


class KeysView(OperationView):
    @extend_schema(operation_id="keys.list", parameters=PAGE_PARAMETERS, responses=KeyPageSerializer)
    def get(self, request: Request) -> Response:
        """The account's keys, without their secrets."""
        page = page_asked(request)
        found = selectors.keys_of(caller(request).account_id, page.after, page.size + 1)
        shown = found[: page.size]
        token = page.token(shown[-1].access_key_id) if len(found) > page.size else None
        ids = [key.access_key_id for key in shown]
        readable = set(allowed_items(caller(request), MANAGEMENT_OPERATIONS["keys.get"], ids))
        listed = ListedKeySerializer(shown, many=True, context={"readable": readable}).data
        return Response({"keys": listed, "next_page_token": token})

    @extend_schema(operation_id="keys.create", request=KeyRequestSerializer, responses={201: NewKeySerializer})
    def post(self, request: Request) -> Response:
        """A new key. Its secrets are in this answer and nowhere else."""
        asked = KeyRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        principal = caller(request)
        policy = None if given["policy"] is None else stored_form(given["policy"])
        if given["scopes"] is not None:
            policy = scoped_text(principal.account_id, given["scopes"], given["queues"])
        spec = keys.KeySpec(given["name"], given["expires_at"], policy, given["tags"])
        return new_key_answer(keys.make_key(principal, principal.account_id, spec))


class KeyView(OperationView):
    tagged = Tagged(frozenset(("last_used_at",)), lambda account_id, path: selectors.lock_key(account_id, **path))

    @extend_schema(operation_id="keys.get", responses=KeySerializer)
    def get(self, request: Request, access_key_id: str) -> Response:
        key = selectors.key_of(caller(request).account_id, access_key_id)
        if key is None:
            raise NotFound
        return Response(KeySerializer(key).data)

    @extend_schema(operation_id="keys.update", request=KeyChangeSerializer, responses=KeySerializer)
    def patch(self, request: Request, access_key_id: str) -> Response:
        """Changes what is given of the key."""
        asked = KeyChangeSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        given, who = asked.validated_data, caller(request)
        with transaction.atomic():
            if "name" in given:
                keys.rename_key(who, who.account_id, access_key_id, given["name"])
            if "active" in given:
                keys.set_key_active(who, who.account_id, access_key_id, given["active"])
            if "restricted" in given:
                keys.set_restricted(who, who.account_id, access_key_id, given["restricted"])
            if "tags" in given:
                keys.set_key_tags(who, who.account_id, access_key_id, given["tags"])
        return self.get(request, access_key_id)

    @extend_schema(operation_id="keys.delete", responses={204: None})
    def delete(self, request: Request, access_key_id: str) -> Response:
        """From now on the key opens nothing."""
        if not actions.delete_key(caller(request), caller(request).account_id, access_key_id):
            raise NotFound
        return Response(status=204)
