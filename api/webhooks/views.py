"""REST: webhooks of the account that asks."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from api.internal.rest import caller
from api.operation_view import OperationView, Tagged
from api.webhooks import actions, selectors
from api.webhooks.actions import WebhookError, no_such_webhook
from api.webhooks.models import Webhook
from api.webhooks.serializers import (
    WebhookDeliveriesSerializer,
    WebhookDeliverySerializer,
    WebhookRequestSerializer,
    WebhookRotationSerializer,
    WebhookSerializer,
    WebhooksSerializer,
    WebhookWithSecretSerializer,
)


class _RefusedWebhook(APIException):
    """A WebhookError in the form that `api/problems.py` writes."""

    def __init__(self, error: WebhookError) -> None:
        super().__init__(error.detail)
        self.status_code = error.status
        self.default_code = error.code


class CallingView(OperationView):
    def handle_exception(self, exc: Exception) -> Response:
        return super().handle_exception(_RefusedWebhook(exc) if isinstance(exc, WebhookError) else exc)


class WebhooksView(CallingView):
    @extend_schema(operation_id="webhooks.list", responses=WebhooksSerializer)
    def get(self, request: Request) -> Response:
        """The account's webhooks, which alarms name."""
        return Response(WebhooksSerializer({"webhooks": selectors.webhooks_of(caller(request).account_id)}).data)


class WebhookView(CallingView):
    tagged = Tagged(lock=lambda account_id, path: selectors.lock_webhook(account_id, **path), creates=True)

    @extend_schema(operation_id="webhooks.get", responses=WebhookSerializer)
    def get(self, request: Request, name: str) -> Response:
        return Response(WebhookSerializer(_there(request, name)).data)

    @extend_schema(
        operation_id="webhooks.put",
        request=WebhookRequestSerializer,
        responses={200: WebhookWithSecretSerializer, 201: WebhookWithSecretSerializer},
    )
    def put(self, request: Request, name: str) -> Response:
        """Creates a webhook, and shows its secret, or changes the URL of one that is there."""
        asked = WebhookRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        made = actions.put_webhook(who, who.account_id, name, asked.validated_data["url"])
        return Response(_with_secret(made), status=201 if made.secret else 200)

    @extend_schema(operation_id="webhooks.delete", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Deletes a webhook that no alarm names, with what waits for it."""
        who = caller(request)
        actions.delete_webhook(who, who.account_id, name)
        return Response(status=204)


class WebhookRotationView(CallingView):
    @extend_schema(
        operation_id="webhooks.rotate", request=WebhookRotationSerializer, responses=WebhookWithSecretSerializer
    )
    def post(self, request: Request, name: str) -> Response:
        """Creates a new secret, which this answer shows. The old one signs beside it for the grace."""
        asked = WebhookRotationSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        grace_s = asked.validated_data["grace_seconds"]
        return Response(_with_secret(actions.rotate_webhook(who, who.account_id, name, grace_s)))


class WebhookTestView(CallingView):
    @extend_schema(operation_id="webhooks.test", request=None, responses={202: WebhookDeliverySerializer})
    def post(self, request: Request, name: str) -> Response:
        """A worker calls the webhook once, within seconds; its deliveries tell the outcome."""
        who = caller(request)
        delivery = actions.check_webhook(who, who.account_id, name)
        return Response(WebhookDeliverySerializer(delivery).data, status=202)


class WebhookDeliveriesView(CallingView):
    @extend_schema(operation_id="webhooks.deliveries", responses=WebhookDeliveriesSerializer)
    def get(self, request: Request, name: str) -> Response:
        """What was delivered, waits, or failed, the latest first."""
        _there(request, name)
        found = selectors.deliveries_of(caller(request).account_id, name)
        return Response(WebhookDeliveriesSerializer({"deliveries": found}).data)


def _there(request: Request, name: str) -> Webhook:
    found = selectors.webhook_of(caller(request).account_id, name)
    if found is None:
        raise no_such_webhook()
    return found


def _with_secret(made: actions.PutWebhook) -> Any:
    shown = {**WebhookSerializer(made.webhook).data, "shown_url": made.webhook.shown_url, "secret": made.secret}
    return WebhookWithSecretSerializer(shown).data
