"""REST: quotas of one queue, and of one key."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from api.internal.rest import caller
from api.operation_view import OperationView, Tagged
from api.quotas import selectors, single
from api.quotas.selectors import OwnQuotas
from api.quotas.serializers import OwnQuotasSerializer, QueueOwnQuotasSerializer, SetOwnQuotasSerializer

# Follows the quotas of the account.
_IN_FORCE = frozenset(("in_force",))


class QueueQuotasView(OperationView):
    tagged = Tagged(_IN_FORCE | {"sending_stopped", "sends_per_s"})

    @extend_schema(operation_id="queues.get_quotas", responses=QueueOwnQuotasSerializer)
    def get(self, request: Request, name: str) -> Response:
        """The quotas that the queue has of its own, and those that hold for it."""
        account_id = caller(request).account_id
        found, held = selectors.queue_quotas(account_id, name), selectors.queue_sending(account_id, name)
        if found is None:
            raise NotFound
        sending = {
            "sending_stopped": None if held is None else held.sending_stopped or None,
            "sends_per_s": None if held is None else held.sends_per_s or None,
        }
        return Response(QueueOwnQuotasSerializer({**found._asdict(), **sending}).data)

    @extend_schema(operation_id="queues.put_quotas", request=SetOwnQuotasSerializer, responses=QueueOwnQuotasSerializer)
    def put(self, request: Request, name: str) -> Response:
        """The queue's own quotas, in place of those that it had: what is null or left out has none. They only lower
        what the account has."""
        asked = SetOwnQuotasSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        single.set_queue_quotas(who, who.account_id, name, asked.validated_data)
        return self.get(request, name)


class KeyQuotasView(OperationView):
    tagged = Tagged(_IN_FORCE)

    @extend_schema(operation_id="keys.get_quotas", responses=OwnQuotasSerializer)
    def get(self, request: Request, access_key_id: str) -> Response:
        """The quotas that the key has of its own, and those that hold for it."""
        return _shown(selectors.key_quotas(caller(request).account_id, access_key_id))

    @extend_schema(operation_id="keys.put_quotas", request=SetOwnQuotasSerializer, responses=OwnQuotasSerializer)
    def put(self, request: Request, access_key_id: str) -> Response:
        """The key's own quotas, in place of those that it had: what is null or left out has none. They only lower what
        the account has, and go over to the key that takes its place in a rotation."""
        asked = SetOwnQuotasSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        single.set_key_quotas(who, who.account_id, access_key_id, asked.validated_data)
        return self.get(request, access_key_id)


def _shown(found: OwnQuotas | None) -> Response:
    if found is None:
        raise NotFound
    return Response(OwnQuotasSerializer(found).data)
